"""The answers of `cohabit status` as aligned tables, for people."""

import re
import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.answers import Answers
from cli.console import printable
from cohabit.broker.v1 import broker_pb2
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2

_STYLES = {"READY": "green", "FAILED": "red", "LOADING": "yellow", "DRAINING": "yellow"}
_NARROWEST = 100
"""Columns of the page where there is no terminal to ask."""
_FILL = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
"""Spaces at the end of a line, and the colours that end with them."""


def show(answers: Answers) -> None:
    """Print everything that is known; colour on a terminal alone."""
    if answers.nothing_runs:
        print("Nothing runs here; start it with `cohabit up`.")
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, _NARROWEST))
    print("\n\n".join(_rendered(console, section) for section in _sections(answers)))


def _sections(answers: Answers) -> list[RenderableType]:
    tables = (
        _services(answers),
        _permits(answers),
        _tiers(answers),
        _models(answers),
        _devices(answers),
        _leases(answers),
    )
    shown = [_or_none(table) for table in tables if table is not None]
    problems = Text("\n".join(map(printable, answers.silent)), "red")
    return [*shown, problems] if problems else shown


def _or_none(table: Table) -> RenderableType:
    """A table without rows would be a heading over nothing, which could mean anything."""
    if table.row_count or table.title is None:
        return table
    return Group(Text(str(table.title), "bold"), "none")


def _rendered(console: Console, section: RenderableType) -> str:
    """The section as text; rich fills its lines up with spaces, which are taken off again."""
    with console.capture() as capture:
        console.print(section)
    return _FILL.sub(r"\1", capture.get()).rstrip("\n")


def _services(answers: Answers) -> Table:
    table = _table("Services", "service", "health", "address")
    for health in answers.services:
        state = Text("serving", "green") if health.serving else Text(health.detail, "red")
        table.add_row(health.name, state, Text(health.address))
    return table


def _permits(answers: Answers) -> Table | None:
    state = answers.scheduler
    if state is None:
        return None
    total = f"{state.permits_in_use} of {state.permits_total} permits in use"
    table = _table(total, "lane", "#cost", "#running", "#waiting", "held")
    for lane in state.lanes:
        held = "held" if lane.held else ""
        table.add_row(Text(lane.lane), str(lane.cost), str(lane.running), str(lane.waiting), held)
    if not state.reconciled:
        table.caption = "not every model service has reported yet"
    elif state.unreachable_workers:
        table.caption = f"no answer from {', '.join(state.unreachable_workers)}"
    return table


def _tiers(answers: Answers) -> Table | None:
    if answers.scheduler is None:
        return None
    table = _table("Queues", "tier", "#waiting", "#limit", "#oldest")
    for tier in sorted(answers.scheduler.tiers, key=lambda tier: -tier.tier):
        oldest = f"{tier.oldest_wait_ms / 1000:.1f} s" if tier.waiting else ""
        table.add_row(_tier(tier.tier), str(tier.waiting), str(tier.queue_limit), oldest)
    return table


def _models(answers: Answers) -> Table | None:
    if answers.models is None:
        return None
    table = _table("Models", "model", "state", "lane", "device", "#needs", "#uses", "#instances")
    for model in answers.models:
        used = sum(instance.materialised_mib for instance in model.instances)
        table.add_row(
            Text(model.key),
            _state(model),
            model.lane,
            model.footprint.device,
            _mib(model.footprint.resident_mib),
            _mib(used) if model.instances else "",
            f"{len(model.instances)} of {model.max_instances}",
        )
    return table


def _state(model: Any) -> Text:
    word = models_pb2.ModelState.Name(model.state).removeprefix("MODEL_STATE_")
    said = word.lower()
    if word == "LOADING" and model.instances:
        said += f" {max(i.load_progress for i in model.instances):.0%}"
    elif word == "FAILED":
        said += f": {printable(model.failure.message or model.failure.reason)}"
    return Text(said, _STYLES.get(word, ""))


def _devices(answers: Answers) -> Table | None:
    if answers.devices is None:
        return None
    table = _table("Devices", "device", "is", "#total", "#free", "#leased", "#floor", "#foreign")
    for device in answers.devices:
        what = Text(printable(device.description))
        if not device.reachable:
            what.append(" (the driver does not answer)", "red")
        figures = (
            device.total_mib,
            device.free_mib,
            device.leased_mib,
            device.floor_mib,
            device.foreign_mib,
        )
        table.add_row(device.device, what, *map(_mib, figures))
    return table


def _leases(answers: Answers) -> Table | None:
    if answers.leases is None:
        return None
    table = _table("Leases", "holder", "device", "kind", "tier", "#granted", "#in use", "#expires")
    now_ms = time.time() * 1000
    for lease in answers.leases:
        kind = broker_pb2.LeaseKind.Name(lease.kind).removeprefix("LEASE_KIND_").lower()
        left_s = max(0.0, (lease.expires_unix_ms - now_ms) / 1000)
        table.add_row(
            Text(lease.holder),
            lease.device,
            kind,
            _tier(lease.tier),
            _mib(lease.granted_mib),
            _mib(lease.materialised_mib),
            f"in {left_s:.0f} s",
        )
    return table


def _table(title: str, *columns: str) -> Table:
    """A borderless table; a column named "#x" is "x" set to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        name = column.removeprefix("#")
        table.add_column(name, justify="left" if name == column else "right", header_style="dim")
    return table


def _tier(tier: int) -> str:
    known = common_pb2.Tier.DESCRIPTOR.values_by_number.get(tier)
    return known.name.removeprefix("TIER_").lower() if known else str(tier)


def _mib(count: int) -> str:
    return f"{count:,} MiB"
