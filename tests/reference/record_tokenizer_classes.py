"""Records the token ids of tokenizers that transformers builds by their class, into tests/golden/tokenizer_classes.

Run it with transformers 5.16 to 5.20 (what vLLM 0.33 allows): python tests/reference/record_tokenizer_classes.py
"""

import json
import sys
import tempfile
from pathlib import Path

import transformers

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/tokenizer_classes"
TINY = ROOT / "tests/fixtures/tiny-model/tokenizer.json"

TEXTS = [
    "hello world",
    " hello",
    "  hello  wo",
    "<s>hello </s> wo",
    "<s> hello</s>wo<s>",
    "<|im_start|>hello <|im_end|>\n hello",
    "a  12 b345 6",
    "don't 'S it's\n\n  x\t\r\n y",
    "▁hello ▁ wo",
    "e\u0301 \u00e9 \ufb01 \u00c5 \uff21 \u0915\u093f \u65e5",
    "<think>x </think>",
    " <think> ",
    "",
    " ",
]


def pieces() -> dict:
    """Returns a tokenizer.json in the form of Llama 2: pieces of SentencePiece, and all bytes."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for letter in ["▁", *"abcdehlnorstwxy12345'\n"]:
        vocab[letter] = len(vocab)
    merges = [("▁", "h"), ("e", "l"), ("l", "o"), ("▁h", "el"), ("▁hel", "lo"), ("▁", "w"), ("▁w", "o"), ("▁", "▁")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    before = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(i, token) for i, token in enumerate(("<unk>", "<s>", "</s>"))],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing", "single": before, "pair": before + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
            "merges": [list(merge) for merge in merges]},
    }


def added(token_id: int, content: str, **attributes: bool) -> dict:
    """Returns an entry of `added_tokens`."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": content, **plain, **attributes}


def metaspace(scheme: str) -> dict:
    """Returns the parts of a file that was converted by a newer release."""
    scheme = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    return {"normalizer": None, "pre_tokenizer": scheme}


SPLIT = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "l"}, "behavior": "Isolated", "invert": False},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}}
DIGITS = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}}
TEMPLATE = {"post_processor": {
    "type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}}}

BYTE_LEVEL = ("GPT2Tokenizer", "Qwen2Tokenizer", "GPTNeoXTokenizer", "CohereTokenizer")


def cases() -> list[tuple]:
    """Returns name, vocabulary, model type, tokenizer_config.json and changed keys of tokenizer.json."""
    found = []
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    flags = [{}, {"legacy": True}, {"legacy": False}, {"legacy": None}, {"add_prefix_space": False}, {"add_prefix_space": None},
             {"add_prefix_space": True, "legacy": True}, {"add_prefix_space": False, "legacy": True}]
    for form, changes in (("prepended", {}), ("first", metaspace("first")), ("always", metaspace("always"))):
        for flag in flags:
            config = {"tokenizer_class": "LlamaTokenizer", **named, **flag}
            found.append((f"LlamaTokenizer {form} {flag}", "pieces", "llama", config, changes))
    gemma = {"tokenizer_class": "GemmaTokenizer", **named, "pad_token": "</s>", "mask_token": "</s>"}
    found.append(("GemmaTokenizer", "pieces", "gemma2", gemma, {}))
    for model_type in ("mistral", "phi3", "deepseek_v3", "qwen3"):
        config = {"tokenizer_class": "LlamaTokenizerFast", **named}
        found.append((f"LlamaTokenizerFast of {model_type}", "pieces", model_type, config, {}))
    listed = {str(i): {k: v for k, v in added(i, t).items() if k != "id"} for i, t in ((1, "<s>"), (2, "</s>"))}
    config = {"tokenizer_class": "LlamaTokenizer", **named, "unk_token": "</s>", "added_tokens_decoder": listed}
    found.append(("LlamaTokenizer with a shorter list", "pieces", "llama", config, {}))
    found.append(("no class", "pieces", "llama", named, {}))

    named = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": None, "pad_token": "<|im_end|>"}
    for tokenizer_class, model_type in (
        ("GPT2Tokenizer", "llama"), ("Qwen2Tokenizer", "qwen3"), ("Qwen2TokenizerFast", "llama"),
        ("LlamaTokenizerFast", "qwen2"), ("PreTrainedTokenizerFast", "qwen2"), ("PreTrainedTokenizerFast", "qwen3"),
        ("PreTrainedTokenizerFast", "llama"), ("GPTNeoXTokenizer", "olmoe"), ("Qwen3_5Tokenizer", "qwen3_5"),
        ("GPT2Tokenizer", "granite"), ("PreTrainedTokenizerFast", "qwen3_5"), (None, "qwen3"), (None, "llama"),
        ("TokenizersBackend", "qwen3"), ("CohereTokenizer", "cohere2"), ("NotKnownTokenizer", "llama"),
    ):
        more = {"cls_token": None, "sep_token": None, "mask_token": None} if tokenizer_class == "CohereTokenizer" else {}
        config = {**({"tokenizer_class": tokenizer_class} if tokenizer_class else {}), **named, **more}
        forms = (("", {}), (" split", SPLIT), (" digits", DIGITS), (" template", TEMPLATE))
        rebuilt = model_type in ("qwen2", "qwen3_5") or tokenizer_class in BYTE_LEVEL
        for form, changes in forms if rebuilt else forms[1:2]:
            found.append((f"{tokenizer_class} of {model_type}{form}", "bytes", model_type, config, changes))
        if tokenizer_class in BYTE_LEVEL:
            config = {**config, "add_prefix_space": True}
            found.append((f"{tokenizer_class} of {model_type} add_prefix_space", "bytes", model_type, config, {}))
    tokens = json.loads(TINY.read_text())["added_tokens"]
    stripping = {"added_tokens": [
        {**token, "lstrip": True, "rstrip": True} if token["content"] in ("<|im_start|>", "<think>") else token for token in tokens]}
    for tokenizer_class in ("Qwen2Tokenizer", "GPT2Tokenizer", "PreTrainedTokenizerFast"):
        config = {"tokenizer_class": tokenizer_class, **named}
        found.append((f"{tokenizer_class} with tokens that strip", "bytes", "qwen3", config, stripping))
    return found


def record() -> None:
    """Writes the vocabulary, and what transformers makes of each case."""
    files = {"pieces": pieces(), "bytes": json.loads(TINY.read_text())}
    recorded = []
    for name, vocabulary, model_type, config, changes in cases():
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory)
            (path / "tokenizer.json").write_text(json.dumps({**files[vocabulary], **changes}))
            (path / "tokenizer_config.json").write_text(json.dumps(config))
            (path / "config.json").write_text(json.dumps({"model_type": model_type}))
            tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        ids = [[tokenizer.encode(text, add_special_tokens=special) for special in (True, False)] for text in TEXTS]
        decoded = [tokenizer.decode(with_special, skip_special_tokens=False) for with_special, _ in ids]
        recorded.append({
            "name": name, "vocabulary": vocabulary, "model_type": model_type, "config": config, "changes": changes,
            "ids": ids, "decoded": decoded})
        sys.stderr.write(f"{name}: {type(tokenizer).__name__}\n")
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "pieces.json").write_text(json.dumps(files["pieces"], ensure_ascii=False) + "\n")
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in recorded]
    whole = {"transformers": transformers.__version__, "texts": TEXTS}
    head = json.dumps(whole, ensure_ascii=False)[:-1]
    (GOLDEN / "ids.json").write_text(head + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    record()
