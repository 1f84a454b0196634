"""The ledger of device memory, pure: what is asked and the time go in, what happened comes out.

`values` holds the words, `ledger` the decisions, `pressure` who is asked to shrink. Clocks, ids,
devices, disks and wires stay out.
"""

from services.broker.core.ledger import Ledger
from services.broker.core.pressure import Pressure, Shrink
from services.broker.core.values import (
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
    Memory,
    Released,
    Renewed,
    Tier,
)

__all__ = [
    "Ask",
    "Budget",
    "DenialReason",
    "Denied",
    "Entry",
    "Floors",
    "Full",
    "Granted",
    "Lease",
    "LeaseKind",
    "Ledger",
    "Memory",
    "Pressure",
    "Released",
    "Renewed",
    "Shrink",
    "Tier",
]
