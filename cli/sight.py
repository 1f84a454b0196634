"""What was last seen of the card and the models on it, and how it is seen: once, or ever anew."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import grpc

from cli.answers import plain
from cli.console import Refused
from cli.dial import TIMEOUT_S, Dialled, answered, heard, sentence
from cli.leases import Ledger, ledger
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_SILENCE_S = 25.0
"""Of WatchStatus, which says something every 10 s at least."""
_POLL_S = 1.0
"""Between questions where nothing is streamed."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One look; `ledger` is None where the broker did not answer. `troubles`: a sentence a peer."""

    status: pb.Status
    ledger: Ledger | None = None
    troubles: Mapping[str, str] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """What keeps this from being the whole truth."""
        said = [f"No answer from {name}." for name in self.status.unreachable_workers]
        if not self.status.reconciled:
            said.append("The scheduler has just started: not every model service has reported yet.")
        return [*self.troubles.values(), *said]


async def look(house: Dialled) -> Sight:
    """Ask once. Raises Refused when the scheduler does not answer."""
    answer, said = await asyncio.gather(status_of(house), _ledger_or_why(house))
    if isinstance(said, Ledger):
        return Sight(answer, said)
    return Sight(answer, None, {"broker": said})


async def status_of(house: Dialled) -> pb.Status:
    """The scheduler's status now. Raises Refused."""
    with answered("scheduler"):
        answer = await house.scheduler.GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT_S)
    return answer.status


async def _ledger_or_why(house: Dialled) -> Ledger | str:
    try:
        return await ledger(house)
    except Refused as refusal:
        return str(refusal)


async def statuses(house: Dialled) -> AsyncGenerator[pb.Status | str, None]:
    """The scheduler's status whenever it changes, for ever; a sentence where it fell silent."""
    while True:
        try:
            watched = heard(house.scheduler.WatchStatus(pb.WatchStatusRequest()), _SILENCE_S)
            async with aclosing(watched):
                async for answer in watched:
                    yield answer.status
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                yield sentence(error, "scheduler")
            else:  # it can be asked all the same
                yield await _asked(house)
        except TimeoutError as error:
            yield sentence(error, "scheduler")
        await asyncio.sleep(_POLL_S)


async def _asked(house: Dialled) -> pb.Status | str:
    try:
        return await status_of(house)
    except Refused as refusal:
        return str(refusal)


async def ledgers(house: Dialled) -> AsyncGenerator[Ledger | str, None]:
    """What the broker says, again and again; a sentence where it does not answer."""
    while True:
        yield await _ledger_or_why(house)
        await asyncio.sleep(_POLL_S)


def as_json(sight: Sight) -> str:
    """Everything, for scripts; null where the broker did not answer."""
    known = sight.ledger
    return json.dumps(
        {
            "models": [plain(model) for model in sight.status.models],
            "keys": [plain(key) for key in sight.status.keys],
            "holds": [plain(hold) for hold in sight.status.holds],
            "permits_total": sight.status.permits_total,
            "permits_in_use": sight.status.permits_in_use,
            "devices": None if known is None else [plain(device) for device in known.devices],
            "leases": None if known is None else [plain(lease) for lease in known.leases],
            "problems": sight.sentences,
        },
        indent=2,
    )
