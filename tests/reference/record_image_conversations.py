"""Writes tests/golden/image_conversations: what transformers' processor and model make of conversations with images.

    pip install numpy==2.4.6 pillow==13.0.0 torch==2.15.0 torchvision==0.29.2 transformers==5.23.0
    python record_image_conversations.py [TYPE...]

Everything that tests/clients/test_images.py sends and compares is in the files: models with drawn weights, images as PNG and
JPEG files, conversations of two turns in which the model's greedy answer stands between. Ids, places of placeholders and
pixels are those of transformers' processor; log-probs those of its model, in float32 on the CPU, each sequence whole.
"""

import base64
import io
import json
import pathlib
import random
import sys
import tempfile

import numpy as np
import torch
import transformers
from PIL import Image

from image_cases import (
    QWEN2_5_VISION, QWEN3_TEXT, QWEN3_VISION, gemma3, glm4v, glm4v_moe, glm46v, internvl, mistral3, qwen2_5, qwen3, qwen3_5,
    qwen3_5_moe, qwen3_moe,
)  # fmt: skip
from image_model_files import (
    GEMMA3_MARKS, GLM_MARKS, INTERNVL_MARKS, MARKS, MISTRAL3_MARKS, is_gemma, is_glm, is_internvl, is_mistral, write_files,
)  # fmt: skip
from record_image_models import published
from recording import GOLDEN, SEEDS, config_of, load, tensors_of

OUTER = {"image_token_id": 327, "video_token_id": 329, "vision_start_token_id": 326, "vision_end_token_id": 328}
VOCABULARY = 336
GREEDY = 8
# What a processor makes of images for its model.
GIVEN = ("pixel_values", "image_grid_thw", "image_sizes")
# As the published templates write messages, their parts and the results of tools.
TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\\n' }}{%- endif %}"
    "{%- if message.content is string %}{{- message.content }}{%- else %}"
    "{%- for part in message.content %}{%- if part.type == 'image' or 'image_url' in part %}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else %}{{- part.text }}{%- endif %}{%- endfor %}{%- endif %}"
    "{%- if message.role == 'tool' %}{{- '\\n</tool_response>' }}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# Patches as large as published ones, so that the processor's defaults fit; limits that keep images small.
QWEN2_5_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
    "min_pixels": 4 * 28 * 28, "max_pixels": 24 * 28 * 28, "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
QWEN3_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2,
    "size": {"shortest_edge": 4 * 32 * 32, "longest_edge": 24 * 32 * 32}, "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
