"""Where a model goes: by the house before the load, by the native library in the engine."""

import pytest

from chassis.errors import Fault, Reason
from cohabit.broker.v1 import broker_pb2 as pb
from hosting.house_device import HOST, Device, device_of
from services.llm.engine import ALL_LAYERS
from services.llm.placement import Layers, place, settle

CARD = Device("gpu0", 8000, "NVIDIA GeForce RTX 3070")
ALL = Layers(ALL_LAYERS, "It fits.")


def test_auto_takes_all_or_nothing() -> None:
    assert place("auto", CARD, 8000).count == ALL_LAYERS
    none = place("auto", CARD, 8001)
    assert none.count == 0
    assert "8001 MiB" in none.why
    assert "8000 MiB" in none.why
    assert place("auto", HOST, 1).count == 0


def test_what_is_named_is_done() -> None:
    assert place(7, CARD, 99_999).count == 7
    assert place("all", CARD, 99_999).count == ALL_LAYERS
    assert place("all", HOST, 1).count == ALL_LAYERS  # the engine has the last word
    assert "gpu_layers: 0" in place(0, CARD, 1).why


def test_an_engine_with_a_card_places_what_there_is() -> None:
    whole = settle(ALL, 33, ["RTX"], allow_cpu_fallback=False)
    assert (whole.kind, whole.gpu_layers, whole.device_name) == ("gpu", 33, "RTX")
    part = settle(Layers(10, ""), 33, ["RTX"], allow_cpu_fallback=False)
    assert (part.kind, part.gpu_layers) == ("partial", 10)
    more = settle(Layers(99, ""), 33, ["RTX"], allow_cpu_fallback=False)
    assert (more.kind, more.gpu_layers) == ("gpu", 33)


def test_an_engine_without_a_card_does_not_fall_back_in_silence() -> None:
    with pytest.raises(Fault) as caught:
        settle(ALL, 33, [], allow_cpu_fallback=False)
    assert caught.value.reason is Reason.MODEL_FAILED
    assert "allow_cpu_fallback" in caught.value.message
    fallen = settle(ALL, 33, [], allow_cpu_fallback=True)
    assert (fallen.kind, fallen.gpu_layers, fallen.degraded) == ("cpu", 0, True)
    meant = settle(Layers(0, "So it is."), 33, [], allow_cpu_fallback=False)
    assert (meant.kind, meant.degraded, meant.why) == ("cpu", False, "So it is.")


def told(kind: "pb.DeviceKind.ValueType") -> pb.GetDeviceMemoryResponse:
    reserve = pb.Reserve(name="desktop", reserved_mib=500)
    memory = pb.DeviceMemory(
        device="d", kind=kind, description="A", total_mib=9000, floor_mib=1000, reserves=[reserve]
    )
    return pb.GetDeviceMemoryResponse(devices=[memory])


def test_only_a_real_card_takes_layers() -> None:
    assert device_of(told(pb.DEVICE_KIND_NVML)) == Device("d", 7500, "A")
    assert device_of(told(pb.DEVICE_KIND_CPU)) == Device("d", 7500, "")
    assert device_of(told(pb.DEVICE_KIND_SIMULATED)).card == ""
    assert device_of(pb.GetDeviceMemoryResponse()) == HOST
