"""Records what vLLM 0.33's readers of reasoning make of answers as models write them: `python record_reasoning.py DIR OUT`.

DIR is the unpacked source distribution of vLLM 0.33.0. Only the readers are vLLM's own (`vllm_alone.py`), so that neither torch
nor a model is needed. Needs what `record_more_tools.py` needs.
"""
import importlib, json, random, sys, types

from vllm_alone import Tokenizer, put, readers

OUT = sys.argv[2]
READERS = readers("reasoning")
THINK = ("<think>", "</think>")
# Those of Cohere are read by a package of its own. The marks of each: its beginning, its end, and what stands around the answer.
MARKS = {
    "deepseek_v4": THINK, "deepseek_v41": THINK,
    "ernie45": ("<think>", "</think>", "\n<response>\n", "\n</response>\n"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "granite": ("Here is my thought process:", "Here is my response:"),
    "granite_thinking_parser": THINK, "holo2": THINK,
    "hunyuan_a13b": ("<think>\n", "\n</think>\n", "<answer>\n", "\n</answer>"),
    "hy_v3": THINK, "hy_v4": THINK,
    "k2_horizon": ("<ifm|think>", "</ifm|think>"),
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    "ling3": THINK, "mimo": THINK,
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "nemotron_v3": THINK, "olmo3": THINK,
    "plamo3": ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    "poolside_v1": THINK, "qwen3": THINK,
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "step3": THINK, "step3p5": THINK, "step5": THINK,
}
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True}]
EFFORTS = [{}, {"reasoning_effort": "no_think"}, {"reasoning_effort": "high"}]

put("mistral_common.tokens.tokenizers.base", SpecialTokens=types.SimpleNamespace(
    tool_calls=types.SimpleNamespace(value="[TOOL_CALLS]"), args=types.SimpleNamespace(value="[ARGS]"),
    begin_think=types.SimpleNamespace(value="[THINK]"), end_think=types.SimpleNamespace(value="[/THINK]")))


def read(name, variables, text):
    file, cls = READERS[name]
    reader = getattr(importlib.import_module("vllm.reasoning." + file), cls)(Tokenizer(), chat_template_kwargs=dict(variables))
    request = types.SimpleNamespace(tools=None, tool_choice="none", include_reasoning=True, chat_template_kwargs=dict(variables))
    return reader.extract_reasoning(text, request)


random.seed(20261126)
WORDS = ["so", "é😀", "It is 7.\nAnd then?", "a < b", " I see.\n"]


def texts(begin, end, before="", after=""):
    """With both marks, without the first, without the last, without any, and with nothing between them."""
    thought, answer = random.choice(WORDS), before + random.choice(WORDS) + after
    space = random.choice(["", "\n", "\n\n"])
    return [begin + space + thought + space + end + space + answer, thought + end + answer, begin + thought, answer, thought,
            begin + end + answer, begin + thought + end]


with open(OUT, "w") as out:
    for name, marks in MARKS.items():
        for variables in EFFORTS if name in ("hy_v3", "hy_v4") else [{}] if name == "k2_horizon" else VARIABLES:
            for text in texts(*marks):
                try:
                    thought, content = read(name, variables, text)
                except Exception as fault:
                    sys.exit(f"{name}: {fault!r}")
                out.write(json.dumps({"reasoning_parser": name, "tool_parser": None, "variables": variables, "text": text,
                                      "reasoning": thought, "content": content, "calls": []}, ensure_ascii=False) + "\n")
