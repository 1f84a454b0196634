"""The ledger of device memory, pure: what is asked and the time go in, what happened comes out.

`values` holds the words, `ledger` the decisions. Clocks, ids, devices, disks and wires stay out.
"""

from services.broker.core.ledger import Ledger
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
    "Released",
    "Renewed",
    "Tier",
]
