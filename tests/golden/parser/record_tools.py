"""Records what vLLM 0.32's readers of tool calls make of random texts: `python record_tools.py DIR OUT`.

DIR holds the package `vllm`. Only the readers are vLLM's own; whatever else they import is made up here, so that neither
torch nor a model is needed. Needs `regex`.
"""
import ast, importlib, json, random, sys, types

from protocol_message import ProtocolMessage

DIR, OUT = sys.argv[1], sys.argv[2]


def module(name, path=None, **content):
    made = types.ModuleType(name)
    made.__path__ = [path] if path else []
    if path is None:
        made.__getattr__ = lambda word: type(word, (), {"__init__": lambda self, *a, **k: None})
    vars(made).update(content)
    sys.modules[name] = made
    return made


class ToolCall(ProtocolMessage):
    def __init__(self, **values):
        if values.get("type", "function") != "function":
            raise ValueError("the type is a literal")
        super().__init__(**values)


class Silent:
    def __getattr__(self, name):
        return lambda *a, **k: None


class ToolParser:
    def __init__(self, tokenizer, tools=None):
        self.model_tokenizer, self.tools = tokenizer, tools
    vocab = property(lambda self: self.model_tokenizer.get_vocab())


class ChatTool:
    def __init__(self, name, parameters):
        self.function = types.SimpleNamespace(name=name, parameters=parameters)


class Tokenizer:
    all_special_tokens, all_special_ids = [], []
    def get_vocab(self):
        return {"<｜tool▁calls▁begin｜>": 1, "<｜tool▁calls▁end｜>": 2}


for name in ("vllm", "vllm.entrypoints.openai.responses.protocol", "vllm.tokenizers", "vllm.exceptions", "openai.types.responses",
             "openai.types.responses.tool", "partial_json_parser", "partial_json_parser.core.options", "transformers"):
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        part = ".".join(parts[:length])
        if part not in sys.modules:
            module(part)
for name in ("vllm.entrypoints.generate", "vllm.entrypoints.generate.base", "vllm.entrypoints.openai.chat_completion",
             "vllm.renderers", "vllm.reasoning"):
    module(name)
sys.modules["vllm"].envs = module("vllm.envs", VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS=5)
module("vllm.logger", init_logger=lambda name: Silent())
module("vllm.entrypoints.generate.base.protocol", ToolCall=ToolCall, **{name: ProtocolMessage for name in (
    "FunctionCall", "DeltaMessage", "DeltaToolCall", "DeltaFunctionCall", "ExtractedToolCallInformation")})
module("vllm.entrypoints.openai.chat_completion.protocol", ChatCompletionToolsParam=ChatTool)
module("vllm.renderers.chat_utils", make_tool_call_id=lambda **k: "random", get_tool_call_id_type=lambda config: "random")
module("vllm.reasoning.abs_reasoning_parsers", ReasoningParser=object)
module("vllm.parser", DIR + "/vllm/parser")
module("vllm.parser.engine", DIR + "/vllm/parser/engine")
module("vllm.tool_parsers", DIR + "/vllm/tool_parsers")
state = lambda **k: types.SimpleNamespace(tool_call_id_type="random", history_tool_call_cnt=0)
module("vllm.parser.abstract_parser", Parser=object, StreamState=state)
module("vllm.tool_parsers.abstract_tool_parser", ToolParser=ToolParser, Tool=object)

adapters = importlib.import_module("vllm.parser.engine.adapters")
ENGINES = {"qwen3_coder": ("qwen3", "Qwen3Parser"), "glm45": ("glm47_moe", "Glm47MoeParser"), "kimi_k2": ("kimi_k2", "KimiK2Parser"),
           "minimax_m2": ("minimax_m2", "MinimaxM2Parser"), "gemma4": ("gemma4", "Gemma4Parser")}
OTHERS = {"deepseek_v3": ("deepseekv3", "DeepSeekV3"), "deepseek_v31": ("deepseekv31", "DeepSeekV31"),
          "functiongemma": ("functiongemma", "FunctionGemma"), "pythonic": ("pythonic", "Pythonic"),
          "llama4_pythonic": ("llama4_pythonic", "Llama4Pythonic")}
READERS = {name: adapters.make_adapters(getattr(importlib.import_module("vllm.parser." + file), cls))[1]
           for name, (file, cls) in ENGINES.items()}
