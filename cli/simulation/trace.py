"""Traces: one request a line of JSON, read strictly, blamed by line, written by `synth`.

{"t": 12.5, "model": "chat-8b", "tier": "paid", "key": "alice", "tokens": [900, 250]}
{"t": 13.0, "model": "image-xl", "work_s": 6.5, "patience_s": 60}
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from cli.console import Refused
from services.scheduler.core.values import Tier

TierName = Literal["paid", "sub", "free", "background"]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=366 * 24 * 3600)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One request."""

    t: Seconds
    """When it arrives, from the start of the trace."""
    model: Name
    """A model's key, or a family of twins."""
    tier: TierName = "free"
    key: str = ""
    """Fairness key."""
    tokens: tuple[Tokens, Tokens] | None = None
    """Of the prompt, of the answer."""
    work_s: Seconds | None = None
    """How long it runs; stands before tokens. Without both: what the model's profile says."""
    patience_s: Seconds | None = None
    """Its caller gives up after waiting this long; absent: never."""

    @property
    def at_ms(self) -> int:
        """When it arrives."""
        return round(self.t * 1000)


TIERS: dict[str, Tier] = {
    "paid": Tier.PAID,
    "sub": Tier.SUB,
    "free": Tier.FREE,
    "background": Tier.BACKGROUND,
}


def read(path: Path, known: Collection[str]) -> list[Line]:
    """The trace in order of time; `known` are models and families. Raises Refused."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Refused(f"The trace {path} cannot be read: {error.strerror}.") from None
    return parse(text, known, str(path))


def parse(text: bytes, known: Collection[str], name: str) -> list[Line]:
    """As `read`, of text in memory."""
    decoder = msgspec.json.Decoder(Line)
    lines: list[Line] = []
    for number, raw in enumerate(text.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            line = decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(f"{name}:{number}: {error}") from None
        if line.model not in known:
            has = ", ".join(sorted(known)) or "none"
            raise Refused(f"{name}:{number}: there is no model '{line.model}'; there are: {has}.")
        lines.append(line)
    if not lines:
        raise Refused(f"The trace {name} has no request in it.")
    lines.sort(key=lambda line: line.t)  # stable: equals stay as they were written
    return lines


def dump(lines: Iterable[Line]) -> bytes:
    """The lines as a trace file holds them."""
    encoder = msgspec.json.Encoder()
    return b"".join(encoder.encode(line) + b"\n" for line in lines)
