"""A swap that meets a change of its model's configuration."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2 as pb
from hosting.hosted import Hosted
from services.llm.catalog import ModelFile
from services.llm.config import ModelConfig
from services.llm.swapping import Swapping


def described(folder: Path) -> ModelFile:
    return ModelFile("m", ModelConfig(path=Path("m.gguf"), resident_mib=1), folder)


async def test_a_configuration_that_has_just_changed_is_not_swapped_away(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").touch()
    hosted = Hosted.of(described(tmp_path))
    host: Any = SimpleNamespace(get=lambda _key: hosted)
    scheduler: Any = None  # is not asked
    swapping = Swapping(host, scheduler, tmp_path)
    steps = swapping.begin(pb.SwapModelRequest(key="m", path="other.gguf"))
    hosted.source = described(tmp_path)  # before the swap has its first turn
    with pytest.raises(Fault) as caught:
        await steps.next()
    assert caught.value.reason is Reason.MODEL_BUSY
    assert hosted.trial is None
    await swapping.close()
