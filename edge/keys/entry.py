"""What is known of one API key. Values alone."""

from dataclasses import dataclass

from edge.config import TierName
from edge.keys.core import UNBOUNDED, Bounds


@dataclass(frozen=True, slots=True)
class Key:
    """One key and its rights."""

    name: str
    digests: tuple[bytes, ...]
    """SHA-256 of its secret; while it is rotated, of the former one, too."""
    fairness_key: str
    """Among whom its requests share: keys of one fairness key are one client."""
    tier: TierName | None = None
    """Its ceiling; None: that of callers without a key."""
    bounds: Bounds = UNBOUNDED
    models: frozenset[str] | None = None
    """Keys and families of the models it may ask; None: all."""
    expires_unix_s: float | None = None
    disabled: bool = False
    signals: bool = False
    """It may read what the house tells of itself: /metrics, /status, /errors."""
