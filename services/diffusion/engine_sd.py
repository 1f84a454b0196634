"""The painter over stable-diffusion-cpp.

The weights are proved at load by a picture of the smallest size in one step: files that do not
belong together would otherwise end the process at the first request, without a word that helps.
"""

import time
from collections.abc import Callable

from chassis.errors import Fault, Reason
from imaging.values import Pixels
from services.diffusion import sd_native
from services.diffusion.core.phases import Phase, PhaseReader
from services.diffusion.engine import EngineSpec
from services.diffusion.limits import size_of
from services.diffusion.painter import Painted, Sketch, Watcher
from services.diffusion.sd_native import Context, Ear, NativeError
from services.diffusion.sd_params import context_call, picture_call
from services.diffusion.settling import trial

LastWords = Callable[[Fault], None]
"""Told why the process is about to be ended by the native library."""


class SdPainter:
    """A Painter; one in a process, for the library's callbacks are global."""

    def __init__(self, spec: EngineSpec, last_words: LastWords = lambda _: None) -> None:
        self._spec = spec
        self._last_words = last_words
        self._context: Context | None = None
        self.library = sd_native.library()
        self.device = ""

    def load(self, progress: Callable[[float], None]) -> None:
        """See Painter."""
        ear = Ear(on_step=lambda done, total: progress(done / max(1, total)))
        try:
            self._context = Context(context_call(self._spec), ear)
        except NativeError as error:
            raise Fault(Reason.MODEL_FAILED, _refused(str(error))) from None
        self.device = sd_native.card()
        self._prove()

    def paint(self, sketch: Sketch, watcher: Watcher) -> Painted:
        """See Painter."""
        following = _Following(watcher)
        ear = Ear(following.line, following.step, watcher.preview, self._crash)
        try:
            pixels = self._made(sketch, ear)
        except NativeError as error:
            raise Fault(
                Reason.MODEL_FAILED, f"The model made no picture: {error}. Its log says more."
            ) from None
        return following.painted(pixels)

    def close(self) -> None:
        """See Painter."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def _made(self, sketch: Sketch, ear: Ear) -> Pixels:
        assert self._context is not None  # noqa: S101 - load comes first
        return self._context.generate(
            picture_call(self._spec, sketch),
            ear,
            sketch.settings.previews,
        )

    def _prove(self) -> None:
        def misfit(words: str) -> None:
            self._last_words(Fault(Reason.MODEL_FAILED, _refused(words)))

        size = size_of(self._spec, self._spec.sizes.min_side_px, self._spec.sizes.min_side_px)
        try:
            self._made(Sketch(trial(self._spec, size), 0), Ear(on_abort=misfit))
        except NativeError as error:
            raise Fault(Reason.MODEL_FAILED, _refused(str(error))) from None

    def _crash(self, words: str) -> None:
        self._last_words(
            Fault(Reason.ENGINE_CRASHED, f"The diffusion library ended its process: {words}")
        )


class _Following:
    """One picture, from the library's words to phases, steps and times."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._reader = PhaseReader(began_s=time.monotonic())
        self._steps = 0

    def line(self, text: str) -> None:
        if self._reader.told(text, time.monotonic()):
            self._watcher.moved(self._reader.phase, 0, 0)

    def step(self, done: int, total: int) -> None:
        if self._reader.phase is Phase.DENOISE:
            self._steps = max(self._steps, done)
        if self._reader.phase is not Phase.CONDITION:  # there it is files that are read
            self._watcher.moved(self._reader.phase, done, total)

    def painted(self, pixels: Pixels) -> Painted:
        self._reader.turn(Phase.ENCODE, time.monotonic())
        spent = self._reader.spent_s
        return Painted(
            pixels,
            condition_s=spent.get(Phase.CONDITION, 0.0),
            denoise_s=spent.get(Phase.DENOISE, 0.0),
            decode_s=spent.get(Phase.DECODE, 0.0),
            steps=self._steps,
        )


def _refused(why: str) -> str:
    return (
        f"The model's files are not what they should be, or do not belong together: {why}. Compare "
        "`files` in the configuration with what the family needs."
    )
