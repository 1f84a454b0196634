"""`cohabit chat`: a conversation with a model, over the edge's HTTP as any client would have it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
import typer

from chassis.config import ConfigError
from chassis.config import fail as config_fail
from cli import house
from cli.console import Refused, error, note, printable

URL_ENV = "COHABIT_URL"
KEY_ENV = "COHABIT_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = httpx.Timeout(30.0, read=600.0, connect=5.0)
_MESSAGES_KEPT = 200
"""Of a conversation; the oldest go first."""
_STDIN_CHARS = 1_000_000

Message = dict[str, str]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Error(msgspec.Struct):
    message: str


class _Chunk(msgspec.Struct):
    """What of an OpenAI stream chunk, or of an error body, is used here."""

    choices: list[_Choice] = []
    error: _Error | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def decode(line: str) -> str | None:
    """The text that one line of the event stream adds; None at its end.

    Raises Refused for an error event.
    """
    field, _, value = line.partition(":")
    if field != "data":  # blank lines and comments (keepalives)
        return ""
    if value.strip() == "[DONE]":
        return None
    try:
        chunk = msgspec.json.decode(value.encode(), type=_Chunk)
    except msgspec.MsgspecError:
        raise Refused("The server sent an event that cannot be read.") from None
    if chunk.error is not None:
        raise Refused(printable(chunk.error.message))
    return "".join(choice.delta.content or "" for choice in chunk.choices)


def answer(client: httpx.Client, model: str, messages: list[Message]) -> Iterator[str]:
    """Stream the model's answer. Raises Refused with the server's sentence."""
    body = {"model": model, "messages": messages, "stream": True}
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
                raise Refused(_sentence(response))
            for line in response.iter_lines():
                piece = decode(line)
                if piece is None:
                    return
                if piece:
                    yield printable(piece)
    except httpx.HTTPError as failure:
        raise _unreachable(client, failure) from None
    raise Refused("The answer ended early: the connection was closed before it was complete.")


def first_model(client: httpx.Client, liked: str | None = None) -> str:
    """`liked` if the house lists it, else the first it lists. Raises Refused when there is none."""
    try:
        response = client.get("/v1/models")
    except httpx.HTTPError as failure:
        raise _unreachable(client, failure) from None
    if response.status_code != httpx.codes.OK:
        raise Refused(_sentence(response))
    try:
        models = msgspec.json.decode(response.content, type=_Models).data
    except msgspec.MsgspecError:
        raise Refused(f"{client.base_url} does not answer like Cohabit; check --url.") from None
    if not models:
        raise Refused("The house has no model; add one to the configuration and pull its file.")
    if liked is not None and any(model.id == liked for model in models):
        return liked
    return models[0].id


def one_shot(client: httpx.Client, model: str, messages: list[Message]) -> None:
    """Print one answer."""
    for piece in answer(client, model, messages):
        print(piece, end="", flush=True)
    print()


def converse(client: httpx.Client, model: str, start: list[Message]) -> None:
    """Talk until end of input. Ctrl-C ends an answer, and clears a line that is being typed."""
    note(f"{model} at {client.base_url}. Ctrl-C ends an answer, Ctrl-D the chat, /new starts anew.")
    messages = list(start)
    while (text := _read_line()) is not None:
        if text.strip() == "/new":
            messages = list(start)
        elif text.strip():
            asked = [*messages, {"role": "user", "content": text}]
            said = _say_answer(client, model, asked)
            if said:
                messages = _kept(start, [*asked, {"role": "assistant", "content": said}])


def _say_answer(client: httpx.Client, model: str, messages: list[Message]) -> str:
    """Print an answer as it comes; answers what of it came, empty after an error."""
    pieces: list[str] = []
    stream = answer(client, model, messages)
    try:
        for piece in stream:
            print(piece, end="", flush=True)
            pieces.append(piece)
        print()
    except KeyboardInterrupt:
        stream.close()  # type: ignore[attr-defined]
        print()
        note("(ended)")
    except Refused as refusal:
        print()
        error(str(refusal))
        return ""
    return "".join(pieces)


def _kept(start: list[Message], messages: list[Message]) -> list[Message]:
    if len(messages) <= _MESSAGES_KEPT:
        return messages
    return [*start, *messages[len(start) + 2 :]]


def _read_line() -> str | None:
    while True:
        try:
            return input("> ")
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return None


def _sentence(response: httpx.Response) -> str:
    """What an error body says to people."""
    try:
        body = msgspec.json.decode(response.content, type=_Chunk)
    except msgspec.MsgspecError:
        body = _Chunk()
    if body.error is None:
        return f"The server answered {response.status_code}."
    return printable(body.error.message)


def _unreachable(client: httpx.Client, failure: httpx.HTTPError) -> Refused:
    cause = str(failure) or type(failure).__name__
    return Refused(
        f"{client.base_url} does not answer ({cause}); start it with `cohabit up` or give --url."
    )


def _base_url(url: str | None, config_path: Path | None) -> str:
    """`url`, else $COHABIT_URL, else where the configured edge listens, else the usual place."""
    given = url or os.environ.get(URL_ENV)
    try:
        return (given or house.configured_edge_url(config_path) or DEFAULT_URL).rstrip("/")
    except ConfigError as problem:
        config_fail(problem)


def _configured(config_path: Path | None) -> str | None:
    """The first configured model that chats: a house of many kinds lists others before it."""
    try:
        return house.load(config_path).usable
    except ConfigError:
        return None  # the house asked is another one


def _piped() -> str | None:
    """What is piped in; None on a terminal."""
    return None if sys.stdin.isatty() else sys.stdin.read(_STDIN_CHARS)


def command(
    message: Annotated[
        str | None, typer.Argument(help="Ask this alone, print the answer and end.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Default: the first configured one that chats."),
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    url: Annotated[
        str | None,
        typer.Option(help=f"Default: ${URL_ENV}, else edge.listen of the configuration."),
    ] = None,
    config_path: Annotated[
        Path | None, typer.Option("--config", help="cohabit.yaml to use.")
    ] = None,
) -> None:
    """Chat with a model; one answer when a message is given or piped in.

    A house that asks for an API key gets the one in $COHABIT_API_KEY.
    """
    start: list[Message] = [{"role": "system", "content": system}] if system else []
    asked = _piped() if message is None else message
    if asked is not None and not asked.strip():
        raise Refused('The message is empty; give one, e.g. `cohabit chat "Say hi"`.')
    key = os.environ.get(KEY_ENV)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    base_url = _base_url(url, config_path)
    with httpx.Client(base_url=base_url, headers=headers, timeout=_TIMEOUT) as client:
        chosen = model or first_model(client, _configured(config_path))
        if asked is None:
            converse(client, chosen, start)
        else:
            one_shot(client, chosen, [*start, {"role": "user", "content": asked}])
