"""Forms and JSON bodies that bring pictures: what is read, and what is refused."""

import json
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge.body import MIB, Bodies
from edge.pictures.upload import MOST_PARTS, Form, FormReader, Upload, read_form


def request_of(body: list[bytes], content_type: str) -> Request:
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    parts.append({"type": "http.request", "body": b"", "more_body": False})
    messages = iter(parts)

    async def receive() -> Any:
        return next(messages)

    headers = [(b"content-type", content_type.encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def read(body: list[bytes], content_type: str, max_one: int = MIB) -> Form:
    bodies = Bodies(max_one, 8 * MIB, 5.0)
    with bodies.room() as room:
        form = await read_form(request_of(body, content_type), room)
        assert room.taken == sum(map(len, body))
    assert bodies.held == 0
    return form


def encoded(data: dict[str, Any], files: Any) -> tuple[bytes, str]:
    """As a client of HTTP writes it."""
    sent = httpx.Request("POST", "http://x", data=data, files=files)
    return sent.read(), sent.headers["content-type"]


def part(disposition: str, data: bytes = b"x", *more: str) -> bytes:
    head = "\r\n".join((f"Content-Disposition: {disposition}", *more))
    return b"--b\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n"


async def told(body: bytes, content_type: str = "multipart/form-data; boundary=b") -> Fault:
    with pytest.raises(Fault) as caught:
        await read([body], content_type)
    return caught.value


async def test_a_form_has_fields_and_files() -> None:
    files = [
        ("image[]", ("a.png", b"one", "image/png")),
        ("image[]", ("b.png", b"two", "image/png")),
        ("mask", ("m.png", b"three")),
    ]
    body, kind = encoded({"prompt": "Ein Föhn", "tag[]": ["a", "b"], "size": ""}, files)
    form = await read([body], kind)
    assert form.fields == {"prompt": "Ein Föhn", "tag": ["a", "b"]}
    assert form.files == {
        "image": [Upload(b"one", "image/png", "a.png"), Upload(b"two", "image/png", "b.png")],
        "mask": [Upload(b"three", "image/png", "m.png")],
    }
    assert not form.typed


async def test_a_file_field_that_was_left_empty_was_left_out() -> None:
    empty = part('form-data; name="mask"; filename=""', b"")
    form = await read([empty + b"--b--"], "multipart/form-data; boundary=b")
    assert form == Form({}, {}, typed=False)


@given(
    data=st.binary(max_size=300) | st.sampled_from([b"\r\n--", b"\r\n--b", b"\r" * 50]),
    cut=st.integers(1, 40),
)
def test_a_file_is_the_same_however_it_arrives(data: bytes, cut: int) -> None:
    if b"\r\n--b" in b"\r\n" + data + b"\r\n":
        return  # it would be a boundary
    body = part('form-data; name="a"; filename="a"', data) + part('form-data; name="f"') + b"--b--"
    reader = FormReader(b"b")
    for at in range(0, len(body), cut):
        reader.feed(body[at : at + cut])
    form = reader.form()
    assert form.files["a"][0].data == data
    assert form.fields == {"f": "x"}


@given(body=st.binary(max_size=400), cut=st.integers(1, 50))
def test_whatever_is_no_form_is_refused_and_nothing_else_happens(body: bytes, cut: int) -> None:
    for whole in (body, b"--b\r\n" + body, part('form-data; name="a"') + body):
        reader = FormReader(b"b")
        with suppress(Fault):
            for at in range(0, len(whole), cut):
                reader.feed(whole[at : at + cut])
            reader.form()
            assert b"--b--" in whole


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "ends before its last boundary"),
        (b"hello", "no multipart form"),
        (part('form-data; name="a"'), "ends before its last boundary"),
        (part("form-data") + b"--b--", "has no name"),
        (part('attachment; name="a"') + b"--b--", "has no name"),
        (part(f'form-data; name="{"a" * 101}"') + b"--b--", "longer than 100"),
        (
            part('form-data; name="a"', b"eA==", "Content-Transfer-Encoding: base64") + b"--b--",
            "transfer encoding",
        ),
        (part('form-data; name="a"', b"x", "X: " + "y" * 5000) + b"--b--", "header size"),
        (part('form-data; name="a"', b"x", *("X: y",) * 9) + b"--b--", "header count"),
        (part('form-data; name="a"', b"\xff") + b"--b--", "not UTF-8"),
        (part('form-data; name="a"') * 2 + b"--b--", "there twice"),
        (part('form-data; name="a[]"') * (MOST_PARTS + 1) + b"--b--", f"more than {MOST_PARTS}"),
    ],
)
async def test_a_form_that_is_wrong_is_told_why(body: bytes, says: str) -> None:
    fault = await told(body)
    assert says in fault.message
    assert fault.reason in (Reason.INVALID_REQUEST, Reason.PAYLOAD_TOO_LARGE)


async def test_a_form_needs_a_boundary_of_a_sensible_length() -> None:
    assert "no boundary" in (await told(b"", "multipart/form-data")).message
    long = "multipart/form-data; boundary=" + "b" * 2000
    assert "longer" in (await told(b"", long)).message


async def test_a_body_that_is_too_large_is_refused_while_it_arrives() -> None:
    body = [part('form-data; name="a"; filename="a"', b"x" * 1000), *[b"x" * 1000] * 9]
    with pytest.raises(Fault) as caught:
        await read(body, "multipart/form-data; boundary=b", max_one=5000)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", ""])
async def test_everything_else_is_json(kind: str) -> None:
    form = await read([b'{"n":', b"1}"], kind)
    assert (form.fields, form.files, form.typed) == ({"n": 1}, {}, True)
    for bad in (b"[]", b"{", b"", b'{"a": ' + b"[" * 5000, b'"\xff"'):
        with pytest.raises(Fault):
            await read([bad], kind)


class Wish(msgspec.Struct, forbid_unknown_fields=True):
    n: int | None = None
    ratio: float | None = None
    stream: bool = False
    word: str | None = None
    many: list[dict[str, int]] | None = None


def test_text_is_read_as_what_it_stands_for() -> None:
    text = {"n": "3", "ratio": "0.5", "stream": "true", "word": "7", "many": '[{"a": 1}]'}
    form = Form(text, typed=False)
    assert form.read_as(Wish, ("many",)) == Wish(3, 0.5, True, "7", [{"a": 1}])
    typed = Form({**json.loads('{"n": 3, "ratio": 0.5, "stream": true}'), "word": "7"})
    assert typed.read_as(Wish) == Wish(3, 0.5, True, "7")


@pytest.mark.parametrize(
    ("form", "param"),
    [
        (Form({"n": "x"}, typed=False), "n"),
        (Form({"n": "3"}), "n"),
        (Form({"many": "["}, typed=False), "many"),
        (Form({"many": "3"}, typed=False), "many"),
        (Form({"stream": "maybe"}, typed=False), "stream"),
        (Form({"m": "3"}, typed=False), "m"),
    ],
)
def test_text_that_stands_for_nothing_names_its_field(form: Form, param: str) -> None:
    with pytest.raises(Fault) as caught:
        form.read_as(Wish, ("many",))
    assert caught.value.metadata["param"] == param
