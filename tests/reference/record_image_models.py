"""Writes tests/golden/images: what transformers makes of the models of image_cases.py, whose prompts have images.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
    python record_image_models.py [NAME...]

As recording.py does it for text: in float32 on the CPU, with eager attention, each sequence computed whole.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers

from image_cases import (
    CASES, GEMMA3_PROMPTS, IMAGES, INTERNVL_MARKS, INTERNVL_PROMPTS, MISTRAL3_ENDS, MISTRAL3_PROMPTS, PLACEHOLDER, PROMPTS,
)
from recording import GOLDEN, SEEDS, config_of, load, tensors_of

GREEDY = 8


def pixels(name, config):
    """Numbers from 0 to 255, [3 side rows, 3 side columns, 3], which no file has to hold."""
    rows, columns, seed = IMAGES[name]
    vision = config["vision_config"]
    if is_gemma(config):
        side = vision["image_size"] // rows
    elif is_mistral(config):
        side = vision["patch_size"] * config["spatial_merge_size"]
    elif is_internvl(config):
        side = vision["patch_size"][0] * int(1 / config["downsample_ratio"])
    else:
        side = vision["patch_size"] * vision["spatial_merge_size"]
    count = 3 * rows * columns * side * side
    places = np.arange(count)
    return ((places * 37 + places // 5 * 11 + seed * 71) % 256).astype(np.uint8).reshape(rows * side, columns * side, 3)


def is_gemma(config):
    return config["model_type"] == "gemma3"


def is_mistral(config):
    return config["model_type"] == "mistral3"


def is_internvl(config):
    return config["model_type"] == "internvl"


def normalised(name, config):
    return (pixels(name, config).astype(np.float32) - np.float32(127.5)) / np.float32(127.5)


def patches(name, config):
    """As Qwen2VLImageProcessor makes patches of an image of the right size, with a mean and a deviation of 0.5."""
    vision = config["vision_config"]
    side, merge, frames = (vision[key] for key in ("patch_size", "spatial_merge_size", "temporal_patch_size"))
    image = normalised(name, config)
    rows, columns = image.shape[0] // side, image.shape[1] // side
    frames_of = np.broadcast_to(image.transpose(2, 0, 1), (frames, 3, *image.shape[:2]))
    cut = frames_of.reshape(frames, 3, rows // merge, merge, side, columns // merge, merge, side)
    ordered = cut.transpose(2, 5, 3, 6, 1, 0, 4, 7)
    return ordered.reshape(rows * columns, 3 * frames * side * side), (1, rows, columns)


def placeholders(rows, columns, config):
    if is_internvl(config):
        opens, closes = INTERNVL_MARKS
        return [opens, *[PLACEHOLDER] * (rows * columns), closes]
    if not is_mistral(config):
        return [PLACEHOLDER] * (rows * columns)
    row, (row_end, image_end) = [PLACEHOLDER] * columns, MISTRAL3_ENDS
    return (row + [row_end]) * (rows - 1) + row + [image_end]


def expanded(prompt, config):
    """The ids of a prompt, its images in order, and where each begins."""
    ids, images = [], []
    for part in prompt:
        if isinstance(part, str):
            rows, columns, seed = IMAGES[part]
            images.append({"name": part, "offset": len(ids), "rows": rows, "columns": columns, "seed": seed})
            ids += placeholders(rows, columns, config)
        else:
            ids.append(part)
    return ids, images


def log_probs(model, config, ids, images):
    given = {}
    if images and is_gemma(config):
        made = [normalised(image["name"], config) for image in images]
        kinds = torch.tensor([[int(id == PLACEHOLDER) for id in ids]])
        given = {"pixel_values": torch.tensor(np.stack(made).transpose(0, 3, 1, 2)), "token_type_ids": kinds}
    elif images and is_internvl(config):
        # Squares, which stand one below the other.
        side = config["vision_config"]["image_size"][0]
        made = [normalised(image["name"], config).reshape(-1, side, side, 3) for image in images]
        given = {"pixel_values": torch.tensor(np.concatenate(made).transpose(0, 3, 1, 2))}
    elif images and is_mistral(config):
        made = [torch.tensor(normalised(image["name"], config).transpose(2, 0, 1)) for image in images]
        sizes = [image.shape[1:] for image in made]
        rows, columns = (max(size[axis] for size in sizes) for axis in (0, 1))
        padded = [torch.nn.functional.pad(image, (0, columns - image.shape[2], 0, rows - image.shape[1])) for image in made]
        given = {"pixel_values": torch.stack(padded), "image_sizes": torch.tensor(sizes)}
    elif images:
        made = [patches(image["name"], config) for image in images]
        kinds = torch.zeros(1, len(ids), dtype=torch.int)
        for image in images:
            rows, columns, _ = IMAGES[image["name"]]
            kinds[0, image["offset"] : image["offset"] + rows * columns] = 1
        given = {
            "pixel_values": torch.tensor(np.concatenate([numbers for numbers, _ in made])),
            "image_grid_thw": torch.tensor([grid for _, grid in made]),
            "mm_token_type_ids": kinds,
        }
    given = {key: value.to(model.dtype) if value.is_floating_point() else value for key, value in given.items()}
    if not is_gemma(config) and not is_mistral(config) and not is_internvl(config):
        model.model.rope_deltas = None
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False, **given).logits[0].double().log_softmax(-1).numpy()


def expected(model, config, prompt):
    ids, images = expanded(prompt, config)
    whole = log_probs(model, config, ids, images)
    sequence, chosen, lead = list(ids), [], 9.0
    for _ in range(GREEDY):
        last = log_probs(model, config, sequence, images)[-1]
        # A placeholder that is sampled is an ordinary token, which transformers cannot compute.
        last[PLACEHOLDER] = -np.inf
        last[PLACEHOLDER + 1] = -np.inf
        best = int(last.argmax())
        chosen.append(float(last[best]))
        ordered = np.sort(last)
        lead = min(lead, float(ordered[-1] - ordered[-2]))
        sequence.append(best)
    return {
        "token_ids": ids,
        "images": images,
        "next_log_probs": [float(whole[i, token]) for i, token in enumerate(ids[1:])],
        "greedy": sequence[len(ids) :],
        "log_probs": chosen,
    }, lead


def check(case, config, tensors, seed, found):
    """Raises ValueError where the numbers would not tell right from wrong."""
    for change in case.without:
        other = load({**config, **change}, tensors, seed)
        moved = 0.0
        for prompt in found.values():
            whole = log_probs(other, config, prompt["token_ids"], prompt["images"])
            wrong = [float(whole[i, token]) for i, token in enumerate(prompt["token_ids"][1:])]
            right = prompt["next_log_probs"]
            moved = max([moved, *(abs(a - b) for a, b in zip(right, wrong))])
        if moved < 1e-2:
            raise ValueError(f"{change} changes log-probs by {moved:.1e} only")


def rounded(prompt):
    return {**prompt, **{key: [round(number, 6) for number in prompt[key]] for key in ("next_log_probs", "log_probs")}}


def published(config, tensors):
    """The shapes that published checkpoints have: experts of Qwen3-VL are inputs by outputs there, other than in memory."""
    if config["model_type"] != "qwen3_vl_moe":
        return tensors
    turned = {name: [shape[0], shape[2], shape[1]] for name, shape in tensors.items() if ".mlp.experts." in name}
    return {**tensors, **turned}


def record(case, directory):
    config = config_of(case)
    tensors = published(config, tensors_of(case, config))
    refused = None
    for seed in range(1, SEEDS):
        model = load(config, tensors, seed)
        found, lead = {}, 9.0
        own = {"gemma3": GEMMA3_PROMPTS, "internvl": INTERNVL_PROMPTS, "mistral3": MISTRAL3_PROMPTS}
        prompts = own.get(config["model_type"], PROMPTS)
        for name, prompt in prompts.items():
            found[name], least = expected(model, config, prompt)
            lead = min(lead, least)
        try:
            if lead < 1e-2:
                raise ValueError(f"a greedy token leads by {lead:.1e} only")
            check(case, config, tensors, seed, found)
        except ValueError as error:
            refused = error
            continue
        head = {"transformers": transformers.__version__, "seed": seed, "config": config, "tensors": tensors}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        prompts = [f"    {json.dumps(name)}: {json.dumps(rounded(prompt))}" for name, prompt in found.items()]
        lines.append('  "prompts": {\n' + ",\n".join(prompts) + "\n  }")
        (directory / f"{case.name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return seed
    raise refused


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    directory = pathlib.Path(GOLDEN / "images")
    directory.mkdir(parents=True, exist_ok=True)
    failed = False
    for case in CASES:
        if sys.argv[1:] and case.name not in sys.argv[1:]:
            continue
        try:
            print(f"{case.name}: seed {record(case, directory)}", flush=True)
        except Exception as error:  # noqa: BLE001 (every case is to be tried)
            failed = True
            print(f"{case.name}: FAILED: {type(error).__name__}: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
