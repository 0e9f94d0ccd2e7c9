"""Writes tests/golden/harmony: the prompts that vLLM's own code makes for gpt-oss, in ids.

    pip install oss-harmony==0.0.11 openai==3.54.0 tokenizers==0.23.3
    python record_harmony.py VLLM_WHEEL TOKENIZER_JSON

VLLM_WHEEL is the wheel of vLLM 0.33.0, of which only sources are read: `harmony_utils.py` and `responses/harmony.py` run
as they are, and of `online_renderer.py` the two functions that put a request into messages. What these import from the
rest of vLLM (types of requests, logging, settings) is replaced by as little as they need, and no request is validated by
vLLM's models. oss-harmony has the vocabulary in it.

TOKENIZER_JSON is that of a published gpt-oss. tokenizer.json beside the cases is the part of it that the cases need: the
tokens that byte-pair encoding meets on the way to their ids, and the special tokens. Every id is checked with it here.

cases.jsonl has a case a line: `name`, `path`, `body`, `date`, `system_instructions` (if it was set), and either `ids`, or
`error` and the `field` that vLLM names.
"""

import ast
import functools
import json
import pathlib
import sys
import types
import zipfile

import openai.types.responses
import tokenizers
from openai.types.responses import ResponseFunctionToolCall

from harmony_cases import CHATS, DATE, RESPONSES

OUT = pathlib.Path(__file__).parent.parent / "golden" / "harmony"
SPECIAL = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|endoftext|>", "<|constrain|>", "<|startoftext|>", "<|reserved_200013|>"]


class VLLMValidationError(ValueError):
    def __init__(self, message, parameter=None, value=None):
        super().__init__(message)
        self.parameter = parameter


class Loose(types.SimpleNamespace):
    """An object with any attribute, like the requests' models."""

    def __getattr__(self, name):
        return None


class ChatCompletionToolsParam(Loose):
    pass


def module(name, **names):
    made = types.ModuleType(name)
    vars(made).update(names)
    sys.modules[name] = made
    return made


def logger(_name):
    return Loose(warning=lambda *_: None, debug=lambda *_: None)


def vllm(wheel):
    """vLLM's modules, as far as they are needed."""
    source = zipfile.ZipFile(wheel)
    envs = Loose(VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS=False, VLLM_SYSTEM_START_DATE=DATE)
    module("vllm", envs=envs)
    module("vllm.logger", init_logger=logger)
    module("vllm.exceptions", VLLMValidationError=VLLMValidationError)
    module("vllm.utils", random_uuid=lambda: "0")
    for package in ["vllm.entrypoints", "vllm.entrypoints.openai", "vllm.entrypoints.openai.parser", "vllm.entrypoints.openai.responses"]:
        module(package)
    module("vllm.entrypoints.openai.chat_completion.protocol", ChatCompletionToolsParam=ChatCompletionToolsParam)
    module("vllm.entrypoints.openai.responses.protocol", ResponseInputOutputItem=object, ResponsesRequest=object)
    loaded = {}
    for name in ["vllm.entrypoints.openai.parser.harmony_utils", "vllm.entrypoints.openai.responses.harmony"]:
        path = name.replace(".", "/") + ".py"
        exec(compile(source.read(path), path, "exec"), vars(module(name)))
        loaded |= vars(sys.modules[name])
    params = "vllm/renderers/params.py"
    utilities = "vllm/entrypoints/openai/responses/utils.py"
    renderer = "vllm/renderers/online_renderer.py"
    loaded |= {"VLLMValidationError": VLLMValidationError, "OpenAIMessage": loaded["Message"], "tokens_input": lambda ids, cache_salt: ids,
               "_reused_prompt_token_ids": lambda *_: None, "_mt": Loose(maybe_serialize_tool_calls=lambda _: None),
               "ResponseFunctionToolCall": ResponseFunctionToolCall,
               "ResponsesRenderResult": lambda messages, engine_input: engine_input}
    for path, names in [(params, ["map_reasoning_effort"]), (utilities, ["extract_tool_types"]),
                        (renderer, ["_make_request_with_harmony", "_render_responses_with_harmony"])]:
        tree = ast.parse(source.read(path))
        wanted = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
        assert len(wanted) == len(names), (path, names)
        for node in wanted:
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                argument.annotation = None
            node.returns = None
        exec(compile(ast.Module(wanted, []), path, "exec"), loaded)
    return loaded, envs


def refused(message, err_type=None, param=None, **_):
    return VLLMValidationError(message, param)


def chat_request(body):
    tools = body.get("tools")
    if tools is not None:
        tools = [ChatCompletionToolsParam(type=tool["type"], function=Loose(**tool["function"])) for tool in tools]
    messages = json.loads(json.dumps(body["messages"]))
    # The model of a request moves this before anybody sees it.
    for message in messages:
        thought = message.pop("reasoning_content", None)
        if thought is not None and message.get("reasoning") is None:
            message["reasoning"] = thought
    return Loose(messages=messages, tools=tools, reasoning_effort=body.get("reasoning_effort"))


