"""`cohabit keys`: what it writes, what it leaves alone, and what it shows."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.console import Refused
from cli.keys import editing
from cli.keys.page import state_of
from cli.keys.shell import moment
from cli.main import app
from edge.keys.entry import Key
from edge.keys.file import NAME, read_keys

HASH = "sha256:" + "0" * 64
FILE = f"""\
# The team's keys.

alice:  # she asked in May
  hash: {HASH}
  tier: sub  # for now
  models:
    - smol
    # and its
    - twins
# Of the night shift.
bob:
    disabled: true   # until June
    hash: {HASH[:-1]}1
"""


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["keys", *words])
    if isinstance(result.exception, Refused):
        return 1, result.stdout, str(result.exception)
    return result.exit_code, result.stdout, result.stderr


def made(path: Path, *words: str) -> str:
    """The secret that a command prints."""
    code, out, err = run(*words, "--file", str(path))
    assert code == 0, err
    (secret,) = out.splitlines()
    assert secret not in path.read_text()
    return secret


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def test_a_key_is_made_and_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    words = ("--tier", "sub", "--model", "smol", "--model", "twins", "--concurrent", "3")
    more = ("--requests-per-minute", "60", "--expires", "2027-01-31", "--fairness-key", "team")
    secret = made(path, "add", "alice", *words, *more)
    assert len(secret) == len("sk-cohabit-") + 43  # 256 bits
    (key,) = read_keys(path)
    assert key.digests == (digest(secret),)
    assert key.models == frozenset({"smol", "twins"})
    assert (key.tier, key.fairness_key) == ("sub", "team")
    assert (key.bounds.requests_per_minute, key.bounds.concurrent) == (60, 3)
    assert key.expires_unix_s == 1_801_353_600.0
    assert path.stat().st_mode & 0o777 == 0o600
    assert made(path, "add", "bob") != secret


def test_a_key_that_watches_asks_no_model(tmp_path: Path) -> None:
    made(tmp_path / "k", "add", "prometheus", "--signals")
    made(tmp_path / "k", "add", "both", "--signals", "--model", "smol")
    watching, both = read_keys(tmp_path / "k")
    assert (watching.signals, watching.models) == (True, frozenset())
    assert (both.signals, both.models) == (True, frozenset({"smol"}))


def test_a_key_is_rotated_in_two_steps(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    first = made(path, "add", "alice")
    second = made(path, "rotate", "alice")
    assert read_keys(path)[0].digests == (digest(second), digest(first))
    assert run("rotate", "alice", "--finish", "--file", str(path))[0] == 0
    assert read_keys(path)[0].digests == (digest(second),)


def test_a_file_keeps_its_comments_its_mode_and_its_link(tmp_path: Path) -> None:
    target, path = tmp_path / "real.yaml", tmp_path / "keys.yaml"
    target.write_text(FILE)
    target.chmod(0o640)
    path.symlink_to(target)
    for words in (("disable", "alice"), ("enable", "bob"), ("add", "carol")):
        assert run(*words, "--file", str(path))[0] == 0
    text = target.read_text()
    assert path.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert "alice:  # she asked in May\n  disabled: true\n  hash" in text
    assert "disabled: true   # until June" not in text
    assert [key.disabled for key in read_keys(path)] == [True, False, False]
    assert run("remove", "alice", "--file", str(path))[0] == 0
    assert target.read_text().startswith("# The team's keys.\n\n# Of the night shift.\nbob:\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "alice"), "There is a key alice already"),
        (("add", "a b"), "no name for a key"),
        (("add", "x", "--expires", "soon"), "--expires soon is no time"),
        (("add", "x", "--fairness-key", " x"), "The edge would not take this"),
        (("disable", "zoe"), "There is no key zoe"),
        (("rotate", "zoe"), "There is no key zoe"),
        (("remove", "zoe"), "There is no key zoe"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(FILE)
    code, out, err = run(*words, "--file", str(path))
    assert (code, out) == (1, "")
    assert said in err
    assert path.read_text() == FILE
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_wrong_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("alice: {hash: x}\n")
    assert run("add", "bob", "--file", str(path))[0] == 2
    assert path.read_text() == "alice: {hash: x}\n"


def test_an_entry_on_one_line_is_left_to_its_author(tmp_path: Path) -> None:
    text = f"alice: {{hash: {HASH}}}\n"
    with pytest.raises(Refused, match="edit its file by hand"):
        editing.changed(text, "alice", {"disabled": True})
    assert editing.removed(text, "alice") == ""


def test_the_file_is_the_edges_own(tmp_path: Path) -> None:
    config = tmp_path / "cohabit.yaml"
    config.write_text("edge: {keys_file: keys/k.yaml}\n")
    (tmp_path / "keys").mkdir()
    assert run("add", "alice", "--config", str(config))[0] == 0
    assert read_keys(tmp_path / "keys" / "k.yaml")[0].name == "alice"
    config.write_text("edge: {}\n")
    code, _, err = run("list", "--config", str(config))
    assert (code, "names no edge.keys_file" in err) == (1, True)


def test_the_list_shows_everything_but_hashes(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(FILE)
    _, page, _ = run("list", "--file", str(path))
    _, told, _ = run("list", "--json", "--file", str(path))
    assert "alice  active" in page
    assert "bob    disabled" in page
    assert [key["models"] for key in json.loads(told)] == [["smol", "twins"], None]
    for shown in (page, told):
        assert "0000" not in shown


def test_what_state_a_key_is_in() -> None:
    one, two = bytes(31) + b"1", bytes(31) + b"2"
    assert state_of(Key("a", (one,), "a"), 5.0) == "active"
    assert state_of(Key("a", (one, two), "a"), 5.0) == "rotating"
    assert state_of(Key("a", (one,), "a", expires_unix_s=5.0), 5.0) == "expired"
    assert state_of(Key("a", (one,), "a", expires_unix_s=5.1, disabled=True), 5.0) == "disabled"


def test_times_as_people_give_them() -> None:
    now = datetime(2027, 1, 1, 12, 30, 15, 999, UTC)
    assert moment("90d", now) == datetime(2027, 4, 1, 12, 30, 15, tzinfo=UTC)
    assert moment("2027-01-31") == datetime(2027, 1, 31, tzinfo=UTC)
    assert moment("2027-01-31T18:00:00+01:00") == datetime(2027, 1, 31, 17, tzinfo=UTC)
    assert moment(None) is None
    with pytest.raises(Refused):
        moment("99999999999d")


NAMES = st.from_regex(NAME, fullmatch=True)
ENTRIES = st.fixed_dictionaries(
    {"hash": st.just(HASH)},
    optional={
        "tier": st.sampled_from(["free", "paid"]),
        "models": st.lists(st.text(min_size=1), max_size=3),
        "fairness_key": st.text(min_size=1),
        "disabled": st.booleans(),
        "former_hash": st.just(HASH),
    },
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(NAMES, ENTRIES), unique_by=lambda it: it[0], max_size=4), st.data())
def test_what_is_written_means_what_was_meant(
    entries: list[tuple[str, editing.Entry]], data: st.DataObject
) -> None:
    text, meant = "# A comment without a line's end", dict[str, editing.Entry]()
    for name, entry in entries:
        text, meant[name] = editing.added(text, name, entry), entry
        assert yaml.safe_load(text) == meant
    for name in list(meant):
        fields = data.draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "disabled": st.sampled_from([True, False, None]),
                    "former_hash": st.sampled_from([HASH, None]),
                },
            )
        )
        text = editing.changed(text, name, fields)
        meant[name] |= fields
        meant[name] = {k: v for k, v in meant[name].items() if v is not None}
        assert yaml.safe_load(text) == meant
    for name in list(meant):
        text = editing.removed(text, name)
        del meant[name]
        assert (yaml.safe_load(text) or {}) == meant
    assert text.startswith("# A comment")
