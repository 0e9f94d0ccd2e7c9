"""The one model that is served under every name, and an adapter of it."""

import json
import pathlib

# As long as the longest that a test asks for, so that no `--max-model-len` is refused. Attention is as before below the model's own 8192.
LONGEST = 40960
# Tokens that the model does not use, and what they stand for here: the marks of the models that most tests name.
MARKS = {"<repo_name>": "<think>", "<reponame>": "</think>", "<file_sep>": "<tool_call>", "<filename>": "</tool_call>"}


def write_model(directory, weights, template):
    """Links the weights, and describes them with a template that shows tools, marks, and a context as long as tests want."""
    directory.mkdir(parents=True)
    for file in pathlib.Path(weights).iterdir():
        if file.name not in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (directory / file.name).symlink_to(file)
    config = json.loads((pathlib.Path(weights) / "config.json").read_text()) | {"max_position_embeddings": LONGEST}
    (directory / "config.json").write_text(json.dumps(config))
    settings = json.loads((pathlib.Path(weights) / "tokenizer_config.json").read_text())
    settings |= {"chat_template": template, "model_max_length": LONGEST}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = json.loads((pathlib.Path(weights) / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        if token["content"] in MARKS:
            token |= {"content": MARKS[token["content"]], "special": False}
    model = tokenizer["model"]
    model["vocab"] = {MARKS.get(token, token): id for token, id in model["vocab"].items()}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    return directory


def write_adapter(directory, model):
    """An adapter of rank 8 whose numbers are drawn, so small that answers stay words."""
    import numpy
    from safetensors.numpy import save_file

    directory.mkdir(parents=True)
    config = json.loads((model / "config.json").read_text())
    hidden = config["hidden_size"]
    values = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    draw = numpy.random.default_rng(0)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, outputs in (("q_proj", hidden), ("v_proj", values)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = draw.normal(0, 0.02, (8, hidden)).astype(numpy.float32)
            tensors[f"{name}.lora_B.weight"] = draw.normal(0, 0.02, (outputs, 8)).astype(numpy.float32)
    save_file(tensors, directory / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "bias": "none", "base_model_name_or_path": str(model)}
    (directory / "adapter_config.json").write_text(json.dumps(settings | {"target_modules": ["q_proj", "v_proj"]}))
    return directory
