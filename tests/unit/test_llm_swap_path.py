"""Which files a swap may take."""

from pathlib import Path

import pytest

from chassis.errors import Fault, Reason
from services.llm.swap_path import allowed_file


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    root = tmp_path / "swaps"
    (root / "deep").mkdir(parents=True)
    (root / "a.gguf").touch()
    (root / "deep" / "b.gguf").touch()
    (tmp_path / "secret.gguf").touch()
    (root / "link.gguf").symlink_to(root / "a.gguf")
    (root / "escape.gguf").symlink_to(tmp_path / "secret.gguf")
    (root / "loop.gguf").symlink_to(root / "loop.gguf")
    return root


def test_what_is_inside_is_found(allowed: Path) -> None:
    assert allowed_file(allowed, "a.gguf") == allowed / "a.gguf"
    assert allowed_file(allowed, "deep/../deep/b.gguf") == allowed / "deep" / "b.gguf"
    assert allowed_file(allowed, str(allowed / "a.gguf")) == allowed / "a.gguf"
    assert allowed_file(allowed, "link.gguf") == allowed / "a.gguf"


@pytest.mark.parametrize(
    "path",
    ["", ".", "../secret.gguf", "escape.gguf", "/etc/passwd", "deep/../../secret.gguf", "a\0b"],
)
def test_what_leads_outside_is_refused(allowed: Path, path: str) -> None:
    with pytest.raises(Fault) as caught:
        allowed_file(allowed, path)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.metadata["param"] == "path"


@pytest.mark.parametrize("path", ["c.gguf", "deep", "loop.gguf", "x" * 5000])
def test_what_is_no_file_is_refused(allowed: Path, path: str) -> None:
    with pytest.raises(Fault) as caught:
        allowed_file(allowed, path)
    assert caught.value.reason in (Reason.FILE_NOT_FOUND, Reason.INVALID_REQUEST)


def test_a_directory_behind_a_link_is_the_directory(allowed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.symlink_to(allowed)
    assert allowed_file(other, "a.gguf") == allowed / "a.gguf"
