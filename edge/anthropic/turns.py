"""Anthropic's turns into the messages of llm.v1. Pure; types have been checked by `body`.

A user's turn may hold results of tools: each becomes a message of its own, in the order of the
blocks. Turns of one role in a row become one, as the dialect has it: chat templates insist on
roles that take turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chassis.errors import Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.anthropic.body import (
    BlockParam,
    DocumentBlockParam,
    ImageBlockParam,
    MessageParam,
    RedactedThinkingBlockParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
)
from edge.errors import bad_field
from edge.json_body import object_text

_BETWEEN_TURNS = "\n\n"
_ROLES = {
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "system": pb.ROLE_SYSTEM,
}
_HOLDS = {
    "user": (TextBlockParam, ToolResultBlockParam),
    "assistant": (
        TextBlockParam,
        ThinkingBlockParam,
        RedactedThinkingBlockParam,
        ToolUseBlockParam,
    ),
    "system": (TextBlockParam,),
}
_MODALITIES = {ImageBlockParam: "images", DocumentBlockParam: "documents"}


@dataclass(slots=True)
class _Said:
    """A message in the making. Lists, so that turns of any number are put together in one go."""

    role: "pb.Role.ValueType"
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[pb.ToolCall] = field(default_factory=list)
    tool_call_id: str = ""
    name: str = ""

    def add(self, later: "_Said") -> None:
        """Go on with what was said in the next turn of the same role."""
        if self.texts and later.texts:
            self.texts.append(_BETWEEN_TURNS)
        self.texts += later.texts
        self.thoughts += later.thoughts
        self.calls += later.calls

    def message(self) -> pb.Message:
        """As llm.v1 has it."""
        return pb.Message(
            role=self.role,
            content=[pb.ContentPart(text=text) for text in self.texts],
            reasoning="".join(self.thoughts),
            tool_calls=self.calls,
            tool_call_id=self.tool_call_id,
            name=self.name,
        )


def conversation_of(
    system: str | Sequence[TextBlockParam] | None, turns: Sequence[MessageParam]
) -> pb.GenerateRequest.Conversation:
    """The turns, and whether the last one is to be continued. Raises Fault."""
    told = [_Said(pb.ROLE_SYSTEM, _texts(system))] if system else []
    called: dict[str, str] = {}
    for i, turn in enumerate(turns):
        for said in _told(turn, f"messages[{i}]", called):
            if told and told[-1].role == said.role != pb.ROLE_TOOL:
                told[-1].add(said)
            else:
                told.append(said)
    answers_itself = told[-1].role == pb.ROLE_ASSISTANT
    if answers_itself and told[-1].calls:
        at = f"messages[{len(turns) - 1}]"
        raise bad_field(at, f"`{at}` calls tools; send their results in a turn after it.")
    return pb.GenerateRequest.Conversation(
        messages=[said.message() for said in told], continue_last=answers_itself
    )


def _told(turn: MessageParam, at: str, called: dict[str, str]) -> Iterator[_Said]:
    said = _Said(_ROLES[turn.role])
    if isinstance(turn.content, str):
        said.texts.append(turn.content)
        yield said
        return
    if not turn.content:
        raise bad_field(f"{at}.content", f"`{at}.content` is empty: expected blocks.")
    for i, block in enumerate(turn.content):
        where = f"{at}.content[{i}]"
        _check_place(block, turn.role, where)
        if isinstance(block, ToolResultBlockParam):
            if said.texts:
                yield said
                said = _Said(said.role)
            yield _result(block, where, called)
        else:
            _take(block, where, said, called)
    if said.role != pb.ROLE_USER or said.texts:
        yield said


def _check_place(block: BlockParam, role: str, at: str) -> None:
    _refuse_modality(block, at)
    if not isinstance(block, _HOLDS[role]):
        kind = block.__struct_config__.tag
        raise bad_field(at, f"A turn of role `{role}` holds no `{kind}`; remove `{at}`.")


def _refuse_modality(block: BlockParam, at: str) -> None:
    if kind := _MODALITIES.get(type(block)):
        message = f"This version reads text only; remove the {kind} from `{at}`."
        raise bad_field(at, message, Reason.MODALITY_UNSUPPORTED)


def _take(block: BlockParam, at: str, said: _Said, called: dict[str, str]) -> None:
    match block:
        case TextBlockParam():
            said.texts.append(block.text)
        case ThinkingBlockParam():
            said.thoughts.append(block.thinking)
        case ToolUseBlockParam():
            called[block.id] = block.name
            arguments = object_text(block.input, f"{at}.input")
            said.calls.append(pb.ToolCall(id=block.id, name=block.name, arguments_json=arguments))


def _result(block: ToolResultBlockParam, at: str, called: dict[str, str]) -> _Said:
    if block.tool_use_id not in called:
        where = f"{at}.tool_use_id"
        message = f"`{where}` is that of no `tool_use` in a turn before; correct it."
        raise bad_field(where, message)
    texts = _result_texts(block, at)
    return _Said(
        pb.ROLE_TOOL,
        # The contract has no other place for it, and the model has to know.
        ["Error: ", *texts] if block.is_error else texts,
        tool_call_id=block.tool_use_id,
        name=called[block.tool_use_id],
    )


def _result_texts(block: ToolResultBlockParam, at: str) -> list[str]:
    content = block.content or ""
    if isinstance(content, str):
        return [content]
    texts = []
    for i, part in enumerate(content):
        _refuse_modality(part, f"{at}.content[{i}]")
        if isinstance(part, TextBlockParam):
            texts.append(part.text)
    return texts


def _texts(content: str | Sequence[TextBlockParam]) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content]
