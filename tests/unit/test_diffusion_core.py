"""Sizes, phases, pace, and what to do about a picture that nobody waits for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.diffusion.core.course import Course
from services.diffusion.core.leaving import Leave, decide
from services.diffusion.core.pace import Pace
from services.diffusion.core.phases import Phase, PhaseReader
from services.diffusion.core.prompts import most_tokens
from services.diffusion.core.sizes import SizeTooLargeError, settled
from services.diffusion.engine import Sizes

LIMITS = Sizes(multiple_px=16, min_side_px=64, max_side_px=2048, max_px=1 << 20)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_a_settled_size_is_accepted_and_never_smaller_than_asked(width: int, height: int) -> None:
    wide, high = (-(-max(side or 512, 64) // 16) * 16 for side in (width, height))
    if max(wide, high) > 2048 or wide * high > 1 << 20:
        with pytest.raises(SizeTooLargeError) as caught:
            settled(LIMITS, width, height, (512, 512))
        assert caught.value.max_px == 1 << 20
        return
    size = settled(LIMITS, width, height, (512, 512))
    assert (size.width_px, size.height_px) == (wide, high)
    assert size.rounded == ((wide, high) != (width or 512, height or 512))


def test_open_sides_are_those_of_the_picture_to_start_from() -> None:
    assert settled(LIMITS, 0, 0, (512, 512), (100, 200)).width_px == 112
    assert settled(LIMITS, 300, 0, (512, 512), (100, 200)).height_px == 208
    assert settled(LIMITS, 0, 0, (512, 256)).height_px == 256


LINES = (
    "stable-diffusion.cpp:3367 - generate_image 64x64",
    "stable-diffusion.cpp:3168 - get_learned_condition completed, taking 0.22s",
    "stable-diffusion.cpp:3401 - generating image: 1/1 - seed 1",
    "stable-diffusion.cpp:3432 - sampling completed, taking 2.61s",
    "stable-diffusion.cpp:3192 - decoding 1 latents",
)


def test_phases_follow_the_log_and_their_times_add_up() -> None:
    reader = PhaseReader(began_s=0.0)
    turned = [reader.told(line, float(at)) for at, line in enumerate(LINES)]
    assert turned == [False, False, True, True, False]
    reader.turn(Phase.ENCODE, 10.0)
    assert reader.spent_s == {Phase.CONDITION: 2.0, Phase.DENOISE: 1.0, Phase.DECODE: 7.0}


def test_words_of_a_caller_turn_no_phase() -> None:
    reader = PhaseReader()
    assert not reader.told("generating image: sampling completed", 1.0)
    assert reader.phase is Phase.CONDITION


@pytest.mark.parametrize(
    ("left_s", "waited_s", "leave"),
    [
        (9.9, 0.0, Leave.FINISH),
        (10.1, 0.0, Leave.RENEW),
        (None, 0.0, Leave.FINISH),
        (None, 10.0, Leave.RENEW),
        (0.5, 10.0, Leave.RENEW),
    ],
)
def test_the_smaller_of_the_work_left_and_a_reload(
    left_s: float | None, waited_s: float, leave: Leave
) -> None:
    assert decide(left_s, waited_s, 10.0) is leave


@given(
    work_s=st.floats(0, 100),
    guess=st.none() | st.floats(0, 100),
    reload_s=st.floats(0.1, 30),
)
def test_leaving_costs_at_most_twice_the_better_choice(
    work_s: float, guess: float | None, reload_s: float
) -> None:
    """Whatever is believed of the work left, as long as what is believed is no overestimate."""
    left_s = None if guess is None else min(guess, work_s)
    tick_s, now_s = reload_s / 50, 0.0
    while now_s < work_s and decide(left_s, now_s, reload_s) is Leave.FINISH:
        now_s += tick_s
    spent_s = work_s if now_s >= work_s else now_s + reload_s
    assert spent_s <= 2 * min(work_s, reload_s) + 2 * tick_s


def test_pace_is_learned_by_pixels() -> None:
    pace = Pace()
    assert pace.picture_s(100, 4) is None
    pace.learn(100, condition_s=1.0, denoise_s=4.0, steps=4, decode_s=2.0)
    assert pace.picture_s(100, 4) == pytest.approx(7.0)
    assert pace.picture_s(200, 2) == pytest.approx(1 + 4 + 4)
    pace.learn(100, condition_s=1.0, denoise_s=8.0, steps=4, decode_s=2.0)
    assert 7.0 < (pace.picture_s(100, 4) or 0) < 11.0


def test_a_course_trusts_its_own_steps_most() -> None:
    pace, course = Pace(), Course(100, 10, 0.0)
    assert course.left_s(pace, 0.5) is None
    course.moved(Phase.DENOISE, 0, 10, 1.0)
    assert course.left_s(pace, 1.5) is None
    course.moved(Phase.DENOISE, 2, 10, 5.0)
    assert course.left_s(pace, 5.0) == pytest.approx(8 * 2.0 + 2.0)  # a decode like a step
    assert course.left_s(pace, 6.0) == pytest.approx(8 * 2.0 + 1.0)
    pace.learn(100, condition_s=1.0, denoise_s=100.0, steps=10, decode_s=4.0)
    assert course.left_s(pace, 5.0) == pytest.approx(8 * 2.0 + 4.0)
    course.moved(Phase.DECODE, 0, 0, 21.0)
    assert course.left_s(pace, 22.0) == pytest.approx(3.0)
    course.moved(Phase.DECODE, 1, 4, 23.0)
    assert course.left_s(pace, 23.0) == pytest.approx(6.0)


def test_a_course_before_its_steps_goes_by_what_others_took() -> None:
    pace, course = Pace(), Course(100, 10, 0.0)
    pace.learn(100, condition_s=1.0, denoise_s=10.0, steps=10, decode_s=4.0)
    assert course.left_s(pace, 0.5) == pytest.approx(14.5)
    course.moved(Phase.DENOISE, 0, 10, 1.0)
    assert course.left_s(pace, 1.5) == pytest.approx(9.5 + 4.0)


@given(st.text(max_size=300), st.text(max_size=300))
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    assert most_tokens(text) <= most_tokens(text + more) <= 2 * len(text + more)


def test_tokens_of_plain_words() -> None:
    assert most_tokens("a cat") == 2
    assert most_tokens("photorealistic cats, 4k") == 4 + 1 + 1 + 1 + 1
    assert most_tokens("cat " * 4000) >= 4000
    assert most_tokens("a" * 32_000) == 8000
    assert most_tokens(" " * 32_000) > 1024
