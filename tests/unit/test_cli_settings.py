"""Settings as a person writes them."""

import pytest

from cli.console import Refused
from cli.settings import settings_of


def test_words_are_words_and_numbers_are_numbers() -> None:
    written = ["places=2", "kv_cache_type=q8_0", "gpu_layers=auto", 'speculation="off"', "x=a=b"]
    assert settings_of(written) == {
        "places": "2",
        "kv_cache_type": '"q8_0"',
        "gpu_layers": '"auto"',
        "speculation": '"off"',
        "x": '"a=b"',
    }


@pytest.mark.parametrize("written", [["places"], ["=2"], ["places=1", "places=2"]])
def test_what_is_no_setting_is_refused(written: list[str]) -> None:
    with pytest.raises(Refused):
        settings_of(written)
