"""The metrics of several processes as one text in Prometheus' format 0.0.4. Pure.

    # HELP, # TYPE   once a family, as the first process has them
    name{…}          gets the label `service`

What does not look like a line of that format is left out, and so is a family whose type is another
one in another process, as it may be while versions are being changed: one scrape that is refused
would hide all the rest.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MOST_LINES = 50_000
"""Of one process. They have some hundred, and a few hundred more with many models."""

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>[-+0-9.eEinfINFaN]+)"
)
_HEAD = re.compile(r"# (?P<what>HELP|TYPE) (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*) (?P<said>.*)")
_OWN_SERVICE = re.compile(r'(^|,)service="')


@dataclass(slots=True)
class _Family:
    help: str = ""
    type: str = ""
    samples: list[str] = field(default_factory=list)


def merged(texts: Mapping[str, str], house: str = "") -> str:
    """One text of those of several services, by name, and of what has no service of its own."""
    families: dict[str, _Family] = {}
    _take(families, house, "")
    for service, text in texts.items():
        _take(families, text, service)
    return "".join(_written(families))


def _take(families: dict[str, _Family], text: str, service: str) -> None:
    name, taken = "", False
    for line in text.split("\n", MOST_LINES)[:MOST_LINES]:
        if head := _HEAD.fullmatch(line):
            if head["what"] == "HELP":
                families.setdefault(head["name"], _Family(help=head["said"]))
                taken = False
            else:
                name = head["name"]
                family = families.setdefault(name, _Family())
                family.type = family.type or head["said"]
                taken = family.type == head["said"]
        elif taken and (sample := _SAMPLE.fullmatch(line)) and sample["name"].startswith(name):
            families[name].samples.append(_labelled(sample, service))


def _labelled(sample: re.Match[str], service: str) -> str:
    labels = sample["labels"] or ""
    if service:
        labels = _OWN_SERVICE.sub(r'\1exported_service="', labels)
        labels = f'service="{service}",{labels}'.rstrip(",")
    return f"{sample['name']}{{{labels}}} {sample['value']}" if labels else sample[0]


def _written(families: Mapping[str, _Family]) -> Iterator[str]:
    for name, family in families.items():
        if family.samples:
            yield f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n"
            yield from (f"{sample}\n" for sample in family.samples)
