"""What models were seen to hold, and what is leased for because of it."""

from collections.abc import Hashable
from dataclasses import replace

import pytest
import structlog

from hosting.hosted import Hosted
from hosting.usage import Usage
from hosting.values import Kind, ModelSpec
from hosting.wire import model_message

SPEC = ModelSpec("m", Kind.LANGUAGE, "chat", resident_mib=100, peak_transient_mib=50)


class Declared:
    """A model that is described as told."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def stamp(self) -> Hashable:
        return None

    def describe(self) -> ModelSpec:
        return self._spec


def footprint(hosted: Hosted) -> tuple[int, int, bool]:
    told = model_message(hosted).footprint
    return told.resident_mib, told.peak_transient_mib, told.measured


def test_what_is_declared_stands_and_is_contradicted_once() -> None:
    hosted = Hosted.of(Declared(SPEC))
    with structlog.testing.capture_logs() as lines:
        for materialised_mib in (132, 133, 900):
            hosted.measured.see(hosted.spec, Usage(materialised_mib), 1)
    assert [(line["held_mib"], line["declared_mib"]) for line in lines] == [(133, 100)]
    assert footprint(hosted) == (100, 50, False)


@pytest.mark.parametrize(
    ("seen", "leased"),
    [
        ([], (100, 50, False)),
        ([(Usage(80), 0)], (80, 50, True)),
        ([(Usage(80), 0), (Usage(280, 200), 1), (Usage(70), 0)], (80, 200, True)),
        ([(Usage(480, 400), 2)], (80, 50, True)),  # whose, nobody knows
    ],
)
def test_what_is_measured_is_leased_for(
    seen: list[tuple[Usage, int]], leased: tuple[int, int, bool]
) -> None:
    hosted = Hosted.of(Declared(replace(SPEC, measure=True)))
    with structlog.testing.capture_logs() as lines:
        for usage, running in seen:
            hosted.measured.see(hosted.spec, usage, running)
    assert footprint(hosted) == leased
    assert not lines
    hosted.measured.clear()
    assert footprint(hosted) == (100, 50, False)
