"""Every command that a page prints is typed, in its order, and comes to a good end."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.envoy_scene import envoy
from tests.docs.reading import PAGES, ROOT, Block, blocks
from tests.docs.scenes import SCENES as PLAIN
from tests.docs.shell import Shell

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

SCENES = PLAIN | {"envoy": envoy}
WITH_COMMANDS = [page for page in PAGES if any(True for _ in blocks(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_page(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shells: dict[str, Shell] = {}
    with ExitStack() as stack:
        for block in blocks(page):
            assert block.scene in SCENES, f"{block.name}: the page names no scene for it"
            if block.scene not in shells:
                folder = tmp_path_factory.mktemp(block.scene)
                shells[block.scene] = stack.enter_context(SCENES[block.scene](folder))
            run(shells[block.scene], block)


def run(shell: Shell, block: Block) -> None:
    try:
        (shell.type if block.language == "shell" else shell.program)(block.text)
    except AssertionError as error:
        raise AssertionError(f"{block.name}: {error}") from None


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.type("X=7\nmkdir deeper; cd deeper")
    assert shell.type("echo $X; pwd").split() == ["7", str(tmp_path / "deeper")]
    for wrong in ("false\ntrue", "false | cat", "echo $NEVER_SET"):
        with pytest.raises(AssertionError):
            shell.type(wrong)
    shell.program("seen = 3")
    assert shell.program("print(seen)") == "3\n"
    with pytest.raises(AssertionError):
        shell.program("raise SystemExit(1)")
