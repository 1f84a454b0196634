"""Foreground and background colours out of a picture and its alpha matte.

`cpu` solves on numpy arrays, `device` on torch tensors where they are; `schedule` says what both
solve, with the equations and their source. No networks, no files, no wire here.
"""

from services.matte.solving.cpu import estimate, estimate_f32, peak_bytes, warm_up
from services.matte.solving.values import Solved

__all__ = ["Solved", "estimate", "estimate_f32", "peak_bytes", "warm_up"]
