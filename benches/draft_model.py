#!/usr/bin/env python3
"""What a draft model gains and costs that is always right: tokens a second beside the same server without it; see engine.md.

    benches/draft_model.py TITO SMOLLM2 [STREAMS,STREAMS]

SMOLLM2 is a directory with bf16 weights in one file, as `tito convert` writes it. It drafts for a model that is made of it: after each of
its layers come three more that add nothing, since their last products are zero. So that model gives the same numbers for four times the
work, and each draft is right: no pair of models drafts better, and what is lost here is lost by the way drafts are made and checked.

Both servers are asked in turns, the same requests with the same seeds. Answers are the same to the token, which is checked.
"""

import contextlib
import json
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent))

from drafts import compare  # noqa: E402
from server import Server  # noqa: E402

TIMES = 4
ZERO = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
ROUNDS = {1: 5, 4: 3, 8: 3, 16: 3}


def layers_of(header):
    """The tensors of the larger model: for each name, the one whose bytes it has, and whether they are zero instead."""
    for name, tensor in header.items():
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        if not layer:
            yield name, tensor, False
            continue
        for more in range(TIMES):
            number = int(layer[1]) * TIMES + more
            yield f"model.layers.{number}.{layer[2]}", tensor, more > 0 and layer[2] in ZERO


def blow_up(model, to):
    """Writes the larger model into a directory."""
    for file in model.iterdir():
        if file.suffix != ".safetensors" and file.name != "config.json":
            (to / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    config["num_hidden_layers"] *= TIMES
    (to / "config.json").write_text(json.dumps(config))
    source = (model / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(source[:8], "little")
    header = json.loads(source[8:begin])
    header.pop("__metadata__", None)
    larger, parts, offset = {}, [], 0
    for name, tensor, zero in layers_of(header):
        first, last = tensor["data_offsets"]
        parts.append(bytes(last - first) if zero else source[begin + first : begin + last])
        larger[name] = {**tensor, "data_offsets": [offset, offset + last - first]}
        offset += last - first
    text = json.dumps(larger).encode()
    text += b" " * (-len(text) % 8)
    with open(to / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)


def main(tito, model, streams="1,4,8,16"):
    with tempfile.TemporaryDirectory() as larger, contextlib.ExitStack() as stack:
        blow_up(pathlib.Path(model), pathlib.Path(larger))
        drafts = {"method": "draft_model", "model": model, "num_speculative_tokens": 4}
        ways = {"none": "null", "draft_model": json.dumps(drafts)}
        servers = {}
        for number, (way, config) in enumerate(ways.items()):
            flags = ("--speculative-config", config, "--max-model-len", "4096", "--kv-cache-memory", "1G")
            servers[way] = Server(tito, larger, 8195 + number, *flags)
            stack.callback(servers[way].process.wait)
            stack.callback(servers[way].process.terminate)
        first = 0
        for number in map(int, streams.split(",")):
            compare(servers, "samples", number, ROUNDS[number], first)
            first += 64 * ROUNDS[number]


if __name__ == "__main__":
    main(*sys.argv[1:])
