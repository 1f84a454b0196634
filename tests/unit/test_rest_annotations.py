"""What broker, scheduler and jobs are as REST: every call, once, below one root."""

import re
from pathlib import Path

import pytest
from google.api import annotations_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from cohabit.broker.v1 import broker_pb2
from cohabit.jobs.v1 import jobs_pb2
from cohabit.scheduler.v1 import scheduler_pb2

FOLDER = Path(__file__).parents[2] / "deploy" / "envoy"
METHODS: list[MethodDescriptor] = [
    method
    for module in (broker_pb2, scheduler_pb2, jobs_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def rule(method: MethodDescriptor) -> tuple[str, str, str]:
    """Verb, path and body."""
    http = method.GetOptions().Extensions[annotations_pb2.http]
    verb = http.WhichOneof("pattern") or ""
    return verb, getattr(http, verb) if verb else "", http.body


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
def test_every_call_has_a_place(method: MethodDescriptor) -> None:
    verb, path, body = rule(method)
    assert verb in ("get", "post", "delete")
    assert path.startswith("/rest/v1/")
    assert body == ("*" if verb == "post" else "")
    for name in re.findall(r"{(\w+)}", path):
        assert name in method.input_type.fields_by_name


def test_no_place_is_taken_twice() -> None:
    places = [rule(method)[:2] for method in METHODS]
    plain = [(verb, re.sub(r"{\w+}", "{}", path)) for verb, path in places]
    assert len(set(plain)) == len(plain)


def test_looks_change_nothing_and_changes_are_no_looks() -> None:
    looking = ("Get", "List", "Watch", "Read", "Plan")
    for method in METHODS:
        assert (rule(method)[0] == "get") == method.name.startswith(looking), method.name


def test_envoy_reads_these_contracts() -> None:
    """The descriptors that are checked in know every one of the calls as it is now."""
    files = FileDescriptorSet.FromString((FOLDER / "cohabit.pb").read_bytes()).file
    known = {
        f"{file.package}.{service.name}.{method.name}": method.options.Extensions[
            annotations_pb2.http
        ]
        for file in files
        for service in file.service
        for method in service.method
        if method.options.HasExtension(annotations_pb2.http)
    }
    now = {one.full_name: one.GetOptions().Extensions[annotations_pb2.http] for one in METHODS}
    assert known == now
