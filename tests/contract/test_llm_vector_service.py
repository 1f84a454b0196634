"""Vectors and tokens over gRPC: the model service, its engine processes, and who asks which."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest

from chassis.channel import call_metadata, open_channel
from chassis.errors import Reason
from chassis.server import Server, service_name
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.llm.v1 import llm_pb2_grpc as rpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from hosting.host import ModelHost
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from services.llm.clients import Scheduler
from services.llm.config import ModelConfig
from services.llm.counting import Counter
from services.llm.servicer import LanguageModelServicer
from services.llm.vector_catalog import source_of
from tests.hosting_world import DEADLINE_S, Grants, broker_process, drained, refusal
from tests.tiny_bert import CLS, SEP, make_tiny_bert
from tests.tiny_gguf import IM_END, make_tiny_gguf

KINDS = {"tiny": "language", "bert": "embedding", "rank": "reranker"}


@dataclass(frozen=True, slots=True)
class Service:
    llm: "rpc.LanguageModelServiceAsyncStub"
    models: "models_pb2_grpc.ModelServiceAsyncStub"
    grants: Grants
    broker: str

    async def load(self, key: str) -> str:
        """The address of an engine of its own."""
        listed = await self.models.ListModels(models_pb2.ListModelsRequest(), timeout=DEADLINE_S)
        (model,) = (one for one in listed.models if one.key == key)
        lease = await _lease(self.broker, key, model.footprint.resident_mib)
        request = models_pb2.LoadModelRequest(key=key, lease_id=lease)
        instance = (await drained(self.models.LoadModel(request)))[-1].instance
        self.grants.addresses[key] = instance.address
        return str(instance.address)


async def _lease(broker: str, key: str, mib: int) -> str:
    request = broker_pb2.AcquireLeaseRequest(
        holder=f"llm/{key}",
        kind=broker_pb2.LEASE_KIND_RESIDENT,
        tier=common_pb2.TIER_PAID,
        preferred_mib=mib,
    )
    async with open_channel(broker) as channel:
        stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(channel)
        answer = await stub.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
    return str(answer.lease.lease_id)


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[Service]:
    (folder / "run").mkdir()
    make_tiny_gguf(folder / "tiny.gguf")
    make_tiny_bert(folder / "bert.gguf")
    make_tiny_bert(folder / "rank.gguf", pooling=gguf.PoolingType.RANK)
    home = EngineHome("llm", "services.llm.engine_main", folder / "run", "info")
    grants = Grants()  # type: ignore[abstract]
    scheduling = Server(["cohabit.scheduler.v1.SchedulerService"], drain_s=0)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(grants, scheduling.grpc)
    at = await scheduling.start(f"unix:{folder}/s.sock")
    async with broker_process(folder) as broker:
        leases, scheduler, counter = LeaseBook(broker, "llm"), Scheduler(at), Counter(home)
        sources = [
            source_of(
                key,
                ModelConfig.model_validate({"path": f"{key}.gguf", "kind": kind, "threads": 1}),
                folder,
            )
            for key, kind in KINDS.items()
        ]
        host = ModelHost(home, sources, leases)
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
                llm = rpc.LanguageModelServiceStub(channel)
                yield Service(llm, models, grants, broker)
        finally:
            await server.stop()
            await scheduling.stop()


async def test_the_service_admits_for_who_embeds_and_reranks(tmp_path: Path) -> None:
    async with service(tmp_path) as s:
        for key in ("bert", "rank"):
            await s.load(key)
        request = pb.EmbedRequest(model="bert", texts=["the cat", "moon"], dimensions=16)
        answer = await s.llm.Embed(request, timeout=DEADLINE_S)
        assert [len(vector.values) for vector in answer.vectors] == [16, 16]
        ids = pb.TokenIds(ids=[CLS, 9, SEP])
        answer = await s.llm.Embed(pb.EmbedRequest(model="bert", token_ids=[ids]), timeout=9)
        assert answer.prompt_tokens == 3
        ranking = pb.RerankRequest(model="rank", query="cat", documents=["moon", "cat"], top_n=1)
        ranked = await s.llm.Rerank(ranking, timeout=DEADLINE_S)
        assert len(ranked.results) == 1
        assert 0 <= ranked.results[0].relevance_score <= 1
        both = pb.EmbedRequest(model="bert", texts=["a"], token_ids=[ids])
        assert (await refusal(s.llm.Embed(both))).reason is Reason.INVALID_REQUEST
        async with asyncio.timeout(DEADLINE_S):
            while s.grants.ended < len(s.grants.asked):  # noqa: ASYNC110  they end by themselves
                await asyncio.sleep(0.001)
        assert len(s.grants.asked) == 4


async def test_an_engine_wants_a_permit_for_vectors_and_none_for_tokens(tmp_path: Path) -> None:
    async with service(tmp_path) as s, open_channel(await s.load("bert")) as channel:
        engine: rpc.LanguageModelServiceAsyncStub = rpc.LanguageModelServiceStub(channel)
        request = pb.EmbedRequest(model="bert", texts=["a"])
        assert (await refusal(engine.Embed(request))).reason is Reason.PERMIT_REQUIRED
        assert (await engine.Embed(request, metadata=call_metadata("p"))).vectors
        again = await refusal(engine.Embed(request, metadata=call_metadata("p")))
        assert again.reason is Reason.PERMIT_REVOKED
        other = pb.EmbedRequest(model="tiny", texts=["a"])
        fault = await refusal(engine.Embed(other, metadata=call_metadata("q")))
        assert fault.reason is Reason.MODEL_NOT_FOUND
        ranking = pb.RerankRequest(model="bert", query="a", documents=["a"])
        fault = await refusal(engine.Rerank(ranking, metadata=call_metadata("r")))
        assert fault.reason is Reason.NOT_IMPLEMENTED
        shown = await engine.Tokenize(pb.TokenizeRequest(model="bert", text="cat"))
        assert shown.pieces == [b" cat"]


class Wide(rpc.LanguageModelServiceServicer):
    """Answers with the most there is."""

    async def Embed(self, _request: Any, _context: Any) -> pb.EmbedResponse:
        vector = pb.EmbedResponse.Vector(values=[0.5] * 4096)
        return pb.EmbedResponse(vectors=[vector] * 256)


async def test_256_wide_vectors_fit_a_message(tmp_path: Path) -> None:
    server = Server([service_name(pb, "LanguageModelService")], drain_s=0)
    rpc.add_LanguageModelServiceServicer_to_server(Wide(), server.grpc)  # type: ignore[abstract]
    target = await server.start(f"unix:{tmp_path}/wide.sock")
    async with open_channel(target) as channel:
        engine: rpc.LanguageModelServiceAsyncStub = rpc.LanguageModelServiceStub(channel)
        answer = await engine.Embed(pb.EmbedRequest(), timeout=DEADLINE_S)
    await server.stop()
    assert answer.ByteSize() > 4 * 1024 * 1024  # more than gRPC takes by itself


@pytest.mark.parametrize("loaded", [False, True])
async def test_tokens_are_the_same_of_a_model_that_is_cold(tmp_path: Path, loaded: bool) -> None:
    async with service(tmp_path) as s:
        for key in KINDS if loaded else ():
            await s.load(key)
        plain = pb.TokenizeRequest(model="tiny", text="hello <|im_end|> \u00e9")
        told = await s.llm.Tokenize(plain, timeout=DEADLINE_S)
        assert b"".join(told.pieces) == b"hello <|im_end|> \xc3\xa9"
        assert IM_END not in told.token_ids
        assert told.context_tokens == 4096
        plain.parse_special = True
        assert IM_END in (await s.llm.Tokenize(plain, timeout=DEADLINE_S)).token_ids
        back = pb.DetokenizeRequest(model="tiny", token_ids=told.token_ids)
        whole = (await s.llm.Detokenize(back, timeout=DEADLINE_S)).text
        assert whole == "hello <|im_end|> \u00e9"
        del back.token_ids[-1]
        assert (await s.llm.Detokenize(back, timeout=DEADLINE_S)).text[-1] == "\ufffd"
        back.token_ids[:] = [10**6]
        assert (await refusal(s.llm.Detokenize(back))).reason is Reason.INVALID_REQUEST
        marked = pb.TokenizeRequest(model="bert", text="the cat", add_special=True)
        ids = (await s.llm.Tokenize(marked, timeout=DEADLINE_S)).token_ids
        assert (ids[0], ids[-1], len(ids)) == (CLS, SEP, 4)
        counted = await s.llm.CountTokens(pb.CountTokensRequest(model="bert", prompt="the cat"))
        assert (counted.tokens, counted.context_tokens) == (4, 128)
        talk = pb.GenerateRequest.Conversation(
            messages=[pb.Message(role=pb.ROLE_USER, content=[pb.ContentPart(text="cat")])]
        )
        asked = pb.TokenizeRequest(model="tiny", conversation=talk)
        seen = await s.llm.CountTokens(pb.CountTokensRequest(model="tiny", conversation=talk))
        assert len((await s.llm.Tokenize(asked)).token_ids) == seen.tokens
        asked.model = "rank"
        assert (await refusal(s.llm.Tokenize(asked))).reason is Reason.INVALID_REQUEST
        long = pb.TokenizeRequest(model="bert", text="a" * 10_000)
        assert (await refusal(s.llm.Tokenize(long))).reason is Reason.CONTEXT_LENGTH_EXCEEDED


async def test_what_another_kind_does_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    async with service(tmp_path) as s:
        asked: list[Any] = [
            s.llm.Embed(pb.EmbedRequest(model="tiny", texts=["a"])),
            s.llm.Embed(pb.EmbedRequest(model="rank", texts=["a"])),
            s.llm.Rerank(pb.RerankRequest(model="bert", query="a", documents=["a"])),
            s.llm.Generate(pb.GenerateRequest(model="bert", prompt="a")).read(),
        ]
        for call in asked:
            fault = await refusal(call)
            assert fault.reason is Reason.NOT_IMPLEMENTED
            assert fault.metadata["param"] == "model"
        assert len(s.grants.asked) == 0
