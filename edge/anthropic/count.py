"""POST /v1/messages/count_tokens: how long a prompt is for a model, loaded or not.

The model's service counts, with the vocabulary alone. Nobody is asked for a permit; the entrance
bounds what is asked at once, as for every route to a model.
"""

from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import in_passing
from edge.anthropic.request import parse_count
from edge.catalog import Catalog
from edge.disconnect import while_connected
from edge.entrance import Entrance
from edge.keys.caller import Caller
from edge.measure import Measure, check_answers, widest_of
from edge.roster import Roster

_encode = msgspec.json.Encoder().encode


class TokenCount(msgspec.Struct):
    """The length of a prompt."""

    input_tokens: int


@dataclass(frozen=True, slots=True)
class CountEndpoint:
    """The ASGI application of the route."""

    entrance: Entrance
    roster: Roster
    catalog: Catalog
    measure: Measure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault."""
        request = Request(scope, receive)
        with self.entrance.enter(request) as guest:
            raw = await guest.room.read(request)
            asked = await in_passing(len(raw), lambda: parse_count(raw))
            tokens = await while_connected(receive, self._count(asked, guest.caller))
            answer = Response(_encode(TokenCount(tokens)), media_type="application/json")
            await answer(scope, receive, send)

    async def _count(self, asked: pb.CountTokensRequest, caller: Caller) -> int:
        name = asked.model
        known = await self.roster.behind(name, caller)
        behind = known or await self.catalog.behind(name, caller)
        check_answers(behind)
        return await self.measure.tokens(widest_of(behind), asked)
