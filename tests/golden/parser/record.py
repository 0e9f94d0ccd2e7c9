"""Records what the parsers of vLLM 0.32 make of texts: `python record.py DIR OUT`, where DIR holds the package `vllm`.

Only the parsers are vLLM's own; whatever else they import is made up here, so that neither torch nor a model is needed.
Needs `pydantic` and `regex`.
"""
import importlib.abc, importlib.machinery, json, random, sys, types
from types import SimpleNamespace
from typing import Any
from pydantic import BaseModel, Field

ROOT = sys.argv[1]
OUT = sys.argv[2]
REAL = ("vllm.parser", "vllm.reasoning", "vllm.tool_parsers.abstract_tool_parser", "vllm.tool_parsers.hermes_tool_parser",
        "vllm.tool_parsers.llama_tool_parser", "vllm.tool_parsers.mistral_tool_parser", "vllm.tool_parsers.utils",
        "vllm.tool_parsers.tool_strict_level")


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return thing(name)
    def __or__(cls, other): return Any
    def __ror__(cls, other): return Any
    def __getitem__(cls, item): return cls


def thing(name):
    return Anything(name, (), {"__init__": lambda self, *a, **k: None, "__call__": lambda self, *a, **k: (lambda f: f),
                               "__class_getitem__": classmethod(lambda cls, item: cls),
                               "value": name, "info": lambda *a, **k: None})


class Stub(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = thing(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path, target=None):
        top = fullname.split(".")[0]
        if top == "vllm":
            if any(fullname == real or fullname.startswith(real + ".") for real in REAL):
                return None
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if top in ("openai", "xgrammar", "transformers", "mistral_common", "ijson", "partial_json_parser", "openai_harmony",
                   "prometheus_client"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
    def create_module(self, spec):
        module = Stub(spec.name)
        if spec.name == "vllm":
            module.__path__ = [ROOT + "/vllm"]
        if spec.name == "vllm.tool_parsers":
            module.__path__ = [ROOT + "/vllm/tool_parsers"]
        return module
    def exec_module(self, module): pass


sys.meta_path.insert(0, Finder())
import logging
sys.modules["vllm.logger"] = types.ModuleType("vllm.logger")
class Quiet:
    def __getattr__(self, name): return lambda *a, **k: None
sys.modules["vllm.logger"].init_logger = lambda name: Quiet()
protocol = types.ModuleType("vllm.entrypoints.generate.base.protocol")
class FunctionCall(BaseModel):
    id: str | None = None
    name: str
    arguments: str
class ToolCall(BaseModel):
    id: str = ""
    type: str = "function"
    function: FunctionCall
class DeltaFunctionCall(BaseModel):
    name: str | None = None
    arguments: str | None = None
class DeltaToolCall(BaseModel):
    id: str | None = None
    type: str | None = None
    index: int
    function: DeltaFunctionCall | None = None
class DeltaMessage(BaseModel):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[DeltaToolCall] = Field(default_factory=list)
class ExtractedToolCallInformation(BaseModel):
    tools_called: bool
    tool_calls: list[ToolCall]
    content: str | None = None
class FunctionDefinition(BaseModel):
    name: str
    parameters: dict | None = None
for cls in (FunctionCall, ToolCall, DeltaFunctionCall, DeltaToolCall, DeltaMessage, ExtractedToolCallInformation, FunctionDefinition):
    setattr(protocol, cls.__name__, cls)
sys.modules["vllm.entrypoints.generate.base.protocol"] = protocol
envs = types.ModuleType("vllm.envs")
envs.VLLM_ENFORCE_STRICT_TOOL_CALLING = True
envs.VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS = 5
import vllm
sys.modules["vllm.envs"] = envs
vllm.envs = envs
chat_utils = Stub("vllm.renderers.chat_utils")
chat_utils.make_tool_call_id = lambda **k: "id"
chat_utils.get_tool_call_id_type = lambda *a: "random"
sys.modules["vllm.renderers.chat_utils"] = chat_utils
mistral = types.ModuleType("vllm.utils.mistral")
mistral.is_mistral_tokenizer = lambda t: False
sys.modules["vllm.utils.mistral"] = mistral
tokens = types.ModuleType("mistral_common.tokens.tokenizers.base")
tokens.SpecialTokens = SimpleNamespace(tool_calls=SimpleNamespace(value="[TOOL_CALLS]"), args=SimpleNamespace(value="[ARGS]"),
                                       begin_think=SimpleNamespace(value="[THINK]"), end_think=SimpleNamespace(value="[/THINK]"))
sys.modules["mistral_common.tokens.tokenizers.base"] = tokens

from vllm.parser.abstract_parser import DelegatingParser
import vllm.parser.abstract_parser as ap
ap.record_tool_parser_invocation = lambda **k: None
from vllm.reasoning.deepseek_r1_reasoning_parser import DeepSeekR1ReasoningParser
from vllm.reasoning.deepseek_v3_reasoning_parser import DeepSeekV3ReasoningParser
from vllm.reasoning.minimax_m2_reasoning_parser import MiniMaxM2ReasoningParser, MiniMaxM2AppendThinkReasoningParser
from vllm.parser.engine import registered_adapters as ra
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
from vllm.tool_parsers.llama_tool_parser import Llama3JsonToolParser
from vllm.tool_parsers.mistral_tool_parser import MistralToolParser

REASONING = {
    None: None, "deepseek_r1": DeepSeekR1ReasoningParser, "deepseek_v3": DeepSeekV3ReasoningParser,
    "qwen3": ra.Qwen3ParserReasoningAdapter, "glm45": ra.Glm47MoeParserReasoningAdapter,
    "kimi_k2": ra.KimiK2ParserReasoningAdapter, "minimax_m2": MiniMaxM2ReasoningParser,
    "minimax_m2_append_think": MiniMaxM2AppendThinkReasoningParser, "nemotron_v3": ra.NemotronV3ParserReasoningAdapter,
}
TOOLS = {None: None, "hermes": Hermes2ProToolParser, "llama3_json": Llama3JsonToolParser, "mistral": MistralToolParser}
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]",
         "<|tool_calls_section_begin|>", "<minimax:tool_call>"]


