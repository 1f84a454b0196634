"""Makes requests for pictures reach what is behind the edge, and cost little there: a bad one
stays as bad as it was."""

import base64
import re
from typing import Any

from tests.integration.picture_house import CUTTER, LORA, PAINTER
from tests.picture_forge import pattern, saved

_PICTURE = base64.b64encode(saved(pattern(), "PNG")).decode()
_PICTURES = ("image", "mask", "file", "image_url", "background_image")
_LISTS = ("images", "reference_images")
_SIDES = ("width", "height")
_MOST_PX, _MOST_STEPS, _MOST_COUNT = 64, 1, 2
_SIZE = re.compile(r"[1-9][0-9]{0,4}x[1-9][0-9]{0,4}")
_MODELS = {"background_model": PAINTER, "matte_model": CUTTER}


def is_of_pictures(path: str) -> bool:
    """Whether a route takes or makes pictures."""
    return path.startswith("/v1/images/")


def model_of(path: str) -> str:
    """The model that a route of pictures means by `model`."""
    return CUTTER if "/background-removals" in path else PAINTER


def affordable(body: dict[str, Any]) -> None:
    """Models that there are, pictures that are some, every second time, and little work."""
    for name, model in _MODELS.items():
        if isinstance(body.get(name), str):
            body[name] = model
    for name in _PICTURES:
        if name in body:
            body[name] = _picture(body[name])
    for name in _LISTS:
        if isinstance(told := body.get(name), list):
            body[name] = [_picture(one) for one in told]
    for name in _SIDES:
        _at_most(body, name, _MOST_PX)
    for name in ("steps", "background_steps"):
        _at_most(body, name, _MOST_STEPS)
    _at_most(body, "n", _MOST_COUNT)
    if isinstance(size := body.get("size"), str) and _SIZE.fullmatch(size):
        body["size"] = f"{_MOST_PX}x{_MOST_PX}"
    for wish in body["loras"] if isinstance(body.get("loras"), list) else ():
        if isinstance(wish, dict) and isinstance(wish.get("lora_id"), str):
            wish["lora_id"] = LORA


def _picture(told: Any) -> Any:
    if isinstance(told, str) and len(told) % 2:
        return _PICTURE
    if isinstance(told, dict) and isinstance(told.get("image_url"), str):
        return {**told, "image_url": _picture(told["image_url"])}
    return told


def _at_most(body: dict[str, Any], name: str, most: int) -> None:
    if isinstance(told := body.get(name), int) and not isinstance(told, bool):
        body[name] = min(told, most)
