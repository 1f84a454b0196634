"""Matting: cuts subjects out of pictures, and solves for the colours their edges had.

The arithmetic of foregrounds and backgrounds is `solving`; networks are `networks`; pictures as
bytes are `imaging`.
"""
