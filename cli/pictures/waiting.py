"""What a model service does not say while a request waits: whether its model is being loaded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from cli.dial import Dialled
from cli.load import Tell, leaving_for
from cli.sight import statuses
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb


def stage(status: pb.Status, model: str) -> str:
    """What a request for the model waits for, e.g. "loading the model"."""
    if names := leaving_for(status, model):
        return f"making room: {', '.join(names)} to leave"
    for one in status.models:
        if one.model_key == model and one.state == models_pb2.MODEL_STATE_LOADING:
            return "loading the model"
    return "waiting for its turn"


@asynccontextmanager
async def waiting(house: Dialled, model: str, tell: Tell) -> AsyncIterator[asyncio.Event]:
    """Tells what happens to `model` until the event is set, or the block ends."""
    begun = asyncio.Event()

    async def follow() -> None:
        async with aclosing(statuses(house)) as seen:
            async for status in seen:
                if begun.is_set():
                    return
                if isinstance(status, pb.Status):
                    tell(stage(status, model), 0.0)

    follower = asyncio.create_task(follow())
    try:
        yield begun
    finally:
        follower.cancel()
        with suppress(asyncio.CancelledError):
            await follower
