"""What `cohabit plan`, `load` and `leases` say, and what is said of a model that is not there."""

import json
from collections.abc import Sequence

import grpc
import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from chassis.errors import Fault, Reason
from chassis.status import DETAILS_KEY, details_of
from cli import leases, plan
from cli.dial import sentence
from cli.known import TierName, no_such, not_found, tier_number
from cli.load import leaving_for, named, stage
from cli.main import app
from cli.page import rendered
from cohabit.broker.v1 import broker_pb2
from cohabit.common.v1.common_pb2 import TIER_FREE, TIER_PAID, TIER_UNSPECIFIED
from cohabit.models.v1.models_pb2 import (
    MODEL_STATE_COLD,
    MODEL_STATE_LOADING,
    MODEL_STATE_READY,
    Instance,
    Model,
)
from cohabit.scheduler.v1 import scheduler_pb2 as pb

NOW = 1_700_000_000_000


def text_of(parts: Sequence[RenderableType]) -> str:
    console = Console(width=100, highlight=False)
    return "\n\n".join(rendered(console, part) for part in parts)


def planned() -> pb.PlanResidencyResponse:
    said = pb.PlanResidencyResponse(
        feasible=True,
        needed_mib=9_000,
        headroom_mib=2_000,
        explanation="whisper is cheaper than sdxl,\nand nothing smaller is enough.",
    )
    said.evictions.add(model_key="whisper", freed_mib=3_100, cost=0.4242, why="idle for 12 s")
    said.evictions.add(model_key="sdxl", freed_mib=6_144, cost=1_234.5, why="idle for 4 min")
    return said


def test_a_plan_names_who_leaves_in_order() -> None:
    assert text_of(plan.sections("flux", planned())).splitlines() == [
        "flux can be loaded once 2 models have left: 9,000 MiB needed, 2,000 MiB to be had now.",
        "",
        "To leave, in this order",
        "#  model        frees      cost  why",
        "1  whisper  3,100 MiB      0.42  idle for 12 s",
        "2  sdxl     6,144 MiB  1,234.50  idle for 4 min",
        "",
        "whisper is cheaper than sdxl,",
        "and nothing smaller is enough.",
    ]


def test_a_plan_without_evictions_and_one_that_cannot_be() -> None:
    free = pb.PlanResidencyResponse(feasible=True, needed_mib=1, headroom_mib=2)
    figures = "1 MiB needed, 2 MiB to be had now."
    assert text_of(plan.sections("a", free)) == (
        f"a can be loaded, and nothing has to leave: {figures}"
    )
    never = pb.PlanResidencyResponse(needed_mib=1, headroom_mib=2, explanation="All are pinned.")
    said = text_of(plan.sections("a", never))
    assert said == f"a cannot be loaded: {figures}\n\nAll are pinned."


def test_a_family_is_planned_for_model_by_model() -> None:
    here = Model(key="lite", family="qwen", state=MODEL_STATE_READY, instances=[Instance()])
    cold = Model(key="full", family="qwen", state=MODEL_STATE_COLD)
    never = pb.PlanResidencyResponse(needed_mib=1, headroom_mib=2, explanation="All are pinned.")
    both = [plan.Planned(here, never), plan.Planned(cold, never)]
    said = text_of(plan.page("qwen", both)).split("\n\n")
    assert said[0].startswith("qwen is a family: a chat goes to the smallest of its models")
    assert said[1:] == [
        "lite is on the card already, and nothing has to leave.",
        "full cannot be loaded: 1 MiB needed, 2 MiB to be had now.",
        "All are pinned.",
    ]
    assert [one.feasible for one in both] == [True, False]


def test_a_second_instance_is_planned_for_where_there_may_be_one() -> None:
    one_of_two = Model(key="m", state=MODEL_STATE_READY, instances=[Instance()], max_instances=2)
    assert not plan.Planned(one_of_two, planned()).settled
    assert text_of(plan.page("m", [plan.Planned(one_of_two, planned())])).startswith(
        "m can be loaded once 2 models have left"
    )


def test_a_family_that_was_loaded_is_named_with_the_model() -> None:
    twins = [
        Model(key="full", family="qwen"),
        Model(key="lite", family="qwen", state=MODEL_STATE_READY),
    ]
    assert named("qwen", twins) == "qwen (lite)"
    assert named("lite", twins) == "lite"


def test_a_load_says_what_it_waits_for() -> None:
    cold = pb.LoadModelResponse(state=MODEL_STATE_COLD)
    assert stage(cold, []) == "queued"
    assert stage(cold, ["sdxl", "whisper"]) == "making room: sdxl, whisper to leave"
    assert stage(pb.LoadModelResponse(state=MODEL_STATE_LOADING, progress=0.4), ["sdxl"]) == (
        "loading 40%"
    )


def test_room_is_made_for_a_model_under_its_key_or_its_family() -> None:
    status = pb.Status()
    status.models.add(model_key="qwen3-lite", family="qwen3")
    status.models.add(model_key="sdxl", leaving_for="qwen3-lite")
    status.models.add(model_key="whisper", leaving_for="wan")
    status.models.add(model_key="dino", leaving_for="qwen3-lite", state=MODEL_STATE_COLD)  # gone
    assert leaving_for(status, "qwen3") == leaving_for(status, "qwen3-lite") == ["sdxl"]
    assert leaving_for(status, "flux") == []