READERS |= {name: getattr(importlib.import_module(f"vllm.tool_parsers.{file}_tool_parser"), cls + "ToolParser")
            for name, (file, cls) in OTHERS.items()}

TYPES = ["integer", "number", "boolean", "object", "array", "string"]
F = {"type": "object", "properties": {name: {"type": name} for name in TYPES} | {"nullable": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
TOOLS = [ChatTool("f", F), ChatTool("g", {})]


def read(name, text):
    reader = READERS[name](Tokenizer(), TOOLS)
    reader.skip_reasoning_parsing = True
    found = reader.extract_tool_calls(text, types.SimpleNamespace(tools=TOOLS, tool_choice="auto"))
    calls = [[call.function.name, call.function.arguments] for call in found.tool_calls] if found.tools_called else []
    content = found.content if found.tools_called or name in ENGINES else text
    if found.tools_called and not (content or "").strip():
        content = None
    return content or "", calls


random.seed(20261121)
pick = random.choice
WORDS = ["Hello", " ", "\n", "Let me see. ", "é😀", "<", ">", '"', "<think>", "</think>", "{", "}", ":", ",", "[", "]", "(", ")",
         '{"name": "f", "arguments": {"integer": "1"}}', '"name": "f"', "\u001f", "\u00a0"]
VALUES = ["7", " 7 ", "1_0", "1.0", "2.50", "true", "0", "null", "NULL", "x", "", "\n", "\nx\n", "[1, 2.0]", '{"b": ["1", 2]}', "é😀",
          "NaN", "1e999", "1e3", '"q"', "-0", "１２", "a > b", "</x>"]
KEYS = TYPES + ["nullable", "unknown", " integer", "é", ""]
NAMES = ["f", "f", "g", "h", "f ", "\nf\n", " ", "", "a.b"]
JSON = ["{}", '{"integer": "7"}', '{"integer":7,"string":5}', '{"a": [1,{"b":null}]}', "", " ", '{"integer": ', "no", '{"name": "f"}',
        '{"name": "functions.g:3"}', '{"number": 5.0, "boolean": 1}', ' {"integer":"7"}\n']
PYTHON = ["'x'", "1", "-2.5", "[1]", "None"] * 5 + [
    "+2", "-0.0", '"it\'s"', "'é\\n'", "True", "null", "[1, 'a']", "[]", "{}", "{'k': 1}", "{1: 2, True: 3}", "(1, 2)", "(1)", "(1,)",
    "{1, 2}", "x", "1+2", "f'x{{y}}'", "f'{x}'", "r'\\d'", "b'x'", "'a' 'b'", "'''t\n'''", "'[)]'", "1_000", "0x1f", "01", "1e5", ".5",
    "{'a': [1, {'b': -2}]}", "-True", "'\\x41\\101\\u00e9'", "'\\q'", "{None: 1}", "{-1: 2}", "[1,]", "# c\n 1", "1 \\\n"]


def maybe(text, often=0.94):
    """The text, or now and then nothing or something else."""
    return text if random.random() < often else pick(["", pick(WORDS)])


def some(make, most, joined=""):
    return joined.join(make() for _ in range(random.randrange(most + 1)))


def qwen3_coder():
    parameter = lambda: maybe(pick(["<parameter=", "< parameter = "])) + pick(KEYS) + maybe(">") + pick(["\n", ""]) + pick(VALUES) + \
        pick(["\n", ""]) + maybe(pick(["</parameter>", "< / parameter >"])) + pick(["\n", ""])
    return maybe("<tool_call>\n") + maybe("<function=") + pick(NAMES) + maybe(">") + some(parameter, 3) + maybe("</function>") + maybe("</tool_call>")


def glm45():
    pair = lambda: maybe("<arg_key>") + pick(KEYS) + maybe("</arg_key>\n") + maybe("<arg_value>") + pick(VALUES) + maybe("</arg_value>")
    return maybe("<tool_call>") + pick(NAMES) + some(pair, 3) + maybe("</tool_call>")


def minimax_m2():
    def named(opening, name):
        quote = pick(['"', '"', "'", ""])
        return maybe(opening) + quote + name + maybe(quote) + maybe(">")
    parameter = lambda: named(pick(["<parameter name=", "< parameter  name = "]), pick(KEYS)) + pick(VALUES) + maybe("</parameter>")
    invoke = lambda: named("<invoke name=", pick(NAMES)) + some(parameter, 3) + maybe("</invoke>")
    return maybe("<minimax:tool_call>") + some(invoke, 2) + maybe("</minimax:tool_call>")


def kimi_k2():
    call = lambda: maybe("<|tool_call_begin|>") + maybe(pick(["functions.", ""])) + pick(NAMES) + maybe(":0") + \
        maybe("<|tool_call_argument_begin|>") + pick(JSON) + maybe("<|tool_call_end|>")
    return maybe("<|tool_calls_section_begin|>") + some(call, 2) + maybe("<|tool_calls_section_end|>")


def gemma4():
    def value(depth):
        kind = random.random()
        if kind < 0.35:
            return '<|"|>' + pick(VALUES) + maybe('<|"|>')
        if kind < 0.6 or depth > 2:
            return pick(VALUES)
        if kind < 0.8:
            return "{" + some(lambda: pick(KEYS) + ":" + value(depth + 1), 2, ",") + maybe("}")
        return "[" + some(lambda: value(depth + 1), 2, ",") + maybe("]")
    pair = lambda: pick(KEYS + ['<|"|>k<|"|>']) + maybe(":") + value(0)
    return maybe("<|tool_call>") + maybe(pick(["call:", ":"])) + pick(NAMES) + maybe(pick(["{", "{", "("])) + some(pair, 3, ",") + \
        maybe(pick(["}", "}", ")"])) + maybe("<tool_call|>")


def deepseek_v3():
    call = lambda: maybe("<｜tool▁call▁begin｜>") + maybe("function", 0.98) + maybe("<｜tool▁sep｜>") + pick(NAMES) + maybe("\n```json\n") + \
        pick(JSON) + maybe("\n```") + maybe("<｜tool▁call▁end｜>") + pick(["\n", ""])
    return maybe("<｜tool▁calls▁begin｜>") + some(call, 2) + maybe("<｜tool▁calls▁end｜>")


def deepseek_v31():
    call = lambda: maybe("<｜tool▁call▁begin｜>") + pick(NAMES) + maybe("<｜tool▁sep｜>") + pick(JSON) + maybe("<｜tool▁call▁end｜>")
    return maybe("<｜tool▁calls▁begin｜>") + some(call, 2) + maybe("<｜tool▁calls▁end｜>")


def functiongemma():
    pair = lambda: pick(KEYS) + ":" + maybe("<escape>") + pick(VALUES) + maybe("<escape>")
    return maybe("<start_function_call>") + maybe("call:") + pick(NAMES) + maybe("{") + some(pair, 2, ",") + maybe("}") + maybe("<end_function_call>")


def pythonic():
    argument = lambda: pick(["a", "b", "long_name1", "d"] * 4 + ["_x", "from", "é", "a "]) + maybe("=", 0.98) + pick(PYTHON)
    call = lambda: pick(["f", "g"] * 8 + ["a.b", "_h", "f "]) + maybe("(", 0.99) + some(argument, 3, ", ") + pick([""] * 8 + [",", "\n"]) + maybe(")", 0.99)
    return maybe("[", 0.98) + call() + some(lambda: maybe(", ", 0.99) + call(), 2) + maybe("]", 0.98) + \
        pick([""] * 9 + ["\n", " ", ";", "\n\n# x", "\n x", " and more", "\nDone", "; x"])


def llama4_pythonic():
    return maybe("<|python_start|>") + pythonic() + maybe("<|python_end|>")


def text(name):
    make = globals()[name]
    made = make() if name.endswith("pythonic") else \
        some(lambda: pick(WORDS), 2) + make() + some(lambda: pick(["", "\n", " and "]) + make(), 2) + maybe("")
    return made[:random.randrange(len(made) + 1)] if random.random() < 0.1 else made


def has_arguments_without_keys(source):
    """What is read otherwise on purpose."""
    try:
        tree = ast.parse(source.replace("<|python_start|>", "").replace("<|python_end|>", ""))
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.Call) and node.args for node in ast.walk(tree))


with open(OUT, "w") as out:
    for name in READERS:
        for made in sorted({text(name) for _ in range(80)}):
            if name.endswith("pythonic") and has_arguments_without_keys(made):
                continue
            content, calls = read(name, made)
            out.write(json.dumps({"tool_parser": name, "text": made, "content": content, "calls": calls}, ensure_ascii=False) + "\n")