GEMMA3_PROCESSOR = {
    "image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}, "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5], "image_seq_length": 16, "do_pan_and_scan": None, "resample": 2,
}
MISTRAL3_PROCESSOR = {
    "image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 140}, "patch_size": {"height": 14, "width": 14},
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3,
}
# As published, but for fewer and smaller squares.
INTERNVL_PROCESSOR = {
    "image_processor_type": "GotOcr2ImageProcessorFast", "crop_to_patches": False, "size": {"height": 56, "width": 56},
    "max_patches": 4, "min_patches": 1, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 3,
}
# Limits are those of the two images of a patch.
GLM_PROCESSOR = {
    "image_processor_type": "Glm4vImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
    "size": {"shortest_edge": 2 * 4 * 28 * 28, "longest_edge": 2 * 24 * 28 * 28}, "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
GLM46V_PROCESSOR = {**GLM_PROCESSOR, "image_processor_type": "Glm46VImageProcessor"}


def cases():
    vision = {**QWEN2_5_VISION, "patch_size": 14, "spatial_patch_size": 14, "window_size": 56}
    yield qwen2_5("conversation", **OUTER, vocab_size=VOCABULARY, vision=vision), QWEN2_5_PROCESSOR
    text = {**QWEN3_TEXT, "vocab_size": VOCABULARY}
    yield qwen3("conversation", **OUTER, text=text, vision={**QWEN3_VISION, "patch_size": 16}), QWEN3_PROCESSOR
    yield qwen3_5("conversation", **OUTER, text={"vocab_size": VOCABULARY}, vision={"patch_size": 16}), QWEN3_PROCESSOR
    for mixture in (qwen3_moe, qwen3_5_moe):
        yield mixture("conversation", **OUTER, text={"vocab_size": VOCABULARY}, vision={"patch_size": 16}), QWEN3_PROCESSOR
    outer = {"boi_token_index": 326, "eoi_token_index": 328, "image_token_index": 327, "mm_tokens_per_image": 16}
    vision = {"image_size": 56, "patch_size": 7}
    yield gemma3("conversation", **outer, text={"vocab_size": VOCABULARY}, vision=vision), GEMMA3_PROCESSOR
    text = {"vocab_size": VOCABULARY}
    yield mistral3("conversation", image_token_index=327, text=text, vision={"patch_size": 14}), MISTRAL3_PROCESSOR
    outer = {"image_token_id": 327, "image_seq_length": 16, "text": {"vocab_size": VOCABULARY}}
    yield internvl("conversation", **outer, vision={"image_size": [56, 56], "patch_size": [7, 7]}), INTERNVL_PROCESSOR
    outer = {"image_token_id": 327, "image_start_token_id": 326, "image_end_token_id": 328, "video_token_id": 329}
    outer |= {"video_start_token_id": 330, "video_end_token_id": 331, "text": {"vocab_size": VOCABULARY}}
    outer |= {"vision": {"image_size": 70, "patch_size": 14}}
    yield glm4v("conversation", **outer), GLM_PROCESSOR
    yield glm4v_moe("conversation", **outer), GLM_PROCESSOR
    yield glm46v("conversation", **outer), GLM46V_PROCESSOR


def files():
    """Images of odd sizes and kinds, by name."""
    drawn = random.Random("images of conversations")
    made = {}
    for name, size, kind in [("photo", (97, 61), "JPEG"), ("page", (50, 120), "PNG"), ("icon", (9, 9), "PNG"), ("plot", (201, 33), "PNG"), ("scan", (75, 80), "JPEG")]:
        # Few waves rather than noise, so that files stay small.
        waves = [[drawn.uniform(0.02, 0.3) for _ in range(3)] + [drawn.uniform(0, 6)] for _ in range(3)]
        y, x = np.mgrid[0 : size[1], 0 : size[0]]
        channels = [127 + 120 * np.sin(a * x + b * y + phase) * np.cos(c * (x - y)) for a, b, c, phase in waves]
        image = Image.fromarray(np.stack(channels, -1).clip(0, 255).astype(np.uint8))
        if name == "icon":
            alpha = Image.fromarray((np.arange(81) * 3).astype(np.uint8).reshape(9, 9))
            image.putalpha(alpha)
        if name == "plot":
            image = image.convert("P", palette=Image.Palette.ADAPTIVE, colors=8)
        if name == "scan":
            image = image.convert("L")
        file = io.BytesIO()
        options = {"quality": 85, "subsampling": 2} if kind == "JPEG" else {"optimize": True}
        image.save(file, kind, **options)
        made[name] = file.getvalue()
    return made


def image(name):
    return {"type": "image", "name": name}


def text(words):
    return {"type": "text", "text": words}


def user(*parts):
    return {"role": "user", "content": list(parts)}


# Two turns each: what is said before the answer, and what is said after it.
CONVERSATIONS = {
    "an image": ([user(image("photo"), text("What is this?"))], [user(text("And now?"))]),
    "two images": ([user(text("Compare "), image("page"), text(" with "), image("icon"), text("."))], [user(text("Why?"))]),
    "an image in the second turn": ([user(text("Hello."))], [user(text("See: "), image("plot"))]),
    "images in both turns": (
        [{"role": "system", "content": "Be short."}, user(image("scan"), image("photo"))],
        [user(image("page"), text("?"), image("icon"))],
    ),
    "images of a tool": (
        [user(text("Look.")), {"role": "tool", "tool_call_id": "call_1", "content": [text("A screen: "), image("plot")]}],
        [{"role": "tool", "tool_call_id": "call_2", "content": [image("scan")]}],
    ),
}

# Where newlines beside an image are one token with its own.
GEMMA3_CONVERSATIONS = {
    "newlines beside images": (
        [user(text("See\n\n"), image("icon"), text("\n"), image("page"), image("scan"), text("\n\nWell?"))],
        [user(image("plot"), text("\n"))],
    ),
}


def with_pictures(messages, pictures):
    """Messages whose parts have the pictures that they name."""

    def shown(part):
        return {"type": "image", "image": pictures[part["name"]]} if part["type"] == "image" else part

    return [
        {**message, "content": [shown(part) for part in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]


def gemma3_processor(tokenizer, images, settings):
    for name, id in (("boi_token", 326), ("image_token", 327), ("eoi_token", 328)):
        setattr(tokenizer, name, GEMMA3_MARKS[id])
        setattr(tokenizer, f"{name}_id", id)
    count = settings["image_seq_length"]
    return transformers.Gemma3Processor(images, tokenizer, chat_template=tokenizer.chat_template, image_seq_length=count)


def mistral3_processor(tokenizer, images):
    for id, token in MISTRAL3_MARKS.items():
        assert tokenizer.convert_tokens_to_ids(token) == id
    kind, template = transformers.PixtralProcessor, tokenizer.chat_template
    return kind(images, tokenizer, patch_size=14, spatial_merge_size=2, chat_template=template)


def internvl_processor(tokenizer, images, length):
    names = (("start_image_token", 326), ("context_image_token", 327), ("end_image_token", 328), ("video_token", 329))
    for name, id in names:
        setattr(tokenizer, name, INTERNVL_MARKS[id])
        setattr(tokenizer, f"{name}_id", id)
    kind, template = transformers.InternVLProcessor, tokenizer.chat_template
    return kind(images, tokenizer, transformers.InternVLVideoProcessor(), image_seq_length=length, chat_template=template)


def glm_processor(tokenizer, images, is_newer):
    for id, token in GLM_MARKS.items():
        assert tokenizer.convert_tokens_to_ids(token) == id
    kind = transformers.Glm46VProcessor if is_newer else transformers.Glm4vProcessor
    videos = transformers.Glm46VVideoProcessor() if is_newer else transformers.Glm4vVideoProcessor()
    return kind(images, tokenizer, videos, chat_template=tokenizer.chat_template)


class Reader:
    """transformers' processor of a model."""

    def __init__(self, config, settings):
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            write_files(directory, TEMPLATE, settings)
            (directory / "config.json").write_text(json.dumps(config))
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
            images = transformers.AutoImageProcessor.from_pretrained(directory)
        if is_gemma(settings):
            self.processor = gemma3_processor(tokenizer, images, settings)
            return
        if is_mistral(settings):
            self.processor = mistral3_processor(tokenizer, images)
            return
        if is_internvl(settings):
            self.processor = internvl_processor(tokenizer, images, config["image_seq_length"])
            return
        if is_glm(settings):
            self.processor = glm_processor(tokenizer, images, config["model_type"] == "glm46v")
            return
        is_older = config["model_type"] == "qwen2_5_vl"
        kind = transformers.Qwen2_5_VLProcessor if is_older else transformers.Qwen3VLProcessor
        videos = transformers.Qwen2VLVideoProcessor() if is_older else transformers.Qwen3VLVideoProcessor()
        # What the processor reads of a tokenizer that is made for it.
        for name, id in (("image_token", 327), ("vision_start_token", 326), ("vision_end_token", 328), ("video_token", 329)):
            setattr(tokenizer, name, MARKS[id])
            setattr(tokenizer, f"{name}_id", id)
        self.processor = kind(image_processor=images, tokenizer=tokenizer, video_processor=videos, chat_template=TEMPLATE)

    def read(self, messages, pictures):
        shown = with_pictures(messages, pictures)
        return self.tokens(self.processor.apply_chat_template(shown, tokenize=False, add_generation_prompt=True), messages, pictures)

    def tokens(self, words, messages, pictures):
        names = [part["name"] for message in messages if isinstance(message["content"], list) for part in message["content"] if part["type"] == "image"]
        images = [pictures[name] for name in names]
        made = self.processor(text=[words], images=images or None, return_tensors="pt")
        return made["input_ids"][0].tolist(), {key: made[key] for key in GIVEN if key in made}


def log_probs(model, ids, given):
    kinds = torch.tensor([[int(id == 327) for id in ids]], dtype=torch.int)
    kinds_name = {"gemma3": "token_type_ids", "internvl": None, "mistral3": None}.get(model.config.model_type, "mm_token_type_ids")
    model.model.rope_deltas = None
    with torch.no_grad():
        given = {**given, kinds_name: kinds} if given and kinds_name else given
        return model(torch.tensor([ids]), use_cache=False, **given).logits[0].double().log_softmax(-1).numpy()


def ranges(ids, family):
    if family == "mistral3":
        return runs_with_ends(ids)
    if family == "internvl":
        # As vLLM names them, with what stands around them.
        return [[place, ids.index(328, place) + 1 - place] for place, id in enumerate(ids) if id == 326]
    found, start = [], None
    for place, id in enumerate([*ids, None]):
        if id == 327 and start is None:
            start = place
        elif id != 327 and start is not None:
            found.append([start, place - start])
            start = None
    return found


def runs_with_ends(ids):
    """Images as vLLM names them, with what ends their rows."""
    found, start = [], None
    for place, id in enumerate(ids):
        start = place if id == 327 and start is None else start
        if id == 328:
            found.append([start, place + 1 - start])
            start = None
    return found


def of_prompt(ids, whole):
    return [round(float(whole[place, id]), 6) for place, id in enumerate(ids[1:])]


def conversation(model, reader, pictures, before, after):
    ids, given = reader.read(before, pictures)
    sequence, lead = list(ids), 9.0
    for _ in range(GREEDY):
        last = log_probs(model, sequence, given)[-1]
        # Ends and marks would make another conversation.
        last[[0, 1, 2, *MARKS]] = -np.inf
        ordered = np.sort(last)
        lead = min(lead, float(ordered[-1] - ordered[-2]))
        sequence.append(int(last.argmax()))
    whole = log_probs(model, sequence, given)
    first = {"token_ids": ids, "images": ranges(ids, model.config.model_type), "log_probs": of_prompt(ids, whole), "answer": sequence[len(ids) :]}
    # What the processor makes of everything after the answer, which the template closes.
    shown = with_pictures(after, pictures)
    closed = "<|im_end|>\n" + reader.processor.apply_chat_template(shown, tokenize=False, add_generation_prompt=True)
    tail, _ = reader.tokens(closed, after, pictures)
    second = sequence + tail
    _, given = reader.read([*before, *after], pictures)
    return {
        "before": before,
        "after": after,
        "first": first,
        "second": {"token_ids": second, "images": ranges(second, model.config.model_type), "log_probs": of_prompt(second, log_probs(model, second, given))},
    }, lead


def record(case, settings, encoded, directory):
    pictures = {name: opened(file) for name, file in encoded.items()}
    config = config_of(case)
    tensors = published(config, tensors_of(case, config))
    reader = Reader(config, settings)
    for seed in range(1, SEEDS):
        model = load(config, tensors, seed)
        of_family = {**CONVERSATIONS, **(GEMMA3_CONVERSATIONS if is_gemma(settings) else {})}
        made = {name: conversation(model, reader, pictures, *turns) for name, turns in of_family.items()}
        if min(lead for _, lead in made.values()) < 1e-2:
            continue
        head = {"transformers": transformers.__version__, "seed": seed, "config": config, "tensors": tensors, "preprocessor": settings}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        shown = [f"    {json.dumps(name)}: {json.dumps(found)}" for name, (found, _) in made.items()]
        lines.append('  "conversations": {\n' + ",\n".join(shown) + "\n  }")
        (directory / f"{case.model_type}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return seed
    raise ValueError("no seed has answers that lead")


def opened(file):
    """As vLLM opens an image: what is transparent is white."""
    image = Image.open(io.BytesIO(file))
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        white.paste(image, mask=image.getchannel("A"))
        return white.convert("RGB")
    return image.convert("RGB")


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    directory = GOLDEN / "image_conversations"
    directory.mkdir(parents=True, exist_ok=True)
    encoded = files()
    shown = {name: base64.b64encode(file).decode() for name, file in encoded.items()}
    (directory / "files.json").write_text(json.dumps({"chat_template": TEMPLATE, "files": shown}, indent=1) + "\n")
    for case, settings in cases():
        if sys.argv[1:] and case.model_type not in sys.argv[1:]:
            continue
        print(f"{case.model_type}: seed {record(case, settings, encoded, directory)}", flush=True)


if __name__ == "__main__":
    main()
