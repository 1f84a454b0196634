"""The answers of `cohabit status` as aligned tables, for people."""

import time
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.answers import Answers
from cli.console import printable
from cli.memory import device_table, lease_table
from cli.page import or_none, print_page, problems, table_of
from cli.words import STATE_STYLES, flat, mib, state_name, tier_name


def show(answers: Answers) -> None:
    """Print everything that is known; colour on a terminal alone."""
    if answers.nothing_runs:
        print("Nothing runs here; start it with `cohabit up`.")
        return
    print_page(sections(answers))


def sections(answers: Answers) -> list[RenderableType]:
    """The page, section by section."""
    tables = (
        _services(answers),
        _permits(answers),
        _tiers(answers),
        _models(answers),
        None if answers.devices is None else device_table(answers.devices),
        None if answers.leases is None else lease_table(answers.leases, time.time() * 1000),
    )
    shown = [or_none(table) for table in tables if table is not None]
    silent = problems(map(printable, answers.silent))
    return [*shown, silent] if silent else shown


def _services(answers: Answers) -> Table:
    table = table_of("Services", "service", "health", "address")
    for health in answers.services:
        state = Text("serving", "green") if health.serving else Text(health.detail, "red")
        table.add_row(health.name, state, Text(health.address))
    return table


def _permits(answers: Answers) -> Table | None:
    state = answers.scheduler
    if state is None:
        return None
    total = f"{state.permits_in_use} of {state.permits_total} permits in use"
    table = table_of(total, "lane", "#cost", "#running", "#waiting", "held")
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
    table = table_of("Queues", "tier", "#waiting", "#limit", "#oldest")
    for tier in sorted(answers.scheduler.tiers, key=lambda tier: -tier.tier):
        oldest = f"{tier.oldest_wait_ms / 1000:.1f} s" if tier.waiting else ""
        table.add_row(tier_name(tier.tier), str(tier.waiting), str(tier.queue_limit), oldest)
    return table


def _models(answers: Answers) -> Table | None:
    if answers.models is None:
        return None
    table = table_of("Models", "model", "state", "lane", "device", "#needs", "#uses", "#instances")
    for model in answers.models:
        used = sum(instance.materialised_mib for instance in model.instances)
        table.add_row(
            Text(model.key),
            _state(model),
            model.lane,
            model.footprint.device,
            mib(model.footprint.resident_mib),
            mib(used) if model.instances else "",
            f"{len(model.instances)} of {model.max_instances}",
        )
    return table


def _state(model: Any) -> Text:
    word = state_name(model.state)
    said = word
    if word == "loading" and model.instances:
        said += f" {max(i.load_progress for i in model.instances):.0%}"
    elif word == "failed":
        said += f": {flat(model.failure.message or model.failure.reason)}"
    return Text(said, STATE_STYLES.get(word, ""))
