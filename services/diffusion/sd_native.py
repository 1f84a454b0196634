"""stable-diffusion-cpp made safe: a context that is there or a fault, pictures that are freed.

The library's own Python classes are left aside: they redirect the process's standard streams, read
adapters out of prompts, install callbacks that are collected, and never free a picture.
"""

import ctypes
import importlib.metadata
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stable_diffusion_cpp.stable_diffusion_cpp as sd

from chassis import log
from imaging.values import Pixels
from services.diffusion import sd_callbacks
from services.diffusion.sd_params import Call
from services.diffusion.values import Previews

_PACKAGE = "stable-diffusion-cpp-python"
_MOST_ERRORS = 8
_MOST_LINES = 200
"""Of one native call, that reach the log."""
_PLACE = re.compile(r"^\S+:\d+\s+- ")
_CARD_TYPES = (1, 2)
"""ggml_backend_dev_type: a card with memory of its own, and one that shares the host's."""

_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class NativeError(Exception):
    """The library gave nothing; the message is what it said about it."""


class Ear:
    """Hears a native call: its errors are kept, its lines go to the log, the rest is passed on."""

    def __init__(
        self,
        on_line: Callable[[str], None] = lambda _: None,
        on_step: Callable[[int, int], None] = lambda _done, _total: None,
        on_preview: Callable[[int, Pixels], None] = lambda _step, _pixels: None,
        on_abort: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_line, self._on_step, self._on_preview = on_line, on_step, on_preview
        self._on_abort = on_abort
        self.errors: deque[str] = deque(maxlen=_MOST_ERRORS)
        self._lines = 0

    def line(self, level: int, text: str) -> None:
        """To the log, one level lower than the library has it: its faults are told elsewhere."""
        if level == sd_callbacks.ERROR:
            self.errors.append(_PLACE.sub("", text))
        self._lines += 1
        if self._lines <= _MOST_LINES:
            write = log.get().debug if level == sd_callbacks.INFO else log.get().info
            write("native", line=text)
        self._on_line(text)

    def step(self, done: int, total: int) -> None:
        """Passed on."""
        self._on_step(done, total)

    def preview(self, step: int, pixels: Pixels) -> None:
        """Passed on."""
        self._on_preview(step, pixels)

    def aborting(self, words: str) -> None:
        """Logged and passed on: the last that is heard of this process."""
        log.get().critical("native library aborts", why=words)
        self._on_abort(words)


class Context:
    """A loaded model. Every call from one thread."""

    def __init__(self, call: Call, ear: Ear) -> None:
        """Raises NativeError."""
        with sd_callbacks.listening(ear):
            self._pointer = sd.new_sd_ctx(ctypes.byref(call.params))
        if not self._pointer:
            raise NativeError(_what_was_said(ear))

    def generate(self, call: Call, ear: Ear, previews: Previews) -> Pixels:
        """One picture, (height, width, 3). Raises NativeError."""
        sd_callbacks.show_previews(previews.every_steps, small_decoder=previews.decoded)
        with sd_callbacks.listening(ear):
            images = sd.generate_image(self._pointer, ctypes.byref(call.params))
        if not images:
            raise NativeError(_what_was_said(ear))
        try:
            return sd_callbacks.pixels_of(images[0])
        except ValueError as error:
            raise NativeError(str(error)) from None
        finally:
            # Both were allocated with malloc, and the library has no function for it.
            _free(ctypes.cast(images[0].data, ctypes.c_void_p))
            _free(ctypes.cast(images, ctypes.c_void_p))

    def close(self) -> None:
        """Free it; it may be said again."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            sd.free_sd_ctx(pointer)


def library() -> str:
    """Package, version, and the build of the library by its size and time."""
    path = Path(sd._lib._name)  # noqa: SLF001 - where it was loaded from
    stat = path.stat()
    version = importlib.metadata.version(_PACKAGE)
    return f"{_PACKAGE} {version} ({stat.st_size}:{stat.st_mtime_ns})"


def card() -> str:
    """The first card that the library computes on, as its driver calls it; empty: none."""
    native = sd._lib  # noqa: SLF001 - bound by nobody
    native.ggml_backend_dev_count.restype = ctypes.c_size_t
    native.ggml_backend_dev_get.restype = ctypes.c_void_p
    native.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for index in range(native.ggml_backend_dev_count()):
        device = native.ggml_backend_dev_get(index)
        if _of_device("ggml_backend_dev_type", ctypes.c_int, device) in _CARD_TYPES:
            said = _of_device("ggml_backend_dev_description", ctypes.c_char_p, device)
            return str((said or b"").decode(errors="replace"))
    return ""


def _of_device(name: str, kind: Any, device: int) -> Any:
    function = getattr(sd._lib, name)  # noqa: SLF001
    function.restype, function.argtypes = kind, [ctypes.c_void_p]
    return function(device)


def _what_was_said(ear: Ear) -> str:
    return "; ".join(ear.errors) or "it did not say why"
