"""Records what vLLM 0.33's readers of tool calls make of calls as models write them: `python record_more_tools.py DIR OUT`.

DIR is the unpacked source distribution of vLLM 0.33.0, for the formats that `record_tools.py` does not have. Only the readers
are vLLM's own; whatever else they import is made up here, so that neither torch nor a model is needed. Needs `ijson`,
`jmespath`, `partial-json-parser`, `pydantic`, `regex` and `transformers`.
"""
import ast, importlib, importlib.util, json, random, sys, types

DIR, OUT = sys.argv[1], sys.argv[2]
REAL = ("vllm.parser", "vllm.tool_parsers", "vllm.reasoning")
MADE_UP = ("mistral_common", "openai_harmony", "prometheus_client", "torch", "vllm", "xgrammar")


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Made


class Made(metaclass=Anything):
    """Stands for whatever is imported."""
    def __init__(self, *args, **kwargs): pass
    def __class_getitem__(cls, key): return cls
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def made(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (Made,), {})


class Finder:
    def find_spec(self, name, path=None, target=None):
        real = any(name == root or name.startswith(root + ".") for root in REAL)
        return None if real or name.split(".")[0] not in MADE_UP else importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = [DIR + "/vllm"] if spec.name == "vllm" else []
        return module

    def exec_module(self, module):
        module.__getattr__ = made


class Record:
    fields = ("id", "type", "index", "function", "name", "arguments", "content", "reasoning", "tools_called", "tool_calls")
    def __init__(self, **values):
        for field in self.fields:
            setattr(self, field, values.get(field))
        self.tool_calls = self.tool_calls or []


class ChatTool:
    def __init__(self, name, parameters):
        self.type, self.function = "function", types.SimpleNamespace(name=name, parameters=parameters)


class Vocabulary(dict):
    """Has every token."""
    def __contains__(self, token): return True
    def __getitem__(self, token): return self.get(token)
    def get(self, token, default=None): return sum(token.encode())


class Tokenizer(Made):
    all_special_tokens, all_special_ids = [], []
    eos_token, bos_token, pad_token, name_or_path = "<eos>", "<bos>", None, ""
    def get_vocab(self): return Vocabulary()
    def encode(self, text, **kwargs): return [1]
    def decode(self, ids, **kwargs): return ""


sys.meta_path.insert(0, Finder())


def put(module, **values):
    vars(importlib.import_module(module)).update(values)


put("vllm.entrypoints.generate.base.protocol", **{name: type(name, (Record,), {}) for name in (
    "FunctionCall", "DeltaMessage", "DeltaToolCall", "ToolCall", "DeltaFunctionCall", "ExtractedToolCallInformation")})
put("vllm.entrypoints.openai.chat_completion.protocol", ChatCompletionToolsParam=ChatTool)
put("vllm.logger", init_logger=lambda name: Made())
put("vllm.renderers.chat_utils", make_tool_call_id=lambda **k: "random", get_tool_call_id_type=lambda config: "random")
put("vllm.envs", VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS=5)
put("vllm.tokenizers.mistral", MistralTokenizer=type("MistralTokenizer", (), {}))
put("vllm.utils.mistral", is_mistral_tokenizer=lambda tokenizer: False)

TYPES = ["integer", "number", "boolean", "object", "array", "string"]
F = {"type": "object", "properties": {name: {"type": name} for name in TYPES} | {"nullable": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
TOOLS = [ChatTool("f", F), ChatTool("g", {})]


def readers():
    """The file and the class of each reader, by its name."""
    found = {}
    for node in ast.walk(ast.parse(open(DIR + "/vllm/tool_parsers/__init__.py").read())):
        for key, value in zip(node.keys, node.values) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                found[key.value] = [part.value for part in value.elts]
    return found


READERS = readers()


def read(name, text):
    file, cls = READERS[name]
    reader = getattr(importlib.import_module("vllm.tool_parsers." + file), cls)(Tokenizer(), TOOLS)
    reader.skip_reasoning_parsing = True
    request = types.SimpleNamespace(tools=TOOLS, tool_choice="auto", skip_special_tokens=False, _grammar_from_tool_parser=False)
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
}

with open(OUT, "w") as out:
    for name, write in WRITERS.items():
        texts = {random.choice(["", "I look. ", "Let me see.\n"]) + write([call() for _ in range(random.choice([1, 1, 2, 3]))]) for _ in range(12)}
        for text in sorted(texts):
            content, calls = read(name, text)
            out.write(json.dumps({"tool_parser": name, "text": text, "content": content, "calls": calls}, ensure_ascii=False) + "\n")
