"""Tokens: ours pass, all others do not, and hosts agree on one key."""

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.signing import Signer

SIGNER = Signer(b"k" * 32)


@given(st.text(min_size=1, max_size=256))
def test_what_was_signed_checks(text: str) -> None:
    assert SIGNER.check(SIGNER.sign(text)) == text
    assert Signer(b"other").check(SIGNER.sign(text)) is None


@given(st.text(max_size=400))
def test_strangers_are_refused_without_an_error(token: str) -> None:
    assert SIGNER.check(token) is None


@given(st.text(min_size=1, max_size=60), st.data())
def test_any_changed_character_spoils_a_token(text: str, data: st.DataObject) -> None:
    token = SIGNER.sign(text)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda c: c != token[place]))
    assert SIGNER.check(token[:place] + other + token[place + 1 :]) is None
    assert SIGNER.check(token + other) is None


@pytest.mark.parametrize("text", ["", "x" * 257])
def test_what_could_not_be_checked_is_not_signed(text: str) -> None:
    with pytest.raises(ValueError, match="1 to 256 characters"):
        SIGNER.sign(text)


def test_the_key_of_a_host_is_made_once_and_private(tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    token = Signer.from_dir(state).sign("x")
    assert Signer.from_dir(state).check(token) == "x"
    assert stat.S_IMODE((state / "secret").stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["secret"]
    assert Signer.from_dir(tmp_path / "other").check(token) is None


def test_services_that_start_together_agree(tmp_path: Path) -> None:
    start, tokens = threading.Barrier(8), list[str]()

    def begin() -> None:
        start.wait(5)
        tokens.append(Signer.from_dir(tmp_path).sign("x"))

    threads = [threading.Thread(target=begin) for _ in range(start.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(tokens) == start.parties
    assert len(set(tokens)) == 1
