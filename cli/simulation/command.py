"""`cohabit simulate CONFIG TRACE` and `cohabit trace synth KIND`."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chassis.config import ConfigError, fail
from cli.console import Refused, note
from cli.simulation.kinds import Kind, Rival

if TYPE_CHECKING:
    from cli.simulation.figures import Figures
    from cli.simulation.record import Record
    from cli.simulation.setup import Setup
    from cli.simulation.trace import Line

# The cores and their configuration are imported by the commands that need them: `cohabit --help`
# does not.

_LONG_TRACE = 5_000
"""From so many requests on a bar shows how far the replay is."""

trace_app = typer.Typer(no_args_is_help=True, help="Make traces for `cohabit simulate`.")


def simulate(
    config_path: Annotated[Path, typer.Argument(metavar="CONFIG", help="A cohabit.yaml.")],
    trace_path: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Requests, a JSON object a line.")
    ],
    compare: Annotated[
        Rival | None,
        typer.Option(help="Replay the same trace first come, first served, beside it."),
    ] = None,
    picture_path: Annotated[
        Path | None,
        typer.Option("--picture", help="Draw who lived on the card when, as an SVG file."),
    ] = None,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Replay a trace with the real scheduler and ledger on a virtual clock; no card, no waiting."""
    from cli.page import print_page  # noqa: PLC0415
    from cli.simulation import report, trace  # noqa: PLC0415

    if picture_path is not None and picture_path.suffix.lower() != ".svg":
        raise Refused(f"The picture is an SVG; name it {picture_path.with_suffix('.svg')}.")
    setup = _setup(config_path)
    lines = trace.read(trace_path, setup.names())
    figures, record = _replayed("cohabit", setup, lines)
    replays = [figures]
    if compare is not None:
        replays.append(_replayed(compare.value, setup, lines)[0])
    if picture_path is not None:
        _draw(picture_path, f"{config_path.name}, {trace_path.name}", setup, record)
    if json_wanted:
        print(report.as_json(replays))
    else:
        print_page(report.sections(replays))
    if figures.out_of_memory:
        raise typer.Exit(1)


@trace_app.command("synth")
def synth(
    kind: Annotated[Kind, typer.Argument(help="How requests arrive.")],
    *,
    config_path: Annotated[
        Path | None, typer.Option("--config", help="The cohabit.yaml whose models are asked for.")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, max=1_000_000)] = 10_000,
    hours: Annotated[float, typer.Option(min=0.001, max=8_760)] = 24.0,
    keys: Annotated[int, typer.Option(min=1, max=10_000, help="Clients that ask.")] = 40,
    skew: Annotated[
        float, typer.Option(min=0, max=4, help="Exponent of Zipf's law over models; 0: all alike.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same trace.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; default stdout.")
    ] = None,
) -> None:
    """Write a trace: models and keys by Zipf's law, tiers mixed."""
    from cli.simulation import synth as maker  # noqa: PLC0415
    from cli.simulation import trace  # noqa: PLC0415

    setup = _setup(config_path)
    wish = maker.Wish(requests, hours, seed, keys, skew)
    text = trace.dump(maker.trace(kind, setup, wish))
    if output is None:
        sys.stdout.write(text.decode())
    else:
        _write(output, text)
        note(f"{output}: {requests:,} requests over {hours:g} h")


def _setup(path: Path | None) -> "Setup":
    from cli.simulation.configured import setup_of  # noqa: PLC0415

    try:
        return setup_of(path)
    except ConfigError as error:
        fail(error)


def _replayed(policy: str, setup: "Setup", lines: Sequence["Line"]) -> tuple["Figures", "Record"]:
    """Replay under the named policy."""
    from cli.simulation.fifo import Fifo  # noqa: PLC0415
    from cli.simulation.figures import figures  # noqa: PLC0415
    from cli.simulation.world import World  # noqa: PLC0415
    from services.scheduler.core.scheduler import SchedulerCore  # noqa: PLC0415

    rival = policy == Rival.FIFO.value
    world = World(setup, Fifo(setup.settings) if rival else SchedulerCore(setup.settings))
    began = time.perf_counter()
    with _progress(policy, len(lines)) as tell:
        record = world.replay(lines, tell)
    return figures(policy, setup, record, time.perf_counter() - began), record


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    if total < _LONG_TRACE or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.update(task, completed=count)


def _draw(path: Path, title: str, setup: "Setup", record: "Record") -> None:
    from cli.simulation.picture import draw  # noqa: PLC0415

    _write(path, draw(title, setup, record).encode())
    note(f"{path}: who lived on the card when")


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.") from None
