"""A tiny model, checkpoints of it as a trainer writes them, and what each of them computes, by numpy.

The files and the forward pass are those of tests/reference; the tokenizer is that of tests/fixtures/tiny-model.
"""

import json
import pathlib
import shutil
import sys

import numpy as np

from conftest import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "reference"))

import record  # noqa: E402
import reference  # noqa: E402

FIXTURE = REPOSITORY / "tests" / "fixtures" / "tiny-model"
# Between what the server computes in float32 and what numpy computes in float64.
TOLERANCE = 1e-3
# So wide that a step takes a fraction of a millisecond: calls are to come while long answers are sampled.
INTERMEDIATE_SIZE = 12288
# Positions that an MLP of that width computes at once: what it has in between is to fit a processor's cache.
AT_ONCE = 16


class Model(reference.Model):
    """The model of tests/reference, whose wide MLP computes a few positions at a time."""

    def mlp(self, prefix, x):
        return np.concatenate([super(Model, self).mlp(prefix, x[at : at + AT_ONCE]) for at in range(0, len(x), AT_ONCE)])


class Checkpoints:
    """Directories below `root`: `base`, which a server starts with, and those that are written later."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.config = json.loads((FIXTURE / "config.json").read_text()) | {"intermediate_size": INTERMEDIATE_SIZE}
        self.models = {}
        self.base = self.root / "base"
        shutil.copytree(FIXTURE, self.base)
        record.write_json(self.base / "config.json", self.config)
        self.fill(self.base, "base", seed=0)

    def write(self, name, seed):
        """Weights and nothing else, as prime-rl's trainer leaves them: two files and their index."""
        directory = self.root / name
        directory.mkdir()
        self.fill(directory, name, seed, shards=2)
        return directory

    def alone(self, directory, number):
        """One of the two files of a checkpoint, in a directory of its own."""
        part = self.root / f"{directory.name}-{number}"
        part.mkdir()
        shutil.copy(directory / f"model-{number:05}-of-00002.safetensors", part / "model.safetensors")
        return part

    def fill(self, directory, name, seed, shards=1):
        draw = record.Draw(seed)
        tensors = {key: record.random_tensor(draw, key, shape) for key, shape in record.shapes(self.config).items()}
        self.keep(name, {key: array.astype("f4") for key, array in tensors.items()})
        files = [list(tensors)[part::shards] for part in range(shards)]
        weight_map = {}
        for number, keys in enumerate(files, 1):
            file = "model.safetensors" if shards == 1 else f"model-{number:05}-of-{shards:05}.safetensors"
            (directory / file).write_bytes(record.safetensors({key: tensors[key] for key in keys}, "F32"))
            weight_map |= dict.fromkeys(keys, file)
        if shards > 1:
            record.write_json(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})

    def keep(self, name, tensors):
        """Has a checkpoint known by what it computes."""
        self.models[name] = Model(self.config, tensors)

    def changed(self, before, name, seed, share=0.2):
        """A checkpoint in which some tensors of another one are other numbers, which is not written anywhere."""
        tensors, draw = self.tensors(before), record.Draw(seed)
        for key in list(tensors)[:: round(1 / share)]:
            tensors[key] = record.random_tensor(draw, key, tensors[key].shape).astype("f4")
        self.keep(name, tensors)
        return tensors

    def write_adapter(self, name, seed, rank=4, alpha=8, targets=("q_proj", "v_proj", "o_proj", "down_proj"), **settings):
        """An adapter of the base as PEFT saves it, known by what the base computes once it is merged."""
        directory = self.root / "adapters" / name
        directory.mkdir(parents=True)
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": list(targets), "bias": "none"}
        (directory / "adapter_config.json").write_text(json.dumps(config | settings))
        merged, thin, draw = self.tensors("base"), {}, np.random.default_rng(seed)
        # The base has one tensor for embeddings and head, and an adapter changes one of them.
        merged["lm_head.weight"] = merged["model.embed_tokens.weight"]
        for key in [key for key in merged if key.split(".")[-2] in targets]:
            is_table = key == "model.embed_tokens.weight"
            outputs, inputs = merged[key].shape[::-1] if is_table else merged[key].shape
            a = draw.normal(0, inputs**-0.5, (rank, inputs)).astype("f4")
            b = draw.normal(0, rank**-0.5, (outputs, rank)).astype("f4")
            module = "base_model.model." + key.removesuffix(".weight")
            ends = ("lora_embedding_A", "lora_embedding_B") if is_table else ("lora_A.weight", "lora_B.weight")
            thin |= {f"{module}.{end}": matrix for end, matrix in zip(ends, (a, b), strict=True)}
            if module.endswith(("embed_tokens", "lm_head")):
                thin[f"{module}.base_layer.weight"] = merged[key]
            added = np.float32(alpha / rank) * (b @ a)
            merged[key] = merged[key] + (added.T if is_table else added)
        (directory / "adapter_model.safetensors").write_bytes(record.safetensors(thin, "F32"))
        self.models[name] = Model(self.config | {"tie_word_embeddings": False}, merged)
        return directory

    def tensors(self, name):
        """The float32 arrays of a checkpoint."""
        return {key: array.astype("f4") for key, array in self.models[name].weights.items()}

    def log_probs(self, name, prompt, sampled):
        """What a checkpoint says of each sampled id."""
        rows = self.models[name].log_probs([*prompt, *sampled])[len(prompt) - 1 : -1]
        return rows[np.arange(len(sampled)), sampled]
