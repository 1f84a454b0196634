"""Through gRPC: admitted by the scheduler, answered by the granted engine. What the edge does."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from bench.clock import StopWatch
from bench.figures import Shot
from bench.question import Question
from chassis.channel import call_metadata, open_channel
from chassis.place import Ask, Place, Waits
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc

_WAITS = Waits(answer_s=10.0, resume_s=1.0, request_s=60.0)


class ThroughGrpc:
    """A way of asking."""

    name = "through gRPC"

    def __init__(self, scheduler: str, open_until: AsyncExitStack) -> None:
        self._open_until = open_until
        self._engines: dict[str, llm_pb2_grpc.LanguageModelServiceAsyncStub] = {}
        channel = open_channel(scheduler)
        open_until.push_async_callback(channel.close)
        self._scheduler: scheduler_pb2_grpc.SchedulerServiceAsyncStub = (
            scheduler_pb2_grpc.SchedulerServiceStub(channel)
        )

    async def ask(self, question: Question) -> Shot:
        """One answer."""
        request = _request(question)
        watch, tokens = StopWatch(), 0
        ask = Ask(question.model, common_pb2.TIER_FREE, question.tokens)
        place = Place(self._scheduler, ask, _WAITS)
        try:
            async with aclosing(place.until_granted()) as waiting:
                async for _ in waiting:
                    pass
            metadata = call_metadata(place.granted.permit_id)
            engine = self._engine(place.granted.address)
            async for message in engine.Generate(request, timeout=60.0, metadata=metadata):
                if message.text:
                    watch.text()
                if message.HasField("finish"):
                    watch.finish()
                    tokens = message.finish.usage.completion_tokens
        finally:
            place.close()
        return watch.shot(tokens)

    def _engine(self, address: str) -> "llm_pb2_grpc.LanguageModelServiceAsyncStub":
        if address not in self._engines:
            channel = open_channel(address)
            self._open_until.push_async_callback(channel.close)
            self._engines[address] = llm_pb2_grpc.LanguageModelServiceStub(channel)
        return self._engines[address]


def _request(question: Question) -> llm_pb2.GenerateRequest:
    text = llm_pb2.ContentPart(text=question.text)
    message = llm_pb2.Message(role=llm_pb2.ROLE_USER, content=[text])
    return llm_pb2.GenerateRequest(
        model=question.model,
        conversation=llm_pb2.GenerateRequest.Conversation(messages=[message]),
        max_tokens=question.tokens,
        sampling=llm_pb2.Sampling(temperature=0.0, seed=0),
        ignore_eos=True,
    )


@asynccontextmanager
async def through_grpc(scheduler: str) -> AsyncIterator[ThroughGrpc]:
    """Channels to the scheduler at `scheduler` and to its engines, until the end of the block."""
    async with AsyncExitStack() as open_until:
        yield ThroughGrpc(scheduler, open_until)
