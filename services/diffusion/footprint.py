"""How much memory a model takes when it is loaded, and which weights come for a phase alone. Pure.

Weights are exact, as the files' headers tell them; what a process and a driver keep is a guess from
above.
"""

from collections.abc import Mapping
from dataclasses import replace

from services.diffusion.core.peak import with_weights
from services.diffusion.engine import EngineSpec, Role

_PROCESS_MIB = 200
"""The interpreter with its libraries, and the tokenisers; measured: 186."""
_CARD_CONTEXT_MIB = 448
"""What a driver keeps for each process on a card, its compiled kernels included."""
_ENCODERS: frozenset[Role] = frozenset({"clip_l", "clip_g", "t5xxl", "llm", "llm_vision"})
_DECODERS: frozenset[Role] = frozenset({"vae", "taesd"})


def on_device(
    spec: EngineSpec, loaded_bytes: Mapping[Role, int], *, on_card: bool
) -> tuple[EngineSpec, int]:
    """The spec with the weights that its peak takes along, and what is leased for its residence.

    In host memory offloading changes nothing: the weights are there in any case.
    """
    encoders = _mib(loaded_bytes, _ENCODERS)
    decoders = _mib(loaded_bytes, _DECODERS)
    rest = _mib(loaded_bytes, frozenset(loaded_bytes) - _ENCODERS - _DECODERS)
    if not on_card:
        return spec, encoders + decoders + rest + _PROCESS_MIB
    if spec.placement.clip_on_cpu:
        encoders = 0
    if spec.placement.vae_on_cpu:
        decoders = 0
    if not spec.placement.offload_to_cpu:
        return spec, encoders + decoders + rest + _CARD_CONTEXT_MIB
    peak = with_weights(spec.peak, encoders, rest, decoders)
    return replace(spec, peak=peak), _CARD_CONTEXT_MIB


def _mib(loaded_bytes: Mapping[Role, int], roles: frozenset[Role]) -> int:
    return -(-sum(size for role, size in loaded_bytes.items() if role in roles) // (1 << 20))
