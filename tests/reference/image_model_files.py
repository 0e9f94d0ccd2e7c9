"""The files of a tiny model that reads images, but for its weights: tokenizer, template and settings of its processor.

Owns: MARKS, `write_files`. Needs nothing but Python, so that tests of clients use it as record_image_conversations.py does.
"""

import json
import pathlib

TOKENIZER = pathlib.Path(__file__).parent.parent / "fixtures" / "tiny-model"
# What the tokenizer of the tiny model gets for images.
MARKS = {326: "<|vision_start|>", 327: "<|image_pad|>", 328: "<|vision_end|>", 329: "<|video_pad|>"}
# The same of Gemma 3, in whose tokenizer runs of newlines are tokens too.
GEMMA3_MARKS = {326: "<start_of_image>", 327: "<image_soft_token>", 328: "<end_of_image>"}
# The same of Mistral 3, where two of them end rows.
MISTRAL3_MARKS = {326: "[IMG_BREAK]", 327: "[IMG]", 328: "[IMG_END]", 329: "[PREFIX]"}
# The same of InternVL, where two of them stand around an image and belong to it.
INTERNVL_MARKS = {326: "<img>", 327: "<IMG_CONTEXT>", 328: "</img>", 329: "<video>"}
# The same of GLM-4.1V.
GLM_MARKS = {326: "<|begin_of_image|>", 327: "<|image|>", 328: "<|end_of_image|>", 329: "<|video|>"}
NEWLINES = {329: "\n\n", 330: "\n\n\n", 331: "\n\n\n\n"}


def is_gemma(processor):
    return processor["image_processor_type"] == "Gemma3ImageProcessor"


def is_mistral(processor):
    return processor["image_processor_type"] == "PixtralImageProcessor"


def is_internvl(processor):
    return processor["image_processor_type"].startswith("GotOcr2ImageProcessor")


def is_glm(processor):
    return processor["image_processor_type"].startswith("Glm4")


def marks_of(processor):
    kinds = ((is_gemma, GEMMA3_MARKS), (is_mistral, MISTRAL3_MARKS), (is_internvl, INTERNVL_MARKS), (is_glm, GLM_MARKS))
    return next((marks for is_kind, marks in kinds if is_kind(processor)), MARKS)


def write_files(directory, template, processor):
    tokenizer = json.loads((TOKENIZER / "tokenizer.json").read_text())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": id, "content": content, **plain} for id, content in marks_of(processor).items()]
    if is_gemma(processor):
        plain["special"] = False
        tokenizer["added_tokens"] += [{"id": id, "content": content, **plain} for id, content in NEWLINES.items()]
        template = template.replace("".join(list(MARKS.values())[:3]), GEMMA3_MARKS[326])
    if is_mistral(processor):
        template = template.replace("".join(list(MARKS.values())[:3]), MISTRAL3_MARKS[327])
    if is_internvl(processor):
        template = template.replace("".join(list(MARKS.values())[:3]), INTERNVL_MARKS[327] + "\\n")
    if is_glm(processor):
        template = template.replace("".join(list(MARKS.values())[:3]), "".join(list(GLM_MARKS.values())[:3]))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    (directory / "preprocessor_config.json").write_text(json.dumps(processor))
