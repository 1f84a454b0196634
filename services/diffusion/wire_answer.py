"""What happens to a request → cohabit.diffusion.v1 responses."""

from dataclasses import asdict

from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from services.diffusion.loras import LoraFile
from services.diffusion.values import Event, Finish, Image, Preview, Progress, Settings
from services.diffusion.wire import SAMPLERS, SCHEDULERS


def response_of(event: Event) -> pb.GenerateResponse:
    """One message of the stream."""
    match event:
        case Settings():
            return pb.GenerateResponse(started=_started(event))
        case Progress():
            return pb.GenerateResponse(progress=_progress(event))
        case Preview(index, step, data):
            media = common_pb2.Media(data=data, mime_type="image/jpeg")
            shown = pb.GenerateResponse.Preview(index=index, step=step, image=media)
            return pb.GenerateResponse(preview=shown)
        case Image():
            return pb.GenerateResponse(image=_image(event))
        case Finish(timings, peak_mib):
            told = pb.Timings(**asdict(timings))
            return pb.GenerateResponse(finish=pb.Finish(timings=told, peak_transient_mib=peak_mib))


def loras_response(files: list[LoraFile]) -> pb.ListLorasResponse:
    """What `loras.listed` found."""
    return pb.ListLorasResponse(
        loras=[
            pb.ListLorasResponse.LoraInfo(
                lora_id=file.lora_id,
                filename=file.filename,
                size_bytes=file.size_bytes,
                changed_unix_ms=file.changed_unix_ms,
                base=file.base,
            )
            for file in files
        ]
    )


def _started(settings: Settings) -> pb.GenerateResponse.Started:
    size = settings.size
    return pb.GenerateResponse.Started(
        width_px=size.width_px,
        height_px=size.height_px,
        size_rounded=size.rounded,
        steps=settings.steps,
        guidance=settings.guidance,
        sampler=pb.Sampler.ValueType(SAMPLERS.index(settings.sampler)),
        scheduler=pb.NoiseScheduler.ValueType(SCHEDULERS.index(settings.scheduler)),
        seed=settings.seed,
        batch=settings.batch,
        vae_tiled=settings.tiled,
    )


def _progress(progress: Progress) -> pb.GenerateResponse.Progress:
    return pb.GenerateResponse.Progress(
        phase=pb.GenerateResponse.Phase.ValueType(progress.phase.value),
        index=progress.index,
        done_steps=progress.done_steps,
        total_steps=progress.total_steps,
        left_ms=progress.left_ms,
    )


def _image(image: Image) -> pb.GenerateResponse.Image:
    return pb.GenerateResponse.Image(
        index=image.index,
        image=common_pb2.Media(data=image.file.data, mime_type=image.file.mime_type),
        width_px=image.width_px,
        height_px=image.height_px,
        seed=image.seed,
        origin=pb.ImageOrigin.ValueType(image.origin.value),
    )
