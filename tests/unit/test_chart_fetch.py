"""The Job that gets the files of models."""

import shlex
import subprocess
from pathlib import Path

from tests.kube.chart import Values, main_container, of_matrix, rendered

BY_HAND = {"path": "other.gguf", "context_tokens": 512}


def _fetch(values: Values) -> tuple[str, list[str]]:
    [job] = [each for each in rendered(values) if each["kind"] == "Job"]
    command = main_container(job)["command"]
    return job["metadata"]["name"], command[command.index("fetch") + 1 :]


def test_what_names_a_source_is_fetched_and_another_list_by_another_job() -> None:
    sourced = {"path": "b.gguf", "source": "hf:some/one/b.gguf", "context_tokens": 512}
    first, names = _fetch({})
    assert names == ["smollm2", "u2netp"]
    second, names = _fetch({"config": {"llm": {"models": {"b": sourced, "by-hand": BY_HAND}}}})
    assert names == ["b", "smollm2", "u2netp"]
    third, _ = _fetch({"images": {"tag": "0.2.0"}})
    assert len({first, second, third}) == 3
    assert _fetch({"config": {"edge": {"keepalive_s": 5}}})[0] == first


def test_one_model_that_cannot_be_had_keeps_no_other_away(tmp_path: Path) -> None:
    [job] = [each for each in of_matrix("default") if each["kind"] == "Job"]
    shell, flag, script, *arguments = main_container(job)["command"]
    (tmp_path / "cohabit").write_text(
        f'#!/bin/sh\necho "$2" >>{shlex.quote(str(tmp_path))}/asked\n[ "$2" != smollm2 ]\n'
    )
    (tmp_path / "cohabit").chmod(0o755)
    done = subprocess.run(
        [shell, flag, script, *arguments],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        timeout=10,
        check=False,
    )
    assert done.returncode == 1
    assert (tmp_path / "asked").read_text().split() == ["smollm2", "u2netp"]
