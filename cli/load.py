"""`cohabit load MODEL`: have a model on the card, whoever has to leave for it.

A bar on a terminal, one line when it is done elsewhere. Ctrl-C ends the wait; a load that has begun
goes on.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.console import Refused, note
from cli.dial import INTERRUPTED, ConfigOption, Dialled, heard, with_house
from cli.known import NameArgument, TierName, TierOption, asked_for, models_of, tier_number
from cli.settings import SetOption, override, settings_of
from cli.sight import statuses
from cli.words import flat
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_SILENCE_S = 60.0
"""Of a load; the scheduler says every few seconds how things stand."""

Tell = Callable[[str, float], None]
"""Told what happens, and how far the load is (0 to 1)."""


def stage(said: pb.LoadModelResponse, leaving: Iterable[str]) -> str:
    """What happens now, in words; `leaving`: the models that make room."""
    if said.state == models_pb2.MODEL_STATE_LOADING:
        return f"loading {said.progress:.0%}"
    names = ", ".join(leaving)
    return f"making room: {names} to leave" if names else "queued"


def leaving_for(status: pb.Status, model: str) -> list[str]:
    """Who makes room for `model`, which may be a family."""
    ours = {model, *(one.model_key for one in status.models if one.family == model)}
    here = [one for one in status.models if one.state != models_pb2.MODEL_STATE_COLD]
    return [flat(one.model_key) for one in here if one.leaving_for in ours]


def named(model: str, there_are: Iterable[models_pb2.Model]) -> str:
    """The model's name; a family's with those of its models that are READY."""
    twins = [one for one in there_are if one.family == model]
    ready = [flat(one.key) for one in twins if one.state == models_pb2.MODEL_STATE_READY]
    return f"{model} ({', '.join(ready)})" if ready else model


class _Load:
    """One load as it is told: by its own stream, and by what the others do meanwhile."""

    def __init__(self, house: Dialled, model: str, tell: Tell) -> None:
        self._house = house
        self._model = model
        self._tell = tell
        self._said = pb.LoadModelResponse()
        self._leaving: list[str] = []

    async def run(self, tier: TierName | None) -> str:
        """Until the model is READY; its name, and for a family which it is. Raises Refused."""
        asked = pb.LoadModelRequest(model=self._model, tier=tier_number(tier))
        async with (
            asked_for(self._house, self._model),
            self._neighbours(),
            aclosing(heard(self._house.scheduler.LoadModel(asked), _SILENCE_S)) as answers,
        ):
            async for self._said in answers:
                if self._said.state == models_pb2.MODEL_STATE_READY:
                    return named(self._model, await models_of(self._house))
                self._show()
        raise Refused(
            f"The load of {self._model} ended before it was ready; "
            "see what became of it with `cohabit models`."
        )

    @asynccontextmanager
    async def _neighbours(self) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher

    async def _watch(self) -> None:
        async with aclosing(statuses(self._house)) as seen:
            async for status in seen:
                if isinstance(status, pb.Status):
                    self._leaving = leaving_for(status, self._model)
                    self._show()

    def _show(self) -> None:
        self._tell(stage(self._said, self._leaving), self._said.progress)


@contextmanager
def told(model: str) -> Iterator[Tell]:
    """A bar that goes away at the end, on a terminal; silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _words, _done: None
        return
    name = TextColumn("{task.fields[model]}", markup=False)
    words = TextColumn("{task.description}", markup=False)
    with Progress(
        name, BarColumn(), words, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("queued", total=1.0, model=model)
        yield lambda said, done: bar.update(task, description=said, completed=done)


def command(
    model: NameArgument,
    tier: TierOption = None,
    set_: SetOption = None,
    config_path: ConfigOption = None,
) -> None:
    """Load a model; others that are idle may leave for it (`cohabit plan` says which).

    Ctrl-C ends the wait; a load that has begun goes on.
    """
    began, settings = time.monotonic(), settings_of(set_ or ())

    async def work(house: Dialled) -> str:
        if settings:
            await override(house, model, settings)
        return await _Load(house, model, tell).run(tier)

    try:
        with told(model) as tell:
            ready = with_house(config_path, work)
    except KeyboardInterrupt:
        note(f"Gave up waiting for {model}; a load that has begun goes on.")
        raise typer.Exit(INTERRUPTED) from None
    print(f"{ready} is ready after {time.monotonic() - began:.1f} s.")
