"""cohabit.llm.v1 requests → the engine's values. Answers go the other way in `wire_answer.py`."""

import json
from collections.abc import Mapping
from typing import Any

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from services.llm.values import (
    BarePrompt,
    ChatMessage,
    ConstraintKind,
    Conversation,
    GenerateParams,
    OutputConstraint,
    Prompt,
    Role,
    SamplingParams,
    Tier,
    TokenPrompt,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    Translation,
)

MAX_TOOLS = 128

_ROLES = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
    pb.ROLE_TOOL: Role.TOOL,
}
_THINKING = {
    pb.THINKING_UNSPECIFIED: None,
    pb.THINKING_ENABLED: True,
    pb.THINKING_DISABLED: False,
}
_TOOL_MODES = {
    pb.ToolChoice.MODE_UNSPECIFIED: ToolMode.AUTO,
    pb.ToolChoice.MODE_NONE: ToolMode.NONE,
    pb.ToolChoice.MODE_AUTO: ToolMode.AUTO,
    pb.ToolChoice.MODE_REQUIRED: ToolMode.REQUIRED,
    pb.ToolChoice.MODE_NAMED: ToolMode.NAMED,
}
_TIERS = {int(tier): tier for tier in Tier}
_CONSTRAINTS = {
    "json_object": ConstraintKind.JSON_OBJECT,
    "json_schema": ConstraintKind.JSON_SCHEMA,
    "grammar": ConstraintKind.GRAMMAR,
    "regex": ConstraintKind.REGEX,
}


def prompt_of(request: pb.GenerateRequest | pb.CountTokensRequest | pb.TokenizeRequest) -> Prompt:
    """What to answer, or to count. Raises Fault INVALID_REQUEST, MODALITY_UNSUPPORTED."""
    which = request.WhichOneof("input")
    suffix = request.suffix if isinstance(request, pb.GenerateRequest) else ""
    if which == "prompt" and not isinstance(request, pb.TokenizeRequest):
        return BarePrompt(request.prompt, suffix)
    if suffix:
        raise _wrong("suffix", "`suffix` goes together with a `prompt` of text; remove it.")
    if which == "text" and isinstance(request, pb.TokenizeRequest):
        return BarePrompt(request.text)
    if which == "prompt_token_ids" and isinstance(request, pb.GenerateRequest):
        return TokenPrompt(tuple(request.prompt_token_ids.ids))
    if which is None or not request.conversation.messages:
        raise Fault(Reason.INVALID_REQUEST, "There is nothing to answer; send messages.")
    thinking = pb.THINKING_UNSPECIFIED
    if not isinstance(request, pb.TokenizeRequest):
        thinking = request.thinking
    if thinking not in _THINKING:
        raise Fault(Reason.INVALID_REQUEST, f"There is no thinking mode {thinking}.")
    return _conversation(request.conversation, _THINKING[thinking])


def params_of(request: pb.GenerateRequest) -> GenerateParams:
    """How to answer. Ranges are checked by the engine, which knows its vocabulary."""
    given = request.sampling
    chosen = {f.name: value for f, value in given.ListFields() if f.name != "logit_bias"}
    return GenerateParams(
        max_tokens=request.max_tokens,
        stop=tuple(request.stop),
        sampling=SamplingParams(**chosen, logit_bias=dict(given.logit_bias)),
        ignore_eos=request.ignore_eos,
        choices=request.choices or 1,
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        output=_constraint(request.output) if request.HasField("output") else None,
        max_sentences=request.max_sentences,
        min_probability=request.min_probability,
        cache_scope=request.cache_scope,
        tier=_tier(request.tier),
    )


def _wrong(param: str, message: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, message, metadata={"param": param})


def _tier(tier: int) -> Tier:
    return _TIERS.get(tier, Tier.UNSPECIFIED)


def _constraint(output: pb.OutputConstraint) -> OutputConstraint | None:
    which = output.WhichOneof("constraint")
    if which is None or (which == "json_object" and not output.json_object):
        return None
    source = "" if which == "json_object" else str(getattr(output, which))
    return OutputConstraint(_CONSTRAINTS[which], source)


def _conversation(talk: pb.GenerateRequest.Conversation, thinking: bool | None) -> Conversation:
    tools = tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(talk.tools[:MAX_TOOLS]))
    if len(talk.tools) > MAX_TOOLS:
        raise _wrong("tools", f"At most {MAX_TOOLS} tools can be offered; send fewer.")
    if len({tool.name for tool in tools}) < len(tools):
        raise _wrong("tools", "Two tools have the same name; rename one of them.")
    return Conversation(
        tuple(_message(message) for message in talk.messages),
        continue_last=talk.continue_last,
        thinking=thinking,
        tools=tools,
        tool_choice=_choice(talk.tool_choice, {tool.name for tool in tools}),
    )


def _choice(choice: pb.ToolChoice, known: set[str]) -> ToolChoice:
    mode = _TOOL_MODES.get(choice.mode)
    if mode is None:
        raise _wrong("tool_choice", f"There is no tool choice {choice.mode}.")
    if mode in {ToolMode.REQUIRED, ToolMode.NAMED} and not known:
        raise _wrong("tool_choice", "A tool is demanded, but none is offered; send `tools`.")
    if mode is ToolMode.NAMED and choice.name not in known:
        raise _wrong("tool_choice", f"The tool `{choice.name[:64]}` is not among `tools`.")
    return ToolChoice(mode, choice.name if mode is ToolMode.NAMED else "", choice.single)


def _tool(tool: pb.Tool, at: str) -> Tool:
    if not tool.name:
        raise _wrong(f"{at}.name", "Every tool needs a name.")
    return Tool(tool.name, tool.description, _object(tool.parameters_json, f"{at}.parameters"))


def _object(text: str, at: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _wrong(at, f"`{at}` must be a JSON object.")
    return value


def _message(message: pb.Message) -> ChatMessage:
    role = _ROLES.get(message.role)
    if role is None:
        raise Fault(Reason.INVALID_REQUEST, "Every message needs a role.")
    assistant = role is Role.ASSISTANT
    if message.reasoning and not assistant:
        raise Fault(Reason.INVALID_REQUEST, "Only messages of the assistant have `reasoning`.")
    if message.tool_calls and not assistant:
        raise Fault(Reason.INVALID_REQUEST, "Only messages of the assistant have `tool_calls`.")
    if message.tool_call_id and role is not Role.TOOL:
        raise Fault(Reason.INVALID_REQUEST, "Only messages of a tool have a `tool_call_id`.")
    text, translation = _content(message)
    return ChatMessage(
        role,
        text,
        name=message.name,
        reasoning=message.reasoning,
        tool_calls=tuple(ToolCall(c.id, c.name, c.arguments_json) for c in message.tool_calls),
        tool_call_id=message.tool_call_id,
        translation=translation,
    )


def _content(message: pb.Message) -> tuple[str, Translation | None]:
    texts, translations = [], []
    for part in message.content:
        match part.WhichOneof("part"):
            case "text":
                texts.append(part.text)
            case "translation":
                given = part.translation
                translations.append(
                    Translation(given.text, given.source_lang_code, given.target_lang_code)
                )
            case _:
                raise Fault(
                    Reason.MODALITY_UNSUPPORTED, "This model reads text only; send only text."
                )
    if translations and (texts or len(translations) > 1):
        raise Fault(
            Reason.INVALID_REQUEST, "A text to translate stands alone in its message; send only it."
        )
    return "".join(texts), translations[0] if translations else None
