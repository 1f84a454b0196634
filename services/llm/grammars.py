"""Demanded forms → constraints, for one model's vocabulary; what was compiled once is kept.

Compiling is for any thread but the one that decodes: it takes milliseconds, at the first time with
a large vocabulary a second more, and lets go of the interpreter's lock meanwhile.
"""

import threading
from collections import OrderedDict
from typing import Protocol

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from chassis.errors import Fault, Reason
from services.llm.constraint import Constraint
from services.llm.grammar_source import compiled
from services.llm.llama_api import TokenForm
from services.llm.unfit import Unfit
from services.llm.values import ConstraintKind, OutputConstraint

KEPT = 64
KEPT_BYTES = 4 << 20
"""Of sources; what is compiled from them is some times larger."""


def _limits(kind: ConstraintKind, vocabulary_tokens: int) -> LLParserLimits:
    """What an answer may cost. A mask takes time by its items times those of one row: rows are
    short for GBNF, where an ambiguity fills them; the choice among 400 optional properties needs
    long ones.
    """
    return LLParserLimits(
        max_items_in_row=600 if kind is ConstraintKind.GRAMMAR else 2000,
        initial_lexer_fuel=500_000,
        step_lexer_fuel=100_000,
        step_max_items=max(50_000, vocabulary_tokens),
        max_lexer_states=30_000,  # 1 to 2 kB each, per answer
        max_grammar_size=200_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


class Tokens(Protocol):
    """A vocabulary, as far as grammars need it."""

    def forms(self) -> list[TokenForm]: ...


class _Names:
    """What the matcher asks of a tokenizer. It never tokenises here: nothing is forced on a model,
    which may split a text in any way.
    """

    bos_token_id = None

    def __init__(self, forms: list[TokenForm], ends: list[int]) -> None:
        self.eos_token_id = ends[0]
        self.tokens = [form.text for form in forms]
        self.special_token_ids = [i for i, form in enumerate(forms) if form.special]

    def __call__(self, _text: bytes) -> list[int]:
        return []


class Grammars:
    """Compiles for one vocabulary, which is looked through at the first use. Any thread."""

    def __init__(
        self, vocabulary: Tokens, *, kept: int = KEPT, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._ends: frozenset[int] = frozenset()
        self._size = 0
        self._kept_lock = threading.Lock()
        self._kept: OrderedDict[OutputConstraint, LLMatcher] = OrderedDict()
        self._kept_most, self._bytes_most, self._bytes = kept, kept_bytes, 0

    def compile(self, output: OutputConstraint, param: str = "response_format") -> Constraint:
        """The form at its beginning. Raises Fault INVALID_REQUEST, which names `param` and, for a
        schema, the keyword and its path.
        """
        tokenizer = self._prepared()
        matcher = self._known(output)
        if matcher is None:
            limits = _limits(output.kind, self._size)
            try:
                matcher = compiled(
                    output,
                    lambda grammar: LLMatcher(tokenizer, grammar, log_level=0, limits=limits),
                )
            except Unfit as error:
                raise Fault(Reason.INVALID_REQUEST, str(error), metadata={"param": param}) from None
            self._keep(output, matcher)
        return Constraint(matcher.deep_copy(), self._ends, self._size, param=param)

    def _prepared(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                forms = self._vocabulary.forms()
                ends = [i for i, form in enumerate(forms) if form.ends]
                if not ends:
                    raise Fault(
                        Reason.MODEL_FAILED,
                        "This model has no token that ends an answer, so no form can be demanded.",
                    )
                names = TokenizerWrapper(_Names(forms, ends))
                self._size, self._ends = len(forms), frozenset(ends)
                self._tokenizer = LLTokenizer(names, eos_token=ends)
            return self._tokenizer

    def _known(self, output: OutputConstraint) -> LLMatcher | None:
        with self._kept_lock:
            if output in self._kept:
                self._kept.move_to_end(output)
            return self._kept.get(output)

    def _keep(self, output: OutputConstraint, matcher: LLMatcher) -> None:
        with self._kept_lock:
            if output not in self._kept:
                self._bytes += len(output.source)
            self._kept[output] = matcher
            while len(self._kept) > self._kept_most or self._bytes > self._bytes_most:
                dropped, _ = self._kept.popitem(last=False)
                self._bytes -= len(dropped.source)
