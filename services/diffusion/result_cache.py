"""Finished pictures, kept for requests that are the same in everything that can change a byte.

The one that was not asked for longest goes first. What a key is made of, `core.cache_key` says.
"""

from collections import OrderedDict

from services.diffusion.values import File


class ResultCache:
    """At most `entries` files, and `mib` of them together; 0 of either keeps none."""

    def __init__(self, entries: int, mib: int) -> None:
        self._entries = entries
        self._room_bytes = mib << 20
        self._kept: OrderedDict[bytes, File] = OrderedDict()
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Of all files together."""
        return self._held_bytes

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: bytes) -> File | None:
        """The file of an equal request, which counts as asked for now."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: bytes, file: File) -> None:
        """Remember a file, unless it is larger than all the room there is."""
        if not self._entries or len(file.data) > self._room_bytes:
            return
        known = self._kept.pop(key, None)
        if known is not None:
            self._held_bytes -= len(known.data)
        self._kept[key] = file
        self._held_bytes += len(file.data)
        while len(self._kept) > self._entries or self._held_bytes > self._room_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._held_bytes -= len(oldest.data)
