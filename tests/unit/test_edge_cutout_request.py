"""Whatever a form says, it is understood or refused by a sentence: cutouts and jobs."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault
from cohabit.jobs.v1 import jobs_pb2
from cohabit.matte.v1 import matte_pb2
from edge.cutouts.request import understand
from edge.jobs.parsing import background_removal, foreground_generation, image_generation
from edge.pictures.upload import Form, Upload

FILE = Upload(b"\x89PNG\r\n\x1a\n", "image/png", "a.png")
NAMES = (
    *("model", "image", "image_url", "file", "background", "background_image", "prompt"),
    *("background_prompt", "background_strength", "background_seed", "return_background"),
    *("return_matte", "matte_only", "keep_alpha", "edge_color", "output_format", "quality"),
    *("output_compression", "lossless", "webp_method", "response_format", "user", "n", "size"),
    *("width", "height", "steps", "guidance", "seed", "loras", "strength", "matte_model"),
    *("idempotency_key", "keep_s", "return_source", "negative_prompt", "nonsense"),
)
GOOD = (
    *("red", "#fff", "estimated", "transparent", "http://example.com/a.png", "webp", "png", "jpeg"),
    *("true", "0", "1", "50", "0.5", "kept", "binary", "b64_json", "64x64", "auto", "[]"),
)
words = st.sampled_from(GOOD) | st.text(max_size=20)
values = (
    words | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(words, max_size=3)
)
files = st.dictionaries(
    st.sampled_from(("image", "file", "background_image", "background", "mask", "")),
    st.lists(st.just(FILE), min_size=1, max_size=2),
    max_size=2,
)
typed = st.builds(
    Form, st.dictionaries(st.sampled_from(NAMES), values, max_size=6), files, st.just(True)
)
texts = st.builds(
    Form,
    st.dictionaries(st.sampled_from(NAMES), words | st.lists(words, max_size=3), max_size=6),
    files,
    st.just(False),
)
PARSERS: tuple[Callable[[Form], Any], ...] = (
    understand,
    image_generation,
    foreground_generation,
    background_removal,
)


def refusal(parse: Callable[[Form], Any], form: Form) -> Fault | None:
    try:
        parse(form)
    except Fault as fault:
        return fault
    return None


@given(st.sampled_from(PARSERS), typed | texts)
def test_only_faults_with_a_sentence(parse: Callable[[Form], Any], form: Form) -> None:
    fault = refusal(parse, form)
    assert fault is None or (fault.row.http, fault.message[-1]) == (400, ".")


@given(typed | texts)
def test_what_is_understood_can_be_done(form: Form) -> None:
    wanted = Form({"image": "aGk=", **form.fields}, {}, form.typed)
    try:
        removal = understand(wanted)
    except Fault:
        return
    asked = removal.request
    has_alpha = removal.backdrop is None and not asked.matte_only
    assert not (has_alpha and asked.output.format == matte_pb2.IMAGE_FORMAT_JPEG)
    assert asked.output.quality <= 100
    assert not (asked.matte_only and (asked.return_background or removal.backdrop))
    several = not asked.matte_only and (asked.return_background or asked.return_matte)
    assert removal.as_json or not several


@given(typed | texts)
def test_a_cutout_of_a_job_can_be_done(form: Form) -> None:
    wanted = Form({"prompt": "x", **form.fields}, {}, form.typed)
    try:
        work = foreground_generation(wanted).spec.foreground_generation
    except Fault:
        return
    backdrop = work.cutout.WhichOneof("backdrop")
    generated = work.cutout.generated
    assert backdrop or work.output.format != jobs_pb2.RESULT_FORMAT_JPEG
    assert (backdrop == "generated") is bool(generated.picture.prompt)
    assert backdrop == "generated" or not generated.background_strength
    assert bool(work.picture.width_px) is bool(work.picture.height_px)
    assert math.isfinite(work.picture.guidance)
    assert work.picture.HasField("strength") <= work.picture.HasField("init_image")


@pytest.mark.parametrize(
    ("told", "quality"),
    [({}, 0), ({"quality": 70}, 70), ({"output_compression": 0}, 1), ({"quality": 1}, 1)],
)
def test_quality_by_either_name(told: dict[str, Any], quality: int) -> None:
    assert understand(Form({"image": "aGk=", **told})).request.output.quality == quality


def test_a_field_left_out_and_one_of_its_default_are_the_same() -> None:
    plain = understand(Form({"image": "aGk="}))
    spelt = understand(
        Form({"image": "aGk=", "matte_only": False, "background": "Transparent", "user": {"a": 1}})
    )
    assert plain == spelt
