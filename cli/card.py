"""A device's memory as one bar over the width of the page: whose it is, what is kept, what is free.

Every MiB of the device is in exactly one share: leases by holder (what is granted, or used beyond
that), processes without a lease, what is kept from new leases of the lowest tier, and the rest.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from cli.words import counted, flat, mib
from cohabit.broker.v1 import broker_pb2 as pb

_MOST_HOLDERS = 8
"""Of a bar; the smallest ones beyond are one share."""
_COLOURS = ("cyan", "magenta", "blue", "green", "bright_cyan", "bright_magenta", "bright_blue")
_NARROWEST_BAR = 20


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a device. Where there is no colour, the glyphs of neighbours differ."""

    name: str
    mib: int
    style: str
    glyph: str
    ascii_glyph: str


def shares(device: pb.DeviceMemory, leases: Iterable[pb.Lease]) -> list[Share]:
    """The device's memory, split up. Empty shares are left out."""
    found = [
        Share(
            name, held, _COLOURS[place % len(_COLOURS)], *(("█", "#") if place % 2 else ("▓", "="))
        )
        for place, (name, held) in enumerate(_holders(device, leases))
    ]
    headroom, promised = leasable_mib(device), min(device.unmaterialised_mib, device.free_mib)
    kept = max(0, device.free_mib - promised - headroom)
    found += [
        Share("foreign", device.foreign_mib, "yellow", "▒", "%"),
        Share("floor", kept, "bright_black", "░", ":"),
        Share("free", headroom, "bright_black", "·", "."),
    ]
    return [share for share in found if share.mib]


def leasable_mib(device: pb.DeviceMemory) -> int:
    """What a new lease of the lowest tier could be granted now."""
    if device.headroom:
        return min(entry.headroom_mib for entry in device.headroom)
    return max(0, device.free_mib - device.unmaterialised_mib - device.floor_mib)


def _holders(device: pb.DeviceMemory, leases: Iterable[pb.Lease]) -> list[tuple[str, int]]:
    """Holders with what they hold, the largest first."""
    held: Counter[str] = Counter()
    for lease in leases:
        if lease.device == device.device:
            held[flat(lease.holder)] += max(lease.granted_mib, lease.materialised_mib)
    ordered = held.most_common()
    rest = ordered[_MOST_HOLDERS:]
    if not rest:
        return ordered
    others = counted(len(rest), "other")
    return [*ordered[:_MOST_HOLDERS], (others, sum(count for _, count in rest))]


def cells(parts: Sequence[int], width: int) -> list[int]:
    """How many of `width` cells each part gets: in proportion, at least one, all of them."""
    total = sum(parts)
    if not total or len(parts) > width:
        return [0] * len(parts)
    spare = width - len(parts)
    exact = [spare * part / total for part in parts]
    given = [1 + int(share) for share in exact]
    by_remainder = sorted(range(len(parts)), key=lambda place: int(exact[place]) - exact[place])
    for place in by_remainder[: width - sum(given)]:
        given[place] += 1
    return given


@dataclass(frozen=True, slots=True)
class Card:
    """The bar with its heading and its legend, as wide as there is room."""

    device: pb.DeviceMemory
    leases: Sequence[pb.Lease]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Drawn anew for each width."""
        parts, plain = shares(self.device, self.leases), options.ascii_only
        yield self._heading()
        bar = Text(no_wrap=True, overflow="crop")
        width = max(_NARROWEST_BAR, options.max_width)
        for share, count in zip(parts, cells([p.mib for p in parts], width), strict=True):
            bar.append((share.ascii_glyph if plain else share.glyph) * count, share.style)
        yield bar
        yield Columns([_legend(share, plain) for share in parts], padding=(0, 2, 0, 0))

    def _heading(self) -> Text:
        device = self.device
        heading = Text(flat(device.device), "bold")
        said = f"  {flat(device.description)}" if device.description else ""
        heading.append(f"{said}  {mib(device.total_mib)}", "not bold")
        heading.append(f", {mib(leasable_mib(device))} to lease", "not bold")
        if not device.reachable:
            heading.append(
                "  the driver does not answer; these are its last figures", "not bold red"
            )
        return heading


def _legend(share: Share, plain: bool) -> Text:
    entry = Text(share.ascii_glyph if plain else share.glyph, share.style, no_wrap=True)
    entry.append(f" {share.name} {share.mib:,}", "default")
    return entry
