"""/openapi.json is true: whatever it lets clients send, on every route, is answered as it says.

Schemathesis makes the requests, good ones and bad ones, and compares the answers with the document.
Models are named as they are called, or all would end at a name that nobody has.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.fuzz_answers import DEADLINE_S, check_stream
from tests.integration.fuzz_house import fuzz_house, rests
from tests.integration.fuzz_pictures import affordable, is_of_pictures, model_of
from tests.integration.house import House
from tests.integration.test_fuzz import DEEP

pytestmark = [pytest.mark.model, pytest.mark.timeout(3600)]

EXAMPLES = 500 if DEEP else 40
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,  # the last, for it is not for streams
]
MODES = [GenerationMode.POSITIVE] * 3 + [GenerationMode.NEGATIVE]
Case = schemathesis.Case[Any]
Operation = schemathesis.APIOperation[Any, Any, Any, Any]
_MODELS = {"embeddings": "bert", "feature-extraction": "bert", "rerank": "rank"}
_LENGTHS = ("max_tokens", "max_output_tokens", "max_length", "max_completion_tokens")
_MOST_TOKENS = 8
_FEWEST_TOKENS = 400
"""No vocabulary has fewer."""
_RESHAPES_THE_HOUSE = re.compile("/v1/admin/models/[^/]*/")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with fuzz_house(tmp_path_factory.mktemp("h")) as house:
        yield house


@pytest.fixture(scope="module")
def document(house: House) -> Any:
    return schemathesis.openapi.from_url(f"{house.url}/openapi.json", wait_for_schema=5)


@pytest.fixture(scope="module")
def stored(house: House) -> str:
    """The id of a response that is kept."""
    body = {"model": "tiny", "input": "hi", "max_output_tokens": 1}
    answer = httpx.post(f"{house.url}/v1/responses", json=body, timeout=DEADLINE_S, trust_env=False)
    return str(answer.json()["id"])


@pytest.fixture(scope="module")
def made(house: House) -> dict[str, str]:
    """A job that has ended, and its result, by the names that paths have for them."""
    with httpx.Client(base_url=house.url, timeout=DEADLINE_S, trust_env=False) as http:
        sent = http.post("/v1/images/generations/jobs", json={"prompt": "x"}).json()
        http.get(f"/v1/jobs/{sent['id']}/events")
        job = http.get(f"/v1/jobs/{sent['id']}").json()
    return {"job_id": job["id"], "result_id": job["results"][0]["id"]}


def operations(document: Any, *, reshaping: bool) -> Iterator[Operation]:
    """Those that load, unload and swap models, or all others."""
    for found in document.get_all_operations():
        operation = found.ok()
        if bool(_RESHAPES_THE_HOUSE.match(operation.path)) is reshaping:
            yield operation


def fuzz(operation: Operation, prepare: Callable[[Case], None]) -> None:
    """Send sound requests, and wrong ones. Fails at the first that the document does not know."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=not DEEP,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def answered(data: Any) -> None:
        case = data.draw(operation.as_strategy(generation_mode=data.draw(st.sampled_from(MODES))))
        prepare(case)
        answer = case.call(timeout=DEADLINE_S)
        if answer.headers.get("content-type", [""])[0].startswith("text/event-stream"):
            # The document describes what stands behind `data:`, not the event around it.
            check_stream(operation.path, answer.text)
            case.validate_response(answer, checks=CHECKS[:-1])
        else:
            case.validate_response(answer, checks=CHECKS)

    answered()


def test_every_route_answers_as_the_document_says(
    house: House, document: Any, stored: str, made: dict[str, str], subtests: pytest.Subtests
) -> None:
    prepare = Reaching(unsupported(document.raw_schema), {"response_id": stored, **made})
    for operation in operations(document, reshaping=False):
        with subtests.test(operation.label):
            fuzz(operation, prepare)
            asyncio.run(rests(house))


def test_routes_that_change_models_refuse_what_is_wrong(
    document: Any, subtests: pytest.Subtests
) -> None:
    """Of a model that nobody has: the body is read first, and the house stays as it is."""
    for operation in operations(document, reshaping=True):
        with subtests.test(operation.label):
            fuzz(operation, _of_nobody)


def _model_of(path: str) -> str:
    if is_of_pictures(path):
        return model_of(path)
    return _MODELS.get(path.rpartition("/")[2], "tiny")


def _of_nobody(case: Case) -> None:
    case.path_parameters["name"] = "nobody"


def unsupported(raw: Any) -> frozenset[str]:
    """The fields that are refused, wherever they stand, when they ask for something."""
    schemas = raw["components"]["schemas"].values()
    fields = [pair for schema in schemas for pair in schema.get("properties", {}).items()]
    refused = {k for k, v in fields if v.get("description", "").startswith("Not supported")}
    read = {k for k, v in fields if not v.get("description", "").startswith("Not supported")}
    return frozenset(refused - read)


@dataclass(frozen=True, slots=True)
class Reaching:
    """Makes requests reach what is behind the edge: a bad one stays as bad as it was."""

    unsupported: frozenset[str]
    there: Mapping[str, str]
    """What stands in paths, by its name."""

    def __call__(self, case: Case) -> None:
        """Name a model that there is, want a short answer and nothing that is not built."""
        for name in case.path_parameters.keys() & self.there.keys():
            if case.method != "DELETE":
                case.path_parameters[name] = self.there[name]
        if case.path == "/v1/models/{name}" and case.path_parameters["name"] > "a":
            case.path_parameters["name"] = "tiny"
        body = self._buildable(case.body)
        if isinstance(body, dict):
            if isinstance(body.get("model"), str | None):
                body["model"] = _model_of(case.path)
            if is_of_pictures(case.path):
                affordable(body)
            for name in _LENGTHS:
                if isinstance(length := body.get(name), int):
                    body[name] = min(length, _MOST_TOKENS)
            if isinstance(tokens := body.get("tokens"), list):
                known = [one % _FEWEST_TOKENS if isinstance(one, int) else one for one in tokens]
                body["tokens"] = known
        case.body = body

    def _buildable(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._buildable(one) for one in value]
        if isinstance(value, dict):
            kept = {k: v for k, v in value.items() if k not in self.unsupported}
            return {k: self._buildable(v) for k, v in kept.items()}
        return value
