"""Messages and tools as chat templates expect them: mappings in the shape of OpenAI's, all marked.

Templates differ in small habits, which show in their source: whether a turn of calls has empty
content or none, how long a call's id must be, where results stand. Rendering stays out.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from chassis.errors import Fault, Reason
from services.llm.marks import Marks, TooDeepError
from services.llm.values import ChatMessage, Role, Tool, ToolCall, Translation

SHORT_ID_CHARS = 9
FALLBACK_LANGUAGES = ("en", "fr")
"""What a text's language is said to be when nobody knows; the second, for a text into the first."""
UNKNOWN_LANGUAGES = frozenset({"", "auto", "mixed"})
DETECT = (
    "The text may be in several languages, other than the one named. Detect the language of each "
    "segment and translate all of them."
)

_WANTS_NONE = re.compile(r"content['\"]?\]?\s+is\s+(not\s+)?none", re.IGNORECASE)
_SHORT_IDS = re.compile(rf"id\s*\|\s*length\s*(!=|<)\s*{SHORT_ID_CHARS}")


class Turns:
    """Makes the mappings for one template."""

    def __init__(self, source: str, marks: Marks) -> None:
        self._marks = marks
        self._wants_none = bool(_WANTS_NONE.search(source))
        self._short_ids = bool(_SHORT_IDS.search(source))
        self._folds_results = "tool_responses" in source
        self.knows_translation = "source_lang_code" in source

    def messages(self, messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
        """In order. Raises Fault INVALID_REQUEST."""
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        shown: list[dict[str, Any]] = []
        for i, message in enumerate(messages):
            name = message.name or names.get(message.tool_call_id, "")
            if message.role is Role.TOOL and self._folds_results and shown:
                self._fold(shown[-1], name, message.text)
            else:
                shown.append(self._message(message, name, f"messages[{i}]"))
        return shown

    def tools(self, tools: Sequence[Tool]) -> list[dict[str, Any]]:
        """In order. Raises Fault INVALID_REQUEST."""
        return [
            {
                "type": "function",
                "function": {
                    "name": self._marks.text(tool.name),
                    "description": self._marks.text(tool.description),
                    "parameters": self._value(
                        tool.parameters or {"type": "object", "properties": {}},
                        f"tools[{i}].function.parameters",
                    ),
                },
            }
            for i, tool in enumerate(tools)
        ]

    def _message(self, message: ChatMessage, name: str, at: str) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "role": message.role.value,
            "content": self._marks.text(message.text),
        }
        if message.translation is not None:
            fields["content"] = [self._translation(message.translation, f"{at}.content")]
        if name:
            fields["name"] = self._marks.text(name)
        if message.reasoning and message.role is Role.ASSISTANT:
            fields["reasoning_content"] = self._marks.text(message.reasoning)
        if message.tool_calls:
            fields["tool_calls"] = [self._call(call, at) for call in message.tool_calls]
            if not message.text and self._wants_none:
                fields["content"] = None
        if message.role is Role.TOOL:
            fields["tool_call_id"] = self._id(message.tool_call_id)
        return fields

    def _call(self, call: ToolCall, at: str) -> dict[str, Any]:
        try:
            arguments = json.loads(call.arguments_json or "{}")
        except (ValueError, RecursionError):
            arguments = call.arguments_json  # what a model once wrote, cut off: as it stands
        shown = {
            "name": self._marks.text(call.name),
            "arguments": self._value(arguments, f"{at}.tool_calls"),
        }
        return {"id": self._id(call.id), "type": "function", "function": shown}

    def _id(self, call_id: str) -> str:
        """Some templates refuse ids of any other length than theirs; the same id stays the same."""
        if self._short_ids:
            return hashlib.sha256(call_id.encode()).hexdigest()[:SHORT_ID_CHARS]
        return self._marks.text(call_id)

    def _fold(self, before: dict[str, Any], name: str, text: str) -> None:
        """Templates that want results in the turn that made the calls."""
        result = {"name": self._marks.text(name), "response": self._marks.text(text)}
        before.setdefault("tool_responses", []).append(result)

    def _translation(self, asked: Translation, at: str) -> dict[str, Any]:
        if not self.knows_translation:
            raise Fault(
                Reason.INVALID_REQUEST,
                "This model's chat template has no form for texts to translate; ask for the "
                "translation in a plain message, or use a translation model.",
                metadata={"param": at},
            )
        source, target, text = asked.source_lang_code, asked.target_lang_code, asked.text
        if not target:
            raise Fault(
                Reason.INVALID_REQUEST,
                "A text to translate needs the language of the translation; set target_lang_code.",
                metadata={"param": "target_lang_code"},
            )
        if source.strip().lower() in UNKNOWN_LANGUAGES:
            source, text = fallback_language(target), f"{DETECT}\n\n{text}"
        return {
            "type": "text",
            "source_lang_code": self._marks.text(source),
            "target_lang_code": self._marks.text(target),
            "text": self._marks.text(text),
        }

    def _value(self, value: Any, at: str) -> Any:
        try:
            return self._marks.value(value)
        except TooDeepError:
            raise Fault(
                Reason.INVALID_REQUEST,
                f"`{at}` is nested too deeply; make it flatter.",
                metadata={"param": at},
            ) from None


def fallback_language(target: str) -> str:
    """A code that every translation model knows, and that is not the answer's."""
    first, second = FALLBACK_LANGUAGES
    return second if target.lower().startswith(first) else first
