"""Where a key stands in a request, and whose it is."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from edge.keys.credential import NAMES, credential_of, without_credentials
from edge.keys.entry import Key
from edge.keys.keyring import Keyring

SECRET = b"sk-cohabit-AbC"
BARE = sorted(NAMES - {b"authorization"})


def key(name: str, secret: bytes = SECRET, **more: object) -> Key:
    return Key(name, (hashlib.sha256(secret).digest(),), name, **more)  # type: ignore[arg-type]


def refusal(ring: Keyring, secret: bytes | None, now_unix_s: float = 0.0) -> str:
    with pytest.raises(Fault) as caught:
        ring.holder(secret, now_unix_s)
    assert caught.value.reason is Reason.INVALID_API_KEY
    return caught.value.message


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
def test_a_key_that_is_borne(scheme: bytes) -> None:
    assert credential_of([(b"host", b"x"), (b"authorization", scheme + b" " + SECRET)]) == SECRET


@pytest.mark.parametrize("name", BARE)
def test_a_key_that_stands_alone(name: bytes) -> None:
    assert credential_of([(name, SECRET)]) == SECRET


def test_no_key() -> None:
    assert credential_of([(b"host", b"x"), (b"cookie", b"x-api-key=" + SECRET)]) is None


def test_one_key_in_two_spellings() -> None:
    told = [(b"authorization", b"Bearer " + SECRET), (b"x-api-key", SECRET)]
    assert credential_of(told) == SECRET


@pytest.mark.parametrize(
    "told",
    [
        [(b"authorization", b"Bearer " + SECRET), (b"authorization", b"Bearer " + SECRET)],
        [(b"x-api-key", SECRET), (b"x-api-key", SECRET)],
        [(b"authorization", b"Bearer " + SECRET), (b"x-api-key", b"other")],
        [(b"authorization", b"Bearer " + SECRET), (b"x-api-key", b"")],
        [(b"api-key", b"other"), (b"x-api-key", SECRET)],
        [(b"authorization", SECRET)],
        [(b"authorization", b"Basic " + SECRET)],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer\t" + SECRET)],
        [(b"authorization", b"Basic x"), (b"x-api-key", SECRET)],
    ],
)
def test_what_is_no_key_or_two(told: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Fault) as caught:
        credential_of(told)
    assert caught.value.reason is Reason.INVALID_API_KEY
    assert SECRET.decode() not in caught.value.message


def test_nothing_behind_sees_a_key() -> None:
    told = [(name, SECRET) for name in NAMES]
    assert without_credentials([(b"host", b"x"), *told]) == [(b"host", b"x")]


def test_the_holder_of_a_key() -> None:
    ring = Keyring([key("alice"), key("bob", b"other")])
    assert ring.holder(SECRET, 0).name == "alice"
    assert ring.holder(b"other", 0).name == "bob"


def test_a_former_key_is_taken_while_it_stands_there() -> None:
    old, new = (hashlib.sha256(it).digest() for it in (b"old", b"new"))
    ring = Keyring([Key("alice", (new, old), "alice")])
    assert ring.holder(b"old", 0) is ring.holder(b"new", 0)


@given(st.binary(max_size=64))
def test_nothing_else_is_a_key(other: bytes) -> None:
    ring = Keyring([key("alice")])
    if other != SECRET:
        assert "not one of this house's" in refusal(ring, other)


@pytest.mark.parametrize(
    "near",
    [
        *(SECRET[:-1], SECRET + b"x", SECRET.lower(), b" " + SECRET, SECRET + b" ", b"\0"),
        hashlib.sha256(SECRET).hexdigest().encode(),
        b"sha256:" + hashlib.sha256(SECRET).hexdigest().encode(),
        hashlib.sha256(SECRET).digest(),
        bytes(32),
    ],
)
def test_nearly_is_not_enough(near: bytes) -> None:
    assert "not one of this house's" in refusal(Keyring([key("alice")]), near)


def test_a_disabled_key_is_as_one_that_never_was() -> None:
    ring = Keyring([key("alice", disabled=True), key("bob", b"other")])
    assert refusal(ring, SECRET) == refusal(ring, b"never")


def test_a_disabled_key_that_expired_says_neither() -> None:
    ring = Keyring([key("alice", disabled=True, expires_unix_s=1.0)])
    assert refusal(ring, SECRET, 2.0) == refusal(ring, b"never", 2.0)


def test_a_key_expires_to_the_moment() -> None:
    ring = Keyring([key("alice", expires_unix_s=100.0)])
    assert ring.holder(SECRET, 99.999)
    assert "has expired" in refusal(ring, SECRET, 100.0)


def test_what_is_missing_is_said() -> None:
    assert "authorization: Bearer" in refusal(Keyring([key("alice")]), None)
    assert "cohabit keys add NAME" in refusal(Keyring([]), None)
    assert "cohabit keys add NAME" in refusal(Keyring([]), SECRET)
