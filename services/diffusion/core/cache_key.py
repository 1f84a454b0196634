"""The key under which a finished picture is found again: a hash of all that can change its bytes.

It is taken over every field of the settings that is not named here as harmless, so that a field
that is added later counts by itself. Pure.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

HARMLESS = frozenset({"seed", "seeded", "batch", "previews", "cached"})
"""Fields of the settings that change no byte: the seed counts by picture, the rest never does."""


def cache_key(
    settings: Mapping[str, Any], seed: int, inputs: Sequence[str], engine: Sequence[str]
) -> bytes:
    """32 bytes.

    `settings` by field, as JSON's types; `seed` of this picture; `inputs` are hashes of the
    pictures that came with the request, by their place; `engine` says what is loaded: fingerprints
    of the files, and the library's build.
    """
    counted = {name: value for name, value in settings.items() if name not in HARMLESS}
    whole = [counted, seed, list(inputs), list(engine)]
    # Numbers as Python writes them are exact, and NaN was refused long before.
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).digest()
