"""The length of a prompt: for who asks, and for the scheduler, before it can choose.

The latter only where there is a choice: for a family of twins the prompt is counted by the service
that hosts them, with the vocabulary that they share. For one model the engine counts, once.
"""

from collections.abc import Mapping, Sequence

import grpc

from chassis.channel import call_metadata
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from edge.choice import kind_word
from edge.errors import bad_field

_COUNT_S = 30.0
_LANGUAGE = (models_pb2.MODEL_KIND_LANGUAGE, models_pb2.MODEL_KIND_UNSPECIFIED)


class Measure:
    """Counts prompts at the model services, whose addresses it is given by their names."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self._services = Channels(len(addresses), llm_pb2_grpc.LanguageModelServiceStub)

    async def close(self) -> None:
        """Close the connections."""
        await self._services.close()

    async def prompt_tokens(
        self, behind: Sequence[models_pb2.Model], asked: llm_pb2.GenerateRequest
    ) -> int:
        """Tokens of the prompt if there are twins to choose from, else 0. Raises Fault."""
        if len(behind) < 2:
            return 0
        if asked.HasField("prompt_token_ids"):
            return len(asked.prompt_token_ids.ids)
        widest = widest_of(behind)
        if widest.service not in self._addresses:
            return 0
        return await self.tokens(widest, _question(asked))

    async def tokens(self, model: models_pb2.Model, question: llm_pb2.CountTokensRequest) -> int:
        """The answer of the service that hosts `model`, loaded or not. Raises Fault."""
        address = self._addresses.get(model.service)
        if address is None:
            message = f"The service of the model `{model.key}` is not known to this edge."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        question.model = model.key
        async with self._services.to(address) as service:
            try:
                answer = await service.CountTokens(
                    question, timeout=_COUNT_S, metadata=call_metadata()
                )
            except grpc.aio.AioRpcError as error:
                raise fault_of(error, model.service) from None
        return answer.tokens


def _question(asked: llm_pb2.GenerateRequest) -> llm_pb2.CountTokensRequest:
    if asked.HasField("conversation"):
        return llm_pb2.CountTokensRequest(conversation=asked.conversation, thinking=asked.thinking)
    # What fills a gap reads the text behind it as well.
    return llm_pb2.CountTokensRequest(prompt=asked.prompt + asked.suffix)


def widest_of(behind: Sequence[models_pb2.Model]) -> models_pb2.Model:
    """The one of the twins that takes the longest prompt."""
    return max(behind, key=lambda model: model.capabilities.context_tokens)


def check_answers(behind: Sequence[models_pb2.Model]) -> None:
    """Raises Fault when a chat would wake a model that cannot answer it."""
    for model in behind:
        if model.kind not in _LANGUAGE:
            kind = kind_word(model.kind)
            raise bad_field(
                "model", f"The model `{model.key}` is of kind {kind} and writes no text."
            )
