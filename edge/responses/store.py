"""What is kept of responses that are over: bounded in number, bytes and time, gone with the edge.

The least recently used go first, and what nobody asked for within the time to live is gone too. A
response is the affair of the caller that made it: for everybody else it does not exist.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from edge.config import EdgeConfig
from edge.responses.objects import ListedItem, OutputItem, ResponseFunctionCall

_MIB = 1024 * 1024
_OVERHEAD_BYTES = 1024
"""Of an entry beside its contents: its names and objects."""

_encode = msgspec.json.Encoder().encode
_items = msgspec.json.Decoder(list[ListedItem])


class _Answered(msgspec.Struct):
    output: list[OutputItem]


_answered = msgspec.json.Decoder(_Answered)


@dataclass(frozen=True, slots=True)
class Kept:
    """A response that is over, as JSON: objects would take many times the memory."""

    owner: str
    """The name of its API key; in open mode, its fairness key; empty: it had neither."""
    body: bytes
    given: bytes
    """The items that went into it, with those of the conversation before it."""

    @property
    def size_bytes(self) -> int:
        """What it counts for."""
        return len(self.body) + len(self.given) + _OVERHEAD_BYTES

    def items(self) -> list[ListedItem]:
        """The items that went into it."""
        return _items.decode(self.given)

    def conversation(self) -> list[ListedItem]:
        """These and its answer: what a next request goes on from.

        A call that was cut short has half of its arguments, and is as if it had not been made.
        """
        output = _answered.decode(self.body).output
        return [*self.items(), *(item for item in output if not _is_half_a_call(item))]


def kept(owner: str, body: bytes, given: list[ListedItem]) -> Kept:
    """An entry of the store."""
    return Kept(owner, body, _encode(given))


def _is_half_a_call(item: OutputItem) -> bool:
    return isinstance(item, ResponseFunctionCall) and item.status != "completed"


class ResponseStore:
    """Responses by id."""

    def __init__(
        self, most: int, most_bytes: int, ttl_s: float, clock: Callable[[], float]
    ) -> None:
        """`clock`: steady seconds."""
        self._most, self._most_bytes = most, most_bytes
        self._ttl_s, self._clock = ttl_s, clock
        self._entries: OrderedDict[str, tuple[Kept, float]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, name: str, response: Kept) -> None:
        """Keep it as long as there is room; what is larger than all the room is not kept."""
        self._sweep()
        if response.size_bytes > self._most_bytes:
            return
        self._entries[name] = response, self._clock() + self._ttl_s
        self.size_bytes += response.size_bytes
        while len(self._entries) > self._most or self.size_bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def find(self, name: str, owner: str) -> Kept | None:
        """The response, from now on used last; None: there is none for this caller."""
        self._sweep()
        entry = self._entries.get(name)
        if entry is None or entry[0].owner != owner:
            return None
        self._entries[name] = entry[0], self._clock() + self._ttl_s
        self._entries.move_to_end(name)
        return entry[0]

    def forget(self, name: str, owner: str) -> bool:
        """Whether there was one to forget."""
        found = self.find(name, owner) is not None
        if found:
            self._drop(name)
        return found

    def _sweep(self) -> None:
        # All live equally long since their last use: who expires first stands first.
        now = self._clock()
        while self._entries:
            name = next(iter(self._entries))
            if self._entries[name][1] > now:
                return
            self._drop(name)

    def _drop(self, name: str) -> None:
        response, _ = self._entries.pop(name)
        self.size_bytes -= response.size_bytes


def store_of(config: EdgeConfig) -> ResponseStore:
    """That of an edge, within its bounds."""
    return ResponseStore(
        config.stored_responses,
        config.stored_responses_mib * _MIB,
        config.stored_response_ttl_s,
        time.monotonic,
    )
