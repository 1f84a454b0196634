"""`cohabit plan MODEL`: who would leave for a model, in which order, and why. Changes nothing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.answers import plain
from cli.console import Refused, printable
from cli.dial import TIMEOUT_S, ConfigOption, Dialled, JsonOption, with_house
from cli.known import (
    NameArgument,
    TierName,
    TierOption,
    asked_for,
    models_of,
    not_found,
    tier_number,
)
from cli.page import page_console, print_page, table_of
from cli.words import counted, flat, mib
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_NARROWEST = 120
"""Columns of the page where there is no terminal to ask: what was weighed is a table."""
_HERE = {
    models_pb2.MODEL_STATE_READY: "is on the card already, and nothing has to leave.",
    models_pb2.MODEL_STATE_LOADING: "is being loaded, and nothing more has to leave.",
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One model, and what would come of loading it."""

    model: models_pb2.Model
    plan: pb.PlanResidencyResponse

    @property
    def settled(self) -> str:
        """That it has all the instances it may have, in words; empty: one could be loaded."""
        full = len(self.model.instances) >= max(1, self.model.max_instances)
        return _HERE.get(self.model.state, "") if full else ""

    @property
    def feasible(self) -> bool:
        """Whether requests for it can be served."""
        return self.plan.feasible or bool(self.settled)


async def _planned(house: Dialled, name: str, tier: TierName | None) -> list[Planned]:
    """For the model of that key, or for each of that family, the smallest first. Raises Refused."""
    there_are = await models_of(house)
    meant = [one for one in there_are if one.key == name]
    meant = meant or [one for one in there_are if one.family == name]
    if not meant:
        raise Refused(not_found(name, there_are))
    meant.sort(key=lambda one: (one.footprint.resident_mib, one.key))
    asked = [pb.PlanResidencyRequest(model=one.key, tier=tier_number(tier)) for one in meant]
    async with asked_for(house, name):
        plans = [await house.scheduler.PlanResidency(one, timeout=TIMEOUT_S) for one in asked]
    return [Planned(model, plan) for model, plan in zip(meant, plans, strict=True)]


def page(name: str, planned: Sequence[Planned]) -> list[RenderableType]:
    """What is said of a model, or of a family's models in turn."""
    said: list[RenderableType] = []
    if any(one.model.key != name for one in planned):
        said.append(
            Text(
                f"{name} is a family: a chat goes to the smallest of its models that holds it, or "
                "to a larger one that is on the card already."
            )
        )
    for one in planned:
        key = flat(one.model.key)
        said += [Text(f"{key} {one.settled}")] if one.settled else sections(key, one.plan)
    return said


def sections(model: str, plan: pb.PlanResidencyResponse) -> list[RenderableType]:
    """Of one model: what comes of it, who leaves, what was weighed."""
    page: list[RenderableType] = [_verdict(model, plan)]
    if plan.evictions:
        page.append(_evictions(plan))
    if plan.explanation:
        page.append(Text(printable(plan.explanation)))
    return page


def as_json(name: str, planned: Sequence[Planned]) -> str:
    """For scripts: an object for a model, a list of them for a family."""
    said = [
        {"model": one.model.key, "state": plain(one.model)["state"], **plain(one.plan)}
        for one in planned
    ]
    if [one.model.key for one in planned] == [name]:
        return json.dumps(said[0], indent=2)
    return json.dumps({"family": name, "models": said}, indent=2)


def _verdict(model: str, plan: pb.PlanResidencyResponse) -> Text:
    figures = f"{mib(plan.needed_mib)} needed, {mib(plan.headroom_mib)} to be had now."
    if not plan.feasible:
        return Text(f"{model} cannot be loaded: {figures}", "red")
    if not plan.evictions:
        return Text(f"{model} can be loaded, and nothing has to leave: {figures}")
    count = len(plan.evictions)
    left = f"{counted(count, 'model')} {'has' if count == 1 else 'have'} left"
    return Text(f"{model} can be loaded once {left}: {figures}")


def _evictions(plan: pb.PlanResidencyResponse) -> Table:
    table = table_of("To leave, in this order", "##", "model", "#frees", "#cost", "why")
    for place, leaver in enumerate(plan.evictions, 1):
        name = Text(flat(leaver.model_key))
        why = Text(flat(leaver.why))
        table.add_row(str(place), name, mib(leaver.freed_mib), f"{leaver.cost:,.2f}", why)
    return table


def command(
    model: NameArgument,
    tier: TierOption = None,
    config_path: ConfigOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Say what loading a model would do: who leaves, why, what was weighed; exit 1 if it cannot."""
    planned = with_house(config_path, lambda house: _planned(house, model, tier))
    if json_wanted:
        print(as_json(model, planned))
    else:
        print_page(page(model, planned), page_console(_NARROWEST))
    if not any(one.feasible for one in planned):
        raise typer.Exit(1)
