"""A draft model in the service: memory of its own, that the model does without if need be."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from chassis.channel import call_metadata, open_channel
from chassis.errors import Reason
from chassis.server import Server, service_name
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.host import ModelHost
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from services.llm.catalog import ModelFile
from services.llm.config import ModelConfig
from tests.hosting_world import DEADLINE_S, broker_process, drained, refusal, until
from tests.tiny_gguf import make_tiny_gguf

CONFIG = ModelConfig(
    path=Path("model.gguf"),
    draft_path=Path("draft.gguf"),
    speculation="draft",
    context_tokens=512,
    threads=1,
    prefix_cache_mib=0,
)


@dataclass(frozen=True, slots=True)
class Service:
    host: ModelHost
    models: "models_pb2_grpc.ModelServiceAsyncStub"
    broker: "broker_pb2_grpc.BrokerServiceAsyncStub"

    async def lease(self, holder: str, mib: int) -> str:
        request = broker_pb2.AcquireLeaseRequest(
            holder=holder,
            kind=broker_pb2.LEASE_KIND_RESIDENT,
            tier=common_pb2.TIER_PAID,
            preferred_mib=mib,
        )
        answer = await self.broker.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
        return answer.lease.lease_id

    async def load(self) -> models_pb2.Instance:
        lease_id = await self.lease("llm/chat", self.host.get("chat").resident_mib)
        request = models_pb2.LoadModelRequest(key="chat", lease_id=lease_id)
        events = await drained(self.models.LoadModel(request))
        instance = events[-1].instance
        assert isinstance(instance, models_pb2.Instance)
        return instance

    async def holders(self) -> list[str]:
        request = broker_pb2.ListLeasesRequest()
        leases = (await self.broker.ListLeases(request, timeout=DEADLINE_S)).leases
        return sorted(lease.holder for lease in leases)

    async def until_holders(self, condition: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition(await self.holders()):  # noqa: ASYNC110  another process
                await asyncio.sleep(0.01)


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[Service]:
    home = EngineHome("llm", "services.llm.engine_main", folder / "run", "info")
    async with broker_process(folder) as address:
        leases = LeaseBook(address, "llm", renew_every_s=0.1)
        host = ModelHost(home, [ModelFile("chat", CONFIG, folder)], leases)
        server = Server([service_name(models_pb2, "ModelService")], drain_s=0.2)
        for closing in (leases.close, host.close):
            server.closing.push_async_callback(closing)
        models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
        target = await server.start(f"unix:{folder}/llm.sock")
        try:
            async with open_channel(target) as channel, open_channel(address) as to_broker:
                yield Service(
                    host,
                    models_pb2_grpc.ModelServiceStub(channel),
                    broker_pb2_grpc.BrokerServiceStub(to_broker),
                )
        finally:
            await server.stop()


async def said(instance: models_pb2.Instance, permit: str) -> llm_pb2.Finish:
    request = llm_pb2.GenerateRequest(
        model="chat", prompt="one two one two", max_tokens=100, ignore_eos=True
    )
    request.sampling.temperature = 0
    async with open_channel(instance.address) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = llm_pb2_grpc.LanguageModelServiceStub(
            channel
        )
        events = await drained(stub.Generate(request, metadata=call_metadata(permit)))
    finish = events[-1].finish
    assert isinstance(finish, llm_pb2.Finish)
    return finish


def engine_pid() -> int:
    (pid,) = (
        child.pid
        for child in psutil.Process().children()
        if "services.llm.engine_main" in child.cmdline()
    )
    return pid


async def test_a_draft_model_has_a_lease_while_its_engine_lives(tmp_path: Path) -> None:
    for name in ("model", "draft"):
        make_tiny_gguf(tmp_path / f"{name}.gguf")
    async with service(tmp_path) as s:
        instance = await s.load()
        assert instance.extras[0].lease_id
        assert await s.holders() == ["llm/chat", "llm/chat+draft"]
        finish = await said(instance, "p1")
        assert finish.HasField("speculation")

        def told() -> models_pb2.Speculation:
            return s.host.messages()[0].instances[0].speculation

        wanted = finish.speculation
        assert wanted.drafted_tokens > 0
        await until(lambda: told().drafted_tokens == wanted.drafted_tokens, "it is told")
        assert told().accepted_tokens == wanted.accepted_tokens
        await s.models.UnloadModel(models_pb2.UnloadModelRequest(key="chat"), timeout=DEADLINE_S)
        assert await s.holders() == []
        await s.load()
        assert len(await s.holders()) == 2
        os.kill(engine_pid(), signal.SIGKILL)
        await s.until_holders(lambda holders: not holders)


async def test_denied_its_memory_the_model_loads_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("model", "draft"):
        make_tiny_gguf(tmp_path / f"{name}.gguf")
    async with service(tmp_path) as s:
        await s.lease("other/one", 1000 - s.host.get("chat").resident_mib)
        instance = await s.load()
        assert instance.state == models_pb2.MODEL_STATE_READY
        assert instance.extras[0].why
        assert await s.holders() == ["llm/chat", "other/one"]
        assert not (await said(instance, "p1")).HasField("speculation")
    assert "no memory for the draft model" in capfd.readouterr().err


async def test_another_vocabulary_fails_the_load_and_leaves_no_lease(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "model.gguf")
    make_tiny_gguf(tmp_path / "draft.gguf", merges=50)
    async with service(tmp_path) as s:
        fault = await refusal(s.load())
        assert fault.reason is Reason.MODEL_FAILED
        assert "draft.gguf" in fault.message
        assert "model.gguf" in fault.message
        await s.until_holders(lambda holders: not holders)
