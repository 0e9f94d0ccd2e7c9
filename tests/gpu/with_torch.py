"""Ceilings, reference and comparison by torch and transformers, on the device or on the CPU.

Loads weights by itself instead of from_pretrained: straight to the device, and no tensor may be missing or left over.
"""

import gc
import json
import time
from pathlib import Path

import torch

# Float32 means float32.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def wait(device):
    """Until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(device, action, seconds, least=3):
    """The best seconds of `action`, tried for as long and at least `least` times after once for warming up."""
    action()
    wait(device)
    best, tries, end = float("inf"), 0, time.perf_counter() + seconds
    while tries < least or time.perf_counter() < end:
        started = time.perf_counter()
        action()
        wait(device)
        best = min(best, time.perf_counter() - started)
        tries += 1
    return best


def roofline(device, seconds):
    """Bytes a second of a copy, what it reads and what it writes counted, and bf16 operations a second."""
    size = 4 * 2**30 if device == "cuda" else 2**27
    rate, read = memory(device, size, seconds / 2)
    free(device)
    shapes = ((8192, 8192, 8192), (16384, 8192, 4096)) if device == "cuda" else ((1024, 1024, 1024),)
    best, which = 0.0, None
    for rows, inner, columns in shapes:
        a = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
        b = torch.randn(inner, columns, device=device, dtype=torch.bfloat16)
        found = 2 * rows * inner * columns / timed(device, lambda a=a, b=b: a @ b, seconds / 4)
        if found > best:
            best, which = found, (rows, inner, columns)
    free(device)
    return {
        "bytes_per_s": max(rate, read),
        "bytes_how": f"torch, {size / 2**30:g} GiB: copied {rate / 1e9:,.0f} GB/s, summed {read / 1e9:,.0f} GB/s",
        "flops": best,
        "flops_how": f"torch, {' x '.join(map(str, which))} in bf16",
    }


def memory(device, size, seconds):
    """Bytes a second of copying and of summing.

    A decode step reads and hardly writes. Summing only reads, but may be bound by something else.
    """
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * size / timed(device, lambda: target.copy_(source), seconds / 2)
    return copied, size / timed(device, source.view(torch.float32).sum, seconds / 2)


def free(device):
    """Gives back what is no longer referred to."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def load(directory, device, dtype):
    """The model of a directory, of transformers' own code, with eager attention where it is to be exact."""
    import safetensors.torch
    import transformers

    transformers.logging.set_verbosity_error()
    directory = Path(directory)
    settings = transformers.AutoConfig.from_pretrained(directory)
    attention = "eager" if dtype == torch.float32 else "sdpa"
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=dtype, attn_implementation=attention)
    index = directory / "model.safetensors.index.json"
    files = {"model.safetensors"}
    if index.exists():
        files = set(json.loads(index.read_text())["weight_map"].values())
    wanted, given = dict(model.named_parameters()), set()
    with torch.no_grad():
        for file in sorted(files):
            for name, tensor in safetensors.torch.load_file(directory / file, device=device).items():
                place, part = of_parameter(name, wanted)
                part.copy_(tensor)
                given.add(place)
    if strays := set(wanted) - given:
        raise ValueError(f"no weights for {sorted(strays)[:3]}")
    return model.eval()


def of_parameter(name, wanted):
    """The name of the parameter that a tensor of a file belongs to, and the part of it."""
    if name in wanted:
        return name, wanted[name]
    # transformers 5 has all experts of a layer in two tensors, gates before ups.
    layer, _, rest = name.partition(".experts.")
    expert, kind, _ = rest.split(".")
    place = f"{layer}.experts.{'down_proj' if kind == 'down_proj' else 'gate_up_proj'}"
    part = wanted[place][int(expert)]
    if kind == "down_proj":
        return place, part
    return place, part.chunk(2)[kind == "up_proj"]


def reference(directory, device, cases):
    """Of each list of ids: the log-probs of each next id, of the most probable one, and those of a mistake.

    In float32; the same in bf16 says by how much an engine may be off ("rounded"), and positions counted double by how
    much a wrong one is ("mistaken").
    """
    import transformers

    model = load(directory, device, torch.float32)
    exact = [scored(model, ids, device) for ids in cases]
    wrong = [scored(model, ids, device, stride=2)[0] for ids in cases]
    for parameter in model.parameters():
        # Not the buffers: in bf16 the angles of positions would be others, which no engine has.
        parameter.data = parameter.data.to(torch.bfloat16)
    coarse = [scored(model, ids, device)[0] for ids in cases]
    told = [
        {"log_probs": log_probs.tolist(), "best": best.tolist(), "mistaken": mistaken.tolist()}
        for (log_probs, best), mistaken in zip(exact, wrong, strict=True)
    ]
    return {
        "how": f"transformers {transformers.__version__} in float32 on {device}",
        "cases": told,
        "rounded": spread([one - other[0] for one, other in zip(coarse, exact, strict=True)]),
        "mistaken": spread([one - other[0] for one, other in zip(wrong, exact, strict=True)]),
    }


@torch.no_grad()
def scored(model, ids, device, stride=1):
    """(log-probs of each next id, log-probs of the most probable one)."""
    tokens = torch.tensor([ids], device=device)
    positions = torch.arange(len(ids), device=device)[None] * stride
    logits = model(tokens, position_ids=positions, use_cache=False).logits[0, :-1].float()
    log_probs = logits.log_softmax(-1)
    return log_probs.gather(-1, tokens[0, 1:, None])[:, 0].double().cpu(), log_probs.amax(-1).double().cpu()


def spread(errors):
    """The largest and the mean size of some tensors."""
    joined = torch.cat(errors).abs()
    return {"max": float(joined.max()), "mean": float(joined.mean())}


@torch.no_grad()
def generate(directory, device, streams, tokens_in, tokens_out):
    """Tokens a second of `generate` in bf16, its prompt alone and with the tokens that follow."""
    import transformers

    model = load(directory, device, torch.bfloat16)
    vocab = model.config.vocab_size
    ids = torch.randint(300, vocab, (streams, tokens_in), device=device)

    def run(count):
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count, max_new_tokens=count,
            pad_token_id=0,
        )  # fmt: skip

    first = timed(device, lambda: run(1), 0, least=1)
    started = time.perf_counter()
    run(tokens_out)
    wait(device)
    whole = time.perf_counter() - started
    return {
        "how": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "streams": streams,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "prompt_s": first,
        "whole_s": whole,
        "output_tokens_per_s": streams * tokens_out / whole,
        "decode_tokens_per_s": streams * (tokens_out - 1) / (whole - first) if whole > first else None,
    }
