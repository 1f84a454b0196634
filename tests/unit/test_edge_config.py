"""Where an edge may listen, and what one of several workers may take of what is bounded."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edge.config import EdgeConfig

ANYWHERE = ("0.0.0.0:8080", "[::]:8080", "192.0.2.7:80", "edge.example:443")
HERE = ("127.0.0.1:8080", "127.9.9.9:0", "[::1]:8080", "[::ffff:127.0.0.1]:8080", "localhost:8080")


@pytest.mark.parametrize("listen", ANYWHERE)
def test_only_with_keys_does_it_listen_anywhere(listen: str) -> None:
    assert EdgeConfig(listen=listen, keys_file=Path("keys.yaml")).listen == listen
    with pytest.raises(ValidationError, match=r"set edge\.keys_file"):
        EdgeConfig(listen=listen)


@pytest.mark.parametrize("listen", HERE)
def test_without_keys_it_listens_here(listen: str) -> None:
    assert EdgeConfig(listen=listen).listen == listen


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
