"""What a service reads at its start alone: its checksum changes when it has to restart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from chassis.config import MODEL_SERVICES, Document, Section
from chassis.sections import FOLLOWED, fingerprint, waits_for_restart
from hosting.config import HostingSection
from services.diffusion.config import DiffusionConfig
from services.llm.config import LlmConfig
from services.matte.config import MatteConfig
from services.scheduler.config import SchedulerConfig
from services.simulated.config import SimulatedConfig

SERVICES = ("broker", "scheduler", "llm", "matte", "jobs", "edge")
HOUSE = """
log_level: info
metrics: {llm: "127.0.0.1:9000"}
broker: {floor_mib: {paid: 1}}
scheduler: {permits: 4, residency: {models: {a: {pinned: true}}}}
llm: {swap_dir: swaps, models: {a: {path: a.gguf}}}
matte: {quality: 85, default_model: m, models: {m: {path: m.onnx}}}
jobs: {running: 1}
edge: {default_matte_model: m}
"""


def document(**changes: Any) -> Document:
    """The house, with sections or shared keys replaced; None: taken away."""
    data = yaml.safe_load(HOUSE) | changes
    return Document(Path("cohabit.yaml"), {k: v for k, v in data.items() if v is not None}, {})


def restarts(**changes: Any) -> dict[str, tuple[str, ...]]:
    """Which services have to restart for the changes, and because of which keys."""
    before, after = document(), document(**changes)
    found = {name: waits_for_restart(before, after, name) for name in SERVICES}
    for name, keys in found.items():
        assert (fingerprint(before, name) != fingerprint(after, name)) == bool(keys)
    return {name: keys for name, keys in found.items() if keys}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"llm": {"swap_dir": "swaps", "models": {"b": {"path": "b.gguf"}}}}, {}),
        ({"llm": {"models": {}}}, {"llm": ("llm.swap_dir",)}),
        ({"matte": {"quality": 85, "default_model": "n", "models": {"n": {"path": "n"}}}}, {}),
        ({"scheduler": {"permits": 4, "residency": {"sets": {"x": "a & m"}}}}, {}),
        ({"scheduler": {"permits": 5}}, {"scheduler": ("scheduler.permits",)}),
        ({"broker": {"reserve_mib": 5}}, {"broker": ("broker.floor_mib", "broker.reserve_mib")}),
        ({"edge": {}}, {"edge": ("edge.default_matte_model",)}),
        ({"metrics": {"llm": "127.0.0.1:1"}}, {"llm": ("metrics.llm",)}),
        ({"log_level": "debug"}, dict.fromkeys(SERVICES, ("log_level",))),
        # A section of models that comes or goes: who dials it has to start anew.
        ({"simulated": {}}, {"scheduler": ("simulated",), "edge": ("simulated",)}),
        ({"simulated": None}, {}),
        ({"jobs": None}, {"edge": ("jobs",), "jobs": ("jobs.running",)}),
        # An address: who listens there, and who dials it.
        (
            {"listen": {"matte": "127.0.0.1:1"}},
            {
                "matte": ("listen.matte",),
                **dict.fromkeys(("edge", "scheduler", "jobs"), ("addresses.matte",)),
            },
        ),
        (
            {"addresses": {"jobs": "jobs:1"}},
            {"edge": ("addresses.jobs",)},
        ),
    ],
    ids=str,
)
def test_only_who_reads_a_key_at_its_start_has_to_restart_for_it(
    changes: dict[str, Any], expected: dict[str, tuple[str, ...]]
) -> None:
    assert restarts(**changes) == expected


def test_where_a_service_is_dialled_counts_for_others_and_where_it_listens_for_itself() -> None:
    told = {"matte": "matte:1"}
    before = document(listen={"matte": "0.0.0.0:1"}, addresses=told)
    after = document(listen={"matte": "0.0.0.0:2"}, addresses=told)
    assert {name for name in SERVICES if waits_for_restart(before, after, name)} == {"matte"}


def test_the_order_of_keys_is_no_change() -> None:
    turned = Document(Path("x"), dict(reversed([*document().data.items()])), {})
    for name in SERVICES:
        assert fingerprint(turned, name) == fingerprint(document(), name)


def test_every_service_with_models_follows_them_and_every_followed_key_exists() -> None:
    sections: dict[str, type[Section]] = {
        "llm": LlmConfig,
        "diffusion": DiffusionConfig,
        "matte": MatteConfig,
        "simulated": SimulatedConfig,
        "scheduler": SchedulerConfig,
    }
    assert set(MODEL_SERVICES) < set(FOLLOWED) == set(sections)
    for name, kind in sections.items():
        assert set(FOLLOWED[name]) <= kind.model_fields.keys()
        assert not issubclass(kind, HostingSection) or "models" in FOLLOWED[name]
