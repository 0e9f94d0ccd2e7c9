"""Records deltas of weights as trainers write them, and what they make of a checkpoint. See README.md.

    record.py SLIME SKYRL

SLIME is a checkout of slime, SKYRL the unpacked wheel of skyrl. Their own code writes the deltas, and their own receivers
apply them; nothing here knows a format. Only what they import for GPUs and clusters, and do not use here, is replaced.
"""

import importlib.util
import json
import shutil
import sys
import tempfile
import types
from argparse import Namespace
from pathlib import Path

import blake3
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

HERE = Path(__file__).parent
DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def package(name, **names):
    """A module with these names in place of one that is not installed, or whose imports are not."""
    module = types.ModuleType(name)
    module.__dict__.update(names)
    module.__path__ = module.__dict__.get("__path__", [])
    sys.modules[name] = module
    return module


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def slimes_code(slime, scratch):
    """slime's publisher, and the receiver that slime's patch adds to SGLang."""
    package("ray", get=lambda value: value)
    package("ray.actor", ActorHandle=object)
    package("megatron")
    package("megatron.core", mpu=None)
    package("slime", __path__=[str(slime / "slime")])
    package("slime.utils", accelerator=None, __path__=[str(slime / "slime/utils")])
    package("slime.utils.accelerator")
    group = torch.distributed.new_group(backend="gloo")
    package("slime.utils.distributed_utils", get_gloo_group=lambda: group)
    package("publisher")
    package("publisher.update_weight_from_distributed", UpdateWeightFromDistributed=object)
    folder = slime / "slime/backends/megatron_utils/update_weight"
    publisher = load("publisher.disk_delta", folder / "update_weight_from_disk_delta.py")

    patch = (slime / "docker/patch/latest/sglang-pull_weights.patch").read_text()
    added = patch.split("+++ b/python/sglang/srt/weight_sync/local_checkpoint.py\n")[1].split("\ndiff --git")[0]
    lines = [line[1:] for line in added.splitlines() if line.startswith("+")]
    (scratch / "local_checkpoint.py").write_text("\n".join(lines) + "\n")
    return publisher, load("local_checkpoint", scratch / "local_checkpoint.py")


def skyrls_code(skyrl):
    name, folder = "skyrl", skyrl / "skyrl"
    package(name, __path__=[str(folder)])
    for part in ["backends", "skyrl_train", "weight_sync", "delta"]:
        name, folder = f"{name}.{part}", folder / part
        package(name, __path__=[str(folder)])
    return importlib.import_module(f"{name}.checkpoint")


def tensors_of(directory):
    """Names, tensors and raw bytes of a checkpoint's files."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}
    return tensors


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def of_tensor(name, tensor):
    """The checksum of a tensor, as crates/tito-engine/src/weights/checksum.rs describes it."""

    def number(value):
        return value.to_bytes(8, "little")

    def text(value):
        return number(len(value.encode())) + value.encode()

    shape = number(tensor.dim()) + b"".join(map(number, tensor.shape))
    return blake3.blake3(text(name) + text(DTYPES[tensor.dtype]) + shape + raw(tensor)).digest()


def checksums(tensors):
    digests = {name: of_tensor(name, tensors[name]) for name in sorted(tensors, key=str.encode)}
    model = blake3.blake3(b"".join(digests.values())).hexdigest()
    return {"model": model, "tensors": {name: digest.hex() for name, digest in digests.items()}}


def base_weights():
    random = np.random.default_rng(16)

    def tensor(dtype, *shape):
        return torch.from_numpy(random.standard_normal(shape, dtype=np.float32) * 0.05).to(dtype)

    return {
        "model.embed_tokens.weight": tensor(torch.bfloat16, 24, 16),
        "model.layers.0.mlp.down_proj.weight": tensor(torch.float16, 16, 40),
        "model.layers.0.self_attn.q_proj.weight": tensor(torch.float32, 16, 16),
        "model.layers.0.self_attn.q_proj.bias": tensor(torch.bfloat16, 16),
        "model.norm.weight": torch.ones(16, dtype=torch.bfloat16),
    }


def trained(weights, version):
    """Some numbers of most tensors change a little. In the third version, nothing does."""
    random = np.random.default_rng(100 + version)
    after = {}
    for number, (name, tensor) in enumerate(sorted(weights.items())):
        changed = torch.from_numpy(random.random(tuple(tensor.shape)) < 0.1)
        stays = version == 3 or number % 4 == version
        after[name] = tensor if stays else torch.where(changed, tensor * 1.0625, tensor)
    return after


def record_slime(code, base, versions, encoding, checksum, target):
    publisher, receiver = code
    with tempfile.TemporaryDirectory() as scratch:
        args = Namespace(
            hf_checkpoint=str(base),
            update_weight_disk_dir=str(target),
            update_weight_delta_encoding=encoding,
            update_weight_delta_checksum=checksum,
            custom_update_weight_post_write_path=None,
        )
        sender = object.__new__(publisher.UpdateWeightFromDiskDelta)
        sender.args, sender.delta_dir, sender.delta_encoding = args, str(target), encoding
        sender.checksum_algorithm, sender.weight_version = checksum, 0
        sender._snapshot, sender._post_write_hook, sender._is_pp_src_rank = {}, None, True
        sender.rollout_engines = []
        weights = versions[0]
        sender._iter_hf_tensors = lambda: iter(weights.items())
        sender._capture_baseline()
        receiver.pull(scratch, str(base), str(target), 0)
        for version, weights in enumerate(versions[1:], 1):
            sender.weight_version = version
            sender._publish()
            receiver.pull(scratch, str(base), str(target), version)
            assert checksums(tensors_of(Path(scratch))) == checksums(weights)


def record_skyrl(checkpoint, base, versions, target):
    with tempfile.TemporaryDirectory() as scratch:
        publisher = checkpoint.DeltaCheckpointPublisher(
            base_model_path=str(base),
            sync_dir=str(target),
            publish_staging_dir=f"{scratch}/staging",
            max_file_size_in_gb=400 / 1024**3,
            publish_num_workers=1,
        )
        store = checkpoint.LocalCheckpointStore(str(base), f"{scratch}/receiver")
        for version, weights in enumerate(versions[1:], 1):
            publisher.publish(publisher.create_delta_files(iter(weights.items())))
            store.fetch(version, sync_dir=str(target))
            assert checksums(tensors_of(Path(scratch, "receiver/weights"))) == checksums(weights)


def main():
    slime, skyrl = map(Path, sys.argv[1:])
    torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:29501", world_size=1, rank=0)
    versions = [base_weights()]
    for version in range(1, 5):
        versions.append(trained(versions[-1], version))
    for old in ["base", "slime_xor", "slime_overwrite", "slime_adler32", "skyrl"]:
        shutil.rmtree(HERE / old, ignore_errors=True)
    base = HERE / "base"
    base.mkdir()
    save_file(versions[0], base / "model.safetensors")
    with tempfile.TemporaryDirectory() as scratch:
        code = slimes_code(slime, Path(scratch))
        for encoding, checksum, target in [
            ("xor", "xxh3-128", "slime_xor"),
            ("overwrite", "blake3", "slime_overwrite"),
            ("xor", "adler32", "slime_adler32"),
        ]:
            record_slime(code, base, versions, encoding, checksum, HERE / target)
    record_skyrl(skyrls_code(skyrl), base, versions, HERE / "skyrl")
    expected = json.dumps([checksums(weights) for weights in versions], indent=1)
    (HERE / "expected.json").write_text(expected + "\n")


if __name__ == "__main__":
    main()
