"""The commands of docs/guides/compose.md, typed as they stand there, beside each other's effects.

After everything else: the page ends with taking the house down.
"""

from pathlib import Path

import pytest

from tests.docs.reading import ROOT, blocks
from tests.docs.shell import Shell
from tests.e2e.composed import VERSIONS, Composed
from tests.e2e.times import TIMES

# Of a test alone: images that are built for the first time take as long as they take.
pytestmark = pytest.mark.timeout(1200, func_only=True)

GUIDE = ROOT / "docs" / "guides" / "compose.md"


def test_the_commands_of_the_guide(house: Composed, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").symlink_to(house.engine.docker)
    (programs / "make").symlink_to(ROOT / "tests" / "docs" / "bin" / "make")
    for name in ("deploy", "Makefile", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    replaced = {
        "127.0.0.1:8080": f"127.0.0.1:{house.port}",
        "COHABIT_VERSION=0.1.1": f"COHABIT_VERSION={VERSIONS[1]}",
        "edge-1 edge-2 llm matte jobs broker scheduler": "edge-1 jobs",  # all were upgraded before
    }
    environment = {
        name: value
        for name, value in house.environment(VERSIONS[0]).items()
        if name.startswith(("COHABIT_", "DOCKER_"))
    }
    shell = Shell(tmp_path, replaced, {**environment, "COMPOSE_PROJECT_NAME": house.project})
    with TIMES.of("the commands of the guide"):
        for block in blocks(GUIDE):
            assert block.scene == "containers", f"{block.name}: this page has no other scene"
            shell.type(block.text)
