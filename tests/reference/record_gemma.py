"""Writes tests/golden/gemma3_270m.json: what transformers makes of prompts with a real Gemma 3 270M.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 accelerate==1.15.0
    python record_gemma.py "$(scripts/fetch-model gemma3)" TOKENIZER

TOKENIZER is the tokenizer.json of Gemma 3 (`scripts/fetch-templates` has it). transformers widens the blocks of the GGUF
file by the package `gguf`; their numbers are rounded to bfloat16 here, as tito rounds them, and computed with in float32.
The last prompt is longer than the model's window of 512 tokens.
"""

import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

TEXTS = [
    "The capital of France is Paris, and the capital of Italy is",
    "def add(a, b):\n    return a + b\n\ndef mul(a, b):\n\treturn",
    "Größe: 12 km².  日本語のテキスト 😀 <start_of_turn>user\n",
    "One " + " ".join(str(number) for number in range(1, 170)),
]


def main():
    file, tokenizer = pathlib.Path(sys.argv[1]), Tokenizer.from_file(sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        logprobs = [round(scores[place, token].item(), 6) for place, token in enumerate(ids[1:])]
        cases.append({"text": text, "ids": ids, "logprobs": logprobs, "next": scores[-1].argmax().item()})
    out = pathlib.Path(__file__).parent.parent / "golden" / "gemma3_270m.json"
    out.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
