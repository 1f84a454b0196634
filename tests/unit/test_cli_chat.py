"""The chat's side of the stream: pieces, errors, the end, and what of a conversation is kept."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from cli import chat
from cli.console import Refused
from cli.main import app

URL = "http://edge"
Reply = Callable[[httpx.Request], httpx.Response]


def client(reply: Reply) -> httpx.Client:
    return httpx.Client(base_url=URL, transport=httpx.MockTransport(reply))


def stream(*events: str) -> httpx.Response:
    return httpx.Response(200, text="".join(f"{event}\n\n" for event in events))


def delta(text: str) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})


def ask(reply: Reply) -> list[str]:
    return list(chat.answer(client(reply), "m", [{"role": "user", "content": "hi"}]))


def test_pieces_come_in_order_past_comments() -> None:
    asked: list[object] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return stream(": queued", delta("a"), delta("b\x1b["), "data: [DONE]")

    assert ask(reply) == ["a", "b["]
    messages = [{"role": "user", "content": "hi"}]
    assert asked == [{"model": "m", "messages": messages, "stream": True}]


def test_a_stream_without_its_end_is_an_error() -> None:
    with pytest.raises(Refused, match="ended early"):
        ask(lambda _: stream(delta("a")))


def test_an_error_body_is_shown_as_its_sentence() -> None:
    body = {"error": {"message": "No such model.", "type": "x", "param": None, "code": None}}
    with pytest.raises(Refused, match=r"^No such model\.$"):
        ask(lambda _: httpx.Response(404, json=body))
    with pytest.raises(Refused, match="answered 502"):
        ask(lambda _: httpx.Response(502, text="<html>"))


def test_a_house_that_is_down_comes_with_a_remedy() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(Refused, match=r"http://edge.* does not answer \(refused\).*cohabit up"):
        ask(refuse)
    with pytest.raises(Refused, match="cohabit up"):
        chat.first_model(client(refuse))


def test_the_first_model_is_the_default() -> None:
    listed = {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}
    lists = client(lambda _: httpx.Response(200, json=listed))
    assert chat.first_model(lists) == "a"
    assert chat.first_model(lists, "b") == "b"  # the first configured one that chats
    assert chat.first_model(lists, "c") == "a"
    with pytest.raises(Refused, match="no model"):
        chat.first_model(client(lambda _: httpx.Response(200, json={"data": []})))
    with pytest.raises(Refused, match="check --url"):
        chat.first_model(client(lambda _: httpx.Response(200, text="hello")))


def test_a_conversation_is_carried_and_ends_with_the_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["one", "", "two", "/new", "three"])
    sizes: list[int] = []

    def read(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    def reply(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)["messages"]))
        return stream(delta("ok"), "data: [DONE]")

    monkeypatch.setattr("builtins.input", read)
    chat.converse(client(reply), "m", [{"role": "system", "content": "be brief"}])
    assert sizes == [2, 4, 2]
    assert capsys.readouterr().out.count("ok") == 3


def test_a_failed_answer_does_not_stay_in_the_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["one", "two"])
    sizes: list[int] = []

    def read(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    def reply(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)["messages"]))
        return httpx.Response(503, json={"error": {"message": "Busy."}})

    monkeypatch.setattr("builtins.input", read)
    chat.converse(client(reply), "m", [])
    assert sizes == [1, 1]
    assert "Busy." in capsys.readouterr().err


class Edge:
    """Stands where every client of the command connects, and remembers what was asked where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str, str]] = []
        original = httpx.Client

        def opened(base_url: str, timeout: object, headers: object) -> httpx.Client:
            return original(base_url=base_url, transport=httpx.MockTransport(self.reply))

        monkeypatch.setattr(httpx, "Client", opened)

    def reply(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "first"}]})
        body = json.loads(request.content)
        where = str(request.url).removesuffix("/v1/chat/completions")
        self.asked.append((where, body["model"], body["messages"][-1]["content"]))
        return stream(delta("ok"), "data: [DONE]")


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Edge:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COHABIT_CONFIG", raising=False)
    monkeypatch.delenv(chat.URL_ENV, raising=False)
    return Edge(monkeypatch)


def run(*arguments: str, piped: str = "") -> Result:
    return CliRunner().invoke(app, ["chat", *arguments], input=piped)


def test_the_message_comes_first_and_the_model_is_an_option(edge: Edge) -> None:
    assert run("Say hi").output == "ok\n"
    run("Say hi", "-m", "second")
    run("--model", "third", piped="a question")
    assert edge.asked == [
        (chat.DEFAULT_URL, "first", "Say hi"),
        (chat.DEFAULT_URL, "second", "Say hi"),
        (chat.DEFAULT_URL, "third", "a question"),
    ]


@pytest.mark.parametrize(("argument", "piped"), [((), ""), ((), " \n"), (("",), "")])
def test_an_empty_message_is_refused(edge: Edge, argument: tuple[str, ...], piped: str) -> None:
    problem = run(*argument, piped=piped).exception
    assert isinstance(problem, Refused)
    assert str(problem).startswith("The message is empty; give one")
    assert edge.asked == []


def test_the_url_is_looked_for_in_order(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other.yaml").write_text("edge: {listen: '127.0.0.1:7002'}")
    run("hi")
    Path("cohabit.yaml").write_text("edge: {listen: '127.0.0.1:7001'}")
    run("hi")
    run("hi", "--config", "other.yaml")
    monkeypatch.setenv(chat.URL_ENV, "http://127.0.0.1:7003/")
    run("hi")
    run("hi", "--url", "http://127.0.0.1:7004")
    ports = [where.rpartition(":")[2] for where, _, _ in edge.asked]
    assert ports == ["8080", "7001", "7002", "7003", "7004"]


def test_a_wrong_configuration_is_said_and_not_passed_over(edge: Edge) -> None:
    Path("cohabit.yaml").write_text("edge: {lissen: x}")
    for arguments in (("hi",), ("hi", "--config", "none.yaml")):
        assert run(*arguments).exit_code == 2
    assert edge.asked == []
