"""The shapes of published models, and tiny ones of the same families: their files' content but for the numbers.

Owns what follows from a shape alone: config.json, tensors, bytes and operations.
"""

from dataclasses import dataclass, field

BYTES = 2  # of a number in bf16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTE_TOKENS = 256


@dataclass(frozen=True)
class Shape:
    """A model but for its weights."""

    name: str
    family: str
    architecture: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    theta: float
    epsilon: float
    positions: int
    scaling: dict | None = field(default=None, hash=False)
    experts: int = 0  # of each layer; then `intermediate` is what one of them has
    per_token: int = 0  # experts that a token goes through

    def config(self):
        """config.json as transformers 4 writes it."""
        written = {
            "architectures": [self.architecture],
            "attention_bias": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.positions,
            "model_type": self.family,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.epsilon,
            "rope_scaling": self.scaling,
            "rope_theta": self.theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": self.vocab,
        }
        if self.family != "llama":
            written |= {"max_window_layers": self.layers, "sliding_window": None, "use_sliding_window": False}
        if self.experts:
            written |= {"num_experts": self.experts, "num_experts_per_tok": self.per_token, "norm_topk_prob": True}
            written |= {"moe_intermediate_size": self.intermediate, "decoder_sparse_step": 1, "mlp_only_layers": []}
        return written

    def tensors(self):
        """name -> shape, in the order of the model."""
        d, inner, k = self.hidden, self.intermediate, self.head_dim
        found = {"model.embed_tokens.weight": (self.vocab, d)}
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            found[at + "input_layernorm.weight"] = (d,)
            found[at + "self_attn.q_proj.weight"] = (self.heads * k, d)
            found[at + "self_attn.k_proj.weight"] = (self.kv_heads * k, d)
            found[at + "self_attn.v_proj.weight"] = (self.kv_heads * k, d)
            found[at + "self_attn.o_proj.weight"] = (d, self.heads * k)
            if self.family != "llama":
                found[at + "self_attn.q_norm.weight"] = (k,)
                found[at + "self_attn.k_norm.weight"] = (k,)
            found[at + "post_attention_layernorm.weight"] = (d,)
            if self.experts:
                found[at + "mlp.gate.weight"] = (self.experts, d)
            for part in [f"mlp.experts.{expert}." for expert in range(self.experts)] or ["mlp."]:
                found[at + part + "gate_proj.weight"] = (inner, d)
                found[at + part + "up_proj.weight"] = (inner, d)
                found[at + part + "down_proj.weight"] = (d, inner)
        found["model.norm.weight"] = (d,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocab, d)
        return found

    @property
    def parameters(self):
        """All of them; a tied head counts once."""
        count = 0
        for shape in self.tensors().values():
            size = 1
            for side in shape:
                size *= side
            count += size
        return count

    @property
    def file_bytes(self):
        """Of the weights as they lie in files."""
        return self.parameters * BYTES

    @property
    def expert_parameters(self):
        """Of one expert of every layer."""
        return 3 * self.layers * self.hidden * self.intermediate if self.experts else 0

    @property
    def layer_parameters(self):
        """Without embeddings and head: what every token of a prompt is multiplied by."""
        idle = (self.experts - self.per_token) * self.expert_parameters
        return self.parameters - self.vocab * self.hidden * (1 if self.tied else 2) - idle

    @property
    def read_parameters(self):
        """What a step of one token reads: layers and head, but of the embeddings only some rows."""
        return self.layer_parameters + self.vocab * self.hidden

    def read_by(self, rows):
        """What a step of so many rows reads, where rows choose their experts at random."""
        if not self.experts:
            return self.read_parameters
        chosen = self.experts * (1 - (1 - self.per_token / self.experts) ** rows)
        return self.read_parameters + (chosen - self.per_token) * self.expert_parameters

    @property
    def kv_bytes(self):
        """Keys and values of a token, in bf16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES


def deviation(name, shape):
    """(mean, standard deviation) of a tensor's random numbers.

    Scaled so that attention prefers some positions, each layer counts, and log-probs spread over nats: with flat ones,
    an engine could be wrong and look right. Norms are not all one, or leaving out their weights would change nothing.
    """
    part = name.split(".")[-2]
    if part.endswith("norm"):
        return (1.3 if part in ("q_norm", "k_norm") else 1.0), 0.1
    gain = {"q_proj": 1.3, "k_proj": 1.3, "o_proj": 1.5, "down_proj": 1.5, "embed_tokens": 3.0, "lm_head": 3.0}
    return 0.0, gain.get(part, 1.0) * shape[-1] ** -0.5


def tokenizer(vocab):
    """tokenizer.json: three special tokens, the bytes, and made-up words of which no text is ever encoded.

    Each id has a text of its own, so that every token of an answer is an event with text.
    """
    tokens = SPECIAL + alphabet()
    width = len(str(vocab))
    tokens += [f"<{index:0{width}}>" for index in range(len(tokens), vocab)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    model |= {"vocab": {token: index for index, token in enumerate(tokens)}, "merges": []}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }


def alphabet():
    """The 256 characters that byte-level BPE writes bytes as, in the order of the code points."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return sorted([chr(byte) for byte in printable] + [chr(0x100 + index) for index in range(256 - len(printable))])


def text_ids(vocab):
    """Ids with a text of their own: neither special nor a lone byte."""
    return range(len(SPECIAL) + BYTE_TOKENS, vocab)


LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
QWEN3 = {"family": "qwen3", "architecture": "Qwen3ForCausalLM", "tied": True, "theta": 1000000.0, "epsilon": 1e-6}
MIXTURE = {"family": "qwen3_moe", "architecture": "Qwen3MoeForCausalLM", "tied": False, "theta": 1000000.0, "epsilon": 1e-6}
LLAMA = {"family": "llama", "architecture": "LlamaForCausalLM", "tied": False, "theta": 500000.0, "epsilon": 1e-5}

QWEN3_06B = Shape(
    "Qwen3-0.6B", hidden=1024, intermediate=3072, layers=28, heads=16, kv_heads=8, head_dim=128, vocab=151936,
    positions=40960, **QWEN3,
)  # fmt: skip
LLAMA_8B = Shape(
    "Llama-3.1-8B", hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, head_dim=128, vocab=128256,
    positions=131072, scaling=LLAMA3, **LLAMA,
)  # fmt: skip
# A sixth of its 48 layers: what is told of it holds for a layer.
QWEN3_30B_A3B = Shape(
    "Qwen3-30B-A3B, 8 layers", hidden=2048, intermediate=768, layers=8, heads=32, kv_heads=4, head_dim=128, vocab=151936,
    positions=40960, experts=128, per_token=8, **MIXTURE,
)  # fmt: skip
# For rehearsals.
TINY_QWEN3 = Shape(
    "tiny Qwen3", hidden=64, intermediate=96, layers=2, heads=4, kv_heads=2, head_dim=32, vocab=3000, positions=4096,
    **QWEN3,
)  # fmt: skip
TINY_LLAMA = Shape(
    "tiny Llama", hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, head_dim=16, vocab=4000, positions=8192,
    scaling=LLAMA3 | {"original_max_position_embeddings": 64}, **LLAMA,
)  # fmt: skip
TINY_MIXTURE = Shape(
    "tiny mixture", hidden=64, intermediate=32, layers=2, heads=4, kv_heads=2, head_dim=16, vocab=3000, positions=4096,
    experts=8, per_token=2, **MIXTURE,
)  # fmt: skip
