"""`cohabit leases`: who may hold how much device memory, until when."""

import asyncio
import json
import time
from dataclasses import dataclass

import typer
from rich.console import RenderableType

from cli.answers import plain
from cli.dial import TIMEOUT_S, ConfigOption, Dialled, JsonOption, answered, with_house
from cli.memory import device_table, lease_table, lease_totals
from cli.page import or_none, print_page
from cohabit.broker.v1 import broker_pb2 as pb


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the broker said."""

    leases: list[pb.Lease]
    devices: list[pb.DeviceMemory]


async def ledger(house: Dialled) -> Ledger:
    """Ask the broker. Raises Refused."""
    with answered("broker"):
        listed, memory = await asyncio.gather(
            house.broker.ListLeases(pb.ListLeasesRequest(), timeout=TIMEOUT_S),
            house.broker.GetDeviceMemory(pb.GetDeviceMemoryRequest(), timeout=TIMEOUT_S),
        )
    return Ledger(list(listed.leases), list(memory.devices))


def sections(said: Ledger, now_ms: float) -> list[RenderableType]:
    """The page: leases, their totals, the devices."""
    table = or_none(lease_table(said.leases, now_ms))
    totals = [lease_totals(said.leases)] if said.leases else []
    return [table, *totals, or_none(device_table(said.devices))]


def as_json(said: Ledger) -> str:
    """Everything, for scripts."""
    return json.dumps(
        {
            "leases": [plain(lease) for lease in said.leases],
            "granted_mib": sum(lease.granted_mib for lease in said.leases),
            "materialised_mib": sum(lease.materialised_mib for lease in said.leases),
            "devices": [plain(device) for device in said.devices],
        },
        indent=2,
    )


def command(config_path: ConfigOption = None, json_wanted: JsonOption = False) -> None:
    """Show who holds device memory, how much of it is in use, and when each lease expires."""
    said = with_house(config_path, ledger)
    if json_wanted:
        print(as_json(said))
    else:
        print_page(sections(said, time.time() * 1000))
    if not all(device.reachable for device in said.devices):
        raise typer.Exit(1)
