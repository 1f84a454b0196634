"""Raw vectors made comparable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from services.llm.similarity import Floats, best, relevance, unit

ROWS = hnp.arrays(np.float32, (3, 8), elements=st.floats(-1e3, 1e3, width=32))


@given(ROWS, st.integers(0, 8))
def test_rows_are_cut_and_of_unit_length_or_nothing(rows: Floats, dimensions: int) -> None:
    units = unit(rows, dimensions)
    assert units.shape == (3, dimensions or 8)
    assert units.dtype == np.float32
    for row, cut in zip(units, rows[:, : dimensions or None], strict=True):
        length = float(np.linalg.norm(row.astype(np.float64)))
        assert length == pytest.approx(1, abs=1e-4) or not np.linalg.norm(cut)
        assert row @ cut >= 0  # the same direction


def test_a_logit_is_a_probability_however_far_out() -> None:
    logits = np.array([[-1e4], [-1.0], [0.0], [2.0], [1e4]], np.float32)
    expected = [0, 1 / (1 + np.e), 0.5, 1 / (1 + np.exp(-2)), 1]
    assert relevance(logits) == pytest.approx(expected, abs=1e-6)


def test_of_two_classes_the_first_says_yes() -> None:
    assert relevance(np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)).tolist() == pytest.approx(
        [0.9, 0.2]
    )


def test_the_best_come_first_and_equals_in_their_order() -> None:
    assert best([0.1, 0.9, 0.5, 0.9], 0) == [(1, 0.9), (3, 0.9), (2, 0.5), (0, 0.1)]
    assert best([0.1, 0.9, 0.5], 2) == [(1, 0.9), (2, 0.5)]
    assert best([0.1], 9) == [(0, 0.1)]