class Tokenizer:
    all_special_tokens: list = []
    all_special_ids: list = []
    def __init__(self, args):
        self.vocab = {m: i for i, m in enumerate(MARKS) if m != "[ARGS]" or args}
    def get_vocab(self): return self.vocab


def read(reasoning, tools, variables, text, args):
    class Both(DelegatingParser):
        reasoning_parser_cls = REASONING[reasoning]
        tool_parser_cls = TOOLS[tools]
    parser = Both(Tokenizer(args), None, chat_template_kwargs=dict(variables))
    request = SimpleNamespace(tools=[1] if tools else None, tool_choice="auto" if tools else "none", include_reasoning=True,
                              chat_template_kwargs=dict(variables))
    thought, content, calls = parser.parse(text, request, enable_auto_tools=True)
    return thought, content, [[c.name, c.arguments] for c in calls or []]


COMMON = ["so", " ", "\n", "é😀", "<", ">", "a"]
THINK = ["<think>", "</think>", "</think>", "<think", "</", "<tool_call>", "<|tool_calls_section_begin|>", "<minimax:tool_call>"]
GOOD = ['{"name": "f", "arguments": {"a":1}}', '{"name":"g","arguments":{"b":"é\\n","c":[1.0,1e5,null]}}']
PARTS = {
    "hermes": ["<tool_call>", "</tool_call>", "<tool_call>" + GOOD[0] + "</tool_call>", "\n<tool_call>\n" + GOOD[1] + "\n</tool_call>",
               *GOOD, "{", "}", "<tool_call", '{"name": 1, "arguments": 2}', '{"name": "f"}'],
    "llama3_json": ["<|python_tag|>", *GOOD, '{"name": "f", "parameters": {"x": {"y": "{"}}}', "; ", "{", "}", '{"name": "f"}',
                    '{"a": 1}', ' {"name": "h", "parameters": "q"}'],
    "mistral": ["[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", "f", '{"a": 1}', '{"b":"}"}', '[TOOL_CALLS]g{"x": [1,2]}', "[TOOL_CALLS]h[ARGS]{}",
                "[TOOL_CALLS] [" + GOOD[0] + "]", "[" + GOOD[0] + ", " + GOOD[1] + "]", GOOD[0], "[", "]", '{"name": "f"}', "1", "{"],
    None: [],
}
random.seed(20261121)


def texts(reasoning, tools, count):
    parts = COMMON + PARTS[tools] * 2 + (THINK if reasoning else [])
    seen = set()
    while len(seen) < count:
        text = "".join(random.choice(parts) for _ in range(random.randrange(0, 8)))
        if reasoning == "deepseek_r1" and random.random() < 0.5:
            text = "<think>" + text
        seen.add(text)
    return sorted(seen)


pairs = [(r, None) for r in REASONING if r] + [(None, t) for t in TOOLS if t] + \
        [("qwen3", "hermes"), ("deepseek_r1", "hermes"), ("glm45", "hermes"), ("deepseek_r1", "llama3_json")]
with open(OUT, "w") as out:
    for reasoning, tools in pairs:
        for text in texts(reasoning, tools, 120 if tools else 60):
            for variables in ([{}, {"enable_thinking": False}] if reasoning and not tools else [{}]):
                behind = text.split("[TOOL_CALLS]", 1)[1].replace("[TOOL_CALLS]", "").lstrip() if "[TOOL_CALLS]" in text else ""
                args = tools == "mistral" and not (behind.startswith("[") and not behind.startswith("[ARGS]") or behind.startswith("{"))
                thought, content, calls = read(reasoning, tools, variables, text, args)
                out.write(json.dumps({"reasoning_parser": reasoning, "tool_parser": tools, "variables": variables, "text": text,
                                      "reasoning": thought, "content": content, "calls": calls}, ensure_ascii=False) + "\n")
