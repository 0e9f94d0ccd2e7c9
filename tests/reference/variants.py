"""How cases of recorded models are described: variants of a family's common settings.

Owns: `Case`, `families`, and settings that cases of many families share. A case's `settings` are its config.json's,
beside `architectures` and `model_type`. A family is written twice over: `full` has every setting as this release of
transformers writes it, `given` has no other than those listed, in the old spelling (`rope_theta` and `rope_scaling`
instead of `rope_parameters`), so that what an engine takes for granted counts as well.
"""

import dataclasses

WINDOW = 16
# Lengths of prompts: within a window, up to it, one over it, and far beyond.
LENGTHS = (1, 7, 16, 17, 40, 72)
# Longer than what caches grow by, and than what attention takes at once.
LONG = {"lengths": (520, 1100), "max_position_embeddings": 2048}


@dataclasses.dataclass
class Case:
    name: str
    architecture: str
    model_type: str
    settings: dict
    style: str = "given"
    # What an engine without the feature amounts to: each must move the expected log-probs.
    without: list = dataclasses.field(default_factory=list)
    # The longest sequence to serve, where a setting matters beyond it only.
    max_model_len: int | None = None
    lengths: tuple = LENGTHS
    # Where published names of tensors differ from what `save_pretrained` writes: a pattern and what replaces it.
    published: tuple | None = None


def families(cases):
    """A function that makes a function for each family, which adds a case of that family to `cases`.

    The case has the family's common settings, changed; a change to `...` leaves one out.
    """

    def family(prefix, architecture, model_type, common, lengths=LENGTHS, published=None):
        def case(name, style="given", without=(), max_model_len=None, lengths=lengths, **changes):
            settings = {key: value for key, value in {**common, **changes}.items() if value is not ...}
            named = f"{prefix}_{name}" if name else prefix
            described = (named, architecture, model_type, settings, style, list(without), max_model_len, lengths)
            cases.append(Case(*described, published))

        return case

    return family


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 96,
}
RMS = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, **SIZES}
# An eps that counts, and a theta other than the default.
ODD = {"rms_norm_eps": 1e-2, "rope_theta": 500.0}
LINEAR = {"factor": 4.0, "rope_type": "linear"}
DYNAMIC = {"factor": 4.0, "rope_type": "dynamic"}
LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "rope_type": "yarn"}
NO_ROPE_SCALING = {"without": [{"rope_scaling": None}]}


def longrope(pairs):
    return {
        "long_factor": [1.0 + 0.5 * pair for pair in range(pairs)],
        "short_factor": [1.0 + 0.1 * pair for pair in range(pairs)],
        "rope_type": "longrope",
    }
