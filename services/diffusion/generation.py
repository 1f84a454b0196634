"""One request on a loaded model: from settled settings to pictures, and what a cancel means.

The pictures of a batch are made one after another, each as it would be alone; while the next is
made the last is encoded. In two calls, because the device is free when `paint` returns, and
`deliver` needs none of it.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace

from chassis import log
from imaging.values import Pixels
from services.diffusion.core.cache_key import cache_key
from services.diffusion.core.course import Course
from services.diffusion.core.leaving import Leave, decide
from services.diffusion.core.phases import Phase
from services.diffusion.encoding import encoded, encoded_preview
from services.diffusion.limits import MOST_SEED
from services.diffusion.loaded import LoadedModel
from services.diffusion.painter import Inputs, Painted, Sketch
from services.diffusion.values import (
    Event,
    File,
    Finish,
    Image,
    Origin,
    Preview,
    Progress,
    Settings,
    Timings,
)

_LOOK_EVERY_S = 0.05
"""How often a picture that is left to finish is looked at."""
_READ_OUT_S = 2.0
"""How long others may read their finished pictures before the process ends for a cancelled one."""

Emit = Callable[[Event], None]
"""Takes what happens, on the event loop. May raise the Fault that ends the request."""


class Generation:
    """The pictures of one request."""

    def __init__(
        self,
        model: LoadedModel,
        settings: Settings,
        inputs: Inputs,
        emit: Emit,
        arrived_s: float,
        lent_mib: int,
    ) -> None:
        self._model, self._settings, self._inputs, self._emit = model, settings, inputs, emit
        self._arrived_s, self._lent_mib = arrived_s, lent_mib
        self._prepared_s = time.monotonic() - arrived_s
        self._spent: dict[Phase, float] = dict.fromkeys(Phase, 0.0)
        self._waited_s = 0.0
        self._peak_mib = 0
        self._encoding: asyncio.Task[None] | None = None
        self._preview: asyncio.Task[None] | None = None
        self._course: Course | None = None
        self._index = 0

    async def paint(self) -> None:
        """Make the pictures; the device is free when it returns or raises.

        Cancelled, it waits for that, too: or ends the process, when that frees it sooner.
        """
        came_s = time.monotonic()
        try:
            async with self._model.turn:
                self._waited_s = time.monotonic() - came_s
                self._model.watch_peak(self._lent_mib)
                for index in range(self._settings.batch):
                    self._index = index
                    await self._picture(index)
                self._peak_mib = self._model.peak_mib()
        except BaseException:
            self._drop()
            raise

    async def deliver(self) -> None:
        """See the last files out, then finish."""
        try:
            await self._encodings()
        finally:
            self._drop()
        self._emit(Finish(self._timings(), self._peak_mib))

    async def _picture(self, index: int) -> None:
        seed = (self._settings.seed + index) % (MOST_SEED + 1)
        key = self._key(seed) if self._settings.cached else None
        known = self._model.cache.find(key) if key is not None else None
        if known is not None:
            await self._encodings()
            self._model.count(pictures=1, result_cache_hits=1)
            self._emit(self._image(index, seed, known, Origin.EXACT_RESULT_CACHE))
            return
        painted = await self._painted(index, seed)
        await self._encodings()
        self._encoding = asyncio.create_task(self._encode(index, seed, painted.pixels, key))

    async def _painted(self, index: int, seed: int) -> Painted:
        size, model = self._settings.size, self._model
        px = size.width_px * size.height_px
        self._course = Course(px, self._settings.steps, time.monotonic())
        self._emit(Progress(Phase.CONDITION, index, 0, self._settings.steps, self._left_ms()))
        sketch = Sketch(self._settings, seed, self._inputs)
        bridge = _Bridge(self, index, self._settings.previews.every_steps)
        native = asyncio.wrap_future(model.thread.submit(model.painter.paint, sketch, bridge))
        try:
            painted = await asyncio.shield(native)
        except asyncio.CancelledError:
            await self._leave(native)
            raise
        self._course = None
        self._model.count(pictures=1, denoise_steps=painted.steps)
        self._learn(painted, px)
        return painted

    async def _leave(self, native: "asyncio.Future[Painted]") -> None:
        """Return when the device is free of a picture that nobody waits for."""
        began_s = time.monotonic()
        while not native.done():
            now_s = time.monotonic()
            left_s = self._course.left_s(self._model.pace, now_s) if self._course else None
            waited_s, reload_s = now_s - began_s, self._model.reload_s
            leave = decide(left_s, waited_s, reload_s)
            if leave is Leave.RENEW and not self._others_read(waited_s):
                log.get().info("renewing", left_s=left_s, waited_s=waited_s, reload_s=reload_s)
                self._model.renew()
            with suppress(asyncio.CancelledError):  # it is told once; the device is still busy
                await asyncio.wait([native], timeout=_LOOK_EVERY_S)
        log.get().info("picture dropped", waited_s=round(time.monotonic() - began_s, 3))

    def _others_read(self, waited_s: float) -> bool:
        """Pictures of other requests are on their way out, and would be lost with the process."""
        return bool(self._model.delivering) and waited_s < _READ_OUT_S

    async def _encode(self, index: int, seed: int, pixels: Pixels, key: bytes | None) -> None:
        began_s = time.monotonic()
        self._emit(Progress(Phase.ENCODE, index, 0, 1, self._left_ms()))
        settings, model = self._settings, self._model
        file = await asyncio.to_thread(encoded, pixels, settings, model.key, seed)
        self._spent[Phase.ENCODE] += time.monotonic() - began_s
        # The library has read the adapters after their fingerprints were taken.
        if key is not None and await asyncio.to_thread(model.unchanged, settings.loras):
            model.cache.keep(key, file)
        self._emit(self._image(index, seed, file, Origin.GENERATED))

    async def _encodings(self) -> None:
        """Pictures leave in their order: wait for the one before."""
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            try:
                await encoding
            except asyncio.CancelledError:
                encoding.cancel()
                raise

    def moved(self, index: int, phase: Phase, done: int, total: int) -> None:
        """What the painter told."""
        if self._course is None or index != self._index:
            return
        self._course.moved(phase, done, total, time.monotonic())
        self._emit(Progress(phase, index, done, total, self._left_ms()))

    def preview(self, index: int, step: int, pixels: Pixels) -> None:
        """What the painter showed; dropped while another is encoded."""
        if self._preview is None or self._preview.done():
            self._preview = asyncio.create_task(self._encode_preview(index, step, pixels))

    async def _encode_preview(self, index: int, step: int, pixels: Pixels) -> None:
        max_px = self._settings.previews.max_px
        data = await asyncio.to_thread(encoded_preview, pixels, max_px)
        if self._course is not None and index == self._index:  # else the picture itself is there
            self._emit(Preview(index, step, data))

    def _drop(self) -> None:
        """Nothing more leaves."""
        for task in (self._encoding, self._preview):
            if task is not None:
                task.cancel()
        self._encoding = self._preview = None

    def _learn(self, painted: Painted, px: int) -> None:
        self._spent[Phase.CONDITION] += painted.condition_s
        self._spent[Phase.DENOISE] += painted.denoise_s
        self._spent[Phase.DECODE] += painted.decode_s
        self._model.pace.learn(
            px,
            condition_s=painted.condition_s,
            denoise_s=painted.denoise_s,
            steps=painted.steps,
            decode_s=painted.decode_s,
        )

    def _left_ms(self) -> int:
        """Expected time to the end of the request; 0: unknown."""
        size, pace, left_s = self._settings.size, self._model.pace, 0.0
        if self._course is not None:
            known_s = self._course.left_s(pace, time.monotonic())
            if known_s is None:
                return 0
            left_s = known_s
        others = self._settings.batch - self._index - 1
        picture_s = pace.picture_s(size.width_px * size.height_px, self._settings.steps)
        return max(1, round(1000 * (left_s + others * (picture_s or 0.0))))

    def _key(self, seed: int) -> bytes:
        size = replace(self._settings.size, rounded=False)  # another way to ask for the same
        settings = asdict(replace(self._settings, size=size))
        facts = (self._model.key, *self._model.facts)
        return cache_key(settings, seed, self._inputs.hashes, facts)

    def _image(self, index: int, seed: int, file: File, origin: Origin) -> Image:
        size = self._settings.size
        return Image(index, file, size.width_px, size.height_px, seed, origin)

    def _timings(self) -> Timings:
        ms = {phase: 1000 * spent_s for phase, spent_s in self._spent.items()}
        return Timings(
            engine_wait_ms=1000 * self._waited_s,
            condition_ms=1000 * self._prepared_s + ms[Phase.CONDITION],
            denoise_ms=ms[Phase.DENOISE],
            decode_ms=ms[Phase.DECODE],
            encode_ms=ms[Phase.ENCODE],
            total_ms=1000 * (time.monotonic() - self._arrived_s),
        )


class _Bridge:
    """Watches on the painter's thread, and tells on the event loop's."""

    def __init__(self, generation: Generation, index: int, every_steps: int) -> None:
        self._generation, self._index, self._every = generation, index, every_steps
        self._loop = asyncio.get_running_loop()

    def moved(self, phase: Phase, done: int, total: int) -> None:
        """Told on."""
        tell = self._generation.moved
        self._loop.call_soon_threadsafe(tell, self._index, phase, done, total)

    def preview(self, step: int, pixels: Pixels) -> None:
        """Told on, when it is time for one: the library shows more than it was asked for."""
        if self._every and step % self._every == 0:
            show = self._generation.preview
            self._loop.call_soon_threadsafe(show, self._index, step, pixels)
