"""Device memory and leases as tables, the same wherever they are shown."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from cli.page import table_of
from cli.words import counted, flat, mib, span, tier_name
from cohabit.broker.v1 import broker_pb2 as pb


def device_table(devices: Sequence[pb.DeviceMemory]) -> Table:
    """What each device has, and how it is used."""
    table = table_of("Devices", "device", "is", "#total", "#free", "#leased", "#floor", "#foreign")
    for device in devices:
        what = Text(flat(device.description))
        if not device.reachable:
            what.append(" (the driver does not answer)", "red")
        figures = (
            device.total_mib,
            device.free_mib,
            device.leased_mib,
            device.floor_mib,
            device.foreign_mib,
        )
        table.add_row(Text(flat(device.device)), what, *map(mib, figures))
    return table


def lease_table(leases: Sequence[pb.Lease], now_ms: float) -> Table:
    """Who may hold how much, until when."""
    columns = ("holder", "device", "kind", "tier", "#granted", "#in use", "#age", "#expires")
    table = table_of("Leases", *columns)
    for lease in leases:
        table.add_row(
            Text(flat(lease.holder)),
            Text(flat(lease.device)),
            kind_name(lease.kind),
            tier_name(lease.tier),
            mib(lease.granted_mib),
            mib(lease.materialised_mib),
            span(now_ms - lease.granted_unix_ms) if lease.granted_unix_ms else "",
            f"in {span(lease.expires_unix_ms - now_ms)}",
        )
    return table


def lease_totals(leases: Sequence[pb.Lease]) -> str:
    """All leases together, in words."""
    granted = sum(lease.granted_mib for lease in leases)
    used = sum(lease.materialised_mib for lease in leases)
    return f"{counted(len(leases), 'lease')}: {mib(granted)} granted, {mib(used)} in use"


def kind_name(kind: int) -> str:
    """What a lease is for, e.g. "resident"; the number of a kind that is not known here."""
    known = pb.LeaseKind.DESCRIPTOR.values_by_number.get(kind)
    return known.name.removeprefix("LEASE_KIND_").lower() if known else str(kind)
