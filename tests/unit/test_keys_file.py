"""The file of keys: what it may say, and whom it blames for what it may not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from chassis.config import ConfigError
from edge.keys.core import Bounds
from edge.keys.entry import Key
from edge.keys.file import MOST_KEYS, read_keys

ONE, TWO = "0" * 63 + "1", "0" * 63 + "2"
FULL = f"""\
# Who asks for what.
alice:
  hash: sha256:{ONE}
  former_hash: sha256:{TWO}
  tier: sub
  fairness_key: the team
  requests_per_minute: 60
  concurrent: 4
  models: [smol, twins]
  expires: 2027-01-31
  disabled: true
  signals: true
"""


def keys(folder: Path, text: str) -> tuple[Key, ...]:
    (folder / "keys.yaml").write_text(text)
    return read_keys(folder / "keys.yaml")


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        keys(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def test_everything_that_can_be_said_of_a_key(tmp_path: Path) -> None:
    assert keys(tmp_path, FULL) == (
        Key(
            name="alice",
            digests=(bytes.fromhex(ONE), bytes.fromhex(TWO)),
            fairness_key="the team",
            tier="sub",
            bounds=Bounds(60, 4),
            models=frozenset(("smol", "twins")),
            expires_unix_s=1_801_353_600.0,
            disabled=True,
            signals=True,
        ),
    )


def test_little_needs_to_be_said(tmp_path: Path) -> None:
    (key,) = keys(tmp_path, f"bob: {{hash: sha256:{ONE}}}")
    assert key == Key("bob", (bytes.fromhex(ONE),), "bob")
    assert not key.bounds


@pytest.mark.parametrize("text", ["", "# nobody yet\n", "{}"])
def test_a_file_may_have_no_keys(tmp_path: Path, text: str) -> None:
    assert keys(tmp_path, text) == ()


def test_and_there_may_be_no_file(tmp_path: Path) -> None:
    assert read_keys(tmp_path / "keys.yaml") == ()


@pytest.mark.parametrize(
    ("written", "unix_s"),
    [
        ("2027-01-31T18:30:00Z", 1_801_420_200.0),
        ("2027-01-31T19:30:00+01:00", 1_801_420_200.0),
        ("2027-01-31 18:30:00", 1_801_420_200.0),
        ("2027-01-31", 1_801_353_600.0),
        ("'2027-01-31'", 1_801_353_600.0),
        ("'2027-01-31T18:30:00Z'", 1_801_420_200.0),
    ],
)
def test_times_are_utc_unless_they_say_else(tmp_path: Path, written: str, unix_s: float) -> None:
    (key,) = keys(tmp_path, f"a:\n  hash: sha256:{ONE}\n  expires: {written}\n")
    assert key.expires_unix_s == unix_s


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n", "keys.yaml:1: a.hash: missing"),
        ("a: 1\n", "keys.yaml:1: a: expected"),
        ("- a\n", "keys.yaml:1: expected keys with values"),
        (f"a:\n  hash: sha256:{ONE}\n  teir: paid\n", "keys.yaml:3: a.teir: unknown key; known"),
        (f"a:\n  hash: sha256:{ONE}\n  tier: gold\n", "keys.yaml:3: a.tier: expected"),
        (f"a:\n  hash: sha256:{ONE}\n  concurrent: 0\n", "keys.yaml:3: a.concurrent: expected"),
        (f"a:\n  hash: sha256:{ONE}\n  expires: 7\n", "keys.yaml:3: a.expires: expected a date"),
        (f"a:\n  hash: sha256:{ONE}\n  expires: soon\n", "keys.yaml:3: a.expires: expected a date"),
        (f"a:\n  hash: sha256:{ONE}\n  fairness_key: ' x'\n", "keys.yaml:3: a.fairness_key: "),
        (f"a:\n  hash: sha256:{ONE}\n  disabled: 'no'\n", "keys.yaml:3: a.disabled: expected"),
        (f"a:\n  hash: sha256:{ONE}\na:\n  hash: sha256:{TWO}\n", "keys.yaml:3: a: written twice"),
        (f"a b:\n  hash: sha256:{ONE}\n", "keys.yaml:1: 'a b': expected a name"),
        (f"{'a' * 65}:\n  hash: sha256:{ONE}\n", "expected a name of 1 to 64"),
        (f"a: {{hash: sha256:{ONE}}}\nb:\n  hash: sha256:{ONE}\n", "keys.yaml:3: b.hash: expected"),
        ("a: [\n", "keys.yaml:2: expected YAML"),
        ("2027-13-45: {}\n", "keys.yaml:1: month must be in 1..12"),
        ("? 2027-13-45\n", "keys.yaml:1: month must be in 1..12"),
        ("a:\n  disabled: !!bool 7\n", "keys.yaml:2: expected a value of tag:yaml.org,2002:bool"),
        ("a:\n  expires: !!timestamp 7\n", "keys.yaml:2: expected a value of tag:yaml"),
    ],
)
def test_what_is_wrong_is_blamed_by_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


@pytest.mark.parametrize("field", ["hash", "former_hash"])
@pytest.mark.parametrize(
    "secret", ["sk-cohabit-secret", "secret", ONE, f"sha256:{ONE[1:]}", f"SHA256:{ONE}", "[secret]"]
)
def test_a_key_in_the_place_of_its_hash_is_not_repeated(
    tmp_path: Path, field: str, secret: str
) -> None:
    said = complaint(tmp_path, f"a:\n  {field}: {secret}\n  teir: x\n")
    assert said.startswith(f"keys.yaml:2: a.{field}: expected sha256:")
    assert secret.strip("[]").removeprefix("sha256:") not in said


@pytest.mark.parametrize(
    "written", ["sk-cohabit-secret", "[sk-cohabit-secret]", "'sk-cohabit-secret'"]
)
def test_a_key_in_the_place_of_all_else_is_not_repeated(tmp_path: Path, written: str) -> None:
    said = complaint(tmp_path, f"a: {written}\n")
    assert said.startswith("keys.yaml:1: a: expected keys with values below the name")
    assert "secret" not in said


def test_a_few_aliases_that_stand_for_millions_are_refused(tmp_path: Path) -> None:
    tens = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))
    assert "keys and values" in complaint(tmp_path, "\n".join(["a0: &a0 [1]", *tens]))


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "keys.yaml")
    with pytest.raises(ConfigError, match="expected a file"):
        read_keys(tmp_path / "keys.yaml")


def test_a_file_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    assert "levels of keys" in complaint(tmp_path, "a: " + "[" * 20_000)


def test_there_are_only_so_many(tmp_path: Path) -> None:
    many = "".join(f"k{n}: {{}}\n" for n in range(MOST_KEYS + 1))
    assert f"at most {MOST_KEYS} keys" in complaint(tmp_path, many)
    assert "at most 4194304 bytes" in complaint(tmp_path, "#" * 4_194_305)
