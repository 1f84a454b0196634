"""What is asked of the matting service, and what it answers. Pure values, nothing of the wire."""

from dataclasses import dataclass, field
from enum import Enum

from imaging.values import Encoded, Encoding


class EdgeColor(Enum):
    """What colour the pixels of a cutout have."""

    ESTIMATED = "estimated"
    """The subject's own, solved for."""
    KEPT = "kept"
    """As photographed."""


@dataclass(frozen=True, slots=True)
class PlainBackdrop:
    """One colour everywhere."""

    rgb: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PictureBackdrop:
    """A picture, scaled to cover and cropped to the middle."""

    data: bytes


@dataclass(frozen=True, slots=True)
class EstimatedBackdrop:
    """The solved background of the picture itself."""


Backdrop = PlainBackdrop | PictureBackdrop | EstimatedBackdrop


@dataclass(frozen=True, slots=True)
class Removal:
    """A picture to cut the subject out of, and what of the outcome is wanted."""

    image: bytes
    encoding: Encoding = field(default_factory=Encoding)
    backdrop: Backdrop | None = None
    """None: it stays transparent."""
    return_background: bool = False
    return_matte: bool = False
    matte_only: bool = False
    edge_color: EdgeColor = EdgeColor.ESTIMATED
    keep_alpha: bool = False
    """A picture that already has alpha is taken at its word."""


@dataclass(frozen=True, slots=True)
class Estimation:
    """A picture with its matte, whose two colours are wanted."""

    image: bytes
    matte: bytes
    encoding: Encoding = field(default_factory=Encoding)
    cutout: bool = False
    omit_background: bool = False


@dataclass(frozen=True, slots=True)
class Composition:
    """A cutout and what goes behind it."""

    foreground: bytes
    backdrop: PlainBackdrop | PictureBackdrop
    encoding: Encoding = field(default_factory=Encoding)
    matte: bytes | None = None
    """Replaces the foreground's alpha."""


@dataclass(slots=True)
class Times:
    """Where the time went, in milliseconds."""

    engine_wait_ms: float = 0.0
    decode_ms: float = 0.0
    network_ms: float = 0.0
    solve_ms: float = 0.0
    encode_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Removed:
    """The pictures that were asked for."""

    width_px: int
    height_px: int
    coverage: float
    """Mean of the matte, 0 to 1."""
    image: Encoded | None = None
    background: Encoded | None = None
    matte: Encoded | None = None


@dataclass(frozen=True, slots=True)
class Estimated:
    """Both colours of every pixel."""

    foreground: Encoded
    background: Encoded | None = None


@dataclass(frozen=True, slots=True)
class Composed:
    """A picture without alpha."""

    image: Encoded
    width_px: int
    height_px: int
