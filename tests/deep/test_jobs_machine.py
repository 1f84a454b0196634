"""Random histories of jobs, in which the world may end between any two effects.

A job that was accepted ends exactly once, a step is recorded at most once and not run again, the
files are those that the rows refer to, and all bounds hold: whatever happens, in whatever order.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.jobs.core.retries import AWAY, BREAKDOWNS
from services.jobs.core.values import Accepted
from tests.deep.history import PATIENCE, histories
from tests.jobs_world import WORKS, World, WorldEnds, draft

pytestmark = PATIENCE

CRASH = st.none() | st.integers(0, 8)
REASONS = st.sampled_from([*sorted(AWAY | BREAKDOWNS), "invalid_request", "never_fits"])


class Jobs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.names = 0
        self.answered: set[str] = set()
        """Jobs whose submitter has heard that they are accepted."""
        self.keys: dict[str, str] = {}

    def _do(self, crash: int | None, act: Any) -> Any:
        self.world.left = crash
        try:
            said = act()
        except WorldEnds:
            said = None
            self._restart(crash)
        self.world.left = None
        return said

    def _restart(self, crash: int | None) -> None:
        self.world.left = crash
        try:
            self.world.restart()
        except WorldEnds:
            self.world.restart()

    @rule(work=st.sampled_from(sorted(WORKS)), size=st.sampled_from([0, 50, 400]), crash=CRASH)
    def submit(self, work: str, size: int, crash: int | None) -> None:
        self.names += 1
        name = f"j{self.names}"
        said = self._do(crash, lambda: self.world.submit(draft(name, work, input_bytes=size)))
        if isinstance(said, Accepted):
            self.answered.add(name)

    @rule(key=st.sampled_from("ab"), work=st.sampled_from(["picture", "cutout"]), crash=CRASH)
    def submit_with_key(self, key: str, work: str, crash: int | None) -> None:
        self.names += 1
        name = f"j{self.names}"
        said = self._do(crash, lambda: self.world.submit(draft(name, work, key=key)))
        if not isinstance(said, Accepted):
            return
        known = self.keys.get(key)
        if known in self.world.rows and self.world.rows[known].idempotency_key == key:
            assert (said.job.job_id, said.existing) == (known, True), "the key made a second job"
        self.keys[key] = said.job.job_id
        self.answered.add(said.job.job_id)

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data(), size=st.sampled_from([10, 100, 300]), crash=CRASH)
    def a_step_is_made(self, data: Any, size: int, crash: int | None) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.world.calls)))
        self._do(crash, lambda: self.world.made(job_id, size))

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data(), reason=REASONS, crash=CRASH)
    def a_step_fails(self, data: Any, reason: str, crash: int | None) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.world.calls)))
        self._do(crash, lambda: self.world.failed(job_id, reason))

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data(), progress=st.floats(0, 1))
    def a_step_goes_on(self, data: Any, progress: float) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.world.calls)))
        self.world.progressed(job_id, progress)

    @precondition(lambda self: self.world.rows)
    @rule(data=st.data(), crash=CRASH)
    def cancel(self, data: Any, crash: int | None) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.world.rows)))
        self._do(crash, lambda: self.world.cancel(job_id))

    @precondition(lambda self: self.world.stopping)
    @rule(data=st.data(), crash=CRASH)
    def a_stopped_step_ends(self, data: Any, crash: int | None) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.world.stopping)))
        self._do(crash, lambda: self.world.stopped(job_id))

    @rule(later_ms=st.sampled_from([1, 1500, 70_000, 400_000]), crash=CRASH)
    def time_passes(self, later_ms: int, crash: int | None) -> None:
        self._do(crash, lambda: self.world.tick(later_ms))

    @rule(crash=CRASH)
    def the_world_ends(self, crash: int | None) -> None:
        self._restart(crash)
        self.world.left = None

    @invariant()
    def all_rules_hold(self) -> None:
        self.world.check()
        for job_id in self.answered:
            assert job_id in self.world.rows or job_id in self.world.judge.ends, "it was lost"

    def teardown(self) -> None:
        """Left in peace, everything comes to its end, without waiting for anything but time."""
        for _ in range(200):
            for job_id in list(self.world.calls):
                self.world.made(job_id, 10)
            if not self.world.calls:
                at_ms = self.world.book.next_at_ms()
                if at_ms is None:
                    break
                self.world.tick(max(0, at_ms - self.world.now_ms))
        assert not self.world.rows, "something never ended, or never went"
        assert self.answered <= set(self.world.judge.ends)


TestJobs = Jobs.TestCase
TestJobs.settings = histories(usual=150, deep=10_000, steps=40)
