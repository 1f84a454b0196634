"""The house as the edge shows it, and the admin routes, over real HTTP and scripted peers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from chassis.server import Server
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from tests.edge_kit import MODEL, House, Peers, opened

WHY = "It was meant for a card."
PLACED = models_pb2.Placement(
    kind="cpu", layers=31, profile="cpu", why="The house lends no card's memory."
)
FALLEN = models_pb2.Placement(kind="cpu", layers=31, degraded=True, profile="ada", why=WHY)


def smol(placed: models_pb2.Placement = PLACED) -> models_pb2.Model:
    instance = models_pb2.Instance(
        instance_id="smol-1",
        state=models_pb2.MODEL_STATE_READY,
        places=4,
        running_permit_ids=["p1"],
        materialised_mib=321,
        placement=placed,
        extras=[
            models_pb2.Extra(name="draft", mib=99, lease_id="l1"),
            models_pb2.Extra(name="other", mib=5, why="There is no room."),
        ],
        speculation=models_pb2.Speculation(drafted_tokens=9, accepted_tokens=6, saved_calls=6),
    )
    return models_pb2.Model(
        key=MODEL,
        kind=models_pb2.MODEL_KIND_LANGUAGE,
        service="llm",
        lane="chat",
        state=models_pb2.MODEL_STATE_READY,
        instances=[instance],
        max_instances=1,
        footprint=common_pb2.Footprint(resident_mib=300),
        capabilities=models_pb2.Capabilities(context_tokens=2048, input_modalities=["text"]),
        overrides={"places": "2"},
        settings=[
            models_pb2.Setting(
                name="places", json_schema='{"type":"integer","minimum":1}', value="2"
            )
        ],
    )


class Housemates(Peers):
    """The scheduler, the model service and the broker of a house of one model."""

    asked: list[Any]
    refusal: Fault | None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked, self.refusal = [], None
        self.models = [smol()]
        line = pb.Status.Line(tier=common_pb2.TIER_FREE, waiting=3)
        known = pb.Status.ModelStatus(model_key=MODEL, running=1, waiting=[line, line])
        self.status = pb.Status(reconciled=True, permits_total=4, models=[known])

    async def _told(self, request: Any) -> None:
        self.asked.append(request)
        if self.refusal is not None:
            raise self.refusal

    async def LoadModel(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        await self._told(request)
        yield pb.LoadModelResponse(state=models_pb2.MODEL_STATE_READY, progress=1)

    async def UnloadModel(self, request: Any, _context: Any) -> Any:
        await self._told(request)
        return pb.UnloadModelResponse()

    def serve(self, server: Server) -> None:
        super().serve(server)
        models_pb2_grpc.add_ModelServiceServicer_to_server(
            _Host(self),  # type: ignore[abstract]
            server.grpc,
        )
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(
            _Lender(),  # type: ignore[abstract]
            server.grpc,
        )


class _Host(models_pb2_grpc.ModelServiceServicer):
    def __init__(self, mates: Housemates) -> None:
        self._mates = mates

    async def OverrideModel(self, request: Any, _context: Any) -> Any:
        await self._mates._told(request)
        return models_pb2.OverrideModelResponse()

    async def SwapModel(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        try:
            await self._mates._told(request)
            yield models_pb2.SwapModelResponse(phase=models_pb2.SwapModelResponse.PHASE_DRAINING)
            if request.path == "slow.gguf":
                await asyncio.Event().wait()
        finally:
            await self._mates.note("swap over")


class _Lender(broker_pb2_grpc.BrokerServiceServicer):
    async def GetDeviceMemory(self, _request: Any, _context: Any) -> Any:
        room = broker_pb2.TierHeadroom(tier=common_pb2.TIER_PAID, headroom_mib=700)
        memory = broker_pb2.DeviceMemory(
            device="gpu0",
            kind=broker_pb2.DEVICE_KIND_NVML,
            description="RTX",
            reachable=True,
            total_mib=1000,
            free_mib=400,
            leased_mib=300,
            headroom=[room],
        )
        return broker_pb2.GetDeviceMemoryResponse(devices=[memory])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path, kind=Housemates) as up:
        yield up


def asked(house: House) -> list[Any]:
    assert isinstance(house.peers, Housemates)
    return house.peers.asked


async def post(house: House, move: str, body: Any = None, model: str = MODEL) -> Any:
    return await house.http.post(f"/v1/admin/models/{model}/{move}", json=body)


async def test_status_tells_what_the_house_is(house: House) -> None:
    told = (await house.http.get("/status")).json()
    assert (told["status"], told["reasons"]) == ("ok", [])
    assert told["services"] == {"broker": "ok", "scheduler": "ok", "llm": "ok"}
    assert told["devices"][0]["used_mib"] == 600
    assert told["devices"][0]["headroom_mib"] == {"paid": 700}
    (model,) = told["models"]
    assert model["queue"] == {"running": 1, "waiting": 6, "last_used_unix_ms": 0}
    (instance,) = model["instances"]
    assert instance["placement"]["profile"] == "cpu"
    assert instance["extras"] == [
        {"name": "draft", "mib": 99, "granted": True, "why": ""},
        {"name": "other", "mib": 5, "granted": False, "why": "There is no room."},
    ]
    told = {"drafted_tokens": 9, "accepted_tokens": 6, "saved_calls": 6}
    assert instance["speculation"] == told
    assert model["state"] == "ready"


async def test_status_is_told_when_nobody_else_answers(house: House) -> None:
    await house.scheduler_server.stop()
    await house.engine_server.stop()
    answer = await house.http.get("/status")
    assert answer.status_code == 200
    told = answer.json()
    assert told["status"] == "degraded"
    assert (told["services"]["broker"], told["services"]["scheduler"]) == ("unreachable",) * 2
    assert len(told["reasons"]) == 2


async def test_a_house_that_fell_back_is_not_ready_but_alive(house: House) -> None:
    assert (await house.http.get("/readyz")).status_code == 200
    house.peers.models = [smol(FALLEN)]
    answer = await house.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == f"The model '{MODEL}' is degraded: {WHY}"
    health = await house.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    assert WHY in (await house.http.get("/status")).json()["reasons"][0]
    # One that does not serve yet is no reason.
    house.peers.models[0].instances[0].state = models_pb2.MODEL_STATE_LOADING
    assert (await house.http.get("/readyz")).status_code == 200


async def test_every_configured_model_is_listed_with_its_settings(house: House) -> None:
    (row,) = (await house.http.get("/v1/admin/models")).json()["data"]
    assert row["overrides"] == {"places": 2}
    limits = {"type": "integer", "minimum": 1}
    assert row["settings"] == [{"name": "places", "limits": limits, "value": 2}]
    assert (row["places"], row["memory"]["resident_mib"]) == (4, 300)
    assert row["capabilities"]["context_tokens"] == 2048


async def test_memory_is_told_by_device_and_by_model(house: House) -> None:
    told = (await house.http.get("/v1/admin/gpu-memory")).json()
    assert (told["devices"][0]["total_mib"], told["devices"][0]["leased_mib"]) == (1000, 300)
    (model,) = told["models"]
    assert (model["resident_mib"], model["in_use_mib"]) == (300, 321)


async def test_a_load_changes_settings_first(house: House) -> None:
    answer = await post(house, "load", {"overrides": {"places": 2, "kv_cache_type": "q8_0"}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["name"] == MODEL
    override, load = asked(house)
    assert dict(override.overrides) == {"places": "2", "kv_cache_type": '"q8_0"'}
    assert load.model == MODEL


async def test_a_load_without_settings_leaves_them_alone(house: House) -> None:
    assert (await post(house, "load")).status_code == 200
    assert (await post(house, "load", {})).status_code == 200
    assert [type(it) for it in asked(house)] == [pb.LoadModelRequest] * 2


async def test_an_unload_and_a_swap_pass_on_what_they_are_told(house: House) -> None:
    assert (await post(house, "unload", {"drain_s": 2, "force": True})).status_code == 200
    assert (await post(house, "swap", {"path": "a.gguf", "drain_s": 0.5})).status_code == 200
    unload, swap = asked(house)
    assert (unload.drain_ms, unload.force) == (2000, True)
    assert (swap.path, swap.drain_ms, swap.key) == ("a.gguf", 500, MODEL)


async def test_a_refusal_comes_through_with_its_field(house: House) -> None:
    assert isinstance(house.peers, Housemates)
    house.peers.refusal = Fault(
        Reason.INVALID_REQUEST, "`places` must be less.", metadata={"param": "places"}
    )
    answer = await post(house, "load", {"overrides": {"places": 900}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "places")
    assert len(asked(house)) == 1  # and nothing was loaded
    house.peers.refusal = Fault(Reason.MODEL_BUSY, "It runs 3 requests.")
    assert (await post(house, "unload")).status_code == 409
    house.peers.refusal = Fault(Reason.MODEL_FAILED, "The former one serves again.")
    answer = await post(house, "swap", {"path": "a.gguf"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_failed")


@pytest.mark.parametrize(
    ("move", "body", "param"),
    [
        ("load", {"override": {}}, "override"),
        ("swap", {}, "path"),
        ("swap", {"path": 7}, "path"),
        ("unload", {"drain_s": -1}, "drain_s"),
        ("unload", {"drain_s": 1e9}, "drain_s"),
    ],
)
async def test_a_wrong_body_names_its_field(
    house: House, move: str, body: dict[str, Any], param: str
) -> None:
    answer = await post(house, move, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not asked(house)


async def test_an_unknown_model_is_not_found(house: House) -> None:
    for move, body in (("swap", {"path": "x"}), ("load", {"overrides": {}})):
        assert (await post(house, move, body, "nobody")).status_code == 404


async def test_a_caller_that_leaves_gives_its_swap_up(house: House) -> None:
    swap = asyncio.create_task(post(house, "swap", {"path": "slow.gguf"}))
    while not asked(house):  # noqa: ASYNC110  the scripted peer tells nobody
        await asyncio.sleep(0.001)
    swap.cancel()
    await house.peers.seen("swap over")


async def test_nobody_gets_in_through_a_proxy(house: House) -> None:
    forwarded = {"x-forwarded-for": "127.0.0.1"}
    for path in ("/v1/admin/models", "/v1/admin/gpu-memory"):
        answer = await house.http.get(path, headers=forwarded)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "local_only")
    answer = await house.http.post(
        f"/v1/admin/models/{MODEL}/unload", json={"force": True}, headers=forwarded
    )
    assert answer.status_code == 403
    assert not asked(house)
