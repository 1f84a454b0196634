"""Makes the network that a spec asks for, and tries it before anybody waits for it."""

import numpy as np

from chassis import log
from chassis.errors import Fault, Reason
from imaging.values import Pixels
from services.matte.engine import EngineSpec
from services.matte.networks.network import Network

_SAMPLE_PX = 96


def open_network(spec: EngineSpec) -> Network:
    """Load it and have it matte a test picture. Raises Fault MODEL_FAILED."""
    network = _loaded(spec)
    if spec.on_card and network.device != "card":
        log.get().warning("model degraded", why="meant for a card, but its library finds none")
    _try(network, spec)
    return network


def sample(side_px: int) -> Pixels:
    """A bright disc on a dark ramp: something that is plainly a subject."""
    ys, xs = np.mgrid[0:side_px, 0:side_px]
    ramp = (40 + 60 * xs / side_px).astype(np.uint8)
    picture = np.dstack([ramp, ramp, np.full_like(ramp, 60)])
    middle = (side_px - 1) / 2
    picture[(ys - middle) ** 2 + (xs - middle) ** 2 < (side_px / 3) ** 2] = (230, 200, 60)
    return picture


def _loaded(spec: EngineSpec) -> Network:
    if spec.kind == "onnx":
        from services.matte.networks.onnx_network import OnnxNetwork  # noqa: PLC0415 - heavy

        return OnnxNetwork(spec)
    from services.matte.networks.torch_network import TorchNetwork  # noqa: PLC0415 - heavy

    return TorchNetwork(spec)


def _try(network: Network, spec: EngineSpec) -> None:
    """A network of another shape, or with damaged weights, shows now."""
    try:
        network.matte(sample(_SAMPLE_PX), colors=False)
    except Fault as fault:
        network.close()
        raise Fault(
            Reason.MODEL_FAILED, f"The network {spec.path.name} cannot be used: {fault.message}"
        ) from None
