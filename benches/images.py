#!/usr/bin/env python3
"""Images a second through processor and tower, beside transformers on the same device; see README.md.

    benches/images.py TITO [qwen2_5_vl|qwen3_vl] [--layers 2] [--side 672] [--rounds 5] [--dtype bfloat16] [--device cpu]

Needs the packages of tests/reference/record_image_conversations.py. The tower has the shape of Qwen2.5-VL-3B or
Qwen3-VL-2B with fewer layers and random weights; the text has one layer. Both sides have two threads. They are asked in
turns, each round with images of its own as JPEG files, so that nothing is cached that is not meant to be. At the end, log-probs
of one prompt are compared with those of transformers in float32, beside those of transformers in the type that was measured.
"""

import argparse
import base64
import inspect
import io
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import numpy as np
import torch
import transformers
from PIL import Image

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "reference"))

import record_image_conversations as tiny  # noqa: E402

THREADS = 2
QUESTION = {"type": "text", "text": "Hi"}
PROCESSORS = {
    "qwen2_5_vl": {**tiny.QWEN2_5_PROCESSOR, "min_pixels": 3136, "max_pixels": 12845056},
    "qwen3_vl": {**tiny.QWEN3_PROCESSOR, "size": {"shortest_edge": 65536, "longest_edge": 16777216}},
}


def config_of(kind, layers):
    text = {"num_hidden_layers": 1, "hidden_size": 2048, "num_attention_heads": 16, "vocab_size": tiny.VOCABULARY, "tie_word_embeddings": True,
            "max_position_embeddings": 32768, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
    if kind == "qwen2_5_vl":
        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
        text |= {"num_key_value_heads": 2, "intermediate_size": 11008, "rope_parameters": rope}
        vision = {"depth": layers, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048,
                  "patch_size": 14, "spatial_patch_size": 14, "window_size": 112, "fullatt_block_indexes": [layers - 1]}
        return transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **tiny.OUTER)
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text |= {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144, "rope_parameters": rope}
    vision = {"depth": layers, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "out_hidden_size": 2048, "patch_size": 16,
              "num_position_embeddings": 2304, "deepstack_visual_indexes": [0]}
    return transformers.Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **tiny.OUTER)


def write_model(directory, kind, layers, dtype):
    torch.manual_seed(0)
    classes = {"qwen2_5_vl": transformers.Qwen2_5_VLForConditionalGeneration, "qwen3_vl": transformers.Qwen3VLForConditionalGeneration}
    model = classes[kind](config_of(kind, layers)).to(dtype).eval()
    model.save_pretrained(directory)
    tiny.write_files(directory, tiny.TEMPLATE, PROCESSORS[kind])
    return model


