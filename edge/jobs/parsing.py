"""What a body asks of the job service. Pure: a form in, a `Submission` out."""

from collections.abc import Callable, Mapping
from typing import Any

from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.cutouts.backdrop import Backdrop, Color, Estimated, backdrop_of
from edge.cutouts.fields import OutputFields
from edge.cutouts.output import output_of
from edge.cutouts.request import FILES
from edge.cutouts.sources import check_files, only_source, subject_of
from edge.errors import bad_field
from edge.jobs.body import (
    BackdropFields,
    ForegroundJobBody,
    ImageJobBody,
    RemovalJobBody,
)
from edge.jobs.submission import Given, Submission
from edge.pictures.fields import IN_JSON, sides_px
from edge.pictures.upload import Form

PictureBody = ImageJobBody | ForegroundJobBody
AnyBody = ImageJobBody | ForegroundJobBody | RemovalJobBody

_ANY_SEED = -1
_FORMATS: Mapping[str | None, Any] = {
    None: pb.RESULT_FORMAT_UNSPECIFIED,
    "webp": pb.RESULT_FORMAT_WEBP,
    "png": pb.RESULT_FORMAT_PNG,
    "jpeg": pb.RESULT_FORMAT_JPEG,
}
_OF_THE_PROMPT = (
    *("background_negative_prompt", "background_model", "background_steps"),
    *("background_guidance", "background_seed", "background_strength"),
)
"""Fields that say how a backdrop is made."""

Parse = Callable[[Form], Submission]
"""A kind of job: a form → what is asked for. Raises Fault."""


def image_generation(form: Form) -> Submission:
    """`Parse` of pictures from a prompt."""
    body = form.read_as(ImageJobBody, IN_JSON)
    check_files(form, ("image",))
    asked = _submission(body)
    work = asked.spec.image_generation
    _fill_picture(work.picture, body, form, asked)
    work.count = body.n
    _fill_output(work.output, body, has_alpha=False)
    return asked


def foreground_generation(form: Form) -> Submission:
    """`Parse` of a prompt to a cutout."""
    body = form.read_as(ForegroundJobBody, IN_JSON)
    check_files(form, ("image", "background_image", "background"))
    asked = _submission(body)
    work = asked.spec.foreground_generation
    _fill_picture(work.picture, body, form, asked)
    work.return_source = body.return_source
    has_alpha = _fill_cutout(work.cutout, body, body.matte_model, form, asked)
    _fill_output(work.output, body, has_alpha=has_alpha)
    return asked


def background_removal(form: Form) -> Submission:
    """`Parse` of a picture to a cutout."""
    body = form.read_as(RemovalJobBody, IN_JSON)
    check_files(form, FILES)
    asked = _submission(body)
    work = asked.spec.background_removal
    image = subject_of(form, body.image, body.image_url, body.file)
    asked.pictures.append(Given("image", image, work.image))
    has_alpha = _fill_cutout(work.cutout, body, body.model, form, asked)
    _fill_output(work.output, body, has_alpha=has_alpha)
    return asked


def _submission(body: AnyBody) -> Submission:
    return Submission(pb.JobSpec(), body.idempotency_key or "", body.keep_s or 0)


def _fill_picture(picture: pb.Picture, body: PictureBody, form: Form, asked: Submission) -> None:
    picture.MergeFrom(
        pb.Picture(
            model=body.model or "",
            prompt=body.prompt,
            negative_prompt=body.negative_prompt,
            steps=body.steps or 0,
            guidance=body.guidance,
            seed=_seed(body.seed),
            strength=body.strength,
            loras=[
                pb.Picture.Lora(lora_id=one.lora_id, filename=one.filename, scale=one.scale)
                for one in body.loras
            ],
        )
    )
    picture.width_px, picture.height_px = sides_px(body.size, body.width, body.height)
    asked.makers.append(picture)
    start = only_source(form, {"image": body.image})
    if start is not None:
        asked.pictures.append(Given("init_image", start, picture.init_image))
    elif body.strength is not None:
        raise bad_field("strength", "`strength` tells how far to leave `image`; send one.")


def _seed(given: int | None) -> int | None:
    return None if given == _ANY_SEED else given


def _fill_cutout(
    cutout: pb.CutoutOptions, body: BackdropFields, model: str | None, form: Form, asked: Submission
) -> bool:
    """Whether the cutout keeps its alpha."""
    asked.cutouts.append(cutout)
    cutout.model = model or ""
    cutout.return_matte, cutout.return_background = body.return_matte, body.return_background
    cutout.keep_alpha = body.keep_alpha
    backdrop = backdrop_of(form, body)
    _check_backdrops(body, backdrop)
    if body.background_prompt is not None:
        _fill_generated(cutout.generated, body, body.background_prompt)
        asked.backdrops.append(cutout.generated.picture)
        return False
    if isinstance(backdrop, Color):
        cutout.color = backdrop.name
    elif isinstance(backdrop, Estimated):
        cutout.estimated.SetInParent()
    elif backdrop is not None:
        asked.pictures.append(Given("backdrop", backdrop, cutout.image))
    return backdrop is None


def _fill_generated(
    generated: pb.CutoutOptions.GeneratedBackdrop, body: BackdropFields, prompt: str
) -> None:
    generated.picture.MergeFrom(
        pb.Picture(
            model=body.background_model or "",
            prompt=prompt,
            negative_prompt=body.background_negative_prompt,
            steps=body.background_steps or 0,
            guidance=body.background_guidance,
            seed=_seed(body.background_seed),
        )
    )
    generated.background_strength = body.background_strength or 0


def _check_backdrops(body: BackdropFields, backdrop: Backdrop | None) -> None:
    if body.background_prompt is not None:
        if backdrop is not None:
            message = "`background` and `background_prompt` both say what stands behind; send one."
            raise bad_field("background_prompt", message)
        return
    for name in _OF_THE_PROMPT:
        if getattr(body, name) not in (None, ""):
            raise bad_field(name, f"`{name}` is of use with `background_prompt` alone; send both.")


def _fill_output(output: pb.ResultOutput, body: OutputFields, *, has_alpha: bool) -> None:
    wanted = output_of(body, has_alpha=has_alpha)
    output.format = _FORMATS[wanted.format]
    output.quality, output.lossless = wanted.quality, wanted.lossless
