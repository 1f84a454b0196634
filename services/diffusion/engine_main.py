"""An engine process of the diffusion service: one model, served under permits."""

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from chassis import log
from chassis.errors import Fault, Reason
from chassis.server import service_name
from cohabit.diffusion.v1 import diffusion_pb2, diffusion_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import FAILED_PREFIX, EngineProcess, run_engine
from services.diffusion.engine import EngineSpec, spec_of
from services.diffusion.engine_servicer import EngineServicer
from services.diffusion.loaded import LoadedModel
from services.diffusion.native_thread import NativeThread

if TYPE_CHECKING:
    from services.diffusion.engine_sd import SdPainter

NAMES = (service_name(diffusion_pb2, "DiffusionService"),)
WARM = ("numpy", "PIL.Image", "stable_diffusion_cpp.stable_diffusion_cpp")
"""Imported before it is known what to load; none of them touches the device."""


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Load the model on its thread and serve it. Raises Fault MODEL_FAILED."""
    spec, thread = spec_of(process.birth.engine), NativeThread()
    painter = await asyncio.wrap_future(thread.submit(_painter, spec))
    model = LoadedModel(process.birth.key, spec, painter, thread, process.renew, process.count)
    diffusion_pb2_grpc.add_DiffusionServiceServicer_to_server(
        EngineServicer(process, model), process.server.grpc
    )
    await process.server.start(process.birth.address)
    began_s = time.monotonic()
    await _load(process, model)
    model.reload_s = spec.restart_s + time.monotonic() - began_s
    process.usage = model.usage
    device = painter.device
    log.get().info("model loaded", device=device or "cpu", reload_s=round(model.reload_s, 2))
    return models_pb2.EngineReady(
        places=1,
        capabilities=models_pb2.Capabilities(
            input_modalities=["text", "image"] if spec.references else ["text"]
        ),
        placement=models_pb2.Placement(kind="gpu" if device else "cpu", device_name=device),
    )


async def _load(process: EngineProcess, model: LoadedModel) -> None:
    loop = asyncio.get_running_loop()

    def progress(share: float) -> None:
        loop.call_soon_threadsafe(process.report_progress, share)

    try:
        files = await asyncio.to_thread(_fingerprints, model)
    except OSError as error:
        raise Fault(
            Reason.MODEL_FAILED,
            f"A file of the model cannot be read: {error.strerror} ({error.filename}); see to it, "
            "then load it again.",
        ) from None
    spec = model.spec
    # What stands in the spec and changes pixels, beside what is settled by request.
    chosen = repr((spec.placement, spec.flow_shift, spec.tiling))
    model.facts = (*files, model.painter.library, chosen)
    await asyncio.wrap_future(model.thread.submit(model.painter.load, progress))


def _fingerprints(model: LoadedModel) -> list[str]:
    files = sorted(model.spec.files.items())
    return [f"{role}={model.fingerprints.of(Path(path))}" for role, path in files]


def _painter(spec: EngineSpec) -> "SdPainter":
    from services.diffusion.engine_sd import SdPainter  # noqa: PLC0415 - heavy, and only here

    return SdPainter(spec, _last_words)


def _last_words(fault: Fault) -> None:
    """The parent reads on standard error why the process ends; nothing else can be told."""
    sys.stderr.write(f"{FAILED_PREFIX}{fault.reason.value} {' '.join(fault.message.split())}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    run_engine(NAMES, load, WARM)
