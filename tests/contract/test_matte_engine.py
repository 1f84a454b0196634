"""The matting service with a real engine process and the real small network, over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from chassis.channel import call_metadata, open_channel
from chassis.errors import Reason
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc as rpc
from cohabit.models.v1 import models_pb2
from tests.hosting_world import DEADLINE_S, refusal
from tests.matte_kit import (
    LOAD_S,
    MAX_PX,
    U2NETP,
    Service,
    configured,
    file_of,
    media,
    pixels_of,
    service,
    subject,
)

pytestmark = pytest.mark.skipif(not U2NETP.is_file(), reason=f"{U2NETP} is not there")

PNG = pb.ImageOutput(format=pb.IMAGE_FORMAT_PNG)


class Engine:
    """Calls with a permit each."""

    def __init__(self, stub: "rpc.MatteServiceAsyncStub") -> None:
        self.stub = stub
        self._permits = 0

    def permit(self) -> tuple[tuple[str, str], ...]:
        self._permits += 1
        return call_metadata(f"p{self._permits}")

    def remove(self, data: bytes, **fields: Any) -> Any:
        wanted: dict[str, Any] = {"model": "small", "output": PNG, "image": media(data)}
        request = pb.RemoveBackgroundRequest(**wanted | fields)
        return self.stub.RemoveBackground(request, metadata=self.permit(), timeout=LOAD_S)


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[tuple[Service, Engine, models_pb2.Instance]]:
    async with service(folder, configured()) as s:
        instance = await s.load()
        async with open_channel(instance.address) as channel:
            yield s, Engine(rpc.MatteServiceStub(channel)), instance


def engine_process() -> psutil.Process:
    (one,) = (
        child
        for child in psutil.Process().children(recursive=True)
        if "services.matte.engine_main" in child.cmdline()
    )
    return one


async def test_what_an_engine_answers(tmp_path: Path) -> None:
    rgb = subject(96, 72)
    async with engine(tmp_path) as (s, e, instance):
        whole = await e.remove(file_of(rgb), return_matte=True, return_background=True)
        cutout, matte = pixels_of(whole.image), pixels_of(whole.matte)
        assert (whole.width_px, whole.height_px, whole.device) == (96, 72, "cpu")
        assert cutout.shape == (72, 96, 4)
        assert matte.shape == (72, 96)
        assert np.array_equal(cutout[..., 3], matte)
        assert not cutout[..., :3][matte == 0].any()
        assert pixels_of(whole.background).shape == (72, 96, 3)
        assert matte[36, 48] > 200 > 60 > matte[0, 0]
        assert whole.coverage == pytest.approx(matte.mean() / 255, abs=1e-4)
        times = whole.timings
        parts = (times.decode_ms, times.network_ms, times.solve_ms, times.encode_ms)
        assert all(part > 0 for part in parts)
        assert sum(parts) + times.engine_wait_ms <= times.total_ms

        only = await e.remove(file_of(rgb), matte_only=True)
        assert not only.HasField("image")
        assert np.array_equal(pixels_of(only.matte), matte)
        assert only.timings.solve_ms == 0

        webp = await e.remove(file_of(rgb), output=pb.ImageOutput())
        assert webp.image.mime_type == "image/webp"
        red = pb.Backdrop(color="red")
        jpeg = pb.ImageOutput(format=pb.IMAGE_FORMAT_JPEG)
        on_red = await e.remove(file_of(rgb), backdrop=red, output=jpeg)
        assert on_red.image.mime_type == "image/jpeg"
        assert pixels_of(on_red.image)[2, 2].tolist() == pytest.approx([254, 0, 0], abs=40)
        back = pb.Backdrop(estimated=pb.Backdrop.Estimated())
        assert pixels_of((await e.remove(file_of(rgb), backdrop=back)).image).shape == (72, 96, 3)
        pnm = await e.remove(file_of(rgb), output=pb.ImageOutput(format=pb.IMAGE_FORMAT_PNM))
        assert pnm.image.mime_type == "image/x-portable-arbitrarymap"

        model = await s.listed("small")
        assert model.kind == models_pb2.MODEL_KIND_MATTE
        assert instance.placement.kind == "cpu"


@pytest.mark.parametrize(("width_px", "height_px"), [(1, 1), (1, 7), (500, 1), (2, 3), (331, 127)])
async def test_any_size(tmp_path: Path, width_px: int, height_px: int) -> None:
    async with engine(tmp_path) as (_, e, _):
        answer = await e.remove(
            file_of(subject(width_px, height_px)), return_background=True, return_matte=True
        )
        assert pixels_of(answer.image).shape == (height_px, width_px, 4)
        assert 0 <= answer.coverage <= 1


async def test_what_an_engine_refuses(tmp_path: Path) -> None:
    png = file_of(subject())
    async with engine(tmp_path) as (_, e, _):
        bare = pb.RemoveBackgroundRequest(model="small", image=media(png))
        fault = await refusal(e.stub.RemoveBackground(bare))
        assert fault.reason is Reason.PERMIT_REQUIRED
        fault = await refusal(e.remove(png, model="other"))
        assert fault.reason is Reason.MODEL_NOT_FOUND
        fault = await refusal(e.remove(png[: len(png) // 2]))
        assert (fault.reason, fault.metadata["param"]) == (Reason.INVALID_IMAGE, "image")
        fault = await refusal(e.remove(b"<svg xmlns='http://www.w3.org/2000/svg'/>"))
        assert fault.reason is Reason.INVALID_IMAGE
        fault = await refusal(e.remove(file_of(subject(MAX_PX // 100, 101))))
        assert (fault.reason, fault.metadata["max_px"]) == (Reason.IMAGE_TOO_LARGE, str(MAX_PX))
        fault = await refusal(e.remove(png, output=pb.ImageOutput(format=pb.IMAGE_FORMAT_JPEG)))
        assert fault.metadata["param"] == "output.format"
        video = e.stub.MatteVideo(metadata=e.permit())
        assert (await refusal(video.read())).reason is Reason.NOT_IMPLEMENTED
        fault = await refusal(e.stub.Composite(pb.CompositeRequest(), metadata=e.permit()))
        assert fault.reason is Reason.NOT_IMPLEMENTED
        assert (await e.remove(png)).width_px == 64  # and goes on


async def test_a_cancelled_request_gives_its_permit_back_and_leaves_the_others(
    tmp_path: Path,
) -> None:
    large = file_of(subject(1400, 1400), compress_level=1)
    async with engine(tmp_path) as (s, e, _):
        calls = [e.remove(large) for _ in range(4)]
        (tenancy,) = s.host.get("small").tenancies
        async with asyncio.timeout(DEADLINE_S):
            while len(tenancy.permits) < 4:  # noqa: ASYNC110  another process tells
                await asyncio.sleep(0.001)
        for call in calls[1:]:
            call.cancel()
        async with asyncio.timeout(DEADLINE_S):
            while len(tenancy.permits) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert (await calls[0]).width_px == 1400


async def test_an_engine_at_rest_gives_back_what_pictures_took(tmp_path: Path) -> None:
    async with engine(tmp_path) as (s, e, _):
        (tenancy,) = s.host.get("small").tenancies
        process = engine_process()
        large = file_of(subject(1400, 1400), compress_level=1)
        for _ in range(3):
            await e.remove(large)
        declared_mib = (await s.listed("small")).footprint.resident_mib
        async with asyncio.timeout(DEADLINE_S):
            while process.memory_info().rss >> 20 > declared_mib:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert tenancy.usage.resident_mib <= declared_mib


async def test_the_service_admits_and_asks_for_what_the_picture_needs(tmp_path: Path) -> None:
    async with service(tmp_path, configured()) as s:
        await s.load()
        footprint = (await s.listed("small")).footprint
        request = pb.RemoveBackgroundRequest(image=media(file_of(subject())), output=PNG)
        answer = await s.matte.RemoveBackground(request, timeout=LOAD_S)
        assert answer.width_px == 64
        assert s.grants.asked[0].model == "small"  # the only one there is
        assert 0 < s.grants.asked[0].preferred_transient_mib < footprint.peak_transient_mib
        matte = media(file_of(np.full((48, 64), 128, np.uint8)))
        asked = pb.EstimateForegroundRequest(model="small", image=request.image, matte=matte)
        assert (await s.matte.EstimateForeground(asked, timeout=LOAD_S)).foreground.data
        async with asyncio.timeout(DEADLINE_S):
            while s.grants.ended < 2:  # noqa: ASYNC110  the streams end on their own
                await asyncio.sleep(0.001)
