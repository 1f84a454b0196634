"""The language model service on real engine processes: counting on COLD models, files that come."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from chassis.channel import open_channel
from chassis.errors import Reason
from chassis.server import Server, service_name
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.llm.v1 import llm_pb2_grpc as rpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.host import ModelHost
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from services.llm.catalog import ModelFile
from services.llm.clients import Scheduler
from services.llm.config import ModelConfig
from services.llm.counting import Counter
from services.llm.servicer import LanguageModelServicer
from tests.hosting_world import DEADLINE_S, broker_process, drained, refusal, until
from tests.tiny_gguf import CONTROLS, make_tiny_gguf

HELLO = pb.GenerateRequest.Conversation(
    messages=[pb.Message(role=pb.ROLE_USER, content=[pb.ContentPart(text="hello <|im_end|>")])]
)


@dataclass(frozen=True, slots=True)
class Service:
    llm: "rpc.LanguageModelServiceAsyncStub"
    models: "models_pb2_grpc.ModelServiceAsyncStub"
    folder: Path

    async def count(self, model: str = "one", text: str = "") -> pb.CountTokensResponse:
        request = pb.CountTokensRequest(model=model, conversation=HELLO)
        if text:
            request.prompt = text
        return await self.llm.CountTokens(request, timeout=DEADLINE_S)


@asynccontextmanager
async def service(
    folder: Path, *, broker: str = "unix:/nowhere", idle_s: float = 60.0, most_asking: int = 64
) -> AsyncIterator[Service]:
    """A service of the models "one" and "two"; their files are the test's to make."""
    (folder / "run").mkdir(exist_ok=True)
    home = EngineHome("llm", "services.llm.engine_main", folder / "run", "info")
    leases, scheduler = LeaseBook(broker, "llm"), Scheduler("unix:/nowhere")
    configs = {key: ModelConfig(path=Path(f"{key}.gguf"), threads=1) for key in ("one", "two")}
    files = [ModelFile(key, config, folder) for key, config in configs.items()]
    host = ModelHost(home, files, leases)
    counter = Counter(home, idle_s=idle_s, most_asking=most_asking)
    server = Server([service_name(pb, "LanguageModelService")], drain_s=0.2)
    for closing in (leases.close, scheduler.close, counter.close, host.close):
        server.closing.push_async_callback(closing)
    servicer = LanguageModelServicer(host, scheduler, counter)
    rpc.add_LanguageModelServiceServicer_to_server(servicer, server.grpc)
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    target = await server.start(f"unix:{folder}/llm.sock")
    try:
        async with open_channel(target) as channel:
            models = models_pb2_grpc.ModelServiceStub(channel)
            yield Service(rpc.LanguageModelServiceStub(channel), models, folder)
    finally:
        await server.stop()
    assert not counting()
    assert not list((folder / "run").glob("engine-*"))


def counting() -> set[int]:
    """Processes that read a vocabulary."""
    found = set()
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "services.llm.vocabulary_main" in child.cmdline():
                found.add(child.pid)
    return found


async def test_a_cold_model_counts_in_a_process_that_is_kept(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "one.gguf")
    make_tiny_gguf(tmp_path / "two.gguf", context=512, template=None)
    async with service(tmp_path) as s:
        whole = await s.count()
        assert (whole.context_tokens, whole.tokens > 10) == (4096, True)
        (pid,) = counting()
        assert (await s.count(text="".join(CONTROLS))).tokens == 3
        assert (await s.count(text="é" * 5)).tokens == 10
        assert counting() == {pid}
        assert (await s.count("two")).context_tokens == 512
        (other,) = counting()
        assert other != pid
        answers = await asyncio.gather(*(s.count(key) for key in ("one", "two") * 2))
        assert [answer.context_tokens for answer in answers] == [4096, 512] * 2
        assert len(counting()) == 1


async def test_a_loaded_model_counts_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_tiny_gguf(tmp_path / "one.gguf", template=None)
    async with broker_process(tmp_path) as broker, service(tmp_path, broker=broker) as s:
        cold = await s.count()
        listed = await s.models.ListModels(models_pb2.ListModelsRequest(), timeout=DEADLINE_S)
        lease = await _lease(broker, listed.models[0].footprint.resident_mib)
        await drained(s.models.LoadModel(models_pb2.LoadModelRequest(key="one", lease_id=lease)))
        (pid,) = counting()
        os.kill(pid, 9)
        assert await s.count() == cold
        assert not counting()  # the engine itself has answered
    said = capfd.readouterr().err
    assert '"event": "model loaded"' in said
    assert "ChatML stands in" in said


async def _lease(broker: str, mib: int) -> str:
    request = broker_pb2.AcquireLeaseRequest(
        holder="llm/one",
        kind=broker_pb2.LEASE_KIND_RESIDENT,
        tier=common_pb2.TIER_PAID,
        preferred_mib=mib,
    )
    async with open_channel(broker) as channel:
        stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(channel)
        answer = await stub.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
    return answer.lease.lease_id


async def test_a_file_that_comes_later_is_counted_by_and_one_that_changes(tmp_path: Path) -> None:
    async with service(tmp_path) as s:
        fault = await refusal(s.count())
        assert fault.reason is Reason.MODEL_FAILED
        assert "one.gguf is not there" in fault.message
        assert not counting()
        make_tiny_gguf(tmp_path / "one.gguf")
        assert (await s.count()).context_tokens == 4096
        make_tiny_gguf(tmp_path / "one.gguf", context=512)
        assert (await s.count()).context_tokens == 512
        fault = await refusal(s.count("three"))
        assert fault.reason is Reason.MODEL_NOT_FOUND


async def test_nobody_asks_and_it_ends(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "one.gguf")
    async with service(tmp_path, idle_s=0.05) as s:
        await s.count()
        await until(lambda: not counting(), "it is gone")
        assert (await s.count()).tokens
        await until(lambda: not counting(), "it is gone again")


async def test_one_that_was_killed_is_replaced(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "one.gguf")
    async with service(tmp_path) as s:
        await s.count()
        (pid,) = counting()
        os.kill(pid, 9)
        await until(lambda: not psutil.pid_exists(pid), "it is gone")
        await until(lambda: not list((tmp_path / "run").glob("engine-*")), "that is known")
        assert (await s.count()).tokens


async def test_who_leaves_while_it_opens_harms_nobody(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "one.gguf")
    async with service(tmp_path, most_asking=2) as s:
        first = s.llm.CountTokens(pb.CountTokensRequest(model="one", conversation=HELLO))
        await until(counting, "it opens")
        others = [asyncio.create_task(s.count()) for _ in range(2)]
        (refused,), (waiting,) = await asyncio.wait(others, return_when="FIRST_COMPLETED")
        assert (await refusal(refused)).reason is Reason.QUEUE_FULL
        first.cancel()
        assert (await waiting).tokens
        last = s.llm.CountTokens(pb.CountTokensRequest(model="one", conversation=HELLO))
        last.cancel()  # and the service closes
