"""Thinking on and off, by a template's own switch or by what stands before the answer."""

import pytest

from services.llm.forms import Forms
from services.llm.parts import ReplyForm
from services.llm.template import ChatTemplate
from services.llm.values import ChatMessage, Conversation, Role
from tests.unit import llm_families as families
from tests.unit.llm_families import asked, shown, user

CLOSED = "<think>\n\n</think>\n\n"


def form_of(source: str, conversation: Conversation, **tokens: int) -> ReplyForm:
    template = ChatTemplate(source, controls=tokens)
    return Forms(template, tokens, tokens.get).of(conversation, template.render(conversation))


def test_a_template_with_a_switch_does_it_itself() -> None:
    off, on, unsaid = (
        shown(families.QWEN3, asked(thinking=thinking)) for thinking in (False, True, None)
    )
    assert off == on + CLOSED
    assert on == unsaid
    gemma = shown(families.GEMMA4, asked(thinking=True))
    assert "<|think|>" in gemma
    assert gemma.endswith("<|turn>model\n")


def test_without_a_switch_a_thought_that_is_over_stands_before_the_answer() -> None:
    source = families.QWEN3.replace("enable_thinking", "something_else")
    assert shown(source, asked(thinking=False)).endswith(f"<|im_start|>assistant\n{CLOSED}")
    assert CLOSED not in shown(source, asked(thinking=None))


def test_a_thought_that_the_template_opens_is_closed_or_gone_on_with() -> None:
    opened = shown(families.R1, asked(tools=()))
    assert opened.endswith("<think>\n")
    assert shown(families.R1, asked(tools=(), thinking=False)) == opened + "\n</think>\n\n"
    assert form_of(families.R1, asked(tools=())).thinking
    assert not form_of(families.R1, asked(tools=(), thinking=False)).thinking
    assert not form_of(families.QWEN3, asked()).thinking


@pytest.mark.parametrize("thinking", [True, False, None])
def test_asking_a_model_that_does_not_think_changes_nothing(thinking: bool | None) -> None:
    assert shown(families.CHATML, asked(thinking=thinking)) == shown(families.CHATML, asked())
    assert form_of(families.CHATML, asked(thinking=thinking)).think is None


def test_marks_that_only_the_vocabulary_knows_are_read_but_not_written() -> None:
    tokens = {"<think>": 5, "</think>": 6}
    form = form_of(families.CHATML, asked(thinking=False), **tokens)
    assert form.think is not None
    assert form.visible == tokens.keys()
    assert "<think>" not in shown(families.CHATML, asked(thinking=False), tuple(tokens))


def test_an_answer_that_goes_on_goes_on_within_its_thought() -> None:
    def going_on(text: str) -> ReplyForm:
        turns = (user("hi"), ChatMessage(Role.ASSISTANT, text))
        return form_of(families.QWEN3, Conversation(turns, continue_last=True))

    assert going_on("<think>so far").thinking
    assert not going_on("<think>so far</think>And").thinking


def test_what_somebody_said_last_opens_no_thought() -> None:
    source = "{# knows <think> #}{{ messages[-1].content }}"
    tokens = {"<think>": 5, "</think>": 6}
    assert not form_of(source, asked("I <think>", tools=()), **tokens).thinking
