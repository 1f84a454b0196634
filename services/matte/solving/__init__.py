"""Foreground and background colours out of a picture and its alpha matte.

Multi-level method of Germer, Uelwer, Conrad, Harmeling, "Fast Multi-Level Foreground Estimation"
(2020). No networks, no files, no wire here: arrays in, arrays out.
"""

from services.matte.solving.cpu import Solved, estimate, estimate_f32, peak_bytes, warm_up

__all__ = ["Solved", "estimate", "estimate_f32", "peak_bytes", "warm_up"]
