"""A scripted service for diffusion models beside the peers of `edge_kit`, and pictures for it."""

import base64
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chassis.errors import not_implemented
from chassis.server import Server
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc
from cohabit.models.v1 import models_pb2
from tests.edge_kit import House, Peers, opened

PAINTER = "sdxl"
EDITOR = "kontext"

Step = pb.GenerateResponse
Paints = Callable[[Any, Any], AsyncIterator[Any]]


def png(width: int = 4, height: int = 3) -> bytes:
    """A real PNG, all black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = zlib.compress((b"\0" + b"\0\0\0" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


PNG = png()
PNG_WORDS = base64.b64encode(PNG).decode()
JPEG = b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"\0\0" + b"\xff\xc0\0\x0b\x08\0\x20\0\x40\x01"


def painted(seed: int, data: bytes = PNG, mime_type: str = "image/png") -> Step:
    """A finished picture."""
    return Step(
        image=Step.Image(
            image=common_pb2.Media(data=data, mime_type=mime_type),
            width_px=64,
            height_px=128,
            seed=seed,
            origin=pb.IMAGE_ORIGIN_GENERATED,
        )
    )


def started(seed: int, steps: int = 4) -> Step:
    """The settings that apply."""
    return Step(
        started=Step.Started(
            width_px=64, height_px=128, size_rounded=True, steps=steps, guidance=7, seed=seed
        )
    )


def preview(step: int) -> Step:
    """A rough picture, whose bytes tell its step."""
    image = common_pb2.Media(data=b"\xff\xd8\xff%d" % step, mime_type="image/jpeg")
    return Step(preview=Step.Preview(step=step, image=image))


def finish() -> Step:
    """The end."""
    return Step(finish=pb.Finish(timings=pb.Timings(denoise_ms=40, total_ms=50)))


class Darkroom(diffusion_pb2_grpc.DiffusionServiceServicer):
    """The service and its engines."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.paint: Paints = self.paints
        self.requests: list[pb.GenerateRequest] = []
        self.plans: list[pb.PlanGenerationRequest] = []
        self.plan: Callable[[Any], pb.PlanGenerationResponse] = lambda _asked: (
            pb.PlanGenerationResponse(preferred_transient_mib=900, minimum_transient_mib=300)
        )

    async def paints(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        seed = request.seed if request.HasField("seed") else 77
        yield started(seed)
        for step in range(1, 5):
            yield Step(progress=Step.Progress(phase=Step.PHASE_DENOISE, done_steps=step))
            if request.HasField("preview"):
                yield preview(step)
        yield painted(seed)
        yield finish()

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        kept = pb.GenerateRequest()
        kept.CopyFrom(request)
        self.requests.append(kept)
        await self._peers.note("paint")
        try:
            async for event in self.paint(request, context):
                yield event
        finally:
            await self._peers.note("paint over")

    async def PlanGeneration(self, request: Any, _context: Any) -> pb.PlanGenerationResponse:
        self.plans.append(request)
        return self.plan(request)

    async def EncodeIdentity(self, _request: Any, _context: Any) -> pb.EncodeIdentityResponse:
        raise not_implemented("Identity")

    async def ListLoras(self, request: Any, _context: Any) -> pb.ListLorasResponse:
        lora = pb.ListLorasResponse.LoraInfo(
            lora_id="ink", filename="a.safetensors", size_bytes=9, changed_unix_ms=5000, base="sdxl"
        )
        return pb.ListLorasResponse(loras=[lora] if request.model in ("", PAINTER) else [])


class PicturePeers(Peers):
    """With models that paint."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.darkroom = Darkroom(self)
        self.models += [_model(PAINTER, ["text"]), _model(EDITOR, ["text", "image"])]

    def serve(self, server: Server) -> None:
        super().serve(server)
        diffusion_pb2_grpc.add_DiffusionServiceServicer_to_server(self.darkroom, server.grpc)


def _model(key: str, modalities: list[str]) -> models_pb2.Model:
    return models_pb2.Model(
        key=key,
        kind=models_pb2.MODEL_KIND_DIFFUSION,
        service="diffusion",
        capabilities=models_pb2.Capabilities(input_modalities=modalities),
    )


def darkroom(house: House) -> Darkroom:
    """The scripted service of a house that was opened here."""
    assert isinstance(house.peers, PicturePeers)
    return house.peers.darkroom


@asynccontextmanager
async def opened_with_pictures(folder: Path, **changes: Any) -> AsyncIterator[House]:
    """A house that paints."""
    async with opened(folder, ("llm", "diffusion"), PicturePeers, **changes) as house:
        yield house
