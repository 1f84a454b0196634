"""The page of `cohabit models`: the card's bar, the table, what fits on which terminal, JSON."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cli.card import Card, cells, leasable_mib, shares
from cli.leases import Ledger
from cli.model_page import fitted, sections
from cli.model_table import failures, in_order, waiting
from cli.page import rendered
from cli.sight import Sight, as_json
from cli.words import span
from cohabit.broker.v1 import broker_pb2
from cohabit.common.v1.common_pb2 import TIER_BACKGROUND, TIER_FREE, TIER_PAID
from cohabit.models.v1.models_pb2 import (
    MODEL_STATE_COLD,
    MODEL_STATE_DRAINING,
    MODEL_STATE_FAILED,
    MODEL_STATE_READY,
)
from cohabit.scheduler.v1 import scheduler_pb2 as pb

NOW = 1_700_000_000_000


def status() -> pb.Status:
    said = pb.Status(permits_total=4, permits_in_use=2, reconciled=True)
    said.tiers.add(tier=TIER_PAID, waiting=3)
    said.tiers.add(tier=TIER_FREE, waiting=12)
    wanted = said.models.add(model_key="flux-dev", state=MODEL_STATE_COLD, resident_mib=9_000)
    for tier, key, count in [(TIER_FREE, "bob", 5), (TIER_PAID, "", 3), (TIER_FREE, "alice", 7)]:
        wanted.waiting.add(tier=tier, fairness_key=key, waiting=count)
    said.models.add(
        model_key="qwen3",
        state=MODEL_STATE_READY,
        resident_mib=14_200,
        peak_transient_mib=600,
        running=2,
        last_used_unix_ms=NOW - 9_000,
        max_instances=1,
    )
    said.models.add(
        model_key="sdxl",
        state=MODEL_STATE_READY,
        resident_mib=6_144,
        peak_transient_mib=6_861,
        last_used_unix_ms=NOW - 250_000,
        max_instances=1,
        eviction_rank=1,
    )
    said.models.add(
        model_key="whisper",
        state=MODEL_STATE_DRAINING,
        resident_mib=3_100,
        last_used_unix_ms=NOW - 12_000,
        leaving_for="flux-dev",
        instances=2,
        max_instances=2,
    )
    said.models.add(
        model_key="wan",
        state=MODEL_STATE_FAILED,
        failure="Its file is cut off.",
        retry_at_unix_ms=NOW + 40_000,
    )
    return said


def ledger() -> Ledger:
    device = broker_pb2.DeviceMemory(
        device="gpu0",
        description="RTX 5090",
        reachable=True,
        total_mib=32_000,
        free_mib=10_000,
        leased_mib=21_000,
        unmaterialised_mib=1_000,
        floor_mib=1_000,
        foreign_mib=2_000,
    )
    device.headroom.add(tier=TIER_PAID, headroom_mib=9_000)
    device.headroom.add(tier=TIER_BACKGROUND, headroom_mib=8_000)
    held = {"llm/qwen3": (14_000, 14_000), "diffusion/sdxl": (7_000, 6_000)}
    leases = [
        broker_pb2.Lease(
            holder=name, device="gpu0", granted_mib=granted, materialised_mib=used, lease_id=name
        )
        for name, (granted, used) in held.items()
    ]
    return Ledger([*leases, broker_pb2.Lease(holder="x", device="cpu", granted_mib=5)], [device])


def sight() -> Sight:
    return Sight(status(), ledger())


def page(seen: Sight, width: int = 120) -> str:
    console = Console(width=width, highlight=False)
    return "\n\n".join(rendered(console, part) for part in sections(seen, NOW, width))


def test_the_page() -> None:
    assert page(sight()).splitlines() == [
        "gpu0  RTX 5090  32,000 MiB, 8,000 MiB to lease",
        "▓" * 51 + "█" * 26 + "▒" * 8 + "░" * 5 + "·" * 30,
        "▓ llm/qwen3 14,000  █ diffusion/sdxl 7,000  ▒ foreign 2,000  ░ floor 1,000  · free 8,000",
        "",
        "2 of 4 permits in use, 15 requests waiting",
        "",
        "model     state            MiB    peak   used  runs  eviction      waiting",
        "qwen3     ready         14,200    +600    now     2",
        "sdxl      ready          6,144  +6,861  4 min        next",
        "whisper   draining 2/2   3,100           12 s        for flux-dev",
        f"flux-dev  cold           9,000{' ' * 37}paid 3, free 12 (alice 7, bob 5)",
        "wan       failed             0",
        "",
        "wan failed: Its file is cut off. (not tried again for 40 s)",
    ]


def test_a_model_that_is_configured_no_more_is_called_removed() -> None:
    seen = sight()
    (gone,) = (model for model in seen.status.models if model.model_key == "sdxl")
    gone.removed = True
    (line,) = (line for line in page(seen).splitlines() if line.startswith("sdxl"))
    assert line.endswith("removed")


def test_a_narrow_page_keeps_each_model_on_one_line() -> None:
    seen = sight()
    seen.status.models.add(model_key="a" * 60, state=MODEL_STATE_READY)
    lines = page(seen, 80).splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("model "))
    assert "peak" not in lines[head]
    assert [line.split()[0][:7] for line in lines[head + 1 : head + 7]] == [
        "aaaaaaa",
        "qwen3",
        "sdxl",
        "whisper",
        "flux-de",
        "wan",
    ]
    assert max(map(len, lines)) <= 80


def test_thirty_six_models_fit_on_a_common_terminal() -> None:
    seen = Sight(pb.Status(reconciled=True), ledger())
    for number in range(36):
        seen.status.models.add(model_key=f"model-{number:02}", state=MODEL_STATE_COLD)
    console = Console(width=120, height=48)
    said = rendered(console, fitted(console, seen, NOW))
    assert said.count("model-") == 36


@given(st.integers(0, 60), st.integers(14, 60), st.integers(40, 200))
def test_models_give_way_on_a_low_terminal_and_the_card_does_not(
    models: int, height: int, width: int
) -> None:
    seen = Sight(pb.Status(reconciled=True), Ledger([], ledger().devices))
    for number in range(models):
        seen.status.models.add(model_key=f"model-{number:02}", state=MODEL_STATE_COLD)
    console = Console(width=width, height=height)
    said = rendered(console, fitted(console, seen, NOW))
    assert said.startswith("gpu0")
    assert len(said.splitlines()) <= height
    shown = said.count("model-")
    left = f"\nand {models - shown} more model"
    assert shown == models or left in said


def test_the_order_is_that_of_interest() -> None:
    assert [model.model_key for model in in_order(status().models)] == [
        "qwen3",
        "sdxl",
        "whisper",
        "flux-dev",
        "wan",
    ]


def test_long_lines_of_waiters_are_cut_by_count() -> None:
    lines = [pb.Status.Line(tier=TIER_FREE, fairness_key=f"k{n}", waiting=n) for n in range(1, 6)]
    lines.append(pb.Status.Line(tier=TIER_FREE, fairness_key="a\x1b[31m" + "b" * 40, waiting=9))
    assert waiting(lines) == "free 24 (a[31mbbbbbbbbbb… 9, k5 5, k4 4, …)"
    assert waiting([]) == ""
    assert waiting([pb.Status.Line(tier=99, waiting=1)]) == "99 1"  # type: ignore[arg-type]


def test_a_failure_that_may_be_tried_again_names_no_time() -> None:
    said = status()
    said.models[-1].retry_at_unix_ms = NOW - 1
    assert failures(said.models, NOW) == ["wan failed: Its file is cut off."]


def test_every_mib_of_a_device_is_in_one_share() -> None:
    (device,), leases = ledger().devices, ledger().leases
    found = [(share.name, share.mib) for share in shares(device, leases)]
    assert found == [
        ("llm/qwen3", 14_000),
        ("diffusion/sdxl", 7_000),
        ("foreign", 2_000),
        ("floor", 1_000),
        ("free", 8_000),
    ]
    assert sum(count for _, count in found) == device.total_mib


def test_what_can_be_leased_is_worked_out_where_no_tier_is_told() -> None:
    (device,) = ledger().devices
    device.ClearField("headroom")
    assert leasable_mib(device) == 8_000
    device.free_mib = 1_500
    assert leasable_mib(device) == 0


def test_many_holders_are_summed_up() -> None:
    leases = [
        broker_pb2.Lease(holder=f"llm/{n}", device="gpu0", granted_mib=100 - n) for n in range(12)
    ]
    names = [share.name for share in shares(ledger().devices[0], leases)]
    assert names[:9] == [*(f"llm/{n}" for n in range(8)), "4 others"]


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=12), st.integers(20, 300))
def test_cells_are_in_proportion_and_use_the_width(parts: list[int], width: int) -> None:
    given_cells = cells(parts, width)
    assert sum(given_cells) == width
    assert min(given_cells) >= 1
    spare = width - len(parts)
    for part, count in zip(parts, given_cells, strict=True):
        assert abs(count - 1 - spare * part / sum(parts)) < 1


def test_a_card_without_a_driver_says_so_and_ascii_does() -> None:
    (device,) = ledger().devices
    device.reachable = False
    console = Console(width=100, highlight=False)
    said = rendered(console, Card(device, []))
    assert "the driver does not answer" in said
    options = console.options
    options.encoding = "ascii"
    lines = console.render_lines(Card(device, ledger().leases), options)
    assert "".join(segment.text for line in lines for segment in line).isascii()


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (-5, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_599_000, "59 min"),
        (7_200_000, "2 h"),
        (47 * 3_600_000, "47 h"),
        (72 * 3_600_000, "3 d"),
    ],
)
def test_spans_in_words(ms: int, words: str) -> None:
    assert span(ms) == words


def test_json_has_every_field_under_the_contract_s_names() -> None:
    said = json.loads(as_json(sight()))
    assert set(said) == {
        "models",
        "keys",
        "holds",
        "permits_total",
        "permits_in_use",
        "devices",
        "leases",
        "problems",
    }
    assert set(said["models"][0]) == set(pb.Status.ModelStatus.DESCRIPTOR.fields_by_name)
    sdxl = said["models"][2]
    assert (sdxl["resident_mib"], sdxl["state"]) == (6_144, "MODEL_STATE_READY")
    assert said["models"][0]["waiting"][1] == {
        "tier": "TIER_PAID",
        "fairness_key": "",
        "waiting": 3,
    }
    assert said["devices"][0]["total_mib"] == 32_000
    assert said["problems"] == []


def test_a_silent_broker_is_null_in_json_and_a_sentence_on_the_page() -> None:
    seen = replace(sight(), ledger=None, troubles={"broker": "The broker is silent."})
    said = json.loads(as_json(seen))
    assert said["devices"] is None
    assert said["problems"] == ["The broker is silent."]
    text = page(seen)
    assert text.startswith("2 of 4 permits")
    assert "The broker is silent." in text


def test_what_is_not_known_yet_is_said() -> None:
    seen = Sight(pb.Status(unreachable_workers=["speech"]))
    assert seen.sentences == [
        "No answer from speech.",
        "The scheduler has just started: not every model service has reported yet.",
    ]
    assert "The house has no model" in page(seen)
