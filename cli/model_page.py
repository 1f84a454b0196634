"""The page of `cohabit models`: the card, the models, what went wrong."""

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.card import Card
from cli.model_table import failures, in_order, model_table
from cli.page import problems
from cli.sight import Sight
from cli.words import counted
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_LEAST_ROWS = 3


def sections(
    sight: Sight, now_ms: float, width: int, most_rows: int | None = None
) -> list[RenderableType]:
    """The page: the card, the models (at most `most_rows`), what went wrong."""
    models = in_order(sight.status.models)
    shown = models[:most_rows]
    page: list[RenderableType] = [*_cards(sight), _summary(sight.status)]
    if not models:
        page.append(Text("The house has no model; add one to its configuration."))
    else:
        page.append(model_table(shown, now_ms, width))
    if len(shown) < len(models):
        page.append(Text(f"and {counted(len(models) - len(shown), 'more model')}", "dim"))
    troubles = [*sight.sentences, *failures(models, now_ms)]
    return [*page, problems(troubles)] if troubles else page


def _cards(sight: Sight) -> list[Card]:
    known = sight.ledger
    return [] if known is None else [Card(device, known.leases) for device in known.devices]


def _summary(status: pb.Status) -> Text:
    waiting = sum(tier.waiting for tier in status.tiers)
    waits = f"{counted(waiting, 'request')} waiting" if waiting else "nothing waits"
    return Text(f"{status.permits_in_use} of {status.permits_total} permits in use, {waits}")


def fitted(console: Console, sight: Sight, now_ms: float) -> RenderableType:
    """The page cut to the terminal's height: rows of models give way, the card does not."""
    page = _spaced(sections(sight, now_ms, console.width))
    over = len(console.render_lines(page, pad=False)) - console.height
    if over <= 0:
        return page
    rows = len(sight.status.models) - over - 2  # the line that says how many more, and its space
    return _spaced(sections(sight, now_ms, console.width, max(_LEAST_ROWS, rows)))


def _spaced(parts: list[RenderableType]) -> Group:
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, ""]
    return Group(*spaced[:-1])
