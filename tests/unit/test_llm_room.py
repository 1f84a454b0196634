"""How many sequences a KV cache has, and whether their cells keep their order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.llm.engine import EngineSpec
from services.llm.engine_llama import MOST_SEQUENCES, _context_size, _room


def sizes(*, shares: bool = True, window: int = 0, **fields: Any) -> tuple[bool, int, int]:
    """Ordered; sequences of the context; rows of logits it has room for."""
    spec = EngineSpec(Path("m"), context_tokens=512, **fields)
    model = SimpleNamespace(shares_prefixes=shares, window_tokens=window)
    room = _room(spec, cast("Any", model), 512)
    context = _context_size(spec, room)
    return room.ordered, context.sequences, context.outputs


@pytest.mark.parametrize(
    ("fields", "ordered"),
    [
        ({}, True),
        ({"ordered_cells": False}, False),
        ({"window": 128}, False),
        ({"shares": False}, False),
        ({"places": 200, "batch_tokens": 200}, True),
        ({"places": 256, "batch_tokens": 256}, False),
    ],
    ids=str,
)
def test_order_is_kept_where_a_sequence_is_left_for_it(
    fields: dict[str, Any], ordered: bool
) -> None:
    kept, sequences, outputs = sizes(**fields)
    assert kept is ordered
    assert sequences <= MOST_SEQUENCES
    assert outputs >= sequences


def test_it_takes_one_sequence_more() -> None:
    assert sizes()[1] == sizes(ordered_cells=False)[1] + 1
