"""The forward pass of decoder-only transformers of the Llama line, in numpy, after the definitions in transformers.

Owns: reading config.json and safetensors, and the log-probs of llama, mistral, qwen2, qwen3, qwen3_moe and smollm3
models. Every prompt is computed whole, with full attention matrices and without a cache: it is to be read and to be
right, not to be fast. Refuses (ValueError) what it does not compute: other families, other kinds of rotary scaling,
other activations than silu.

Shapes: n positions, d = hidden_size, h query heads, g key-value heads, k = head_dim.
"""

import json
import math
import pathlib
import struct

import numpy as np

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "smollm3")


# --- Reading ---------------------------------------------------------------------------------------------------------


def read_safetensors(path):
    """name -> float64 array, of one file: eight bytes of length, a JSON header, then the data."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = decode(entry["dtype"], body[begin:end]).reshape(entry["shape"])
    return tensors


def decode(dtype, raw):
    if dtype == "F32":
        return np.frombuffer(raw, "<f4").astype(np.float64)
    if dtype == "F16":
        return np.frombuffer(raw, "<f2").astype(np.float64)
    if dtype == "BF16":
        # The upper half of a float32.
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    raise ValueError(f"dtype {dtype}")


def read_model(directory, dtype=np.float64):
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    index = directory / "model.safetensors.index.json"
    files = ["model.safetensors"]
    if index.exists():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    weights = {}
    for file in files:
        weights.update(read_safetensors(directory / file))
    return Model(config, weights, dtype)


# --- Rotary embedding ------------------------------------------------------------------------------------------------


def rope_parameters(config):
    """theta and the scaling, from either spelling: rope_theta with rope_scaling (transformers 4), or rope_parameters."""
    new = config.get("rope_parameters")
    scaling = dict(new or config.get("rope_scaling") or {})
    theta = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
    # "type" is the older name of "rope_type".
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return kind, theta, scaling


def inverse_frequencies(config, head_dim):
    """(head_dim / 2) angles per position, and the factor on cos and sin."""
    kind, theta, scaling = rope_parameters(config)
    plain = 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim)
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "llama3":
        return llama3_frequencies(plain, scaling), 1.0
    if kind == "yarn":
        return yarn_frequencies(plain, theta, head_dim, scaling, config["max_position_embeddings"])
    raise ValueError(f"rope_type {kind}")


def llama3_frequencies(plain, scaling):
    factor, low, high = (scaling[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    # How many turns each pair makes within the context that the model was first trained with.
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept * plain + (1.0 - kept) * plain / factor


def yarn_frequencies(plain, theta, head_dim, scaling, max_positions):
    factor = scaling["factor"]
    original = scaling.get("original_max_position_embeddings") or max_positions

    def mscale(scale, weight=1.0):
        return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0

    attention_factor = scaling.get("attention_factor")
    if attention_factor is None:
        above, below = scaling.get("mscale"), scaling.get("mscale_all_dim")
        attention_factor = mscale(factor, above) / mscale(factor, below) if above and below else mscale(factor)

    def pair_that_turns(times):
        return head_dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_that_turns(scaling.get("beta_fast") or 32)
    high = pair_that_turns(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    slowed = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0.0, 1.0)
    return slowed * plain / factor + (1.0 - slowed) * plain, attention_factor


def rotate(x, cos, sin):
    """x: (heads, n, k). The first half of a head pairs with its second half (not even with odd elements)."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + turned * sin


# --- What each family does -------------------------------------------------------------------------------------------


def biases(config):
    """Which projections have a bias: (query, key and value; output of attention; mlp)."""
    family = config["model_type"]
    if family == "qwen2":
        return True, False, False
    if family == "mistral":
        return False, False, False
    attention = config.get("attention_bias", False)
    mlp = family in ("llama", "smollm3") and config.get("mlp_bias", False)
    return attention, attention, mlp


def window(config, layer):
    """How many positions back a layer sees, itself included; None: all."""
    family = config["model_type"]
    size = config.get("sliding_window", None if family == "smollm3" else 4096)
    if family == "llama" or size is None:
        return None
    if family == "mistral":
        return size
    if not config.get("use_sliding_window", False):
        return None
    if family == "qwen3_moe":
        # One mask for all layers: max_window_layers says nothing here.
        return size
    types = config.get("layer_types")
    if types is not None:
        return size if types[layer] == "sliding_attention" else None
    if family == "smollm3":
        return None if uses_rope(config, layer) else size
    return size if layer >= config.get("max_window_layers", 28) else None


def uses_rope(config, layer):
    if config["model_type"] != "smollm3":
        return True
    listed = config.get("no_rope_layers")
    if listed is not None:
        # Despite its name, 1 stands for a layer with rotary embedding.
        return bool(listed[layer])
    return (layer + 1) % config.get("no_rope_layer_interval", 4) != 0


