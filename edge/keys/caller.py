"""Who a request is from, for the routes: whose its work is, how urgent, and which models.

In open mode, without a file of keys, callers cannot be told apart: all may ask for every model, and
share by the names that they give themselves. With keys the key says it all, and a name that its
holder claims in a header is passed over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import Scope

from chassis.errors import Fault, Reason
from edge import fairness
from edge.tier import TIERS

if TYPE_CHECKING:
    from cohabit.common.v1 import common_pb2
    from cohabit.models.v1 import models_pb2
    from edge.keys.entry import Key

_IN_SCOPE = "cohabit.caller"
_MODEL = {"param": "model"}


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller."""

    name: str = ""
    """Of the API key; empty: callers are not told apart."""
    fairness_key: str | None = None
    """None: the request names its own."""
    ceiling: "common_pb2.Tier.ValueType | None" = None
    """Highest tier; None: that of callers without a key."""
    models: frozenset[str] | None = None
    """What it may ask for; None: everything."""

    def may_ask(self, name: str, behind: "Iterable[models_pb2.Model]") -> bool:
        """Whether `name`, behind which these models stand, is for this caller.

        A family is when it is named, or when each of the twins is: any of them may serve.
        """
        if self.models is None or name in self.models:
            return True
        twins = list(behind)
        return bool(twins) and all(
            twin.key in self.models or (twin.family != "" and twin.family in self.models)
            for twin in twins
        )

    def check_model(self, name: str, behind: "Iterable[models_pb2.Model]") -> None:
        """Raises Fault. The answer is the same for a model that is not there."""
        if not self.may_ask(name, behind):
            message = (
                f"This API key may not ask for the model `{name}`; GET /v1/models lists those "
                "that it may."
            )
            raise Fault(Reason.MODEL_NOT_ALLOWED, message, metadata=_MODEL)


OPEN = Caller()
"""Everybody, in open mode."""
NOBODY = Caller(fairness_key="", models=frozenset())
"""Of a route that needs no key, in a house with keys."""


def caller_with(key: "Key") -> Caller:
    """The holder of a key."""
    ceiling = None if key.tier is None else TIERS[key.tier]
    return Caller(key.name, key.fairness_key, ceiling, key.models)


def tell(scope: Scope, caller: Caller) -> None:
    """Note who a request is from, for all that serve it."""
    scope[_IN_SCOPE] = caller


def name_of(scope: Scope) -> str:
    """The name of a request's API key; empty in open mode, and for one that was refused."""
    caller = scope.get(_IN_SCOPE)
    return caller.name if isinstance(caller, Caller) else ""


def caller_of(scope: Scope) -> Caller:
    """Who a request is from. KeyError for one that has not come through the gate."""
    caller = scope[_IN_SCOPE]
    assert isinstance(caller, Caller)  # noqa: S101 - `tell` alone writes it
    return caller


def fairness_key_of(request: Request) -> str:
    """Among whom its work shares; empty: none. Raises Fault for a name that is none."""
    claimed = caller_of(request.scope).fairness_key
    return fairness.key_of(request.headers) if claimed is None else claimed


def owner_of(request: Request) -> str:
    """Whose what it makes is; empty: everybody's. Raises Fault for a name that is none."""
    return caller_of(request.scope).name or fairness_key_of(request)
