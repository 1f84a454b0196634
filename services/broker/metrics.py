"""What Prometheus sees of the ledger. Figures stand as after the last call."""

from prometheus_client import Counter, Gauge

from services.broker.core import Memory

LEASED_MIB = Gauge("cohabit_broker_leased_mib", "Memory granted by live leases.", ["device"])
HEADROOM_MIB = Gauge(
    "cohabit_broker_headroom_mib", "What a new lease could be granted.", ["device", "tier"]
)
REACHABLE = Gauge("cohabit_broker_device_reachable", "1 while the driver answers.", ["device"])
DENIALS = Counter(
    "cohabit_broker_denials_total", "Leases that were asked for and not given.", ["reason"]
)


def publish(device: str, memory: Memory, *, reachable: bool) -> None:
    """Show how one device stands."""
    REACHABLE.labels(device).set(reachable)
    LEASED_MIB.labels(device).set(memory.leased_mib)
    for tier, headroom_mib in memory.headroom_mib.items():
        HEADROOM_MIB.labels(device, tier.name.lower()).set(headroom_mib if reachable else 0)
