"""Device profiles: the sizes of an engine that suit a device, by the generation of the card. Pure.

A batch that fills a large card holds up everybody on a small one, and what a card keeps idle for
nothing slows a CPU down. `cpu` is measured; the cards' rows are reasoned from their memory and
bandwidth, and wait for measurements. Whatever the configuration sets explicitly wins over a row.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from services.llm.engine import KvType

ProfileName = Literal["blackwell", "hopper", "ada", "ampere", "turing", "cpu"]


@dataclass(frozen=True, slots=True)
class Profile:
    """The figures of `EngineSpec` that depend on the device."""

    name: ProfileName
    batch_tokens: int
    ubatch_tokens: int
    prefill_chunk_tokens: int
    kv_type: KvType
    flash_attention: bool | None
    """None: where the native library finds it worth while."""
    idle_cache_tokens: int
    ordered_cells: bool
    """Worth while where attention adds up cells one by one, as they lie; cards do it by tiles, and
    otherwise for another number of rows."""
    spare_cores: int
    """Cores that the decoding threads leave to the edge and the scheduler."""


PROFILES: Mapping[ProfileName, Profile] = MappingProxyType(
    {
        "blackwell": Profile("blackwell", 4096, 1024, 1024, "f16", True, 32_768, False, 1),
        "hopper": Profile("hopper", 4096, 1024, 1024, "f16", True, 32_768, False, 1),
        # 24 GB and less, and bandwidth is what decoding waits for: half the bytes in the cache.
        "ada": Profile("ada", 2048, 512, 512, "q8_0", True, 16_384, False, 1),
        "ampere": Profile("ampere", 2048, 512, 512, "q8_0", True, 16_384, False, 1),
        "turing": Profile("turing", 1024, 256, 256, "f16", None, 8_192, False, 1),
        # Idle cells slow decoding down (8,000 by a fifth), and what is parked is back in a
        # millisecond; a chunk of 512 stops the others for seconds.
        # From 64 rows on, flash attention on the CPU goes by tiles and rounds in another way: with
        # fewer, an answer does not depend on how many are computed beside it.
        "cpu": Profile("cpu", 60, 60, 56, "f16", True, 0, True, 1),
    }
)

_NAMES: Mapping[ProfileName, str] = MappingProxyType(
    {
        "blackwell": r"\bblackwell\b|\b(RTX )?50[5-9]0\b|\bG?B[123]00\b",
        "hopper": r"\bhopper\b|\bG?H(100|200|800|20)\b",
        "ada": r"\bada\b|\bRTX 40[5-9]0\b|\bL(4|40S?)\b",
        "ampere": r"\bampere\b|\bRTX 30[5-9]0\b|\bA(2|10G?|16|30|40|100|800)\b|\bRTX A\d{4}\b",
        "turing": r"\bturing\b|\bRTX 20[6-8]0\b|\bGTX 16[5-6]0\b|\bT(4|[1-9]\d{2,3})\b",
    }
)
"""What drivers call the cards of a generation; the first that matches."""


def profile_of(description: str) -> Profile:
    """The profile of a card by what its driver calls it; "": there is none, so the CPU's.

    A card that no row knows gets the most careful one: it works on every card.
    """
    if not description:
        return PROFILES["cpu"]
    for name, pattern in _NAMES.items():
        if re.search(pattern, description, re.IGNORECASE):
            return PROFILES[name]
    return PROFILES["turing"]
