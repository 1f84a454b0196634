"""What a job was asked for: its parts, its pictures, its name as a hash.

A spec is kept as the JobSpec it came as, without the bytes of its pictures, which are files. What
may be asked for is checked next door.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping

from chassis.errors import Fault, Reason, not_implemented
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from services.jobs.core.plan import Work
from services.jobs.core.values import JobKind

_KINDS = {
    "image_generation": JobKind.IMAGE_GENERATION,
    "foreground_generation": JobKind.FOREGROUND_GENERATION,
    "background_removal": JobKind.BACKGROUND_REMOVAL,
}


def kind_of(spec: pb.JobSpec) -> JobKind:
    """What the job does. Faults: invalid_request, not_implemented."""
    work = spec.WhichOneof("work") or ""
    if work == "publication" or spec.HasField("publish"):
        raise not_implemented("Publishing results to object storage")
    if work not in _KINDS:
        raise wrong("spec", "it names no work; set one of " + ", ".join(_KINDS))
    return _KINDS[work]


def picture_of(spec: pb.JobSpec) -> pb.Picture | None:
    """The picture to generate, where there is one."""
    match spec.WhichOneof("work"):
        case "image_generation":
            return spec.image_generation.picture
        case "foreground_generation":
            return spec.foreground_generation.picture
    return None


def cutout_of(spec: pb.JobSpec) -> pb.CutoutOptions | None:
    """How the subject is cut out, where one is."""
    match spec.WhichOneof("work"):
        case "foreground_generation":
            return spec.foreground_generation.cutout
        case "background_removal":
            return spec.background_removal.cutout
    return None


def backdrop_of(spec: pb.JobSpec) -> pb.CutoutOptions.GeneratedBackdrop | None:
    """The backdrop to generate, where one is."""
    cutout = cutout_of(spec)
    if cutout is None or cutout.WhichOneof("backdrop") != "generated":
        return None
    return cutout.generated


def output_of(spec: pb.JobSpec) -> pb.ResultOutput:
    """How results are encoded."""
    match spec.WhichOneof("work"):
        case "image_generation":
            return spec.image_generation.output
        case "foreground_generation":
            return spec.foreground_generation.output
    return spec.background_removal.output


def pictures_in(spec: pb.JobSpec) -> Iterator[tuple[str, common_pb2.Media]]:
    """The pictures that came with it, by the names of their fields; always in the same order."""
    picture, cutout = picture_of(spec), cutout_of(spec)
    if spec.WhichOneof("work") == "background_removal":
        yield "image", spec.background_removal.image
    if picture is not None and picture.HasField("init_image"):
        yield "init_image", picture.init_image
    if cutout is not None and cutout.WhichOneof("backdrop") == "image":
        yield "backdrop", cutout.image


def work_of(spec: pb.JobSpec) -> Work:
    """What decides over its steps."""
    picture, cutout, backdrop = picture_of(spec), cutout_of(spec), backdrop_of(spec)
    return Work(
        kind=kind_of(spec),
        picture_model=picture.model if picture is not None else "",
        count=max(1, spec.image_generation.count),
        matte_model=cutout.model if cutout is not None else "",
        backdrop_model=backdrop.picture.model if backdrop is not None else "",
    )


def hash_of(spec: pb.JobSpec, pictures: Mapping[str, bytes], keep_s: int) -> bytes:
    """Equal for requests that are the same in everything that was asked for.

    `spec` is stripped of its `pictures`, so that no copy of them is made.
    """
    plain = pb.SubmitJobRequest(spec=spec, keep_s=keep_s)
    plain.DiscardUnknownFields()
    whole = hashlib.sha256(plain.SerializeToString(deterministic=True))
    for data in pictures.values():
        whole.update(hashlib.sha256(data).digest())
    return whole.digest()


def draw_seeds(spec: pb.JobSpec, draw: Callable[[], int]) -> None:
    """Give every picture without a seed one, so that a step that is run again repeats itself."""
    backdrop = backdrop_of(spec)
    for picture in (picture_of(spec), backdrop.picture if backdrop is not None else None):
        if picture is not None and not picture.HasField("seed"):
            picture.seed = draw()


def strip(spec: pb.JobSpec) -> dict[str, bytes]:
    """Take the pictures out; their bytes, by the names of their fields."""
    taken: dict[str, bytes] = {}
    for field, media in pictures_in(spec):
        taken[field] = media.data
        media.data = b""
    return taken


def wrong(field: str, why: str) -> Fault:
    """The refusal of what a field holds; `why` completes the sentence."""
    return Fault(Reason.INVALID_REQUEST, f"`{field}`: {why}.", metadata={"param": field})
