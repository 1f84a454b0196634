"""Requests of cohabit.matte.v1: what they mean, and what is refused before pictures are opened."""

from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from imaging.values import Encoded, Encoding, Format
from services.matte.values import (
    EdgeColor,
    EstimatedBackdrop,
    PictureBackdrop,
    PlainBackdrop,
    Removed,
    Times,
)
from services.matte.wire import (
    composition_of,
    encoding_of,
    estimation_of,
    removal_of,
    removed_message,
)

DEFAULT = Encoding(Format.WEBP, 70, webp_method=2)
SOME = common_pb2.Media(data=b"x")
JPEG = pb.ImageOutput(format=pb.IMAGE_FORMAT_JPEG)


def removal(**fields: Any) -> Any:
    return removal_of(pb.RemoveBackgroundRequest(**{"image": SOME} | fields), DEFAULT)


def blamed(call: Any) -> str:
    with pytest.raises(Fault) as caught:
        call()
    assert caught.value.reason is Reason.INVALID_REQUEST
    return caught.value.metadata["param"]


def test_a_bare_request_means_the_defaults() -> None:
    told = removal()
    assert (told.image, told.encoding, told.backdrop) == (b"x", DEFAULT, None)
    assert told.edge_color is EdgeColor.ESTIMATED
    switches = (told.return_background, told.return_matte, told.matte_only, told.keep_alpha)
    assert not any(switches)


def test_backdrops() -> None:
    assert removal(backdrop=pb.Backdrop(color="#0f0")).backdrop == PlainBackdrop((0, 255, 0))
    assert removal(backdrop=pb.Backdrop(image=SOME)).backdrop == PictureBackdrop(b"x")
    back = pb.Backdrop(estimated=pb.Backdrop.Estimated())
    assert removal(backdrop=back).backdrop == EstimatedBackdrop()


def test_outputs_override_the_defaults_one_by_one() -> None:
    assert encoding_of(pb.ImageOutput(quality=9), DEFAULT) == Encoding(quality=9, webp_method=2)
    assert encoding_of(pb.ImageOutput(webp_method=0), DEFAULT).webp_method == 0
    png = pb.ImageOutput(format=pb.IMAGE_FORMAT_PNG, lossless=True)
    assert encoding_of(png, DEFAULT) == Encoding(Format.PNG, 70, lossless=True, webp_method=2)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"image": None}, "image"),
        ({"edge_color": 9}, "edge_color"),
        ({"backdrop": pb.Backdrop()}, "backdrop"),
        ({"backdrop": pb.Backdrop(color="rgb(1,2,3)")}, "backdrop.color"),
        ({"backdrop": pb.Backdrop(image=common_pb2.Media())}, "backdrop.image"),
        ({"matte_only": True, "return_background": True}, "matte_only"),
        ({"matte_only": True, "backdrop": pb.Backdrop(color="red")}, "matte_only"),
        ({"output": JPEG}, "output.format"),
        ({"output": pb.ImageOutput(format=9)}, "output.format"),  # type: ignore[arg-type]
        ({"output": pb.ImageOutput(quality=101)}, "output.quality"),
        ({"output": pb.ImageOutput(webp_method=7)}, "output.webp_method"),
    ],
)
def test_what_a_removal_may_not_ask(fields: dict[str, Any], param: str) -> None:
    assert blamed(lambda: removal(**fields)) == param


def test_jpeg_is_for_what_has_no_alpha() -> None:
    assert removal(output=JPEG, matte_only=True).encoding.format is Format.JPEG
    assert removal(output=JPEG, backdrop=pb.Backdrop(color="red")).encoding.format is Format.JPEG
    asked = pb.EstimateForegroundRequest(image=SOME, matte=SOME, output=JPEG)
    assert estimation_of(asked, DEFAULT).encoding.format is Format.JPEG
    asked.cutout = True
    assert blamed(lambda: estimation_of(asked, DEFAULT)) == "output.format"


def test_a_composition_has_a_backdrop_of_its_own() -> None:
    asked = pb.CompositeRequest(foreground=SOME, backdrop=pb.Backdrop(color="red"))
    assert composition_of(asked, DEFAULT).matte is None
    asked.matte.CopyFrom(common_pb2.Media())
    assert blamed(lambda: composition_of(asked, DEFAULT)) == "matte"
    asked.backdrop.estimated.SetInParent()
    assert blamed(lambda: composition_of(asked, DEFAULT)) == "backdrop"


def test_an_answer_leaves_out_what_was_not_asked() -> None:
    removed = Removed(3, 2, 0.5, matte=Encoded(b"m", "image/png"))
    told = removed_message(removed, Times(network_ms=7), "cpu")
    assert not told.HasField("image")
    assert not told.HasField("background")
    assert told.matte.data == b"m"
    assert (told.width_px, told.height_px, told.coverage, told.device) == (3, 2, 0.5, "cpu")
    assert told.timings.network_ms == 7
