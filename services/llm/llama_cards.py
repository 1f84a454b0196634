"""The cards that the native library can compute on, as it finds them itself.

llama-cpp-python binds no function for that, so this calls the ones of ggml below it. A build
without support for cards finds none; so does one whose driver does not answer.
"""

import ctypes

import llama_cpp as native
from llama_cpp._ggml import libggml

_CARD_TYPES = (1, 2)
"""ggml_backend_dev_type: a card with memory of its own, and one that shares the host's."""


def cards() -> list[str]:
    """What the drivers call them. Empty: everything is computed on the CPU."""
    if not native.llama_supports_gpu_offload():
        return []
    native.llama_backend_init()
    count, get = libggml.ggml_backend_dev_count, libggml.ggml_backend_dev_get
    count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, [ctypes.c_size_t]
    devices = [get(index) for index in range(count())]
    return [_description(device) for device in devices if _type(device) in _CARD_TYPES]


def _type(device: int) -> int:
    function = libggml.ggml_backend_dev_type
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_void_p]
    return int(function(device))


def _description(device: int) -> str:
    function = libggml.ggml_backend_dev_description
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return (function(device) or b"").decode("utf-8", "replace")
