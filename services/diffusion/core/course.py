"""How far one picture is, and how long it still takes. Pure."""

from dataclasses import dataclass

from services.diffusion.core.pace import Pace
from services.diffusion.core.phases import Phase


@dataclass(slots=True)
class Course:
    """One picture of `px` pixels, from the call that makes it to its pixels."""

    px: int
    steps: int
    """Asked for; fewer are run when it starts from a picture."""
    began_s: float
    phase: Phase = Phase.CONDITION
    done: int = 0
    total: int = 0
    _phase_began_s: float = 0.0
    _step_ended_s: float = 0.0
    _step_s: float = 0.0

    def moved(self, phase: Phase, done: int, total: int, now_s: float) -> None:
        """A phase began, or got on."""
        if phase is not self.phase:
            self.phase, self.done, self.total = phase, 0, 0
            self._phase_began_s = self._step_ended_s = now_s
        if total:
            self.total = total
        if done > self.done:
            self.done, self._step_ended_s = done, now_s
            self._step_s = (now_s - self._phase_began_s) / done

    def left_s(self, pace: Pace, now_s: float) -> float | None:
        """Until its pixels are there; None: nothing is known yet."""
        in_phase_s = now_s - self._phase_began_s
        match self.phase:
            case Phase.CONDITION:
                whole_s = pace.picture_s(self.px, self.steps)
                return None if whole_s is None else max(0.0, whole_s - (now_s - self.began_s))
            case Phase.DENOISE:
                ran_s = self._step_ended_s - self._phase_began_s
                total = self.total or self.steps
                waited_s = now_s - self._step_ended_s
                return pace.denoise_left_s(self.px, self.done, total, ran_s, waited_s)
            case Phase.DECODE if self.done:
                return max(0.0, (self.total - self.done) * in_phase_s / self.done)
            case Phase.DECODE:
                return max(0.0, pace.decode_s(self.px, self._step_s) - in_phase_s)
        return 0.0