def is_sparse(config, layer):
    if config["model_type"] != "qwen3_moe":
        return False
    if layer in (config.get("mlp_only_layers") or []):
        return False
    return config["num_experts"] > 0 and (layer + 1) % config.get("decoder_sparse_step", 1) == 0


def is_tied(config):
    return config.get("tie_word_embeddings", config["model_type"] == "smollm3")


# --- The forward pass ------------------------------------------------------------------------------------------------


class Model:
    """A model to compute with. margins collects what the choice of experts hung on, for whoever wants to know."""

    def __init__(self, config, weights, dtype=np.float64):
        if config["model_type"] not in FAMILIES:
            raise ValueError(f"model_type {config['model_type']}")
        if config.get("hidden_act", "silu") != "silu":
            raise ValueError(f"hidden_act {config['hidden_act']}")
        self.config = config
        self.dtype = dtype
        self.weights = {name: array.astype(dtype) for name, array in weights.items()}
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.margins = []

    def log_probs(self, ids):
        """(n, vocab): at each position, the log-probs of the token after it."""
        logits = self.logits(ids)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def greedy(self, ids, count):
        """The count most probable tokens, each after the one before. Nothing ends it early."""
        ids = list(ids)
        for _ in range(count):
            ids.append(int(np.argmax(self.logits(ids)[-1])))
        return ids[-count:]

    def logits(self, ids):
        x = self.weights["model.embed_tokens.weight"][np.asarray(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self.attention(layer, prefix + "self_attn.", self.norm(x, prefix + "input_layernorm"))
            inner = self.norm(x, prefix + "post_attention_layernorm")
            mlp = self.experts if is_sparse(self.config, layer) else self.mlp
            x = x + mlp(prefix + "mlp.", inner)
        x = self.norm(x, "model.norm")
        return x @ self.weights["model.embed_tokens.weight" if is_tied(self.config) else "lm_head.weight"].T

    def linear(self, x, name, bias=False):
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights[name + ".bias"] if bias else y

    def norm(self, x, name):
        eps = self.config.get("rms_norm_eps", 1e-6)
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.dtype(eps))
        return x / scale * self.weights[name + ".weight"]

    def attention(self, layer, prefix, x):
        n = len(x)
        bias, bias_out, _ = biases(self.config)

        def heads(name, count):
            return self.linear(x, prefix + name, bias).reshape(n, count, self.head_dim).transpose(1, 0, 2)

        q = heads("q_proj", self.heads)
        k = heads("k_proj", self.kv_heads)
        v = heads("v_proj", self.kv_heads)
        if self.config["model_type"] in ("qwen3", "qwen3_moe"):
            q, k = self.norm(q, prefix + "q_norm"), self.norm(k, prefix + "k_norm")
        if uses_rope(self.config, layer):
            cos, sin = self.cos_sin(n)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        # Query heads 0..h/g share key-value head 0, and so on.
        k, v = (np.repeat(array, self.heads // self.kv_heads, axis=0) for array in (k, v))
        scores = q @ k.transpose(0, 2, 1) / self.dtype(math.sqrt(self.head_dim))
        mixed = softmax(np.where(self.seen(layer, n), scores, -np.inf)) @ v
        return self.linear(mixed.transpose(1, 0, 2).reshape(n, -1), prefix + "o_proj", bias_out)

    def cos_sin(self, n):
        """(n, k) each: the angles of a half, twice."""
        frequencies, factor = inverse_frequencies(self.config, self.head_dim)
        angles = np.tile(np.arange(n)[:, None] * frequencies, 2)
        return (np.cos(angles) * factor).astype(self.dtype), (np.sin(angles) * factor).astype(self.dtype)

    def seen(self, layer, n):
        """(n, n): whether the position of the row sees that of the column."""
        back = np.arange(n)[:, None] - np.arange(n)[None, :]
        size = window(self.config, layer)
        return (back >= 0) & (back < (n if size is None else size))

    def mlp(self, prefix, x):
        _, _, bias = biases(self.config)
        gate = self.linear(x, prefix + "gate_proj", bias)
        up = self.linear(x, prefix + "up_proj", bias)
        return self.linear(gate / (1.0 + np.exp(-gate)) * up, prefix + "down_proj", bias)

    def experts(self, prefix, x):
        """Each position goes through the top experts_per_tok experts, weighted by the router's probabilities."""
        count = self.config["num_experts_per_tok"]
        probabilities = softmax(self.linear(x, prefix + "gate"))
        order = np.argsort(-probabilities, axis=-1, kind="stable")
        out = np.zeros_like(x)
        for position, row in enumerate(probabilities):
            chosen = order[position, :count]
            share = row[chosen]
            if count < len(row):
                self.margins.append(float(share[-1] - row[order[position, count]]))
            if self.config.get("norm_topk_prob", False):
                share = share / share.sum()
            for expert, part in zip(chosen, share):
                out[position] += part * self.mlp(f"{prefix}experts.{expert}.", x[position])
        return out


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
