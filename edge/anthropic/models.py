"""GET /v1/models in Anthropic's shape: every name that can be asked for, page by page. Pure.

Models are in the order of their names, so a cursor is a place in that order; it holds even when
the model of that name is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec
from starlette.datastructures import QueryParams

from cohabit.models.v1 import models_pb2
from edge.errors import bad_field

USUAL_LIMIT = 20
MOST_LIMIT = 1000
_STAGES = ("lifecycle", "lifecycle[]")
_ACTIVE = "active"


class ModelInfo(msgspec.Struct, kw_only=True, tag_field="type", tag="model"):
    """A model."""

    id: str
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None = None


class ModelPage(msgspec.Struct):
    """Some of the models."""

    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None


@dataclass(frozen=True, slots=True)
class PageWish:
    """Which page: the first, or one next to a cursor."""

    limit: int = USUAL_LIMIT
    after_id: str | None = None
    before_id: str | None = None
    active: bool = True
    """False: only stages of life are asked for that no model here is in."""


def page_wish(query: QueryParams) -> PageWish:
    """What the query asks for. Raises Fault, its `param` the one at fault."""
    after_id, before_id = query.get("after_id"), query.get("before_id")
    if after_id is not None and before_id is not None:
        raise bad_field("before_id", "Send `after_id` or `before_id`, not both.")
    stages = [stage for name in _STAGES for stage in query.getlist(name)]
    active = not stages or _ACTIVE in stages
    return PageWish(_limit(query.get("limit")), after_id, before_id, active)


def page(named: Mapping[str, Sequence[models_pb2.Model]], wish: PageWish) -> ModelPage:
    """The page of all models that is wished for."""
    names = sorted(named) if wish.active else []
    if wish.before_id is not None:
        there = [name for name in names if name < wish.before_id]
        shown = there[-wish.limit :]
    else:
        there = [name for name in names if wish.after_id is None or name > wish.after_id]
        shown = there[: wish.limit]
    return ModelPage(
        [info(name, named[name]) for name in shown],
        has_more=len(there) > len(shown),
        first_id=shown[0] if shown else None,
        last_id=shown[-1] if shown else None,
    )


def info(name: str, behind: Sequence[models_pb2.Model]) -> ModelInfo:
    """One model, or a family of twins."""
    created_s = max(model.created_unix_ms for model in behind) // 1000
    widest = max(model.capabilities.context_tokens for model in behind)
    return ModelInfo(
        id=name,
        display_name=name,
        created_at=datetime.fromtimestamp(created_s, UTC),
        max_input_tokens=widest or None,
    )


def _limit(said: str | None) -> int:
    if said is None:
        return USUAL_LIMIT
    if said.isascii() and said.isdecimal() and len(said) <= len(str(MOST_LIMIT)):
        limit = int(said)
        if 1 <= limit <= MOST_LIMIT:
            return limit
    raise bad_field("limit", f"`limit` must be a number from 1 to {MOST_LIMIT}.")
