"""Where engines keep the solver's machine code."""

from pathlib import Path

from services.matte.compiled import keep_compiled

READ_ONLY = Path("/proc")
"""For root, too."""


def test_an_installation_that_can_be_written_keeps_it_beside_the_source(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    keep_compiled(tmp_path / "state", environ, tmp_path)
    assert environ == {}


def test_of_a_read_only_installation_it_is_kept_in_the_state_folder(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    keep_compiled(tmp_path, environ, READ_ONLY)
    assert environ == {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}


def test_what_the_environment_says_stands(tmp_path: Path) -> None:
    environ = {"NUMBA_CACHE_DIR": "/elsewhere"}
    keep_compiled(tmp_path, environ, READ_ONLY)
    assert environ == {"NUMBA_CACHE_DIR": "/elsewhere"}
