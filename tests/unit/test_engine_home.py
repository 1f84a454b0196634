"""Where engines live: what an earlier life left behind is swept, and nothing else."""

from pathlib import Path

from hosting.values import EngineHome


def test_only_this_services_sockets_are_swept(tmp_path: Path) -> None:
    home = EngineHome("llm", "services.llm.engine_main", tmp_path, "info")
    mine = tmp_path / f"{home.socket_prefix}0a1b.sock"
    others = [tmp_path / "engine-matte-0a1b.sock", tmp_path / "llm.sock"]
    for path in (mine, *others):
        path.touch()
    home.sweep()
    assert sorted(tmp_path.iterdir()) == sorted(others)
