"""A tiny Llama that a trainer holds: its weights, its log-probs, the gradient of a loss, and its files.

Its tensors have the names that transformers gives them, so that the server reads what `save` writes.
"""

import json
import pathlib
import shutil
import struct

import autograd.numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float32",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EMBEDDING = "model.embed_tokens.weight"


def initial(vocabulary, seed):
    """Random weights: name -> float32 array."""
    random = np.random.RandomState(seed)
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    query = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    key = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    shapes = {EMBEDDING: (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "self_attn.q_proj.weight"] = (query, hidden)
        shapes[prefix + "self_attn.k_proj.weight"] = (key, hidden)
        shapes[prefix + "self_attn.v_proj.weight"] = (key, hidden)
        shapes[prefix + "self_attn.o_proj.weight"] = (hidden, query)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        shapes[prefix + "mlp.gate_proj.weight"] = (inner, hidden)
        shapes[prefix + "mlp.up_proj.weight"] = (inner, hidden)
        shapes[prefix + "mlp.down_proj.weight"] = (hidden, inner)
    return {
        name: (np.ones(shape) if len(shape) == 1 else 0.08 * random.standard_normal(shape)).astype("float32")
        for name, shape in shapes.items()
    }


# --- Computing -------------------------------------------------------------------------------------------------------


def log_probs(weights, ids):
    """(batch, length - 1): the log-prob of each id but the first, after those before it. `ids` is (batch, length)."""
    logits = forward(weights, ids[:, :-1])
    top = np.max(logits, axis=-1, keepdims=True)
    normalised = logits - top - np.log(np.sum(np.exp(logits - top), axis=-1, keepdims=True))
    rows, columns = np.indices(ids[:, 1:].shape)
    return normalised[rows, columns, ids[:, 1:]]


def forward(weights, ids):
    x = weights[EMBEDDING][ids]
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        x = x + attention(weights, prefix + "self_attn.", norm(x, weights[prefix + "input_layernorm.weight"]))
        inner = norm(x, weights[prefix + "post_attention_layernorm.weight"])
        gate = inner @ weights[prefix + "mlp.gate_proj.weight"].T
        up = inner @ weights[prefix + "mlp.up_proj.weight"].T
        x = x + (gate / (1.0 + np.exp(-gate)) * up) @ weights[prefix + "mlp.down_proj.weight"].T
    return norm(x, weights["model.norm.weight"]) @ weights[EMBEDDING].T


def norm(x, scale):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + CONFIG["rms_norm_eps"]) * scale


def attention(weights, prefix, x):
    batch, length, _ = x.shape
    width, groups = CONFIG["head_dim"], CONFIG["num_attention_heads"] // CONFIG["num_key_value_heads"]

    def heads(name):
        projected = x @ weights[f"{prefix}{name}.weight"].T
        return np.transpose(np.reshape(projected, (batch, length, -1, width)), (0, 2, 1, 3))

    query, key, value = rotate(heads("q_proj")), rotate(heads("k_proj")), heads("v_proj")
    # Two query heads share a head of keys and values.
    key, value = np.repeat(key, groups, axis=1), np.repeat(value, groups, axis=1)
    scores = query @ np.transpose(key, (0, 1, 3, 2)) / width**0.5
    # Nothing sees what comes after it.
    scores = scores + np.triu(np.full((length, length), -1e30, dtype="float32"), 1)
    scores = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    mixed = scores / np.sum(scores, axis=-1, keepdims=True) @ value
    return np.reshape(np.transpose(mixed, (0, 2, 1, 3)), (batch, length, -1)) @ weights[prefix + "o_proj.weight"].T


def rotate(x):
    length, width = x.shape[-2:]
    frequencies = CONFIG["rope_theta"] ** (-np.arange(0, width, 2) / width)
    angles = np.tile(np.arange(length)[:, None] * frequencies, 2)
    turned = np.concatenate([-x[..., width // 2 :], x[..., : width // 2]], axis=-1)
    return x * np.cos(angles).astype("float32") + turned * np.sin(angles).astype("float32")


class Adam:
    """The optimiser, and the only one who changes the weights."""

    def __init__(self, weights, rate):
        self.weights, self.rate, self.step = weights, rate, 0
        self.mean = {name: np.zeros(array.shape) for name, array in weights.items()}
        self.square = {name: np.zeros(array.shape) for name, array in weights.items()}

    def update(self, gradient):
        self.step += 1
        for name, slope in gradient.items():
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * slope
            self.square[name] = 0.99 * self.square[name] + 0.01 * slope**2
            mean = self.mean[name] / (1 - 0.9**self.step)
            square = self.square[name] / (1 - 0.99**self.step)
            moved = self.weights[name] - self.rate * mean / (np.sqrt(square) + 1e-8)
            # In float32, as the server gets them.
            self.weights[name] = moved.astype("float32")


# --- Files -----------------------------------------------------------------------------------------------------------


def save(weights, directory):
    """model.safetensors: eight bytes of length, a JSON header, then the data. Complete once it has its name."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    header, parts, end = {}, [], 0
    for name, array in weights.items():
        parts.append(np.ascontiguousarray(array, dtype="<f4").tobytes())
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = directory / "model.safetensors.partial"
    partial.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    partial.rename(directory / "model.safetensors")


def write_model(weights, directory, tokenizer):
    """A directory that a server can start with: the tokenizer's files, the configuration and the weights."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(pathlib.Path(tokenizer) / name, directory)
    config = CONFIG | {"vocab_size": len(weights[EMBEDDING])}
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    save(weights, directory)
