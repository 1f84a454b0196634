"""What one of several workers may take of what is bounded over all of them."""

from hypothesis import given
from hypothesis import strategies as st

from edge.config import EdgeConfig


@given(
    workers=st.integers(1, 64),
    bodies_mib=st.integers(1, 4096),
    requests=st.integers(1, 100_000),
    body_mib=st.integers(1, 90),
    picture_mib=st.integers(1, 90),
)
def test_parts_make_the_whole_and_the_largest_body_fits(
    workers: int, bodies_mib: int, requests: int, body_mib: int, picture_mib: int
) -> None:
    whole = EdgeConfig(
        workers=workers,
        max_bodies_mib=bodies_mib,
        max_open_requests=requests,
        max_body_mib=body_mib,
        max_picture_body_mib=picture_mib,
    )
    part, largest = whole.of_one_worker(), max(body_mib, picture_mib)
    assert part.max_bodies_mib >= largest
    assert (
        part.max_bodies_mib == largest or 0 <= part.max_bodies_mib * workers - bodies_mib < workers
    )
    assert 0 <= part.max_open_requests * workers - requests < workers
    assert part.workers == workers
