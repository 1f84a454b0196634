"""A network in torch: a module that was exported to disk, or code of a hub.

On a card it runs in half precision with channels last, and the colours of its mattes are solved
for right there: picture and matte cross the bus once each way. What comes from a hub is converted;
an exported program keeps the types that it was exported with, under autocast.
"""

import time
import warnings
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from chassis import log
from chassis.errors import Fault, Reason
from imaging.values import Pixels
from services.matte.engine import EngineSpec
from services.matte.networks import files
from services.matte.networks.families import FAMILIES, Family, family_of
from services.matte.networks.network import Matted
from services.matte.networks.prepare import to_input, to_matte
from services.matte.solving import Solved

_COMPILED_MAY_DIFFER = 0.02
"""Of a matte from 0 to 1, at its worst pixel."""


class TorchNetwork:
    """`Network` of one torch module."""

    def __init__(self, spec: EngineSpec) -> None:
        """Raises Fault MODEL_FAILED for a file that torch does not run."""
        torch.set_num_threads(spec.threads)
        self.device = "card" if spec.on_card and torch.cuda.is_available() else "cpu"
        self.solves = self.device == "card"
        self._torch = torch.device("cuda" if self.solves else "cpu")
        self.family = _family(spec)
        module = _module(spec, self._torch)
        self._halved = self.solves and spec.kind == "hub"
        if self._halved:
            module = module.half().to(memory_format=torch.channels_last)
        self._module: Any = module
        if spec.compile:
            self._module = self._compiled(module)

    def matte(self, rgb: Pixels, *, colors: bool) -> Matted:
        """See `Network`."""
        with self._running():
            plane = self._answer(self._module, rgb)
            if not self.solves:
                return Matted(to_matte(plane.float().numpy(), self.family, *_size(rgb)))
            share = self._scaled(plane, rgb)
            alpha = (share * 255).round().to(torch.uint8)[0, 0].cpu().numpy()
            if not colors:
                return Matted(alpha)
            began = time.perf_counter()
            solved = self._solved(rgb, share)
            return Matted(alpha, solved, 1000 * (time.perf_counter() - began))

    def solve(self, rgb: Pixels, alpha: Pixels) -> Solved:
        """See `Network`."""
        with self._running():
            share = torch.from_numpy(np.ascontiguousarray(alpha)).to(self._torch)
            return self._solved(rgb, share[None, None].float() / 255)

    def close(self) -> None:
        """See `Network`."""
        self._module = None

    def _running(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(_told())
        stack.enter_context(torch.inference_mode())
        if self._torch.type == "cuda" and not self._halved:
            stack.enter_context(torch.autocast("cuda", dtype=torch.float16))
        return stack

    def _answer(self, module: Any, rgb: Pixels) -> torch.Tensor:
        """The last two axes are the picture's."""
        tensor = torch.from_numpy(to_input(rgb, self.family, self.family.side_px))
        tensor = tensor.to(self._torch, torch.float16 if self._halved else torch.float32)
        tensor = tensor.contiguous(memory_format=torch.channels_last)
        answer = module(tensor)
        while isinstance(answer, list | tuple):
            answer = answer[0 if self.family.output == "first" else -1]
        return _plane(answer)

    def _scaled(self, plane: torch.Tensor, rgb: Pixels) -> torch.Tensor:
        """(1, 1, height, width) from 0 to 1, on the card: `prepare.to_matte` for tensors."""
        plane = plane.float()[None, None]
        if self.family.answer == "logits":
            share = plane.sigmoid()
        else:
            least, most = plane.amin(), plane.amax()
            share = (plane - least) / (most - least).clamp_min(1e-4)
        width_px, height_px = _size(rgb)
        return functional.interpolate(
            share, (height_px, width_px), mode="bicubic", antialias=True
        ).clamp(0, 1)

    def _solved(self, rgb: Pixels, share: torch.Tensor) -> Solved:
        from services.matte.solving.device import estimate_on_device  # noqa: PLC0415

        image = torch.from_numpy(np.ascontiguousarray(rgb)).to(self._torch)
        image = image.permute(2, 0, 1)[None].float() / 255
        foreground, background = estimate_on_device(image, share)
        return Solved(_pixels(foreground), _pixels(background))

    def _compiled(self, eager: Any) -> Any:
        """`eager` compiled, if that makes the same mattes; else as it is, and the log says why."""
        from services.matte.networks.opening import sample  # noqa: PLC0415 - it imports us

        picture = sample(self.family.side_px)
        try:
            compiled: Any = torch.compile(eager)
            with self._running():
                there = self._scaled(self._answer(compiled, picture), picture)
                here = self._scaled(self._answer(eager, picture), picture)
            worst = float((there - here).abs().max())
        except Exception as error:  # a compiler fails in any way it likes
            log.get().warning("not compiled", why=str(error).strip().partition("\n")[0][:200])
            return eager
        if not worst <= _COMPILED_MAY_DIFFER:
            log.get().warning("not compiled", why="its mattes differ", worst=worst)
            return eager
        log.get().info("compiled", worst=worst)
        return compiled


class _told(AbstractContextManager[None]):  # noqa: N801 - used as a word
    """What torch raises is the failure of one request, told in its own first line."""

    def __exit__(self, _kind: Any, error: BaseException | None, _where: Any) -> None:
        if isinstance(error, RuntimeError):
            said = str(error).strip().partition("\n")[0][:300]
            message = f"The network failed on this picture: {said}"
            raise Fault(Reason.ENGINE_CRASHED, message) from None


def _module(spec: EngineSpec, device: torch.device) -> Any:
    if spec.kind == "hub":
        from services.matte.networks.hub import hub_module  # noqa: PLC0415 - runs its code

        return hub_module(spec).eval().to(device)
    try:
        if files.torch_kind(spec.path) == "script":
            return _scripted(spec.path, device)
        return torch.export.load(spec.path).module().to(device)
    except Fault:
        raise
    except Exception as error:  # whatever its readers make of a damaged file
        said = str(error).strip().partition("\n")[0][:300]
        message = f"The network {spec.path.name} cannot be used: {said}"
        raise Fault(Reason.MODEL_FAILED, message) from None


def _scripted(path: Path, device: torch.device) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the format is an old one: we know
        return torch.jit.load(str(path), map_location=device).eval()  # type: ignore[no-untyped-call]


def _family(spec: EngineSpec) -> Family:
    name = family_of(spec.network, spec.path.name, None, "")
    if name is None:
        message = f"Which network {spec.path.name} is cannot be told by its name; set `network`."
        raise Fault(Reason.MODEL_FAILED, message)
    return FAMILIES[name]


def _plane(answer: Any) -> torch.Tensor:
    shape = tuple(getattr(answer, "shape", ()))
    if len(shape) < 2 or any(extent != 1 for extent in shape[:-2]):
        message = f"The network answered {shape or type(answer).__name__}, not one matte."
        raise Fault(Reason.ENGINE_CRASHED, message)
    plane: torch.Tensor = answer.reshape(shape[-2:])
    return plane


def _pixels(tensor: torch.Tensor) -> Pixels:
    whole = (tensor[0].clamp(0, 1) * 255).round().to(torch.uint8)
    pixels: Pixels = whole.permute(1, 2, 0).contiguous().cpu().numpy()
    return pixels


def _size(rgb: Pixels) -> tuple[int, int]:
    return rgb.shape[1], rgb.shape[0]
