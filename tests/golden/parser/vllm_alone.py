"""What the recording scripts need to import vLLM's readers alone: whatever else these import is made up here.

The first argument of the script is the unpacked source distribution.
"""
import ast, importlib, importlib.util, sys, types

from protocol_message import ProtocolMessage

DIR = sys.argv[1]
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


class ChatTool:
    def __init__(self, name, parameters):
        self.type, self.function = "function", types.SimpleNamespace(name=name, parameters=parameters)


class Vocabulary(dict):
    """Has every token."""
    def __contains__(self, token): return True
    def __getitem__(self, token): return self.get(token)
    def get(self, token, default=None): return sum(token.encode())


class Tokenizer(Made):
    all_special_tokens, all_special_ids, init_kwargs = [], [], {}
    eos_token, bos_token, pad_token, name_or_path = "<eos>", "<bos>", None, ""
    def get_vocab(self): return Vocabulary()
    def encode(self, text, **kwargs): return [1]
    def decode(self, ids, **kwargs): return ""


sys.meta_path.insert(0, Finder())


def put(module, **values):
    vars(importlib.import_module(module)).update(values)


put("vllm.entrypoints.generate.base.protocol", **{name: type(name, (ProtocolMessage,), {}) for name in (
    "FunctionCall", "DeltaMessage", "DeltaToolCall", "ToolCall", "DeltaFunctionCall", "ExtractedToolCallInformation")})
put("vllm.entrypoints.openai.chat_completion.protocol", ChatCompletionToolsParam=ChatTool)
put("vllm.logger", init_logger=lambda name: Made())
put("vllm.renderers.chat_utils", make_tool_call_id=lambda **k: "random", get_tool_call_id_type=lambda config: "random")
put("vllm.envs", VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS=5)
put("vllm.tokenizers.mistral", MistralTokenizer=type("MistralTokenizer", (), {}))
put("vllm.utils.mistral", is_mistral_tokenizer=lambda tokenizer: False)


def readers(package):
    """The file and the class of each reader, by its name."""
    found = {}
    for node in ast.walk(ast.parse(open(DIR + f"/vllm/{package}/__init__.py").read())):
        for key, value in zip(node.keys, node.values) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                found[key.value] = [part.value for part in value.elts]
    return found
