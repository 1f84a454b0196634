"""What may be overridden for a model's next load, and how a refusal names its limits."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from services.llm.config import ModelConfig
from services.llm.settings import LIMITS, applied, check_names, declared

CONFIG = ModelConfig(path=Path("m.gguf"), context_tokens=4096)


def refusal(attempt: Callable[[], object]) -> Fault:
    with pytest.raises(Fault) as caught:
        attempt()
    assert caught.value.reason is Reason.INVALID_REQUEST
    return caught.value


def test_what_is_overridden_is_in_the_next_engine() -> None:
    values = {"context_tokens": "1024", "places": "2", "kv_cache_type": '"q8_0"'}
    spec = applied(CONFIG, values).spec(Path("/m"))
    assert (spec.context_tokens, spec.places, spec.kv_type) == (1024, 2, "q8_0")
    assert applied(CONFIG, {}) == CONFIG


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("places", "0", "a whole number from 1 to 256, not 0"),
        ("places", "257", "from 1 to 256"),
        ("places", "2.5", "not 2.5"),
        ("places", "true", "not true"),
        ("places", "{", "not JSON"),
        ("gpu_layers", '"most"', 'or "auto" or "all"'),
        ("kv_cache_type", "8", '"auto" or "f16" or "q8_0"'),
        ("speculation", '"guess"', '"off" or "lookup" or "draft"'),
    ],
)
def test_a_value_out_of_its_limits_is_refused_with_them(name: str, text: str, said: str) -> None:
    fault = refusal(lambda: applied(CONFIG, {name: text}))
    assert fault.metadata["param"] == name
    assert name in fault.message
    assert said in fault.message


@pytest.mark.parametrize("name", ["path", "threads", "lane", "owner", "nonsense", ""])
def test_only_what_is_declared_can_be_overridden(name: str) -> None:
    fault = refusal(lambda: check_names({name: "1"}))
    assert "context_tokens" in fault.message
    assert fault.metadata["param"] == name


def test_settings_that_do_not_agree_are_refused() -> None:
    assert "batch_tokens" in refusal(lambda: applied(CONFIG, {"batch_tokens": "2"})).message
    assert "cache_tokens" in refusal(lambda: applied(CONFIG, {"cache_tokens": "99"})).message


def test_every_setting_is_declared_with_the_value_it_has() -> None:
    told = declared(CONFIG.spec(Path("/m")), CONFIG.gpu_layers)
    assert [setting.name for setting in told] == list(LIMITS)
    values = {setting.name: json.loads(setting.value) for setting in told}
    assert values["context_tokens"] == 4096
    assert values["gpu_layers"] == 0
    schemas = {setting.name: json.loads(setting.json_schema) for setting in told}
    assert schemas["places"] == {"type": "integer", "minimum": 1, "maximum": 256}
    assert schemas["speculation"] == {"type": "string", "enum": ["off", "lookup", "draft"]}


_JSON = st.recursive(st.none() | st.integers() | st.text(), st.lists)


@given(st.sampled_from(sorted(LIMITS)), _JSON)
def test_any_json_is_taken_or_refused(name: str, value: object) -> None:
    try:
        config = applied(CONFIG, {name: json.dumps(value)})
    except Fault as fault:
        refused = fault
    else:
        assert getattr(config, name) == value
        return
    assert refused.metadata["param"] == name
