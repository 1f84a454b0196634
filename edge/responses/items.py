"""Items of a conversation: as a client sends them, as they are kept and listed, as turns.

Pure. What a client sends or passes back becomes the item that the house lists, keeps and answers;
only that is made into turns, so there is one meaning of each.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.errors import bad_field
from edge.json_body import decode_part
from edge.responses.body import (
    INPUT_ITEMS,
    InputFunctionCall,
    InputFunctionOutput,
    InputMessage,
    InputPart,
    InputReasoning,
)
from edge.responses.objects import (
    ListedItem,
    MessageText,
    OutputText,
    ReasoningText,
    ResponseFunctionCall,
    ResponseFunctionOutput,
    ResponseMessage,
    ResponseReasoning,
)

NewId = Callable[[str], str]
"""A prefix → an id that nobody has."""
InputItem = InputMessage | InputFunctionCall | InputFunctionOutput | InputReasoning

_MOST_ID_CHARS = 256
_ROLES: Mapping[str, pb.Role.ValueType] = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
}
_TEXTS = ("input_text", "output_text")
_MODALITIES = {"input_image": "images", "input_file": "files", "input_audio": "audio"}


class _Kind(msgspec.Struct):
    type: str | None = None


_kind = msgspec.json.Decoder(_Kind)
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = dict(
    zip(
        ("message", "function_call", "function_call_output", "reasoning"),
        map(msgspec.json.Decoder, INPUT_ITEMS),
        strict=True,
    )
)


def kind_of(raw: msgspec.Raw, at: str) -> str | None:
    """The `type` of a raw object. Raises Fault where it is none."""
    return decode_part(_kind, raw, at).type


def read(raw: msgspec.Raw, at: str) -> InputItem:
    """One item. Raises Fault; a kind that is not supported is named."""
    kind = kind_of(raw, at) or "message"
    decoder = _DECODERS.get(kind)
    if decoder is None:
        known = ", ".join(_DECODERS)
        raise bad_field(
            f"{at}.type", f"Items of type `{kind[:64]}` are not supported; there are {known}."
        )
    item: InputItem = decode_part(decoder, raw, at)
    return item


# As they are listed, and kept.


def listed(item: InputItem, at: str, new_id: NewId) -> ListedItem:
    """`item` as the house tells it, with an id. Raises Fault for what is no text."""
    match item:
        case InputMessage():
            text = _text(item.content, f"{at}.content")
            part = OutputText(text) if item.role == "assistant" else MessageText(text)
            return ResponseMessage(_id(item, at, "msg_", new_id), item.role, "completed", [part])
        case InputFunctionCall():
            name = _id(item, at, "fc_", new_id)
            return ResponseFunctionCall(
                name, item.call_id, item.name, item.arguments, status="completed"
            )
        case InputFunctionOutput():
            output = _text(item.output, f"{at}.output")
            return ResponseFunctionOutput(_id(item, at, "fco_", new_id), item.call_id, output)
        case InputReasoning():
            pieces = item.content or item.summary or []
            return ResponseReasoning(
                _id(item, at, "rs_", new_id),
                "completed",
                [ReasoningText(piece.text) for piece in pieces],
            )


def _id(item: InputItem, at: str, prefix: str, new_id: NewId) -> str:
    if not item.id:
        return new_id(prefix)
    if len(item.id) > _MOST_ID_CHARS:
        raise bad_field(f"{at}.id", f"`{at}.id` has more than {_MOST_ID_CHARS} characters.")
    return item.id


def _text(content: str | list[InputPart], at: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part, f"{at}[{i}]") for i, part in enumerate(content))


def _part(part: InputPart, at: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if kind := _MODALITIES.get(part.type):
        message = f"This version reads text only; remove the {kind} from `{at}`."
        raise bad_field(at, message, Reason.MODALITY_UNSUPPORTED)
    if part.type not in _TEXTS:
        raise bad_field(f"{at}.type", f"Invalid value for `{at}.type`: expected `input_text`.")
    if part.text is None:
        raise bad_field(f"{at}.text", f"`{at}.text` is missing: expected text.")
    return part.text


# As turns.


def turns(items: Iterable[ListedItem]) -> list[pb.Message]:
    """The conversation that `items` are. Raises Fault for an output without its call.

    What the model thought, said and called in a row is one turn of the assistant.
    """
    done: list[pb.Message] = []
    names: dict[str, str] = {}
    for item in items:
        match item:
            case ResponseMessage():
                said = "".join(part.text for part in item.content)
                _speaker(done, item).content.add().text = said
            case ResponseReasoning():
                thought = "".join(piece.text for piece in item.content)
                done.append(pb.Message(role=pb.ROLE_ASSISTANT, reasoning=thought))
            case ResponseFunctionCall():
                names[item.call_id] = item.name
                call = _caller(done).tool_calls.add(id=item.call_id, name=item.name)
                call.arguments_json = item.arguments
            case ResponseFunctionOutput():
                done.append(_output(item, names))
    return [turn for turn in done if turn.content or turn.tool_calls]


def _speaker(done: list[pb.Message], item: ResponseMessage) -> pb.Message:
    """The turn that a message belongs to: new, unless the model has only thought so far."""
    role = _ROLES[item.role]
    last = done[-1] if done else None
    thinking = last is not None and last.role == pb.ROLE_ASSISTANT and not last.content
    if last is None or role != pb.ROLE_ASSISTANT or not thinking or last.tool_calls:
        done.append(pb.Message(role=role))
    return done[-1]


def _caller(done: list[pb.Message]) -> pb.Message:
    if not done or done[-1].role != pb.ROLE_ASSISTANT:
        done.append(pb.Message(role=pb.ROLE_ASSISTANT))
    return done[-1]


def _output(item: ResponseFunctionOutput, names: Mapping[str, str]) -> pb.Message:
    if item.call_id not in names:
        raise _no_call(item.call_id)
    turn = pb.Message(role=pb.ROLE_TOOL, tool_call_id=item.call_id, name=names[item.call_id])
    turn.content.add().text = item.output
    return turn


def _no_call(call_id: str) -> Fault:
    message = (
        f"No tool call is found for the function call output with call_id {call_id[:64]}; send the "
        "`function_call` item before it, or the `previous_response_id` of what made it."
    )
    return bad_field("input", message)
