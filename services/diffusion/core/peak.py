"""What a picture adds to an engine's memory at its peak, by its size. Pure.

A picture goes through three phases, and the native library frees the buffers of one before the
next: text encoders, denoise steps, latents to pixels. The peak is that of the hungriest phase.
Which figures a model has is `families`' to say, and the configuration's.
"""

from dataclasses import dataclass, field, replace

MPX = 1 << 20
"""Pixels of a "megapixel": 1024 times 1024, the size that published figures are given for."""
_PICTURE_BYTES_PER_PX = 32
"""The finished picture as floats, as bytes, and inputs of its size."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory of one phase: a constant, a part that grows with the pixels, and one with their square
    (attention whose scores are kept).
    """

    base_mib: float = 0.0
    per_mpx_mib: float = 0.0
    per_mpx2_mib: float = 0.0

    def __post_init__(self) -> None:
        if min(self.base_mib, self.per_mpx_mib, self.per_mpx2_mib) < 0:
            raise ValueError("memory does not shrink as pictures grow")

    def at(self, px: int) -> float:
        """MiB for a picture of so many pixels."""
        mpx = px / MPX
        return self.base_mib + self.per_mpx_mib * mpx + self.per_mpx2_mib * mpx * mpx


@dataclass(frozen=True, slots=True)
class PeakProfile:
    """What a model adds while it makes a picture."""

    condition_mib: float = 0.0
    """Text encoders: the same for every size."""
    denoise: Growth = field(default_factory=Growth)
    """Denoise steps; pictures to look at count as further pixels."""
    decode: Growth = field(default_factory=Growth)
    """Latents to pixels; encoding an input takes no more."""
    preview: Growth = field(default_factory=Growth)
    """The small decoder, while the buffers of the denoise steps are held."""


@dataclass(frozen=True, slots=True)
class Size:
    """What of a request the peak depends on."""

    px: int
    """Width times height."""
    input_images: int = 0
    """Pictures to start from and to look at."""


def untiled_mib(profile: PeakProfile, size: Size) -> int:
    """The peak of a picture that is decoded in one piece."""
    return _peak_mib(profile, size, size.px)


def tiled_mib(profile: PeakProfile, size: Size, tile_px: int) -> int:
    """The peak of a picture that is decoded in square tiles of `tile_px` a side."""
    return _peak_mib(profile, size, min(size.px, tile_px * tile_px))


def previewed_mib(profile: PeakProfile, size: Size) -> int:
    """What the denoise steps take when the small decoder shows what is there so far."""
    denoise_mib = profile.denoise.at(_seen_px(size)) + profile.preview.at(size.px)
    return -int(-(denoise_mib + _pictures_mib(size)) // 1)


def most_px(profile: PeakProfile, lendable_mib: int, input_images: int, tile_px: int | None) -> int:
    """The largest picture whose peak is lendable, tiled where `tile_px` is given; 0: none is."""
    low, high = 0, 1 << 31
    while low < high:
        middle = (low + high + 1) // 2
        size = Size(middle, input_images)
        peak = untiled_mib(profile, size) if tile_px is None else tiled_mib(profile, size, tile_px)
        low, high = (middle, high) if peak <= lendable_mib else (low, middle - 1)
    return low


def with_weights(
    profile: PeakProfile, condition_mib: int, denoise_mib: int, decode_mib: int
) -> PeakProfile:
    """With weights that are brought to the device for their phase alone."""
    denoise, decode = profile.denoise, profile.decode
    return replace(
        profile,
        condition_mib=profile.condition_mib + condition_mib,
        denoise=replace(denoise, base_mib=denoise.base_mib + denoise_mib),
        decode=replace(decode, base_mib=decode.base_mib + decode_mib),
    )


def _peak_mib(profile: PeakProfile, size: Size, decoded_px: int) -> int:
    denoise_mib = profile.denoise.at(_seen_px(size))
    phases = profile.condition_mib, denoise_mib, profile.decode.at(decoded_px)
    return max(1, -int(-(max(phases) + _pictures_mib(size)) // 1))


def _seen_px(size: Size) -> int:
    """Pictures that come with a request count as further pixels."""
    return size.px * (1 + size.input_images)


def _pictures_mib(size: Size) -> float:
    return _seen_px(size) * _PICTURE_BYTES_PER_PX / (1 << 20)
