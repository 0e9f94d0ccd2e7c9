"""Writes tests/golden/smollm2_lora.json: what PEFT makes of prompts with SmolLM2-135M and an adapter of rank 16.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 peft==0.21.2
    python record_smollm2_lora.py DIRECTORY

DIRECTORY is what `tito convert "$(scripts/fetch-model)" DIRECTORY` writes; it is computed with in float32. The adapter is of all
linear layers, and its numbers are drawn from the names of its tensors, see `adapter`.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))

from drawn_weights import drawn  # noqa: E402

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SETTINGS = {"r": 16, "lora_alpha": 4, "target_modules": TARGETS, "bias": "none"}
TEXTS = [
    "The capital of France is Paris, and the capital of Italy is",
    "def add(a, b):\n    return a + b\n\ndef mul(a, b):\n\treturn",
    "One " + " ".join(str(number) for number in range(1, 90)),
]


def shapes(config):
    """The outputs and inputs of each linear module of a layer."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    attention = {"q_proj": (hidden, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, hidden)}
    feed_forward = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    named = {"self_attn": attention, "mlp": feed_forward}
    return {f"{part}.{name}": shape for part, modules in named.items() for name, shape in modules.items()}


def adapter(config):
    """The tensors by name: shape and numbers."""
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, (outputs, inputs) in shapes(config).items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            for half, shape in {"A": (SETTINGS["r"], inputs), "B": (outputs, SETTINGS["r"])}.items():
                full = f"{name}.lora_{half}.weight"
                tensors[full] = (shape, drawn(0, full, shape, "llama"))
    return tensors


def main(directory):
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    config = json.loads(pathlib.Path(directory, "config.json").read_text())
    model = peft.get_peft_model(base, peft.LoraConfig(**SETTINGS)).eval()
    tensors = {name: torch.tensor(numbers).reshape(shape) for name, (shape, numbers) in adapter(config).items()}
    assert tensors.keys() == peft.get_peft_model_state_dict(model).keys()
    peft.set_peft_model_state_dict(model, tensors)

    def log_probs(ids):
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        return [round(scores[place, token].item(), 6) for place, token in enumerate(ids[1:])]

    cases = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        found = log_probs(ids)
        with model.disable_adapter():
            without = log_probs(ids)
        moved = sum(abs(one - other) for one, other in zip(found, without)) / len(found)
        print(f"{len(ids)} ids, log-probs move by {moved:.2f}")
        cases.append({"ids": ids, "logprobs": found, "without": without})
    out = pathlib.Path(__file__).parent.parent / "golden" / "smollm2_lora.json"
    out.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
