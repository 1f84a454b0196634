"""What is told of a model's tokens without its weights: counted, shown, read back into text.

cohabit.llm.v1 requests in, answers out; all of it blocks for as long as a text is long.
"""

from dataclasses import dataclass

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from services.llm.tokenizer import Tokenizer
from services.llm.values import BarePrompt, Conversation, Prompt
from services.llm.wire import prompt_of


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Of one model."""

    tokenizer: Tokenizer
    context_tokens: int
    writes: bool = True
    """It is a language model: it reads conversations, and prompts as `Prompts` has them."""

    def count(self, request: pb.CountTokensRequest) -> pb.CountTokensResponse:
        """The length of a prompt as the model would see it. Raises Fault."""
        prompt = prompt_of(request)
        self._check(prompt)
        if self.writes:
            tokens = self.tokenizer.prompts.tokens(prompt)
        else:
            tokens = self.tokenizer.encode(_text(prompt), add_special=True)
        return pb.CountTokensResponse(tokens=len(tokens), context_tokens=self.context_tokens)

    def tokenize(self, request: pb.TokenizeRequest) -> pb.TokenizeResponse:
        """The tokens of a text, or of a conversation. Raises Fault."""
        prompt = BarePrompt(request.text) if _is_text(request) else prompt_of(request)
        self._check(prompt)
        if isinstance(prompt, Conversation):
            tokens = self.tokenizer.render(prompt)
        else:
            tokens = self.tokenizer.encode(
                _text(prompt), add_special=request.add_special, parse_special=request.parse_special
            )
        return pb.TokenizeResponse(
            token_ids=tokens,
            pieces=self.tokenizer.pieces(tokens),
            context_tokens=self.context_tokens,
        )

    def detokenize(self, request: pb.DetokenizeRequest) -> pb.DetokenizeResponse:
        """The text of tokens. Raises Fault."""
        if len(request.token_ids) > self.context_tokens:
            raise Fault(
                Reason.CONTEXT_LENGTH_EXCEEDED,
                f"This model's context is {self.context_tokens} tokens, but there are "
                f"{len(request.token_ids)}; send fewer at a time.",
                metadata={"param": "tokens", "context_tokens": str(self.context_tokens)},
            )
        return pb.DetokenizeResponse(text=self.tokenizer.decode(request.token_ids))

    def _check(self, prompt: Prompt) -> None:
        if self.writes:
            self.tokenizer.prompts.check_fits(prompt, self.context_tokens)
        else:
            self.tokenizer.check_bytes(_text(prompt), self.context_tokens, "text")


def _is_text(request: pb.TokenizeRequest) -> bool:
    return request.WhichOneof("input") == "text"


def _text(prompt: Prompt) -> str:
    if isinstance(prompt, BarePrompt):
        return prompt.text
    raise Fault(
        Reason.INVALID_REQUEST,
        "This model reads no conversations; send text.",
        metadata={"param": "messages"},
    )
