"""What is asked, the same by every way: one model, one message, greedy, a fixed length."""

from dataclasses import dataclass

from services.llm.values import ChatMessage, Conversation, GenerateParams, Role, SamplingParams


@dataclass(frozen=True, slots=True)
class Question:
    """A request whose answer is always `tokens` long."""

    model: str
    text: str
    tokens: int

    @property
    def conversation(self) -> Conversation:
        """For the engine."""
        return Conversation((ChatMessage(Role.USER, self.text),))

    @property
    def params(self) -> GenerateParams:
        """For the engine."""
        sampling = SamplingParams(temperature=0.0, seed=0)
        return GenerateParams(self.tokens, sampling=sampling, ignore_eos=True)
