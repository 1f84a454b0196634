"""Where a picture of a request is: which field or file holds it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edge.errors import bad_field
from edge.pictures.upload import Form, Upload


@dataclass(frozen=True, slots=True)
class Source:
    """A picture as it was sent, or the URL where it is."""

    value: str | Upload
    param: str
    """The field that holds it, for the refusal of what is no picture."""


def check_files(form: Form, known: Iterable[str]) -> None:
    """Raises Fault for a file under a name that means nothing."""
    names = list(known)
    for name in form.files:
        if name not in names:
            message = f"Unknown file `{name}`; pictures are sent as {', '.join(names)}."
            raise bad_field(name, message)


def only_source(form: Form, texts: Mapping[str, str | None]) -> Source | None:
    """The one picture under any of some names, `texts` by name those of them that are no files.

    None when there is none. Raises Fault when there are several.
    """
    found = [Source(file, name) for name in texts for file in form.files.get(name, ())]
    found += [Source(text, name) for name, text in texts.items() if text is not None]
    if len(found) > 1:
        second = found[1].param
        names = " or ".join(f"`{name}`" for name in texts)
        raise bad_field(second, f"Only one picture is taken here, as {names}; send one.")
    return found[0] if found else None


def subject_of(form: Form, image: str | None, image_url: str | None, file: str | None) -> Source:
    """The picture to cut the subject out of, by any of its names. Raises Fault."""
    found = only_source(form, {"image": image, "image_url": image_url, "file": file})
    if found is None:
        raise bad_field("image", "`image` is missing: a file, base64, a data URL or a URL.")
    return found
