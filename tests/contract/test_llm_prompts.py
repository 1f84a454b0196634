"""Conversations prepared for real vocabularies: tokens, the answer's form, what is demanded."""

from pathlib import Path

import pytest
from llguidance import LLMatcher
from llguidance.llamacpp import lltokenizer_from_vocab

from services.llm.llama_api import Model
from services.llm.prompts import Prompts
from services.llm.reply import Reply
from services.llm.template import Segment
from services.llm.values import (
    BarePrompt,
    ChatMessage,
    ConstraintKind,
    Conversation,
    Role,
    TokenPrompt,
    ToolCallDelta,
    ToolChoice,
    ToolMode,
)
from tests.tiny_gguf import make_tiny_gguf
from tests.unit import llm_families as families
from tests.unit.llm_families import WEATHER, answered, asked

# llguidance's own way of reading a vocabulary.
pytestmark = pytest.mark.filterwarnings("ignore:llama_token_get_attr:DeprecationWarning")

MODELS = Path(__file__).parents[2] / "models"
REQUIRED = ToolChoice(ToolMode.REQUIRED)
MARKS = ("[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[AVAILABLE_TOOLS]")


def opened(path: Path) -> tuple[Model, Prompts]:
    model = Model(str(path), vocabulary_only=True)
    return model, Prompts(model)


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Prompts]:
    path = tmp_path_factory.mktemp("gguf") / "mistral.gguf"
    source = families.MISTRAL_NAMED
    return opened(make_tiny_gguf(path, template=source, weights=False, more_controls=MARKS))


def read(model: Model, prompts: Prompts, conversation: Conversation, answer: str) -> list[str]:
    """The names that are called when a model answers so, token by token as the engine feeds it."""
    prepared = prompts.prepare(conversation)
    vocabulary = model.vocabulary
    calls: list[ToolCallDelta] = []
    reader = Reply(prepared.form, ())
    for token in vocabulary.tokens([Segment(answer, True)], beginning=False):
        name = vocabulary._text(token)
        data = name.encode() if name in prepared.form.visible else vocabulary.piece(token)[0]
        calls += reader.feed(data).tool_calls
    calls += reader.flush().tool_calls
    return [call.name for call in calls if call.name]


def test_marks_that_are_control_tokens_are_read_and_written_as_tokens(
    mistral: tuple[Model, Prompts],
) -> None:
    model, prompts = mistral
    conversation = asked(tool_choice=REQUIRED)
    prepared = prompts.prepare(conversation)
    assert prepared.form.visible == {"[TOOL_CALLS]", "[ARGS]"}
    answer = "[TOOL_CALLS]now[ARGS]{}"
    assert read(model, prompts, conversation, answer) == ["now"]
    assert prepared.output is not None
    assert prepared.output.kind is ConstraintKind.LARK
    tokenizer = lltokenizer_from_vocab(model.vocabulary._handle)
    assert LLMatcher.validate_grammar(prepared.output.source, tokenizer) == ""
    matcher = LLMatcher(tokenizer, prepared.output.source)
    assert matcher.consume_tokens(model.vocabulary.tokens([Segment(answer, True)], beginning=False))
    assert matcher.is_accepting()


def test_only_what_must_call_is_constrained(mistral: tuple[Model, Prompts]) -> None:
    _, prompts = mistral
    auto = prompts.prepare(asked())
    assert (auto.output, auto.form.enforced) == (None, False)
    none = prompts.prepare(asked(tool_choice=ToolChoice(ToolMode.NONE)))
    assert (none.output, none.form.syntax, none.form.visible) == (None, None, frozenset())
    for prompt in (BarePrompt("hi"), TokenPrompt((1, 2))):
        assert prompts.prepare(prompt).form.syntax is None
        assert prompts.prepare(prompt).tokens == prompts.tokens(prompt)


def test_counting_and_answering_see_the_same_prompt(mistral: tuple[Model, Prompts]) -> None:
    _, prompts = mistral
    conversation = answered()
    assert prompts.prepare(conversation).tokens == prompts.tokens(conversation)


def test_what_a_model_can_do_is_told(mistral: tuple[Model, Prompts], tmp_path: Path) -> None:
    _, prompts = mistral
    assert (prompts.knows_thinking, prompts.knows_translation) == (False, False)
    path = make_tiny_gguf(tmp_path / "t.gguf", template=families.TRANSLATE, weights=False)
    assert opened(path)[1].knows_translation
    path = make_tiny_gguf(tmp_path / "q.gguf", template=families.QWEN3, weights=False)
    assert opened(path)[1].knows_thinking


@pytest.mark.parametrize(
    "file", ["smollm2-135m-instruct-q4_1.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"]
)
def test_real_models_are_offered_tools_and_made_to_call(file: str) -> None:
    path = MODELS / file
    if not path.exists():
        pytest.skip(f"{file} is not in models/")
    model, prompts = opened(path)
    turns = (ChatMessage(Role.SYSTEM, "Be brief."), *answered().messages)
    conversation = Conversation(turns, tools=(WEATHER,), tool_choice=REQUIRED)
    prepared = prompts.prepare(conversation)
    text = b"".join(model.vocabulary.piece(token)[0] for token in prepared.tokens).decode()
    assert text.count("get_weather") >= 2
    assert "sunny" in text
    answer = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert read(model, prompts, conversation, answer) == ["get_weather"]
    assert prepared.output is not None
    tokenizer = lltokenizer_from_vocab(model.vocabulary._handle)
    matcher = LLMatcher(tokenizer, prepared.output.source)
    assert matcher.consume_tokens(model.vocabulary.tokens([Segment(answer, True)], beginning=False))
    assert matcher.is_accepting()
