"""What is made of a model's raw vectors: unit length, fewer dimensions, scores. Pure numpy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def unit(rows: Floats, dimensions: int = 0) -> Floats:
    """`rows` cut to their first `dimensions` (0: all), each of length 1; what is 0 stays 0.

    [n, d] → [n, dimensions], float32.
    """
    # In float64: the squares of small numbers are nothing in float32.
    cut = rows[:, : dimensions or None].astype(np.float64)
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    units: Floats = np.divide(cut, lengths, out=np.zeros_like(cut), where=lengths > 0).astype(
        np.float32
    )
    return units


def relevance(logits: Floats) -> Floats:
    """The scores of a rank head as probabilities: [n, classes] → [n].

    One class: its logit, through a sigmoid. Several: the library has made probabilities of them,
    and the first is the one that says yes.
    """
    if logits.shape[1] > 1:
        return logits[:, 0]
    # By tanh, which does not overflow.
    return np.float32(0.5) * (1 + np.tanh(logits[:, 0] / 2))


def best(scores: Sequence[float], top_n: int) -> list[tuple[int, float]]:
    """(index, score), best first, the first of equals first; `top_n` 0: all."""
    ranked = sorted(enumerate(scores), key=lambda pair: -pair[1])
    return ranked[: top_n or None]
