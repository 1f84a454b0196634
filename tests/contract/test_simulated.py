"""The simulated service with its engines: real processes, a real broker, a simulated card."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.channel import call_metadata, open_channel
from chassis.errors import Fault, Reason
from chassis.process import child_env
from chassis.simulated_card import SimulatedCard
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2 as pb
from cohabit.simulated.v1 import simulated_pb2_grpc as rpc
from tests.hosting_world import DEADLINE_S, drained, refusal, until

CONFIG = """
run_dir: run
state_dir: state
broker:
  device: {device}
  capacity_mib: 1000
  floor_mib: {{paid: 0, sub: 0, free: 0, background: 0}}
simulated:
  models:
    chat:
      {{kind: language, lane: chat, family: twins, resident_mib: 300, context_tokens: 50,
       answer_tokens: 12, load_s: 0.2, tokens_per_s: 50, prefill_tokens_per_s: 100}}
    image:
      {{kind: diffusion, lane: image, resident_mib: 400, peak_mib: 200, load_s: 0.2, work_s: 0.2}}
"""


@dataclass(frozen=True)
class World:
    """The service, and the broker as the scheduler would use it."""

    channel: grpc.aio.Channel
    broker: "broker_pb2_grpc.BrokerServiceAsyncStub"
    card: SimulatedCard

    @property
    def models(self) -> "models_pb2_grpc.ModelServiceAsyncStub":
        return models_pb2_grpc.ModelServiceStub(self.channel)

    @property
    def service(self) -> "rpc.SimulatedServiceAsyncStub":
        return rpc.SimulatedServiceStub(self.channel)

    @property
    def words(self) -> "llm_pb2_grpc.LanguageModelServiceAsyncStub":
        return llm_pb2_grpc.LanguageModelServiceStub(self.channel)

    async def lease(self, key: str, mib: int, kind: Any = broker_pb2.LEASE_KIND_RESIDENT) -> str:
        request = broker_pb2.AcquireLeaseRequest(
            holder=f"simulated/{key}", kind=kind, tier=common_pb2.TIER_PAID, preferred_mib=mib
        )
        answer = await self.broker.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
        assert answer.HasField("lease"), answer
        return answer.lease.lease_id

    async def leases(self) -> dict[str, broker_pb2.Lease]:
        request = broker_pb2.ListLeasesRequest()
        answer = await self.broker.ListLeases(request, timeout=DEADLINE_S)
        return {lease.lease_id: lease for lease in answer.leases}

    def load(self, key: str, lease_id: str) -> Any:
        request = models_pb2.LoadModelRequest(key=key, lease_id=lease_id)
        return self.models.LoadModel(request, wait_for_ready=True)

    async def ready(self, key: str, mib: int) -> models_pb2.Instance:
        events = await drained(self.load(key, await self.lease(key, mib)))
        instance = events[-1].instance
        assert isinstance(instance, models_pb2.Instance)
        return instance

    async def model(self, key: str) -> models_pb2.Model:
        answer = await self.models.ListModels(models_pb2.ListModelsRequest(), timeout=DEADLINE_S)
        return next(model for model in answer.models if model.key == key)

    async def failed(self, key: str) -> str:
        async with asyncio.timeout(DEADLINE_S):
            while (  # noqa: ASYNC110  a poll of another process, bounded
                model := await self.model(key)
            ).state != models_pb2.MODEL_STATE_FAILED:
                await asyncio.sleep(0.01)
        return model.failure.message


@asynccontextmanager
async def process(module: str, config: Path) -> AsyncIterator[None]:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", module, "--config", str(config), env=child_env()
    )
    try:
        yield
    finally:
        running.terminate()
        await asyncio.wait_for(running.wait(), DEADLINE_S)


@asynccontextmanager
async def world(folder: Path, device: str = "simulated") -> AsyncIterator[World]:
    config = folder / "cohabit.yaml"
    config.write_text(CONFIG.format(device=device))
    run = folder / "run"
    async with (
        process("services.broker", config),
        process("services.simulated", config),
        open_channel(f"unix:{run}/broker.sock") as to_broker,
        open_channel(f"unix:{run}/simulated.sock") as channel,
    ):
        async with asyncio.timeout(DEADLINE_S):
            await to_broker.channel_ready()  # by then it has made the card
        yield World(
            channel, broker_pb2_grpc.BrokerServiceStub(to_broker), SimulatedCard(run / "sim0.card")
        )


@asynccontextmanager
async def running(
    instance: models_pb2.Instance,
    permit: str = "p1",
    request: pb.RunRequest | None = None,
    **fields: Any,
) -> AsyncIterator[Any]:
    """A run at the engine."""
    async with open_channel(instance.address) as channel:
        stub: rpc.SimulatedServiceAsyncStub = rpc.SimulatedServiceStub(channel)
        wanted = request or pb.RunRequest(**{"model": "image", **fields})
        call = stub.Run(wanted, metadata=call_metadata(permit))
        try:
            yield call
        finally:
            call.cancel()


async def test_a_run_holds_its_memory_and_gives_it_back(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready("image", 400)
        assert w.card.used_mib() == 400
        lease_id = await w.lease("image", 200, broker_pb2.LEASE_KIND_TRANSIENT)
        lent = pb.RunRequest(model="image", transient_lease_id=lease_id, transient_mib=150)
        async with running(instance, request=lent) as call:
            assert isinstance(await call.read(), pb.RunResponse)
            assert w.card.used_mib() == 550
            *shares, last = await drained(call)
        assert w.card.used_mib() == 400
        assert all(0 < share.progress <= 1 for share in shares)
        assert (last.done.model, last.done.transient_mib) == ("image", 150)
        assert 200 <= last.done.ran_ms < 1000
        # Without a lease, and at its own length.
        async with running(instance, "p2", work_ms=30) as call:
            last = (await drained(call))[-1]
        assert last.done.transient_mib == 200
        assert 30 <= last.done.ran_ms < 200
        assert w.card.out_of_memory_count == 0


async def test_what_an_engine_does_not_run(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready("image", 400)
        for permit, model, reason in [
            ("", "image", Reason.PERMIT_REQUIRED),
            ("p1", "chat", Reason.MODEL_NOT_FOUND),
            ("p1", "image", Reason.PERMIT_REVOKED),  # spent on the call before
        ]:
            async with running(instance, permit, model=model) as call:
                assert (await refusal(call.read())).reason is reason


async def test_a_run_that_is_cancelled_is_over_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready("image", 400)
        async with running(instance, work_ms=60_000) as call:
            await call.read()
            assert w.card.used_mib() == 600
        assert await until(lambda: w.card.used_mib() == 400, "its memory is free") < 100


async def test_a_full_card_ends_the_engine_in_a_load(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        lease_id = await w.lease("image", 400)
        w.card.allocate("foreign", 700)
        fault = await refusal(drained(w.load("image", lease_id)))
        assert fault.reason is Reason.MODEL_FAILED
        assert "signal SIGABRT" in await w.failed("image")
        assert (w.card.out_of_memory_count, w.card.used_mib()) == (1, 700)
        assert not await w.leases()


async def test_a_full_card_ends_the_engine_in_a_run(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready("image", 400)
        w.card.allocate("foreign", 500)
        async with running(instance) as call:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await drained(call)
        assert fault_of(caught.value, "engine").reason is Reason.SERVICE_UNAVAILABLE
        assert "signal SIGABRT" in await w.failed("image")
        assert (w.card.out_of_memory_count, w.card.used_mib()) == (1, 500)


async def test_nobody_pretends_on_a_device_that_is_real(tmp_path: Path) -> None:
    async with world(tmp_path, "cpu") as w:
        fault = await refusal(drained(w.load("chat", await w.lease("chat", 300))))
        assert fault.reason is Reason.MODEL_FAILED
        said = await w.failed("chat")
        assert said.startswith("Simulated models live on a simulated device alone, and 'cpu' is")
        assert not await w.leases()


def generate(words: str, **fields: Any) -> llm_pb2.GenerateRequest:
    return llm_pb2.GenerateRequest(model="chat", prompt=words, **fields)


async def test_an_answer_comes_at_its_pace(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready("chat", 300)
        assert instance.load_ms >= 200
        async with open_channel(instance.address) as channel:
            stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = (
                llm_pb2_grpc.LanguageModelServiceStub(channel)
            )

            async def answer(permit: str, request: llm_pb2.GenerateRequest) -> Any:
                return await drained(stub.Generate(request, metadata=call_metadata(permit)))

            pieces = await answer("p1", generate("w " * 20, max_tokens=8))
            *said, last = [piece for piece in pieces if not piece.HasField("prefill")]
            assert "".join(piece.text for piece in said) == (
                "This answer is simulated: no model has computed"
            )
            assert sum(piece.tokens for piece in said) == 8
            assert len(said) > 3
            finish = last.finish
            assert finish.reason == llm_pb2.FINISH_REASON_LENGTH
            assert (finish.usage.prompt_tokens, finish.usage.completion_tokens) == (20, 8)
            assert 200 <= finish.timings.first_token_ms < 500
            assert 100 <= finish.timings.decode_ms < 500
            natural = (await answer("p2", generate("hi")))[-1].finish
            assert natural.reason == llm_pb2.FINISH_REASON_STOP
            assert natural.usage.completion_tokens == 12
            fault = await refusal(answer("p3", generate("w " * 50)))
            assert fault.reason is Reason.CONTEXT_LENGTH_EXCEEDED
            assert fault.metadata == {"prompt_tokens": "50", "context_tokens": "50"}


async def test_the_service_lists_counts_and_refuses_while_all_is_cold(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        question = llm_pb2.CountTokensRequest(model="chat", prompt="three words here")
        told = await w.words.CountTokens(question, timeout=DEADLINE_S, wait_for_ready=True)
        assert (told.tokens, told.context_tokens) == (3, 50)
        model = await w.model("image")
        assert model.kind == models_pb2.MODEL_KIND_DIFFUSION
        assert model.footprint.peak_transient_mib == 200
        assert (await w.model("chat")).family == "twins"

        async def why(call: Any) -> Fault:
            return await refusal(call.read() if hasattr(call, "read") else call)

        question.model = "image"
        assert "answers no prompts" in (await why(w.words.CountTokens(question))).message
        assert (await why(w.service.Run(pb.RunRequest(model="x")))).reason is Reason.MODEL_NOT_FOUND
        wrong = llm_pb2.GenerateRequest(model="image", prompt="x")
        assert (await why(w.words.Generate(wrong))).reason is Reason.INVALID_REQUEST
        assert not w.card.used_by()
