"""What Prometheus sees of the ledger: the device, and what of it is lent. Bytes, as its conventions
have it; the ledger counts in MiB.

Figures stand as after the last call, and are read anew when somebody looks.
"""

from collections.abc import Awaitable, Callable

from prometheus_client import Counter, Gauge

from chassis.errors import Reason
from chassis.metrics import MIB, on_scrape
from services.broker.core import DenialReason, Memory

CAPACITY = Gauge("cohabit_device_capacity_bytes", "Memory of the device.", ["device"])
USED = Gauge("cohabit_device_used_bytes", "Memory in use, by whomever.", ["device"])
LEASED = Gauge("cohabit_device_leased_bytes", "Memory granted by live leases.", ["device"])
UNMATERIALISED = Gauge(
    "cohabit_device_unmaterialised_bytes", "Memory granted and not in use yet.", ["device"]
)
FOREIGN = Gauge("cohabit_device_foreign_bytes", "Memory in use that no holder reports.", ["device"])
HEADROOM = Gauge(
    "cohabit_device_headroom_bytes", "What a new lease could be granted.", ["device", "tier"]
)
REACHABLE = Gauge("cohabit_device_reachable", "1 while the driver answers.", ["device"])
DENIALS = Counter(
    "cohabit_lease_denials_total", "Leases that were asked for and not given.", ["reason"]
)
PRESSURE = Counter(
    "cohabit_pressure_messages_total", "Holders told to shrink, each watcher counted."
)
WATCHERS = Gauge("cohabit_pressure_watchers", "Open streams of pressure.")
WARMED_BYTES = Counter("cohabit_warmed_bytes_total", "Read into the page cache on request.")


# From 0 on: of a series that is first seen at 1, nobody can tell that it has grown.
for _reason in (*DenialReason, Reason.SATURATED, Reason.DEVICE_UNREACHABLE):
    DENIALS.labels(_reason.value)


def publish(device: str, total_mib: int, memory: Memory, *, reachable: bool) -> None:
    """Show how one device stands."""
    REACHABLE.labels(device).set(reachable)
    CAPACITY.labels(device).set(total_mib * MIB)
    USED.labels(device).set(max(0, total_mib - memory.free_mib) * MIB)
    LEASED.labels(device).set(memory.leased_mib * MIB)
    UNMATERIALISED.labels(device).set(memory.unmaterialised_mib * MIB)
    FOREIGN.labels(device).set(memory.foreign_mib * MIB)
    for tier, headroom_mib in memory.headroom_mib.items():
        lent_mib = headroom_mib if reachable else 0
        HEADROOM.labels(device, tier.name.lower()).set(lent_mib * MIB)


def follow(look: Callable[[], Awaitable[object]]) -> Callable[[], None]:
    """Have `look` read the devices whenever somebody looks; call what comes back to end it."""

    async def refresh() -> None:
        await look()

    return on_scrape(refresh)
