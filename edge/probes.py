"""Which requests are asked for by whoever watches, and which methods there are. Values alone."""

from typing import Final

SIGNALS: Final = frozenset(("/metrics", "/status", "/errors"))
"""They tell of all callers."""
PROBES: Final = frozenset(("/health", "/readyz")) | SIGNALS
"""Asked every few seconds: their lines and spans would bury the others."""
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""What a method is told as; any other word is the client's own, and told as none."""
