"""What Prometheus sees of the ledger. Figures stand as after the last call."""

from prometheus_client import Counter, Gauge

from services.broker.core import Memory

LEASED_MIB = Gauge("cohabit_broker_leased_mib", "Memory granted by live leases.", ["device"])
UNMATERIALISED_MIB = Gauge(
    "cohabit_broker_unmaterialised_mib", "Memory granted and not in use yet.", ["device"]
)
FOREIGN_MIB = Gauge(
    "cohabit_broker_foreign_mib", "Memory in use that no holder reports.", ["device"]
)
HEADROOM_MIB = Gauge(
    "cohabit_broker_headroom_mib", "What a new lease could be granted.", ["device", "tier"]
)
REACHABLE = Gauge("cohabit_broker_device_reachable", "1 while the driver answers.", ["device"])
DENIALS = Counter(
    "cohabit_broker_denials_total", "Leases that were asked for and not given.", ["reason"]
)
PRESSURE = Counter(
    "cohabit_broker_pressure_messages_total", "Holders told to shrink, each watcher counted."
)
WATCHERS = Gauge("cohabit_broker_pressure_watchers", "Open streams of pressure.")
WARMED_BYTES = Counter("cohabit_broker_warmed_bytes_total", "Read into the page cache on request.")


def publish(device: str, memory: Memory, *, reachable: bool) -> None:
    """Show how one device stands."""
    REACHABLE.labels(device).set(reachable)
    LEASED_MIB.labels(device).set(memory.leased_mib)
    UNMATERIALISED_MIB.labels(device).set(memory.unmaterialised_mib)
    FOREIGN_MIB.labels(device).set(memory.foreign_mib)
    for tier, headroom_mib in memory.headroom_mib.items():
        HEADROOM_MIB.labels(device, tier.name.lower()).set(headroom_mib if reachable else 0)
