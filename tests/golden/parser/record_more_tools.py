"""Records what vLLM 0.33's readers of tool calls make of calls as models write them: `python record_more_tools.py DIR OUT`.

DIR is the unpacked source distribution of vLLM 0.33.0, for the formats that `record_tools.py` does not have. Only the readers
are vLLM's own (`vllm_alone.py`), so that neither torch nor a model is needed. Needs `ijson`,
`jmespath`, `openai`, `partial-json-parser`, `pydantic`, `regex` and `transformers`.
"""
import importlib, json, random, sys, types

from vllm_alone import ChatTool, Tokenizer, readers

OUT = sys.argv[2]

TYPES = ["integer", "number", "boolean", "object", "array", "string"]
F = {"type": "object", "properties": {name: {"type": name} for name in TYPES} | {"nullable": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
TOOLS = [ChatTool("f", F), ChatTool("g", {})]


READERS = readers("tool_parsers")


def read(name, text):
    file, cls = READERS[name]
    reader = getattr(importlib.import_module("vllm.tool_parsers." + file), cls)(Tokenizer(), TOOLS)
    reader.skip_reasoning_parsing = True
    request = types.SimpleNamespace(tools=TOOLS, tool_choice="auto", skip_special_tokens=False, chat_template_kwargs={}, _grammar_from_tool_parser=False)
    found = reader.extract_tool_calls(text, request)
    calls = [[call.function.name, call.function.arguments] for call in found.tool_calls] if found.tools_called else []
    return found.content or "", calls


random.seed(20261125)
VALUES = {"integer": [7, -3], "number": [2.5, 1e21], "boolean": [True, False], "object": [{"b": [1, None]}, {}], "array": [[1, "a"], []],
          "string": ["é😀", 'a "q" b', "7", "line\nbreak", "[x] {y} </z>"], "nullable": [None, 5]}


def call():
    keys = random.sample(sorted(VALUES), random.randrange(4))
    return ("f", {key: random.choice(VALUES[key]) for key in keys}) if random.random() < 0.7 else ("g", {})


def spelled(value):
    return json.dumps(value, ensure_ascii=random.random() < 0.3)


def raw(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def listed(calls, name="name", arguments="arguments"):
    return "[" + ", ".join(spelled({name: function, arguments: values}) for function, values in calls) + "]"


def each(begin, end):
    """An object for each call, between marks."""
    return lambda calls: "\n".join(begin + spelled({"name": name, "arguments": values}) + end for name, values in calls)


def dsml(outer):
    def parameter(key, value):
        text = "true" if isinstance(value, str) else "false"
        return f'<｜DSML｜parameter name="{key}" string="{text}">{raw(value)}</｜DSML｜parameter>\n'
    def invoke(name, values):
        return f'<｜DSML｜invoke name="{name}">\n' + "".join(parameter(*pair) for pair in values.items()) + "</｜DSML｜invoke>\n"
    return lambda calls: f"<｜DSML｜{outer}>\n" + "".join(invoke(*made) for made in calls) + f"</｜DSML｜{outer}>"


def xml(mark, space):
    def one(name, values):
        parameters = "".join(f"<parameter={key}>{space}{raw(value)}{space}</parameter>\n" for key, value in values.items())
        return f"<{mark}>\n<function={name}>\n{parameters}</function>\n</{mark}>"
    return lambda calls: "\n".join(one(*made) for made in calls)


def ling3(calls):
    pair = lambda key, value: f"\n<arg_key>{key}</arg_key>\n<arg_value>{raw(value)}</arg_value>"
    return "\n".join(f"<tool_call>{name}" + "".join(pair(*item) for item in values.items()) + "\n</tool_call>" for name, values in calls)


def python(name, values):
    return f"{name}(" + ", ".join(f"{key}={value!r}" for key, value in values.items()) + ")"


def pairs(call, separator, key, line):
    """A key and a value for each argument, `call` around all of them."""
    def pair(name, value):
        return f"<{key}_key>{name}</{key}_key>{line}<{key}_value>{raw(value)}</{key}_value>{line}"
    def one(name, values):
        return f"<{call}>{name}{separator}{line}" + "".join(pair(*item) for item in values.items()) + f"</{call}>"
    return lambda calls: line.join(one(*made) for made in calls)


def invokes(begin, end, prefix, word, line):
    """Tags with the names as attributes."""
    def one(name, values):
        parameters = "".join(f'<{prefix}{word} name="{key}">{raw(value)}</{prefix}{word}>{line}' for key, value in values.items())
        return f'{begin[1]}<{prefix}{begin[2]} name="{name}">{line}{parameters}</{prefix}{begin[2]}>{end[0]}'
    return lambda calls: begin[0] + line.join(one(*made) for made in calls) + end[1]


def plamo3(calls):
    begin, end = (lambda what: f"<|plamo:begin_tool_{what}:plamo|>"), (lambda what: f"<|plamo:end_tool_{what}:plamo|>")
    def one(name, values):
        arguments = begin("arguments") + "<|plamo:constrain|>json<|plamo:msg|>" + spelled(values) + end("arguments")
        return begin("request") + begin("name") + name + end("name") + arguments + end("request")
    return begin("requests") + "".join(one(*made) for made in calls) + end("requests")


def section(begin, write, end):
    return lambda calls: begin + write(calls) + end


def first(write):
    """Formats of one call."""
    return lambda calls: write(calls[:1])


WRITERS = {
    "apertus": lambda calls: "<|tools_prefix|>[" + ", ".join(spelled({name: values}) for name, values in calls) + "]<|tools_suffix|>",
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "ernie45": each("<tool_call>\n", "\n</tool_call>\n"),
    "granite": lambda calls: "<|tool_call|>" + listed(calls),
    "granite4": each("<tool_call>\n", "\n</tool_call>"),
    "hunyuan_a13b": lambda calls: "<tool_calls>" + listed(calls) + "</tool_calls>",
    "internlm": lambda calls: "<|action_start|><|plugin|>" + spelled({"name": calls[0][0], "parameters": calls[0][1]}) + "<|action_end|>",
    "jamba": lambda calls: "<tool_calls>" + listed(calls) + "</tool_calls>",
    "lfm2": lambda calls: "<|tool_call_start|>[" + ", ".join(python(*made) for made in calls) + "]<|tool_call_end|>",
    "ling3": ling3,
    "longcat": each("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    "mimo": xml("tool_call", "\n"),
    "olmo3": lambda calls: "<function_calls>\n" + "\n".join(python(*made) for made in calls) + "\n</function_calls>",
    "phi4_mini_json": lambda calls: "functools" + listed(calls),
    "seed_oss": xml("seed:tool_call", ""),
    "step3p5": xml("tool_call", "\n"),
    # What came later stands at the end, so that the texts before stay what they were.
    "step3": invokes(["<｜tool_calls_begin｜>", "<｜tool_call_begin｜>function<｜tool_sep｜>", "invoke"],
                     ["<｜tool_call_end｜>", "<｜tool_calls_end｜>"], "steptml:", "parameter", ""),
    "hy_v3": section("<tool_calls>\n", pairs("tool_call", "<tool_sep>", "arg", "\n"), "\n</tool_calls>"),
    "hy_v4": section("<tool_calls>", pairs("tool_call", "", "arg", ""), "</tool_calls>"),
    "minicpm5": invokes(["", "", "function"], ["", ""], "", "param", ""),
    "poolside_v1": pairs("tool_call", "", "arg", "\n"),
    "gigachat3": first(lambda calls: random.choice(["<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n"])
                       + spelled({"name": calls[0][0], "arguments": calls[0][1]})),
    "granite-20b-fc": each("<function_call> ", ""),
    "dots": invokes(["<dots_function_call>\n", "", "invoke"], ["", "\n</dots_function_call>"], "", "parameter", "\n"),
    "k2_horizon": section("<ifm|tool_calls>", pairs("ifm|tool_call", "", "ifm|arg", ""), "</ifm|tool_calls>"),
    "plamo3": plamo3,
}

with open(OUT, "w") as out:
    for name, write in WRITERS.items():
        texts = {random.choice(["", "I look. ", "Let me see.\n"]) + write([call() for _ in range(random.choice([1, 1, 2, 3]))]) for _ in range(12)}
        for text in sorted(texts):
            content, calls = read(name, text)
            out.write(json.dumps({"tool_parser": name, "text": text, "content": content, "calls": calls}, ensure_ascii=False) + "\n")
