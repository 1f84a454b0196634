"""How the estimation is done, whatever the device: the energy, its levels and their sweeps.

A picture I with alpha matte a is taken to be I = a F + (1 - a) B. Three numbers do not tell six,
so F and B are asked to be smooth, the more so where a changes (Germer, Uelwer, Conrad, Harmeling,
"Fast Multi-Level Foreground Estimation", 2020, arXiv:2006.14970). With v = (a, 1 - a), x = (F, B)
of a channel, and the four neighbours j of pixel i:

    E(x) = sum_i [ (v_i . x_i - I_i)^2 + 1/2 sum_j d_ij |x_i - x_j|^2 ],   d_ij = e + |a_i - a_j|

Setting the derivative by x_i to zero gives a system of two by two, (S + v v^T) x = S m + v I, with
S = sum_j d_ij and m = sum_j d_ij x_j / S. It has a closed form (Sherman, Morrison):

    x = m + v r / (S + |v|^2),   r = I - v . m

Over-relaxing all of it makes known colours swing. What is relaxed by w (Young, 1954) is therefore
only what is smoothness, never what is data:

    m' = x + w (m - x),   r = I - v . m',   x <- m' + v r / (S / w + |v|^2)

That is x <- x + M^-1 (v I + S m - (S + v v^T) x) with M = S / w + v v^T: its fixed point is the
minimum of E, and taken over the pixels of one colour of a chessboard after the other it converges
for any 0 < w < 2, as 2 M exceeds the diagonal block S + v v^T (Ostrowski, Reich). Colours are kept
within 0 and 1. A neighbour outside of the picture is the pixel itself.

Level l is every 2^l-th pixel of every 2^l-th row; averaging would blend away the edges that the
data is in. It begins with the colours of level l + 1 and, between these pixels, with what is
halfway; the coarsest, a single pixel, with the mean colours of what is surely foreground and of
what is surely background.

Smoothness blurs what is known where the matte jumps: at last, pixels that are all foreground or all
background get the picture's own colours. Others do not: to make v . x = I of them, too, would lower
the error further where mattes are exact (by a tenth), and raise it where they are not, as a
network's are (by a twentieth, with mattes of 320 pixels enlarged).
"""

from collections.abc import Iterator
from dataclasses import dataclass

SURELY_FOREGROUND = 0.9
SURELY_BACKGROUND = 0.1
_SAMPLES = 128
"""Mean colours are taken over at most this many rows and columns."""


@dataclass(frozen=True, slots=True)
class Level:
    """Every `step`-th pixel and row of a picture, and how often all of them are relaxed."""

    step: int
    height: int
    width: int
    sweeps: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """The numbers that decide between speed and error; measured by bench/matte."""

    epsilon: float = 1e-5
    relaxation: float = 1.7
    finest_sweeps: tuple[int, ...] = (3, 4, 8)
    """Of the picture itself, of its half, and so on. Few where pixels are many."""
    sweeps: int = 10
    """Of all coarser levels."""

    def levels(self, height: int, width: int) -> Iterator[Level]:
        """From the single pixel to the picture."""
        for power in range((max(height, width) - 1).bit_length(), -1, -1):
            fine = power < len(self.finest_sweeps)
            yield Level(
                1 << power,
                -(-height >> power),
                -(-width >> power),
                self.finest_sweeps[power] if fine else self.sweeps,
            )


def sample_step(height: int, width: int) -> int:
    """The distance of the pixels that the mean colours are taken from."""
    return -(-max(height, width) // _SAMPLES)
