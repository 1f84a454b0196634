"""How long a picture will take, from how long others took. Pure.

Steps and decodes are taken to cost as much as they have pixels: not exact, for attention grows with
their square, but a picture's own steps soon say better.
"""

from dataclasses import dataclass, field

_WEIGHT = 0.3
"""Of the newest figure; older ones fade."""


@dataclass(slots=True)
class Pace:
    """What the phases of a model's pictures cost."""

    condition_s: float = 0.0
    step_s_per_px: float = 0.0
    decode_s_per_px: float = 0.0
    _seen: set[str] = field(default_factory=set)

    def learn(
        self, px: int, *, condition_s: float, denoise_s: float, steps: int, decode_s: float
    ) -> None:
        """A picture of `px` pixels is finished; `steps` were run in `denoise_s`."""
        self._mix("condition_s", condition_s)
        if steps:
            self._mix("step_s_per_px", denoise_s / steps / px)
        self._mix("decode_s_per_px", decode_s / px)

    def _mix(self, name: str, figure: float) -> None:
        weight = _WEIGHT if name in self._seen else 1.0
        self._seen.add(name)
        setattr(self, name, (1 - weight) * getattr(self, name) + weight * figure)

    def picture_s(self, px: int, steps: int) -> float | None:
        """All of a picture that is not begun; None: nothing is known yet."""
        if "step_s_per_px" not in self._seen:
            return None
        return self.condition_s + steps * self.step_s_per_px * px + self.decode_s_per_px * px

    def denoise_left_s(
        self, px: int, done: int, total: int, ran_s: float, since_step_s: float
    ) -> float | None:
        """From the middle of the steps to the finished picture; None: nothing is known yet.

        `done` of `total` steps took `ran_s`, and the running one began `since_step_s` ago.
        """
        if done:
            step_s = ran_s / done
        elif "step_s_per_px" in self._seen:
            step_s = self.step_s_per_px * px
        else:
            return None
        running_s = max(0.0, (total - done) * step_s - since_step_s)
        return running_s + self.decode_s(px, step_s)

    def decode_s(self, px: int, step_s: float = 0.0) -> float:
        """Latents to pixels; as long as a step where none was seen yet."""
        return self.decode_s_per_px * px if "decode_s_per_px" in self._seen else step_s