def responses_request(body):
    # The model of a request makes objects of calls.
    def parsed(item):
        return ResponseFunctionToolCall(**item) if item.get("type") == "function_call" else item

    given = body["input"]
    return Loose(
        input=given if isinstance(given, str) else [parsed(item) for item in given],
        instructions=body.get("instructions"),
        reasoning=Loose(**body["reasoning"]) if "reasoning" in body else None,
        tools=[Loose(**tool) for tool in body.get("tools", [])],
        build_tok_params=lambda _: None,
    )


def answers(wheel):
    """Every case with its ids, and the texts that were encoded for them."""
    names, envs = vllm(wheel)
    harmony = names["get_encoding"]()
    renderer = Loose(
        adjust_harmony_request=lambda _: None,
        create_error_response=refused,
        reasoning_effort_map={},
        supports_browsing=False,
        supports_code_interpreter=False,
        _get_harmony_builtin_tool_descriptions=lambda *_: {},
        render_responses_harmony_messages=lambda messages, **_: names["render_for_completion"](messages),
    )
    chat = functools.partial(names["_make_request_with_harmony"], renderer)
    respond = functools.partial(
        names["_render_responses_with_harmony"], renderer, previous_messages=None, previous_response_outputs=None, tool_server=None
    )
    for path, bodies in [("/v1/chat/completions", CHATS), ("/v1/responses", RESPONSES)]:
        for name, body in bodies.items():
            body = dict(body)
            instructs_system = body.pop("system_instructions", False)
            envs.VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS = instructs_system
            case = {"name": name, "path": path, "body": body, "date": DATE}
            if instructs_system:
                case["system_instructions"] = True
            try:
                if path == "/v1/responses":
                    ids = respond(responses_request(body))
                else:
                    _, [ids] = chat(chat_request(body))
                if isinstance(ids, VLLMValidationError):
                    raise ids
                case["ids"] = ids
            except (VLLMValidationError, ValueError) as error:
                case["error"], case["field"] = str(error), getattr(error, "parameter", None)
            yield case, harmony


class Pruned:
    """The part of a tokenizer that some texts need."""

    def __init__(self, path):
        self.json = json.loads(pathlib.Path(path).read_text())
        self.whole = tokenizers.Tokenizer.from_file(str(path))
        model = self.json["model"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self.vocab = model["vocab"]
        self.tokens = {token for token in self.vocab if len(token) == 1}
        self.merges = set()

    def meet(self, text):
        for word, _ in self.whole.pre_tokenizer.pre_tokenize_str(text):
            if word in self.vocab:
                self.tokens.add(word)
            parts = list(word)
            while True:
                pairs = [pair for pair in zip(parts, parts[1:]) if pair in self.ranks]
                for pair in pairs:
                    self.merges.add(pair)
                    self.tokens |= {*pair, "".join(pair)}
                if not pairs:
                    break
                best = min(pairs, key=self.ranks.get)
                at = next(i for i, pair in enumerate(zip(parts, parts[1:])) if pair == best)
                parts[at : at + 2] = ["".join(best)]

    def write(self, path):
        special = [token for token in self.json["added_tokens"] if token["content"] in SPECIAL]
        # Special tokens would be numbered after the vocabulary, which is smaller now.
        ids = {token["content"]: token["id"] for token in special}
        model = self.json["model"] | {
            "vocab": {token: id for token, id in self.vocab.items() if token in self.tokens} | ids,
            "merges": [list(pair) for pair in sorted(self.merges, key=self.ranks.get)],
        }
        written = self.json | {"model": model, "added_tokens": special}
        path.write_text(json.dumps(written, ensure_ascii=False, separators=(",", ":")) + "\n")


def texts(ids, harmony):
    """The texts between special tokens."""
    run = []
    for id in [*ids, 200006]:
        if id < 199998:
            run.append(id)
        elif run:
            yield harmony.decode(run)
            run = []


def parts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from parts(inner)


def main():
    wheel, tokenizer = sys.argv[1:]
    pruned = Pruned(tokenizer)
    lines = []
    for case, harmony in answers(wheel):
        lines.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))
        # Parts of a content are encoded one by one.
        for text in [*texts(case.get("ids", []), harmony), *parts(case["body"])]:
            pruned.meet(text)
    OUT.mkdir(exist_ok=True)
    (OUT / "cases.jsonl").write_text("\n".join(lines) + "\n")
    pruned.write(OUT / "tokenizer.json")
    small = tokenizers.Tokenizer.from_file(str(OUT / "tokenizer.json"))
    for case, harmony in answers(wheel):
        for text in [*texts(case.get("ids", []), harmony)]:
            if not any(token in text for token in SPECIAL):
                assert small.encode(text).ids == pruned.whole.encode(text).ids == harmony.encode(text), text
    print(len(lines), "cases,", sum("error" in line for line in lines), "of them mention errors")


if __name__ == "__main__":
    main()
