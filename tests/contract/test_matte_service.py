"""MatteService of the model service over gRPC: what needs no engine, and what never gets to one."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chassis.errors import Reason
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.models.v1 import models_pb2
from tests.hosting_world import DEADLINE_S, refusal
from tests.matte_kit import LOAD_S, configured, file_of, media, pixels_of, service, subject
from tests.tiny_birefnet import export

PNG = pb.ImageOutput(format=pb.IMAGE_FORMAT_PNG)
RED = pb.Backdrop(color="red")


def cutout(width_px: int = 64, height_px: int = 48) -> np.ndarray[Any, Any]:
    alpha = np.full((height_px, width_px), 102, np.uint8)
    return np.dstack([subject(width_px, height_px), alpha])


async def test_the_host_composes_and_estimates_without_a_permit(tmp_path: Path) -> None:
    async with service(tmp_path, configured()) as s:
        asked = pb.CompositeRequest(foreground=media(file_of(cutout())), backdrop=RED, output=PNG)
        done = await s.matte.Composite(asked, timeout=DEADLINE_S)
        assert (done.width_px, done.height_px) == (64, 48)
        assert pixels_of(done.image)[0, 0].tolist() == [165, 16, 20]
        assert done.timings.total_ms > 0
        matte = media(file_of(cutout()[..., 3]))
        both = pb.EstimateForegroundRequest(
            image=media(file_of(subject())), matte=matte, output=PNG, cutout=True
        )
        told = await s.matte.EstimateForeground(both, timeout=LOAD_S)  # it may have to compile
        assert pixels_of(told.foreground).shape == (48, 64, 4)
        assert pixels_of(told.background).shape == (48, 64, 3)
        assert told.timings.solve_ms > 0
        both.matte.data = file_of(np.zeros((3, 3), np.uint8))
        fault = await refusal(s.matte.EstimateForeground(both))
        assert (fault.reason, fault.metadata["param"]) == (Reason.SIZE_MISMATCH, "matte")
        assert not s.grants.asked


async def test_beyond_its_places_the_host_says_when_to_come_again(tmp_path: Path) -> None:
    async with service(tmp_path, configured()) as s:  # one place
        large = media(file_of(cutout(1400, 1400), compress_level=1))
        asked = pb.CompositeRequest(foreground=large, backdrop=RED)
        calls = [s.matte.Composite(asked, timeout=DEADLINE_S) for _ in range(4)]
        faults = await asyncio.gather(*(_outcome(call) for call in calls))
        refused = [fault for fault in faults if fault is not None]
        assert 1 <= len(refused) < 4
        assert {fault.reason for fault in refused} == {Reason.SATURATED}
        assert all(fault.retry_after_s for fault in refused)
        assert (await s.matte.Composite(asked, timeout=DEADLINE_S)).width_px == 1400


async def _outcome(call: Any) -> Any:
    try:
        await call
    except Exception:
        return await refusal(call)
    return None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "none"}, Reason.MODEL_NOT_FOUND),
        ({"image": media(b"")}, Reason.INVALID_REQUEST),
        ({"image": media(b"<svg/>")}, Reason.INVALID_IMAGE),
        ({"image": media(file_of(subject(2001, 1000)))}, Reason.IMAGE_TOO_LARGE),
        ({"output": pb.ImageOutput(format=pb.IMAGE_FORMAT_JPEG)}, Reason.INVALID_REQUEST),
    ],
)
async def test_what_can_come_to_nothing_asks_for_no_permit(
    tmp_path: Path, fields: dict[str, Any], reason: Reason
) -> None:
    async with service(tmp_path, configured()) as s:
        request = pb.RemoveBackgroundRequest(**{"image": media(file_of(subject()))} | fields)
        assert (await refusal(s.matte.RemoveBackground(request))).reason is reason
        assert not s.grants.asked


async def test_a_removal_is_planned_by_its_size(tmp_path: Path) -> None:
    async with service(tmp_path, configured()) as s:

        async def planned_mib(width_px: int, height_px: int) -> int:
            asked = pb.PlanRemovalRequest(width_px=width_px, height_px=height_px)
            return int((await s.matte.PlanRemoval(asked, timeout=DEADLINE_S)).transient_mib)

        most_mib = (await s.listed("small")).footprint.peak_transient_mib
        small_mib = await planned_mib(64, 48)
        assert 0 < small_mib < await planned_mib(1000, 1000) < most_mib
        assert await planned_mib(2000, 1000) == most_mib
        asked = pb.PlanRemovalRequest(width_px=2001, height_px=1000)
        fault = await refusal(s.matte.PlanRemoval(asked, timeout=DEADLINE_S))
        assert (fault.reason, fault.metadata["param"]) == (Reason.IMAGE_TOO_LARGE, "image")
        nothing = await refusal(s.matte.PlanRemoval(pb.PlanRemovalRequest(), timeout=DEADLINE_S))
        assert nothing.reason is Reason.INVALID_IMAGE
        assert not s.grants.asked
        assert (await s.listed("small")).state == models_pb2.MODEL_STATE_COLD


async def test_the_larger_picture_says_what_is_asked_for(tmp_path: Path) -> None:
    async with service(tmp_path, configured()) as s:
        await s.load()
        request = pb.RemoveBackgroundRequest(image=media(file_of(subject())))
        await s.matte.RemoveBackground(request, timeout=LOAD_S)
        request.backdrop.image.CopyFrom(media(file_of(subject(1000, 1000))))
        await s.matte.RemoveBackground(request, timeout=LOAD_S)
        plan = pb.PlanRemovalRequest(width_px=1000, height_px=1000)
        planned = await s.matte.PlanRemoval(plan, timeout=DEADLINE_S)
        small, large = (one.preferred_transient_mib for one in s.grants.asked)
        assert small < large == planned.transient_mib


async def test_a_model_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    own = configured(other={"path": "missing.onnx"})
    async with service(tmp_path, own) as s:
        request = pb.RemoveBackgroundRequest(image=media(file_of(subject())))
        fault = await refusal(s.matte.RemoveBackground(request))
        assert (fault.reason, fault.metadata["param"]) == (Reason.INVALID_REQUEST, "model")
        assert "missing.onnx cannot be read" in s.host.get("other").spec.problem


async def test_videos_come_later(tmp_path: Path) -> None:
    async with service(tmp_path, configured()) as s:
        fault = await refusal(s.matte.MatteVideo(timeout=DEADLINE_S).read())
        assert fault.reason is Reason.NOT_IMPLEMENTED


async def test_a_network_that_the_library_refuses_fails_at_load(tmp_path: Path) -> None:
    (tmp_path / "u2net.onnx").write_bytes(b"\x08\x09\x3a\x03abc")  # whole, but nonsense
    own = configured(broken={"path": "u2net.onnx"})
    async with service(tmp_path, own) as s:
        with pytest.raises(Exception, match=r"u2net\.onnx cannot be used"):
            await s.load("broken")
        model = await s.listed("broken")
        assert model.state == models_pb2.MODEL_STATE_FAILED


async def test_a_torch_network_serves_as_the_others(tmp_path: Path) -> None:
    export(tmp_path / "tiny_birefnet.pt2")
    own = configured(torch={"path": "tiny_birefnet.pt2", "kind": "torch-export", "threads": 1})
    async with service(tmp_path, own) as s:
        await s.load("torch")
        request = pb.RemoveBackgroundRequest(
            model="torch", image=media(file_of(subject())), output=PNG
        )
        answer = await s.matte.RemoveBackground(request, timeout=LOAD_S)
        assert answer.device == "cpu"
        alpha = pixels_of(answer.image)[..., 3]
        assert alpha[24, 32] > 200 > 60 > alpha[0, 0]