def picture(seed, side):
    """A JPEG file with shapes and some noise."""
    draw = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:side, 0:side]
    waves = [127 + 90 * np.sin(rows / draw.uniform(9, 60) + columns / draw.uniform(9, 60)) for _ in range(3)]
    pixels = np.stack(waves, -1) + draw.normal(0, 8, (side, side, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype("u1")).save(file, "JPEG", quality=90)
    return file.getvalue()


class Tito:
    def __init__(self, program, directory, dtype, device):
        command = [program, "serve", str(directory), "--host", "127.0.0.1", "--port", "0", "--served-model-name", "m", "--engine", "native"]
        command += ["--threads", str(THREADS), "--dtype", str(dtype).removeprefix("torch."), "--device", device]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = found[0]
                # Nobody reads the log any more, and a full pipe would stop the server.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit("".join(said))

    def ask(self, path, **body):
        """The answer, and the seconds that it took."""
        request = urllib.request.Request(self.url + path, json.dumps({"model": "m", **body}).encode(), {"Content-Type": "application/json"})
        start = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            read = answer.read()
        return json.loads(read), time.perf_counter() - start

    def chat(self, messages, **fields):
        fields = {"messages": messages, "max_tokens": 1, "temperature": 0, "return_token_ids": True, **fields}
        return self.ask("/v1/chat/completions", **fields)

    def scored(self, messages):
        """The ids of a prompt, and the log-prob of each but the first."""
        answer, _ = self.chat(messages, prompt_logprobs=0)
        ids = answer["prompt_token_ids"]
        return ids, [row[str(id)]["logprob"] for id, row in zip(ids[1:], answer["prompt_logprobs"][1:], strict=True)]


def shown(*files):
    urls = [f"data:image/jpeg;base64,{base64.b64encode(file).decode()}" for file in files]
    return {"role": "user", "content": [*({"type": "image_url", "image_url": {"url": url}} for url in urls), QUESTION]}


class Transformers:
    def __init__(self, model, kind, device):
        torch.set_num_threads(THREADS)
        self.model = model.to(device)
        self.device = device
        # Older versions find images by their placeholders alone.
        self.tells_kinds = "mm_token_type_ids" in inspect.signature(model.forward).parameters
        self.images = tiny.Reader({"model_type": kind}, PROCESSORS[kind]).processor.image_processor

    def processor(self, file):
        start = time.perf_counter()
        made = self.images(images=[Image.open(io.BytesIO(file)).convert("RGB")], return_tensors="pt")
        return made, time.perf_counter() - start

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def pixels(self, made):
        return {"pixel_values": made["pixel_values"].to(self.device, self.model.dtype), "image_grid_thw": made["image_grid_thw"].to(self.device)}

    def tower(self, made):
        start = time.perf_counter()
        given = self.pixels(made)
        with torch.no_grad():
            self.model.model.visual(given["pixel_values"], grid_thw=given["image_grid_thw"])
        self.wait()
        return time.perf_counter() - start

    def logits(self, ids, made, keep):
        """Those of the last `keep` positions of a prompt, tower included; 0 for all."""
        kinds = {"mm_token_type_ids": torch.tensor([[int(id == 327) for id in ids]], dtype=torch.int, device=self.device)}
        self.model.model.rope_deltas = None
        with torch.no_grad():
            return self.model(torch.tensor([ids], device=self.device), use_cache=False, logits_to_keep=keep, **self.pixels(made),
                              **(kinds if self.tells_kinds else {})).logits[0]

    def whole(self, ids, made):
        """The seconds that the first token of a prompt takes."""
        start = time.perf_counter()
        self.logits(ids, made, 1)
        self.wait()
        return time.perf_counter() - start

    def scored(self, ids, made):
        """The log-prob of each id but the first."""
        log_probs = self.logits(ids, made, 0)[:-1].float().log_softmax(-1)
        return log_probs.gather(-1, torch.tensor(ids[1:], device=self.device)[:, None])[:, 0].tolist()


def round_of(tito, theirs, seed, side):
    file, other = picture(2 * seed, side), picture(2 * seed + 1, side)
    # Rendering reads the image and computes nothing with it; what the text alone takes is not the processor's.
    _, text = tito.ask("/tokenize", messages=[{"role": "user", "content": [QUESTION]}])
    _, read = tito.ask("/tokenize", messages=[shown(file)])
    made, processed = theirs.processor(file)
    # The image is prepared by now: what is left is tower and text.
    first, whole = tito.chat([shown(file)])
    ids = first["prompt_token_ids"]
    taken = {"processor": (read - text, processed), "tower and text": (whole, theirs.whole(ids, made))}
    said = {key: first["choices"][0]["message"].get(key) for key in ("role", "content", "prompt_token_ids", "generation_token_ids")}
    second = [shown(file), {**said, "content": said["content"] or ""}, {"role": "user", "content": "And?"}]
    _, cached = tito.chat(second)
    _, fresh = tito.chat([shown(other), {"role": "assistant", "content": "a"}, second[2]])
    return taken, {"transformers' tower alone": theirs.tower(made), "second turn": cached, "the same with a new image": fresh}, len(ids)


def agreement(tito, theirs, side):
    """How far log-probs of a prompt are from those of transformers in float32, the model's type from now on."""
    file = picture(1_000, side)
    ids, mine = tito.scored([shown(file)])
    made, _ = theirs.processor(file)
    rounded = theirs.scored(ids, made)
    theirs.model = theirs.model.float()
    exact = theirs.scored(ids, made)
    for name, found in (("tito", mine), ("transformers", rounded)):
        far = [abs(a - b) for a, b in zip(found, exact, strict=True)]
        print(f"log-probs of {len(far)} ids, {name} from float32: {max(far):.2g} at most, {statistics.mean(far):.2g} on average")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tito")
    parser.add_argument("kind", nargs="?", choices=PROCESSORS, default="qwen2_5_vl")
    for name, default in (("layers", 2), ("side", 672), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked = parser.parse_args()
    dtype = getattr(torch, asked.dtype)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        theirs = Transformers(write_model(directory, asked.kind, asked.layers, dtype), asked.kind, asked.device)
        tito = Tito(asked.tito, directory, dtype, asked.device)
        try:
            # The first round warms both up.
            rounds = [round_of(tito, theirs, seed, asked.side) for seed in range(asked.rounds + 1)][1:]
            agreement(tito, theirs, asked.side)
        finally:
            tito.process.terminate()
            tito.process.wait()
    print(f"{asked.kind}, {asked.layers} layers of vision, {asked.dtype} on {asked.device}, images of {asked.side} squared, prompts of {rounds[0][2]} ids")
    for name in rounds[0][0]:
        mine, other = zip(*(taken[name] for taken, _, _ in rounds), strict=True)
        ratios = [b / a for a, b in zip(mine, other, strict=True)]
        print(f"{name}: tito {1 / statistics.median(mine):.2f} images/s, transformers {1 / statistics.median(other):.2f}; "
              f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")
    for name in rounds[0][1]:
        print(f"{name}: {1e3 * statistics.median(alone[name] for _, alone, _ in rounds):.0f} ms")


if __name__ == "__main__":
    main()
