"""The native library's callbacks: installed once, for good, and handed on to whoever listens.

They are global to the process, and the library keeps bare pointers to them: one that is replaced or
collected crashes the next call. So there is one of each, for ever; what changes is the listener.
What a callback raises would be swallowed, so nothing gets out of them but a line in the log.
"""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import stable_diffusion_cpp.stable_diffusion_cpp as sd

from chassis import log
from imaging.values import Pixels

DEBUG, INFO, WARN, ERROR = range(4)
"""The library's levels. Its debug lines hold prompts, so they are dropped at once."""
_MOST_LINE = 400
_FOLDERS = re.compile(r"/\S*/")
"""Where the library was built is nobody's business."""
_NO_PREVIEW, _PROJECTED, _SMALL_DECODER = range(3)


class Listener(Protocol):
    """Hears of one native call, on the thread that makes it."""

    def line(self, level: int, text: str) -> None:
        """A line of the library's log, INFO or above."""

    def step(self, done: int, total: int) -> None:
        """Steps, tiles or tensors."""

    def preview(self, step: int, pixels: Pixels) -> None:
        """What is there so far: (height, width, 3)."""

    def aborting(self, words: str) -> None:
        """The library found something that must not be; the process ends when this returns."""


class _Deaf:
    def line(self, level: int, text: str) -> None: ...

    def step(self, done: int, total: int) -> None: ...

    def preview(self, step: int, pixels: Pixels) -> None: ...

    def aborting(self, words: str) -> None: ...


_DEAF = _Deaf()
_listener: Listener = _DEAF


class listening:  # noqa: N801 - reads as a verb
    """`with listening(listener):` one native call. One at a time: calls share a thread."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        global _listener  # noqa: PLW0603 - the callbacks are global, too
        _listener = self._listener

    def __exit__(self, *_: object) -> None:
        global _listener  # noqa: PLW0603
        _listener = _DEAF


def show_previews(every_steps: int, *, small_decoder: bool) -> None:
    """Have the next call show what is there so far, or not (0)."""
    mode = (_SMALL_DECODER if small_decoder else _PROJECTED) if every_steps else _NO_PREVIEW
    sd.sd_set_preview_callback(_ON_PREVIEW, mode, max(1, every_steps), True, False, None)


def _safely(call: Callable[..., None], *args: Any) -> None:
    try:
        call(*args)
    except Exception:
        with suppress(Exception):
            log.get().exception("bug in a callback")


def _line(level: int, text: bytes | None, _: object) -> None:
    if level > DEBUG and text:
        line = text[:_MOST_LINE].decode(errors="replace").strip()
        _safely(_listener.line, level, line)


def _step(done: int, total: int, _seconds: float, _: object) -> None:
    _safely(_listener.step, done, total)


def _preview(step: int, count: int, frames: Any, _noisy: bool, _: object) -> None:
    if count and frames:
        _safely(lambda: _listener.preview(step, pixels_of(frames[0])))


def pixels_of(image: Any) -> Pixels:
    """A copy of an `sd_image_t`'s pixels, (height, width, 3). Raises ValueError for another."""
    if not image.data or image.channel != 3:
        raise ValueError(f"a picture of {image.channel} channels")
    shape = (image.height, image.width, 3)
    return np.ctypeslib.as_array(image.data, shape).copy()


def _abort(message: bytes | None) -> None:
    words = (message or b"").decode(errors="replace").strip()
    _safely(lambda: _listener.aborting(_FOLDERS.sub("", words)[-_MOST_LINE:]))


_ON_LINE = sd.sd_log_callback(_line)
_ON_STEP = sd.sd_progress_callback(_step)
_ON_PREVIEW = sd.sd_preview_callback(_preview)
_ON_ABORT = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_abort)

sd.sd_set_log_callback(_ON_LINE, None)
sd.sd_set_progress_callback(_ON_STEP, None)
sd._lib.ggml_set_abort_callback(_ON_ABORT)  # noqa: SLF001 - bound by nobody
