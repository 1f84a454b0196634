"""`cohabit plan MODEL`: who would leave for a model, in which order, and why. Changes nothing."""

import json

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.answers import plain
from cli.console import printable
from cli.dial import TIMEOUT_S, ConfigOption, Dialled, JsonOption, with_house
from cli.known import KeyArgument, TierName, TierOption, asked_for, tier_number
from cli.page import print_page, table_of
from cli.words import counted, flat, mib
from cohabit.scheduler.v1 import scheduler_pb2 as pb


async def _planned(house: Dialled, model: str, tier: TierName | None) -> pb.PlanResidencyResponse:
    asked = pb.PlanResidencyRequest(model=model, tier=tier_number(tier))
    async with asked_for(house, model):
        return await house.scheduler.PlanResidency(asked, timeout=TIMEOUT_S)


def sections(model: str, plan: pb.PlanResidencyResponse) -> list[RenderableType]:
    """The page: what comes of it, who leaves, what was weighed."""
    page: list[RenderableType] = [_verdict(model, plan)]
    if plan.evictions:
        page.append(_evictions(plan))
    if plan.explanation:
        page.append(Text(printable(plan.explanation)))
    return page


def _verdict(model: str, plan: pb.PlanResidencyResponse) -> Text:
    figures = f"{mib(plan.needed_mib)} needed, {mib(plan.headroom_mib)} to be had now."
    if not plan.feasible:
        return Text(f"{model} cannot be loaded: {figures}", "red")
    if not plan.evictions:
        return Text(f"{model} can be loaded, and nothing has to leave: {figures}")
    leave = counted(len(plan.evictions), "model")
    return Text(f"{model} can be loaded when {leave} made room: {figures}")


def _evictions(plan: pb.PlanResidencyResponse) -> Table:
    table = table_of("To leave, in this order", "##", "model", "#frees", "#cost", "why")
    for place, leaver in enumerate(plan.evictions, 1):
        name = Text(flat(leaver.model_key))
        why = Text(flat(leaver.why))
        table.add_row(str(place), name, mib(leaver.freed_mib), f"{leaver.cost:,.2f}", why)
    return table


def command(
    model: KeyArgument,
    tier: TierOption = None,
    config_path: ConfigOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Say what loading a model would do: who leaves, why, what was weighed; exit 1 if it cannot."""
    plan = with_house(config_path, lambda house: _planned(house, model, tier))
    if json_wanted:
        print(json.dumps({"model": model, **plain(plan)}, indent=2))
    else:
        print_page(sections(model, plan))
    if not plan.feasible:
        raise typer.Exit(1)
