"""The words of requests for pictures are those of the contract."""

from typing import get_args

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from cohabit.diffusion.v1 import diffusion_pb2 as pb
from edge.pictures.body import FormatName, SamplerName, SchedulerName, TilingName
from edge.pictures.painted import Partials


@pytest.mark.parametrize(
    ("words", "kind", "prefix"),
    [
        (SamplerName, pb.Sampler, "SAMPLER_"),
        (SchedulerName, pb.NoiseScheduler, "NOISE_SCHEDULER_"),
        (TilingName, pb.VaeTiling, "VAE_TILING_"),
    ],
)
def test_every_word_of_the_contract_may_be_asked_for(
    words: object, kind: EnumTypeWrapper, prefix: str
) -> None:
    known = {name.removeprefix(prefix).lower() for name, _ in kind.items()}
    assert set(get_args(words)) == known - {"unspecified"}


def test_formats_are_some_of_the_contract_s() -> None:
    for word in get_args(FormatName):
        assert pb.ImageFormat.Value(f"IMAGE_FORMAT_{word.upper()}")


@pytest.mark.parametrize(
    ("count", "steps", "told"),
    [
        (0, 10, []),
        (1, 10, [5]),
        (2, 9, [3, 6]),
        (3, 8, [2, 4, 6]),
        (3, 2, [1, 2]),
        (3, 1, [1]),
    ],
)
def test_partial_pictures_are_even_over_the_steps(count: int, steps: int, told: list[int]) -> None:
    partials = Partials(count)
    taken = [(step, partials.take(step, steps)) for step in range(1, steps + 1)]
    assert [step for step, index in taken if index is not None] == told
    assert [index for _, index in taken if index is not None] == list(range(len(told)))
