"""What is cut out: photographs that come with scikit-image, as JPEG files of a given longer side.

A size has pictures of several shapes and contents, so that no single matte decides it; all ways are
given the same bytes.
"""

from io import BytesIO
from pathlib import Path

import skimage.data
from PIL import Image

_FOLDER = Path(skimage.data.__file__).parent
_PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")
_QUALITY = 92


def write_photographs(folder: Path, side_px: int) -> list[Path]:
    """All of them into `folder`, their longer side brought to `side_px`."""
    return [_written(folder, name, side_px) for name in _PHOTOGRAPHS]


def _written(folder: Path, name: str, side_px: int) -> Path:
    path = folder / f"{Path(name).stem}-{side_px}.jpg"
    path.write_bytes(_jpeg(_FOLDER / name, side_px))
    return path


def _jpeg(source: Path, side_px: int) -> bytes:
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    scale = side_px / max(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    file = BytesIO()
    resized = picture.resize((width, height), Image.Resampling.LANCZOS)
    resized.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
