"""Who restarts when the configuration changes: whom it concerns; for a list of models, nobody."""

import json
from collections.abc import Mapping

import pytest

from tests.kube.chart import Values, by_component, configuration, of_matrix, rendered
from tests.kube.rules import pod_of
from tests.kube.schemas import Object

EVERYBODY = {"broker", "scheduler", "llm", "matte", "jobs", "edge"}
"""The services of the default values."""


def _checksums(objects: list[Object]) -> dict[str, str]:
    return {
        component: json.dumps(pod_of(workload), sort_keys=True)
        for component, workload in by_component(objects).items()
    }


def rolled(values: Values) -> set[str]:
    """Whose pods are others than with the default values."""
    before, after = _checksums(of_matrix("default")), _checksums(rendered(values))
    return {name for name in before.keys() & after.keys() if before[name] != after[name]}


MODEL = {"path": "other.gguf", "context_tokens": 512}

ROLLS: Mapping[str, tuple[Values, set[str]]] = {
    "a model more": ({"config": {"llm": {"models": {"other": MODEL}}}}, set()),
    "a model less": ({"config": {"llm": {"models": {"smollm2": None}}}}, set()),
    "a model that changes": ({"config": {"llm": {"models": {"smollm2": {"places": 8}}}}}, set()),
    "a network less": ({"config": {"matte": {"models": {"u2netp": None}}}}, set()),
    "what lives together": (
        {"config": {"scheduler": {"residency": {"models": {"smollm2": {"pinned": True}}}}}},
        set(),
    ),
    "a default matting network": ({"config": {"matte": {"default_model": "u2netp"}}}, set()),
    "the edge's comments": ({"config": {"edge": {"keepalive_s": 5}}}, {"edge"}),
    "permits": ({"config": {"scheduler": {"permits": 8}}}, {"scheduler"}),
    "swaps": ({"config": {"llm": {"swap_dir": "swaps"}}}, {"llm"}),
    "what the broker keeps back": ({"config": {"broker": {"reserve_mib": 100}}}, {"broker"}),
    "the job service": ({"config": {"jobs": {"running": 1}}}, {"jobs"}),
    "how much is logged": ({"config": {"log_level": "debug"}}, EVERYBODY),
    "a section more": (
        {"config": {"diffusion": {"models": {}}}},
        {"edge", "scheduler", "jobs"},  # who dials it
    ),
    "a section less": ({"config": {"jobs": None}}, {"edge"}),
    "certificates": ({"tls": {"enabled": True, "existingSecret": "x"}}, EVERYBODY),
    "an image": ({"images": {"llm": "other/llm"}}, {"llm"}),
}


@pytest.mark.parametrize("what", ROLLS)
def test_a_change_rolls_whom_it_concerns(what: str) -> None:
    values, concerned = ROLLS[what]
    assert rolled(values) == concerned


def test_a_change_that_rolls_nobody_is_in_the_file_that_pods_read() -> None:
    values, _ = ROLLS["a model more"]
    assert configuration(rendered(values))["llm"]["models"].keys() == {"smollm2", "other"}
    assert configuration(of_matrix("default"))["llm"]["models"].keys() == {"smollm2"}
