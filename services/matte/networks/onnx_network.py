"""A network in ONNX, run by onnxruntime: on the card where that has it, else on the CPU.

The runtime's own arena is off: it would keep the most that a run ever took. What it is allocated by
instead, and how that gives memory back, is `allocation`'s.
"""

from typing import Any

import numpy as np
import onnxruntime as ort

from chassis.errors import Fault, Reason
from imaging.values import Pixels
from services.matte.engine import EngineSpec
from services.matte.networks.families import FAMILIES, Family, family_of
from services.matte.networks.network import Matted
from services.matte.networks.prepare import to_input, to_matte
from services.matte.solving import Solved

_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_ERRORS_ONLY = 3


class OnnxNetwork:
    """`Network` of one ONNX file."""

    solves = False
    """onnxruntime keeps no tensors that could be solved on."""

    def __init__(self, spec: EngineSpec) -> None:
        """Raises Fault MODEL_FAILED for a file that onnxruntime does not run."""
        on_card = spec.on_card and _CUDA in ort.get_available_providers()
        try:
            self._session: Any = ort.InferenceSession(
                str(spec.path), _options(spec.threads), providers=_providers(on_card=on_card)
            )
        except Exception as error:  # its exceptions have no common base
            raise _refused(spec, str(error).strip().partition("\n")[0]) from None
        self.device = "card" if _CUDA in self._session.get_providers() else "cpu"
        self._input, self._side_px = _picture_input(spec, self._session.get_inputs())
        self._type = _TYPES[self._input.type]
        self.family = _family(spec, self._side_px, self._input.name)
        outputs = self._session.get_outputs()
        self._output = outputs[0 if self.family.output == "first" else -1].name

    def matte(self, rgb: Pixels, *, colors: bool) -> Matted:
        """See `Network`."""
        del colors
        tensor = to_input(rgb, self.family, self._side_px or self.family.side_px)
        try:
            (answer,) = self._session.run([self._output], {self._input.name: self._cast(tensor)})
        except Exception as error:
            raise _failed(error) from None
        return Matted(to_matte(answer, self.family, rgb.shape[1], rgb.shape[0]))

    def solve(self, rgb: Pixels, alpha: Pixels) -> Solved:
        """See `Network`."""
        raise NotImplementedError

    def close(self) -> None:
        """See `Network`."""
        self._session = None

    def _cast(self, tensor: Any) -> Any:
        return tensor.astype(self._type, copy=False)


def _options(threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False  # it asks for all memory of a run in one piece
    options.log_severity_level = _ERRORS_ONLY
    # Its threads would spin for the next operator while another request is decoded or solved.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _providers(*, on_card: bool) -> list[Any]:
    return [_CUDA, _CPU] if on_card else [_CPU]


def _picture_input(spec: EngineSpec, inputs: list[Any]) -> tuple[Any, int | None]:
    """The one input, and its side where the file fixes it. Raises Fault MODEL_FAILED."""
    if len(inputs) != 1 or inputs[0].type not in _TYPES or len(inputs[0].shape) != 4:
        raise _refused(spec, "a matting network takes one picture of floats (1, 3, side, side)")
    channels, height, width = inputs[0].shape[1:]
    if isinstance(channels, int) and channels != 3:
        raise _refused(spec, f"its input has {channels} channels, not the 3 of a picture")
    if not isinstance(height, int) or not isinstance(width, int):
        return inputs[0], None
    if height != width:
        raise _refused(spec, f"its input is {width}x{height}, not a square")
    return inputs[0], height


def _family(spec: EngineSpec, side_px: int | None, input_name: str) -> Family:
    name = family_of(spec.network, spec.path.name, side_px, input_name)
    if name is None:
        raise _refused(spec, "it looks like no family that is known; set `network`")
    return FAMILIES[name]


def _refused(spec: EngineSpec, why: str) -> Fault:
    return Fault(Reason.MODEL_FAILED, f"The network {spec.path.name} cannot be used: {why}.")


def _failed(error: Exception) -> Fault:
    said = str(error).strip().partition("\n")[0]
    return Fault(Reason.ENGINE_CRASHED, f"The network failed on this picture: {said}")
