"""What a network and a picture take, in MiB. Pure; sizes in, guesses from above out.

A network holds its weights, and while it runs its activations; a picture's stages hold its pixels,
its colours, and what their encoder needs. Processes were measured with U²-Net in both sizes.
"""

PICTURE_BYTES_PER_PX = 48
"""The most that the stages of a picture hold at once. Measured at 24 megapixels: WebP's encoder,
beside the picture, its matte and its colours; solving takes a third of that.
"""
CARD_BYTES_PER_PX = 224
"""Where colours are solved on a card: tensors of float32, measured with torch on the host."""
PICTURE_MIB = 4
"""However small it is: the solver's buffers."""

_PROCESS_MIB = 250
"""Interpreter, gRPC, numpy, onnxruntime, and the solver with its compiler."""
_TORCH_MIB = 350
"""torch's libraries beside that."""
_CARD_CONTEXT_MIB = 448
"""What a driver keeps for each process on a card, its compiled kernels included; a guess."""
_MIB = 1 << 20


def host_resident_mib(weights_bytes: int, *, torch: bool) -> int:
    """A loaded engine on the host: its process, and the weights as their library lays them out."""
    return _PROCESS_MIB + (_TORCH_MIB if torch else 0) + _ceil(weights_bytes * 5 // 4)


def card_resident_mib(weights_bytes: int) -> int:
    """A loaded engine's memory on a card."""
    return _CARD_CONTEXT_MIB + _ceil(weights_bytes)


def peak_mib(network_mib: int, weights_bytes: int, px: int, *, on_card: bool = False) -> int:
    """What a request for a picture of `px` adds: the network's run, and the picture's stages.

    A run lays out some of its weights once more, and the larger of two networks of one family has
    the larger activations: its weights stand for both.
    """
    bytes_per_px = CARD_BYTES_PER_PX if on_card else PICTURE_BYTES_PER_PX
    return network_mib + _ceil(weights_bytes) + PICTURE_MIB + _ceil(px * bytes_per_px)


def _ceil(size_bytes: int) -> int:
    return -(-size_bytes // _MIB)
