"""The world of the broker's transcripts: its commands, which are documented here alone.

The ledger and the pressure are real. The transcript is the holders, the device, the journal's
reader and the clock. `NAME` is a lease's.
"""

from services.broker.core import (
    Ask,
    Budget,
    DenialReason,
    Denied,
    Entry,
    Floors,
    Full,
    Granted,
    Lease,
    LeaseKind,
    Ledger,
    Pressure,
    Shrink,
    Tier,
)
from tests.sim.transcript import Commands, ms, options, shown

_DEVICE = "gpu0"
_LONGEST_TTL_MS = 300_000


class BrokerWorld(Commands):
    """One device of 10000 MiB with nothing on it, no floors, and a ledger of eight leases."""

    def __init__(self) -> None:
        self._start(())

    def _start(self, words: tuple[str, ...]) -> None:
        given = options(words, "total", "reserve", "floor.", "leases")
        floors = (int(given.get(f"floor.{tier.name.lower()}", 0)) for tier in reversed(Tier))
        self._total = int(given.get("total", 10_000))
        self._reserve = int(given.get("reserve", 0))
        self._floors = Floors(*floors)
        self._free: int | None = None
        self._most = int(given.get("leases", 8))
        self._ledger = Ledger(self._most)
        self._pressure = Pressure(period_ms=1_000)
        self._journal: list[Entry] = []

    @property
    def _budget(self) -> Budget:
        return Budget(self._total, self._free, self._reserve, self._floors)

    # -- the device, and time ----------------------------------------------------------------

    def do_given(self, *words: str) -> list[str]:
        """given [total=10000] [reserve=0] [floor.TIER=0]... [leases=8]: before anything else.

        The reserve is kept from everybody, the floor from its tier.
        """
        self._start(words)
        return []

    def do_measured(self, free: str) -> list[str]:
        """measured MIB: the driver shows so much free; before, what holders report is all that is
        in use."""
        self._free = int(free)
        return []

    def do_wait(self, duration: str) -> list[str]:
        """wait 30s: time passes."""
        self.now += ms(duration)
        return []

    def do_restart(self, *words: str) -> list[str]:
        """restart [away=0s]: the broker is killed, and comes back knowing its journal."""
        self.now += ms(options(words, "away").get("away", "0s"))
        self._ledger = Ledger(self._most)
        for entry in self._journal:
            self._ledger.replay(entry)
        self._ledger.resume(self.now, _LONGEST_TTL_MS)
        return self.do_leases()

    # -- holders -----------------------------------------------------------------------------

    def do_paid(self, name: str, asks: str, mib: str, *words: str) -> list[str]:
        """paid|sub|free|background NAME asks MIB [least=MIB] [leave=MIB] [of=HOLDER] [request=ID]
        [ttl=30s] [transient]: somebody wants a lease.

        `leave` is what must remain beside it, `transient` is the peak of one request. All holders
        want to hear when they are to shrink.
        """
        return self._asks(Tier.PAID, name, asks, mib, words)

    def do_sub(self, name: str, asks: str, mib: str, *words: str) -> list[str]:
        """See `paid`."""
        return self._asks(Tier.SUB, name, asks, mib, words)

    def do_free(self, name: str, asks: str, mib: str, *words: str) -> list[str]:
        """See `paid`."""
        return self._asks(Tier.FREE, name, asks, mib, words)

    def do_background(self, name: str, asks: str, mib: str, *words: str) -> list[str]:
        """See `paid`."""
        return self._asks(Tier.BACKGROUND, name, asks, mib, words)

    def _asks(
        self, tier: Tier, name: str, asks: str, mib: str, words: tuple[str, ...]
    ) -> list[str]:
        if asks != "asks":
            raise ValueError(f'it goes "NAME asks MIB", not "{name} {asks} {mib}"')
        given = options(words, "least", "leave", "of", "request", "ttl", "transient")
        ask = Ask(
            lease_id=name,
            holder=given.get("of", name),
            device=_DEVICE,
            kind=LeaseKind.TRANSIENT if "transient" in given else LeaseKind.RESIDENT,
            tier=tier,
            preferred_mib=int(mib),
            minimum_mib=int(given.get("least", mib)),
            ttl_ms=ms(given.get("ttl", "30s")),
            request_id=given.get("request", ""),
            leave_mib=int(given.get("leave", 0)),
        )
        outcome = self._ledger.acquire(ask, self._budget, self.now)
        match outcome:
            case Granted(lease=lease):
                self._journal.append(outcome)
                return [f"grant {_told(lease)}"]
            case Lease():
                return [f"as before: {_told(outcome)}"]
            case Denied():
                return [_denied(name, outcome), *self._press(ask, outcome)]
            case Full(max_leases=most):
                return [f"refuse {name}: {most} leases are all that are kept"]

    def _press(self, ask: Ask, denied: Denied) -> list[str]:
        if denied.reason is DenialReason.NEVER_FITS:
            return []
        missing_mib = ask.minimum_mib + ask.leave_mib - denied.headroom_mib
        leases = self._ledger.leases(self.now)
        return [_asked(x) for x in self._pressure.ask(leases, ask.tier, missing_mib, self.now)]

    def do_renew(self, name: str, *words: str) -> list[str]:
        """renew NAME [uses=MIB] [shrink=MIB] [ttl=TIME]: its holder lives, and reports what it has
        taken up; `shrink` gives back what is above."""
        given = options(words, "uses", "shrink", "ttl")
        entry = self._ledger.renew(
            name,
            int(given.get("uses", 0)),
            ms(given.get("ttl", "0s")),
            self.now,
            shrink_to_mib=int(given.get("shrink", 0)),
        )
        if entry is None:
            return [f"there is no lease {name}"]
        self._journal.append(entry)
        return [_told(self._ledger.get(name))]

    def do_release(self, name: str) -> list[str]:
        """release NAME: its holder needs it no more."""
        entry = self._ledger.release(name, self.now)
        if entry is None:
            return [f"there is no lease {name}"]
        self._journal.append(entry)
        return [f"{name} is over"]

    # -- what there is -----------------------------------------------------------------------

    def do_room(self) -> list[str]:
        """room: the headroom of each tier."""
        headroom = self._ledger.memory(_DEVICE, self._budget, self.now).headroom_mib
        return [", ".join(f"{tier.name} {headroom[tier]}" for tier in reversed(Tier)) + " MiB"]

    def do_memory(self) -> list[str]:
        """memory: what is free, lent, lent and not taken up, and used by others."""
        memory = self._ledger.memory(_DEVICE, self._budget, self.now)
        lent = f"{memory.leased_mib} lent, {memory.unmaterialised_mib} of them not taken up"
        return [f"{memory.free_mib} MiB free, {lent}, {memory.foreign_mib} used by others"]

    def do_leases(self) -> list[str]:
        """leases: all that live, oldest first."""
        return [_told(lease) for lease in self._ledger.leases(self.now)] or ["no leases"]


def _told(lease: Lease) -> str:
    use = f", {lease.materialised_mib} in use" if lease.materialised_mib else ""
    return f"{lease.lease_id}: {lease.granted_mib} MiB{use}, until {shown(lease.expires_unix_ms)}"


def _denied(name: str, denied: Denied) -> str:
    if denied.reason is DenialReason.NEVER_FITS:
        return f"deny {name}: never_fits ({denied.ceiling_mib} MiB at most)"
    return f"deny {name}: no_headroom ({denied.headroom_mib} MiB are there)"


def _asked(shrink: Shrink) -> str:
    tier = shrink.refused_tier.name
    return f"ask {shrink.holder} to shrink {shrink.lease_id} by {shrink.shrink_mib} MiB for {tier}"
