"""How pictures shall be encoded, read from the fields of a request. Pure."""

from dataclasses import dataclass

from edge.cutouts.fields import OutputFields, OutputFormat
from edge.errors import bad_field


@dataclass(frozen=True, slots=True)
class Output:
    """What a service is told."""

    format: OutputFormat | None
    """None: as the service is configured."""
    quality: int
    """0: as the service is configured."""
    lossless: bool


def output_of(fields: OutputFields, *, has_alpha: bool) -> Output:
    """Raises Fault for what a format cannot do; `has_alpha`: a picture of the answer has it."""
    format_ = fields.output_format
    if format_ == "jpeg" and has_alpha:
        message = "JPEG has no alpha; name a `background`, or take webp or png."
        raise bad_field("output_format", message)
    if fields.lossless and format_ not in (None, "webp"):
        raise bad_field("lossless", f"`lossless` is for webp; {format_} has no choice.")
    return Output(format_, _quality(fields), fields.lossless)


def _quality(fields: OutputFields) -> int:
    given = {
        name: value
        for name, value in (
            ("quality", fields.quality),
            ("output_compression", fields.output_compression),
        )
        if value is not None
    }
    if not given:
        return 0
    if fields.output_format == "png":
        raise bad_field(next(iter(given)), "PNG is without loss and has no quality; leave it out.")
    if len(set(given.values())) > 1:
        raise bad_field("quality", "`quality` and `output_compression` are one thing; send one.")
    # In the contracts 0 leaves it to the service; the least that can be asked for is 1.
    return max(1, next(iter(given.values())))
