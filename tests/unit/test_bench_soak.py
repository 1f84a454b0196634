"""Whether memory stayed flat, and which answers of a soak are wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.soak.memory import Sample
from bench.soak.mix import KINDS, Kind, complaint, text_of
from bench.soak.verdict import MOST_GROWTH, by_role, grown, in_all

SECONDS = [float(at) for at in range(0, 600, 2)]


def test_what_grows_in_the_warm_up_alone_is_flat() -> None:
    growth = grown(SECONDS, [100.0 + min(at, 110) for at in SECONDS])
    assert growth.flat
    assert growth.share == growth.mib_per_h == pytest.approx(0.0)


@given(st.floats(0.0, 1.0), st.floats(50.0, 5000.0))
def test_a_leak_is_seen_by_its_size(leak_mib_per_s: float, start_mib: float) -> None:
    growth = grown(SECONDS, [start_mib + leak_mib_per_s * at for at in SECONDS])
    assert growth.mib_per_h == pytest.approx(3600 * leak_mib_per_s, abs=1e-3)
    between_s = 0.75 * 0.8 * SECONDS[-1]  # from the middle of one quarter to that of the other
    assert growth.last_mib - growth.first_mib == pytest.approx(leak_mib_per_s * between_s, rel=0.02)
    assert growth.flat == (growth.share <= MOST_GROWTH)


def test_one_peak_is_no_leak_and_shrinking_no_fault() -> None:
    peak = [200.0 if at == 500 else 100.0 for at in SECONDS]
    assert grown(SECONDS, peak).flat
    assert grown(SECONDS, peak[::-1]).flat
    assert grown(SECONDS, [1000.0 - at for at in SECONDS]).flat


def test_too_few_samples_do_not_tell() -> None:
    with pytest.raises(ValueError, match="run longer"):
        grown(SECONDS[:9], [1.0] * 9)
    with pytest.raises(ValueError, match="run longer"):
        grown([], [])


def test_a_role_that_is_not_always_there_counts_as_nothing_then() -> None:
    samples = [Sample(at, {"edge": 10.0} | ({"llm": 5.0} if at > 300 else {})) for at in SECONDS]
    roles = by_role(samples)
    assert roles["edge"].flat
    assert roles["llm"].first_mib == 0.0
    assert in_all(samples).share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("status", "body", "wrong"),
    [
        (200, "{}", False),
        (503, '{"error": {}}', True),
        (200, 'data: {"choices": []}\n\ndata: [DONE]\n\n', False),
        (200, 'data: {"error": {"message": "x"}}\n\n', True),
        (200, 'event: error\ndata: {"type": "error"}\n\n', True),
        (200, ': keepalive\n\ndata: {"error": null}\n\n', False),
    ],
)
def test_a_stream_that_ends_in_an_error_is_wrong(status: int, body: str, wrong: bool) -> None:
    kind = Kind("x", "/x", lambda text: {"text": text})
    assert bool(complaint(kind, status, body)) is wrong


def test_no_two_requests_are_alike() -> None:
    assert len({text_of(number) for number in range(1000)}) == 1000
    assert len({kind.name for kind in KINDS}) == len(KINDS)
