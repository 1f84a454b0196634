"""Short chat templates in the manner of the families: the same words, habits and traps."""

from typing import Any

from services.llm.template import ChatTemplate
from services.llm.values import ChatMessage, Conversation, Role, Tool, ToolCall

HERMES = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\n<tool_call>\\n{"name": <function-name>, "arguments": <object>}' }}
    {{- '\\n</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' }}
            {{- tool_call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- THINKING %}
{%- endif %}"""
QWEN3 = HERMES.replace(
    "{%- THINKING %}",
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}",
)
HERMES = HERMES.replace("{%- THINKING %}", "")

LLAMA = """{{- bos_token }}
{%- if tools is not none and messages[0].role != 'system' %}
    {{- '<|start_header_id|>system<|end_header_id|>\\n\\nEnvironment: ipython<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- message.content | tojson }}{{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {%- if loop.first and tools is not none %}
            {%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
        {%- endif %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

MISTRAL = """{{- bos_token }}
{%- set user_messages = messages | selectattr('role', 'equalto', 'user') | list %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and message == user_messages[-1] %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {%- for key, val in tool.function.items() %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                {%- endfor %}
            {%- endfor %}
            {{- '][/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined %}
        {{- '[TOOL_CALLS] [' }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should have length 9!') }}
            {%- endif %}
            {{- (tool_call.function | tojson)[:-1] + ', "id": "' + tool_call.id + '"}' }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string }}
        {{- ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- elif message.role == 'assistant' %}
        {{- message.content + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}"""
MISTRAL_NAMED = MISTRAL.replace(
    "{{- '[TOOL_CALLS] [' }}", "{#- name[ARGS]{} -#}{{- '[TOOL_CALLS]' }}"
)

GEMMA3 = """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- raise_exception('System role not supported') }}
    {%- endif %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate') }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
    {{- message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""

GEMMA4 = """{{- bos_token }}
{%- if enable_thinking | default(false) or tools %}
    {{- '<|turn>system\\n' + ('<|think|>' if enable_thinking | default(false) else '') }}
    {%- for tool in tools or [] %}
        {{- '<|tool>declaration:' + tool.function.name + '{description:<|"|>' }}
        {{- tool.function.description + '<|"|>}<tool|>' }}
    {%- endfor %}
    {{- '<turn|>\\n' }}
{%- endif %}
{%- set ns = namespace(open=false) %}
{%- for message in messages %}
    {{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
    {%- for tool_call in message.tool_calls %}
        {{- '<|tool_call>call:' + tool_call.function.name + '{' }}
        {%- for key, value in tool_call.function.arguments | dictsort %}
            {{- key + ':' + value | tojson + (',' if not loop.last else '') }}
        {%- endfor %}
        {{- '}<tool_call|>' }}
    {%- endfor %}
    {%- for result in message.tool_responses %}
        {{- '<|tool_response>response:' + result.name + '{value:<|"|>' + result.response }}
        {{- '<|"|>}<tool_response|>' }}
    {%- endfor %}
    {{- message.content }}
    {%- set ns.open = message.tool_responses is defined and not message.content %}
    {{- '' if ns.open else '<turn|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '' if ns.open else '<|turn>model\\n' }}
    {{- '' if enable_thinking | default(false) else '<|channel>thought\\n<channel|>' }}
{%- endif %}"""

R1 = """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '<!User!>' + message.content }}{%- endif %}
    {%- if message.role == 'assistant' and message.content is not none %}
        {{- '<!Assistant!>' + message.content.split('</think>')[-1] + eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<!Assistant!><think>\\n' }}{%- endif %}"""

CHATML = (
    "{% for message in messages %}{% if loop.first and message.role != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TRANSLATE = """{{- bos_token }}
{%- set languages = {'en': 'English', 'nl': 'Dutch', 'fr': 'French'} %}
{%- for message in messages %}
    {%- if message.content is string or message.content | length != 1 %}
        {{- raise_exception('User content must be a list with exactly one mapping') }}
    {%- endif %}
    {%- set part = message.content[0] %}
    {%- if part.source_lang_code not in languages %}
        {{- raise_exception('Unknown language ' + part.source_lang_code) }}
    {%- endif %}
    {{- '<start_of_turn>user\\nTranslate ' + languages[part.source_lang_code] + ' into ' }}
    {{- languages[part.target_lang_code] + ':\\n\\n\\n' + part.text + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""

WITH_TOOLS = {
    "hermes": HERMES,
    "qwen3": QWEN3,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mistral-named": MISTRAL_NAMED,
    "gemma4": GEMMA4,
}
WITHOUT_TOOLS = {"chatml": CHATML, "gemma3": GEMMA3, "r1": R1}
ALL = WITH_TOOLS | WITHOUT_TOOLS

WEATHER = Tool(
    "get_weather",
    "The weather of a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
NOW = Tool("now")


def user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text)


def asked(text: str = "hi", **options: Any) -> Conversation:
    return Conversation((user(text),), **{"tools": (WEATHER, NOW), **options})


def answered(arguments: str = '{"city": "Paris"}', result: str = "sunny") -> Conversation:
    """A call, its result, and the turn that follows."""
    call = ToolCall("call_1", "get_weather", arguments)
    turns = (
        user("Paris?"),
        ChatMessage(Role.ASSISTANT, "", tool_calls=(call,)),
        ChatMessage(Role.TOOL, result, tool_call_id="call_1"),
    )
    return Conversation(turns, tools=(WEATHER,))


def shown(source: str, conversation: Conversation, controls: tuple[str, ...] = ()) -> str:
    template = ChatTemplate(source, bos="<bos>", eos="</s>", controls=controls)
    return "".join(segment.text for segment in template.render(conversation))
