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
ELSEWHERE = "containers"
"""The scene whose commands `tests/e2e` types, where there is an engine for containers."""
WITH_COMMANDS = [page for page in PAGES if any(b.scene != ELSEWHERE for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_page(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shells: dict[str, Shell] = {}
    with ExitStack() as stack:
        for block in blocks(page):
            if block.scene == ELSEWHERE:
                continue
            assert block.scene in SCENES, f"{block.name}: the page names no scene for it"
            if block.scene not in shells:
                folder = tmp_path_factory.mktemp(block.scene)
                shells[block.scene] = stack.enter_context(SCENES[block.scene](folder))
            run(shells[block.scene], block)


def test_commands_for_containers_stand_in_the_page_that_is_typed_there() -> None:
    guide = ROOT / "docs" / "guides" / "compose.md"
    typed = [line for block in blocks(guide) for line in block.text.splitlines()]
    for page in PAGES:
        for block in blocks(page):
            if block.scene == ELSEWHERE:
                assert set(block.text.splitlines()) <= set(typed), block.name


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
