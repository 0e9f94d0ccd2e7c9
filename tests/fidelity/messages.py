"""What vLLM 0.32 hands to a chat template for a request: its steps, without its code.

Left out: media, custom limits, Anthropic's and gpt-oss's own roads.
"""

import copy
import functools
import json

from jinja2 import nodes

from chat_template import Failed, environment

TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
# Keys of some part in vLLM's types; others are handed on with a text.
PART_KEYS = set(
    "type text image_url input_audio file audio_url video_url refusal image_pil uuid image_embeds audio_embeds "
    "video_embeds data name thinking closed prompt_cache_breakpoint".split()
)
BILLING_HEADER = "x-anthropic-billing-header"


def template_input(request, source, content_format, arguments_as_text=False):
    """Messages and variables for the template `source`; raises `Failed` where vLLM answers 400 before it renders."""
    messages = [rebuilt(message, content_format, arguments_as_text) for message in request["messages"]]
    knows_developer = '"developer"' in source or "'developer'" in source
    if not knows_developer and any(message["role"] == "developer" for message in messages):
        messages = with_developer_as_system(messages)
    return messages, variables(request)


def variables(request):
    given = dict(request.get("chat_template_kwargs") or {})
    effort = request.get("reasoning_effort")
    if effort is not None:
        given.setdefault("enable_thinking", effort != "none")
        given["reasoning_effort"] = effort
    if request.get("documents") is not None:
        given["documents"] = request["documents"]
    given.setdefault("documents", None)
    tools = request.get("tools")
    given["tools"] = None if tools is None else [tool_definition(tool) for tool in tools]
    given["add_generation_prompt"] = request.get("add_generation_prompt", True)
    return given


def tool_definition(tool):
    function = tool["function"]
    outer = tool.get("defer_loading")
    inner = function.get("defer_loading")
    shown = {key: function.get(key) for key in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        shown["strict"] = function["strict"]
    if inner is not None or outer is not None:
        shown["defer_loading"] = outer if inner is None else inner
    definition = {"type": "function", "function": shown}
    if outer is not None:
        definition["defer_loading"] = outer
    return definition


def rebuilt(message, content_format, arguments_as_text):
    role = message["role"]
    content = message.get("content")
    if content is None:
        parts = []
    elif isinstance(content, str):
        parts = [{"type": "text", "text": content}]
    else:
        parts = content
    if role == "system":
        parts = without_billing_header(parts)
    shown = {"role": role, "content": shown_content(parts, content_format)}
    if role == "assistant":
        if message.get("tool_calls"):
            shown["tool_calls"] = [tool_call(call, arguments_as_text) for call in message["tool_calls"]]
        reasoning = message.get("reasoning")
        if reasoning is None:
            reasoning = message.get("reasoning_content")
        if reasoning is not None:
            shown["reasoning"] = shown["reasoning_content"] = reasoning
    if role == "tool":
        if "tool_call_id" in message:
            shown["tool_call_id"] = message["tool_call_id"]
        if isinstance(shown["content"], list):
            shown["content"] = "\n".join(part["text"] for part in shown["content"])
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            shown[key] = message[key]
    if role == "developer":
        shown["tools"] = copy.deepcopy(message.get("tools"))
    return shown


def without_billing_header(parts):
    kept = []
    for part in parts:
        text = part if isinstance(part, str) else part.get("text") if part["type"] == "text" else None
        if isinstance(text, str) and text.startswith(BILLING_HEADER):
            text = text.partition("\n")[2]
            if not text:
                continue
            part = text if isinstance(part, str) else {**part, "text": text}
        kept.append(part)
    return kept


def shown_content(parts, content_format):
    texts = []
    for part in parts:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        kind = part["type"]
        if kind not in TEXT_KEYS or part.get("uuid") is not None:
            raise Failed(f"unsupported part {kind}")
        text = part.get(TEXT_KEYS[kind])
        if text is None and kind in ("text", "refusal"):
            continue
        extras = {key: value for key, value in part.items() if key not in PART_KEYS}
        texts.append({"type": "text", "text": text, **copy.deepcopy(extras)})
    if content_format == "openai":
        return texts
    # What is empty is left out, newline and all.
    return "\n".join(part["text"] for part in texts if part["text"])


def tool_call(call, arguments_as_text):
    function = dict(call["function"])
    text = function.pop("arguments", None)
    if arguments_as_text:
        arguments = text or "{}"
    else:
        arguments = parsed_arguments(text)
    extras = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    function = {"arguments": arguments, "name": function.pop("name"), **function}
    return {"id": call["id"], "function": function, "type": call["type"], **extras}


def parsed_arguments(text):
    try:
        arguments = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return {}
    except (ValueError, RecursionError) as error:
        raise Failed(str(error)) from error
    return arguments if isinstance(arguments, dict) else {}


def with_developer_as_system(messages):
    messages = [dict(message) for message in messages]
    for message in messages:
        if message["role"] == "developer":
            message["role"] = "system"
            message.pop("tools", None)
    systems = [message for message in messages if message["role"] == "system"]
    if len(systems) == 1 and messages[0] is systems[0]:
        return messages
    texts = [flat(message["content"]) for message in systems]
    merged = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged] + [message for message in messages if message["role"] != "system"]


def flat(content):
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


class NotAName(Exception):
    """A loop or an assignment unpacks what it should name: the search ends."""


@functools.cache
def content_format(source):
    """"openai" where a loop of the template runs over a message's content, else "string"."""
    tree = environment.parse(source)
    try:
        return "openai" if any(runs_over_content(tree)) else "string"
    except NotAName:
        return "string"


def runs_over_content(tree):
    lists = names_of_messages(tree)
    loops = list(tree.find_all(nodes.For))
    items = [named(loop.target) for loop in loops if any(shows(loop.iter, name) for name in lists)]

    def is_content(node):
        return any(shows(node, name, "content") for name in items)

    bound, in_macros = {}, set()
    for macro in tree.find_all(nodes.Macro):
        names = [argument.name for argument in macro.args]
        parameters = set()
        for call in tree.find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
                parameters |= {name for name, value in zip(names, call.args) if is_content(value)}
                parameters |= {pair.key for pair in call.kwargs if pair.key in names and is_content(pair.value)}
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            if parameters:
                bound[id(loop)] = parameters
    for loop in loops:
        name = loop.iter.name if isinstance(loop.iter, nodes.Name) else None
        by_name = name in bound.get(id(loop), ()) or (id(loop) not in in_macros and name == "content")
        if is_content(loop.iter) or by_name:
            named(loop.target)
            yield True


def names_of_messages(tree):
    names = ["messages"]
    for name in names:
        for assignment in tree.find_all(nodes.Assign):
            if shows(assignment.node, name):
                target = named(assignment.target)
                if target not in names:
                    names.append(target)
    return names


def named(target):
    if not isinstance(target, nodes.Name):
        raise NotAName
    return target.name


def shows(node, variable, key=None):
    """Whether the expression is the variable, or its item `key`, sliced, filtered and tested at most."""
    sliced = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    if isinstance(node, (nodes.Filter, nodes.Test)) or sliced:
        return node.node is not None and shows(node.node, variable, key)
    if key is not None:
        by_item = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == key
        by_attribute = isinstance(node, nodes.Getattr) and node.attr == key
        if not by_item and not by_attribute:
            return False
        node = node.node
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == variable