def ledger() -> leases.Ledger:
    rows = [
        ("llm/qwen3", broker_pb2.LEASE_KIND_RESIDENT, TIER_PAID, 14_000, 13_900, 3_700_000, 25_000),
        ("diffusion/sdxl", broker_pb2.LEASE_KIND_TRANSIENT, TIER_FREE, 6_861, 0, 4_000, -3),
    ]
    return leases.Ledger(
        [
            broker_pb2.Lease(
                lease_id=holder,
                holder=holder,
                device="gpu0",
                kind=kind,
                tier=tier,
                granted_mib=granted,
                materialised_mib=used,
                granted_unix_ms=NOW - age_ms,
                expires_unix_ms=NOW + left_ms,
            )
            for holder, kind, tier, granted, used, age_ms, left_ms in rows
        ],
        [broker_pb2.DeviceMemory(device="gpu0", description="RTX", reachable=True, total_mib=32)],
    )


def test_leases_with_their_totals_and_the_device() -> None:
    assert text_of(leases.sections(ledger(), NOW)).splitlines() == [
        "Leases",
        "holder          device  kind       tier     granted      in use  age  expires",
        "llm/qwen3       gpu0    resident   paid  14,000 MiB  13,900 MiB  1 h  in 25 s",
        "diffusion/sdxl  gpu0    transient  free   6,861 MiB       0 MiB  4 s   in 0 s",
        "",
        "2 leases: 20,861 MiB granted, 13,900 MiB in use",
        "",
        "Devices",
        "device  is    total   free  leased  floor  foreign",
        "gpu0    RTX  32 MiB  0 MiB   0 MiB  0 MiB    0 MiB",
    ]
    assert text_of(leases.sections(leases.Ledger([], []), NOW)) == "Leases\nnone\n\nDevices\nnone"


def test_leases_as_json() -> None:
    said = json.loads(leases.as_json(ledger()))
    assert (said["granted_mib"], said["materialised_mib"]) == (20_861, 13_900)
    assert set(said["leases"][0]) == set(broker_pb2.Lease.DESCRIPTOR.fields_by_name)
    assert said["leases"][1]["kind"] == "LEASE_KIND_TRANSIENT"
    assert said["devices"][0]["total_mib"] == 32


def test_those_that_look_like_it_come_first() -> None:
    names = ["flux-dev", "sdxl", "smollm2", "smollm3-3b"]
    assert no_such("smolm2", names) == (
        "There is no model 'smolm2'; there are: smollm2, smollm3-3b, flux-dev, sdxl."
    )
    assert no_such("\x1bx", []) == "There is no model 'x': the house has none."
    many = no_such("zz", [f"m{number}" for number in range(70)])
    assert many.endswith("m62, and 10 more.")


def test_a_family_is_no_model_and_says_which_are() -> None:
    twins = [Model(key=key, family="qwen3") for key in ("qwen3-full", "qwen3-lite")]
    assert not_found("qwen3", twins) == (
        "'qwen3' is a family; name one of its models: qwen3-full, qwen3-lite."
    )
    assert not_found("qwen3-big", twins).startswith("There is no model 'qwen3-big'; there are: ")


def test_tiers_by_name() -> None:
    assert tier_number(TierName.PAID) == TIER_PAID
    assert tier_number(None) == TIER_UNSPECIFIED
    result = CliRunner().invoke(app, ["load", "m", "--tier", "gold"])
    assert result.exit_code == 2
    assert "background" in result.output


def failed(code: grpc.StatusCode, details: bytes | None = None) -> grpc.aio.AioRpcError:
    pairs = [(DETAILS_KEY, details)] if details else []
    trailers = grpc.aio.Metadata(*pairs)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, "the library's words")


def test_a_failure_is_the_service_s_own_sentence_or_what_to_do() -> None:
    fault = Fault(Reason.SERVICE_UNAVAILABLE, "The llm service is being restarted.")
    own = failed(grpc.StatusCode.UNAVAILABLE, details_of(fault))
    assert sentence(own, "scheduler") == "The llm service is being restarted."
    bare = sentence(failed(grpc.StatusCode.UNAVAILABLE), "scheduler")
    assert bare.startswith("The scheduler does not answer; start the house with `cohabit up`")
    for late in (failed(grpc.StatusCode.DEADLINE_EXCEEDED), TimeoutError()):
        assert sentence(late, "broker").startswith("The broker does not answer in time;")


@pytest.mark.parametrize(
    "words",
    [["unload", "m", "--drain", "-1"], ["unload", "m", "--drain", "nan"], ["unload"], ["plan"]],
)
def test_what_cannot_be_meant_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("models", "--once"),
        ("load", "--tier"),
        ("unload", "--drain"),
        ("plan", "--json"),
        ("leases", "--json"),
    ],
)
def test_each_command_describes_its_options(command: str, option: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert option in result.output
