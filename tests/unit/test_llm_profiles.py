"""The device profiles: which card gets which, and that what is configured wins."""

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from services.llm.config import ModelConfig
from services.llm.engine import ALL_LAYERS
from services.llm.placement import Layers
from services.llm.profiles import PROFILES, ProfileName, profile_of


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("", "cpu"),
        ("NVIDIA GeForce RTX 5090", "blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "blackwell"),
        ("NVIDIA B200", "blackwell"),
        ("NVIDIA H200", "hopper"),
        ("NVIDIA H100 80GB HBM3", "hopper"),
        ("NVIDIA GH200 480GB", "hopper"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "ada"),
        ("NVIDIA RTX 6000 Ada Generation", "ada"),
        ("NVIDIA L4", "ada"),
        ("NVIDIA L40S", "ada"),
        ("NVIDIA GeForce RTX 3090 Ti", "ampere"),
        ("NVIDIA RTX A6000", "ampere"),
        ("NVIDIA A100-SXM4-80GB", "ampere"),
        ("Tesla T4", "turing"),
        ("NVIDIA GeForce GTX 1660 SUPER", "turing"),
        ("Quadro RTX 8000", "turing"),
        ("Some card of the future", "turing"),
    ],
)
def test_a_card_is_known_by_its_name(card: str, name: ProfileName) -> None:
    assert profile_of(card).name == name


def test_every_profile_makes_an_engine() -> None:
    assert set(PROFILES) == set(get_args(ProfileName))
    for name, profile in PROFILES.items():
        spec = configured(profile=name).spec(Path("/m"))
        assert spec.profile == name
        assert spec.ubatch_tokens <= spec.batch_tokens == profile.batch_tokens
        assert spec.prefill_chunk_tokens <= spec.batch_tokens
        assert spec.kv_type == "f16" or spec.flash_attention
        assert spec.ordered_cells is (name == "cpu")


def configured(**values: Any) -> ModelConfig:
    return ModelConfig.model_validate({"path": "m.gguf"} | values)


def test_what_is_configured_wins() -> None:
    written = {
        "batch_tokens": 100,
        "ubatch_tokens": 50,
        "prefill_chunk_tokens": 7,
        "idle_cache_tokens": 0,
        "threads": 3,
    }
    spec = configured(**written, kv_cache_type="f16", flash_attention="off").spec(
        Path("/m"), PROFILES["ada"], Layers(ALL_LAYERS, "so")
    )
    assert {name: getattr(spec, name) for name in written} == written
    assert (spec.kv_type, spec.flash_attention) == ("f16", False)
    assert (spec.gpu_layers, spec.placement_why, spec.profile) == (ALL_LAYERS, "so", "ada")


def test_a_quantised_cache_and_flash_attention_go_together() -> None:
    assert configured(kv_cache_type="q8_0").spec(Path("/m")).flash_attention is True
    off = configured(flash_attention="off").spec(Path("/m"), PROFILES["ampere"])
    assert (off.kv_type, off.flash_attention) == ("f16", False)
    with pytest.raises(ValidationError, match="needs flash_attention"):
        configured(kv_cache_type="q8_0", flash_attention="off")


def test_words_that_yaml_takes_for_truth_are_words() -> None:
    config = configured(flash_attention=False, speculation=False)
    assert (config.flash_attention, config.speculation) == ("off", "off")
    assert configured(flash_attention=True).flash_attention == "on"
    with pytest.raises(ValidationError):
        configured(speculation=True)


def test_more_places_than_the_profiles_batch_widen_it() -> None:
    assert configured(places=200).spec(Path("/m")).batch_tokens == 200
    with pytest.raises(ValidationError, match="no more than batch_tokens"):
        configured(places=200, batch_tokens=100)
