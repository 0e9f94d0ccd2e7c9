"""Writes tests/golden/native: tiny models with random weights, and what reference.py makes of them.

    pip install numpy==2.4.6 && python record.py

The same bytes again on every run. A case is refused whose files could not tell a right engine from a wrong one: see
check. `python record.py --seek` prints the first seed of each case that passes, for whoever changes a case.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np

import cases
import reference

OUT = pathlib.Path(__file__).parent.parent / "golden" / "native"
LENGTHS = (1, 9, 70)
GREEDY = 8


# --- Random weights --------------------------------------------------------------------------------------------------


class Draw:
    """Uniform numbers from the raw bits of PCG64, which no release of numpy changes."""

    def __init__(self, seed):
        self.bits = np.random.PCG64(seed)

    def uniform(self, shape, deviation, mean=0.0):
        count = int(np.prod(shape))
        unit = (self.bits.random_raw(count) >> np.uint64(11)) * 2.0**-53
        return (mean + deviation * np.sqrt(12.0) * (unit - 0.5)).reshape(shape)

    def ids(self, count, vocab):
        return [int(bits % np.uint64(vocab)) for bits in np.atleast_1d(self.bits.random_raw(count))]


def shapes(config):
    """name -> shape, of each tensor in the order of the model."""
    d, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    k = config.get("head_dim") or d // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * k, config["num_key_value_heads"] * k
    bias, bias_out, bias_mlp = reference.biases(config)
    found = {"model.embed_tokens.weight": (vocab, d)}

    def linear(name, out, into, biased=False):
        found[name + ".weight"] = (out, into)
        if biased:
            found[name + ".bias"] = (out,)

    def mlp(prefix, inner):
        linear(prefix + "gate_proj", inner, d, bias_mlp)
        linear(prefix + "up_proj", inner, d, bias_mlp)
        linear(prefix + "down_proj", d, inner, bias_mlp)

    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        found[prefix + "input_layernorm.weight"] = (d,)
        linear(prefix + "self_attn.q_proj", q, d, bias)
        linear(prefix + "self_attn.k_proj", kv, d, bias)
        linear(prefix + "self_attn.v_proj", kv, d, bias)
        linear(prefix + "self_attn.o_proj", d, q, bias_out)
        if config["model_type"] in ("qwen3", "qwen3_moe"):
            found[prefix + "self_attn.q_norm.weight"] = (k,)
            found[prefix + "self_attn.k_norm.weight"] = (k,)
        found[prefix + "post_attention_layernorm.weight"] = (d,)
        if reference.is_sparse(config, layer):
            linear(prefix + "mlp.gate", config["num_experts"], d)
            for expert in range(config["num_experts"]):
                mlp(f"{prefix}mlp.experts.{expert}.", config["moe_intermediate_size"])
        else:
            mlp(prefix + "mlp.", inner)
    found["model.norm.weight"] = (d,)
    if not reference.is_tied(config):
        found["lm_head.weight"] = (vocab, d)
    return found


def random_tensor(draw, name, shape):
    """Scaled so that attention prefers some positions, each part of a layer counts, and log-probs spread over nats."""
    part = name.split(".")[-2]
    if part in ("q_norm", "k_norm"):
        return draw.uniform(shape, 0.4, 1.4)
    if part.endswith("norm"):
        return draw.uniform(shape, 0.2, 1.0)
    if name.endswith("bias"):
        return draw.uniform(shape, 0.3)
    fan_in = 1.0 / np.sqrt(shape[-1])
    gain = {"q_proj": 1.3, "k_proj": 1.3, "o_proj": 1.5, "down_proj": 1.5, "gate": 2.0}.get(part, 1.0)
    if part in ("embed_tokens", "lm_head"):
        gain = 2.0
    return draw.uniform(shape, gain * fan_in)


# --- Files -----------------------------------------------------------------------------------------------------------


def encode(array, dtype):
    single = array.astype("<f4")
    if dtype == "F32":
        return single.tobytes()
    if dtype == "F16":
        return single.astype("<f2").tobytes()
    bits = single.view("<u4")
    # Round to the nearest of the upper halves, ties to even.
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def safetensors(tensors, dtype):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        raw = encode(array, dtype)
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_model(directory, case, seed):
    """config.json and the weights. Shards are cut in the middle of the model's tensors, layers in two as well."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_json(directory / "config.json", case.config)
    draw = Draw(seed)
    tensors = {name: random_tensor(draw, name, shape) for name, shape in shapes(case.config).items()}
    if case.shards == 1:
        (directory / "model.safetensors").write_bytes(safetensors(tensors, case.dtype))
        return
    names, weight_map, total = list(tensors), {}, 0
    for shard in range(case.shards):
        mine = names[shard * len(names) // case.shards : (shard + 1) * len(names) // case.shards]
        file = f"model-{shard + 1:05}-of-{case.shards:05}.safetensors"
        (directory / file).write_bytes(safetensors({name: tensors[name] for name in mine}, case.dtype))
        weight_map.update(dict.fromkeys(mine, file))
        total += sum(len(encode(tensors[name], case.dtype)) for name in mine)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(directory / "model.safetensors.index.json", index)


def write_expected(path, prompts):
    """JSON with a line for each list: short, and a change of one prompt is a change of its lines."""

    def numbers(values):
        return "[" + ", ".join(str(v) if isinstance(v, int) else f"{v:.7f}" for v in values) + "]"

    blocks = []
    for prompt in prompts:
        lines = [f'      "{key}": {numbers(values)}' for key, values in prompt.items()]
        blocks.append("    {\n" + ",\n".join(lines) + "\n    }")
    path.write_text('{\n  "prompts": [\n' + ",\n".join(blocks) + "\n  ]\n}\n")


# --- What is expected ------------------------------------------------------------------------------------------------


def token_ids(seed, vocab):
    """One prompt of each length. The longest has the first and the last id of the vocabulary."""
    draw = Draw(1000 + seed)
    prompts = [draw.ids(length, vocab) for length in LENGTHS]
    prompts[-1][5], prompts[-1][40] = 0, vocab - 1
    return prompts


def expected(model, ids):
    log_probs = model.log_probs(ids)
    return {
        "token_ids": ids,
        "next_log_probs": [float(log_probs[i, token]) for i, token in enumerate(ids[1:])],
        "last_log_probs": [float(p) for p in log_probs[-1]],
        "greedy": model.greedy(ids, GREEDY),
    }


def differing(case, weights, change):
    """The model that an engine without a feature would compute."""
    change = dict(change)
    weights = dict(weights)
    for end, value in change.pop("tensors", {}).items():
        for name in [name for name in weights if name.endswith(end)]:
            weights[name] = np.full_like(weights[name], value)
    return reference.Model({**case.config, **change}, weights)


def greatest_difference(log_probs, others):
    return float(np.abs(log_probs - others).max())


def check(case, model, prompts):
    """Raises ValueError where the files would not tell right from wrong, or not let a float32 engine be right."""

    def demand(holds, what):
        if not holds:
            raise ValueError(f"{case.name}: {what}")

    single = reference.Model(case.config, model.weights, np.float32)
    for prompt in prompts:
        ids, greedy = prompt["token_ids"], prompt["greedy"]
        log_probs = model.log_probs(ids + greedy)
        best = np.sort(log_probs[len(ids) - 1 : -1], axis=-1)[:, -2:]
        margin = float((best[:, 1] - best[:, 0]).min())
        demand(margin > 1e-2, f"a greedy token leads by {margin:.1e} only")
        difference = greatest_difference(log_probs, single.log_probs(ids + greedy))
        demand(difference < 2e-5, f"float32 is off by {difference:.1e}")
        demand(len(set(greedy)) > 2, f"the continuation {greedy} only repeats itself")
    spread = float(np.std(prompts[-1]["last_log_probs"]))
    demand(spread > 1.0, f"log-probs deviate by {spread:.2f} nats only")
    demand(min(model.margins, default=1.0) > 1e-3, f"an expert was chosen by {min(model.margins, default=1.0):.1e}")
    ids = prompts[-1]["token_ids"]
    right = model.log_probs(ids)[-1]
    for change in case.without:
        difference = greatest_difference(right, differing(case, model.weights, change).log_probs(ids)[-1])
        demand(difference > 1e-2, f"{change} changes log-probs by {difference:.1e} only")


def record(directory, case, seed):
    write_model(directory, case, seed)
    model = reference.read_model(directory)
    prompts = [expected(model, ids) for ids in token_ids(seed, case.config["vocab_size"])]
    write_expected(directory / "expected.json", prompts)
    check(case, model, prompts)


def seek(case):
    """The first seed that passes."""
    error = None
    for seed in range(1, 1000):
        try:
            record(OUT / case.name, case, seed)
        except ValueError as refused:
            error = refused
        else:
            return seed
    raise error


def main():
    for case in cases.CASES:
        if "--seek" in sys.argv[1:]:
            print(case.name, seek(case))
        else:
            record(OUT / case.name, case, case.seed)
            size = sum(file.stat().st_size for file in (OUT / case.name).iterdir())
            print(f"{case.name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
