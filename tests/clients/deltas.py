"""Deltas between two checkpoints, as slime's and SkyRL's trainers publish them.

slime: slime/backends/megatron_utils/update_weight/update_weight_from_disk_delta.py (commit 624b824). SkyRL 0.4.0:
skyrl/backends/skyrl_train/weight_sync/delta/checkpoint.py. Both XOR the bytes of each tensor that changed, and compress them.
"""

import json
import struct
import zlib

import numpy as np
import xxhash
import zstandard


def zstd(data):
    return zstandard.ZstdCompressor().compress(data)


def changed(old, new):
    """Of each tensor that differs: its name, the new array, and the XOR of its bytes."""
    for name, array in new.items():
        before, after = (np.frombuffer(part.tobytes(), "u1") for part in (old[name], array))
        if not np.array_equal(before, after):
            yield name, array, (before ^ after).tobytes()


def safetensors_of_bytes(frames, metadata=None):
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, frame in frames.items():
        header[name] = {"dtype": "U8", "shape": [len(frame)], "data_offsets": [len(body), len(body) + len(frame)]}
        body += frame
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def publish_slime(directory, version, old, new):
    """`weight_v{N}`, with adler32 of what each tensor is to become."""
    target = directory / f"weight_v{version:06d}"
    target.mkdir(parents=True)
    frames, checksums = {}, {}
    for name, array, patch in changed(old, new):
        frames[name] = zstd(patch)
        checksums[name] = f"{zlib.adler32(array.tobytes()):08x}"
    file = "model-00000-of-00001.safetensors"
    (target / file).write_bytes(safetensors_of_bytes(frames, checksums))
    metadata = {"version": f"{version:06d}", "base_version": f"{version - 1:06d}", "delta_encoding": "xor"}
    metadata |= {"compression_format": "zstd", "checksum_format": "adler32"}
    index = {"metadata": metadata, "weight_map": dict.fromkeys(frames, file)}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))


def publish_skyrl(directory, version, old, new):
    """`delta-{N}`; what the publisher answers is what the engines are sent."""
    target = directory / f"delta-{version:08d}"
    target.mkdir(parents=True)
    file = "delta-rank00000-file000000.safetensors"
    frames, records = {}, []
    for name, array, patch in changed(old, new):
        frames[name] = zstd(patch)
        record = {"name": name, "dtype": "float32", "shape": list(array.shape), "uncompressed_num_bytes": len(patch)}
        record |= {"compressed_num_bytes": len(frames[name]), "payload_file": file, "payload_key": name}
        record |= {"checksum": xxhash.xxh3_128(array.tobytes()).hexdigest(), "checksum_algorithm": "xxh3-128"}
        records.append(record)
    (target / file).write_bytes(safetensors_of_bytes(frames))
    manifest = {"version": version, "base_version": version - 1, "tensors": records, "payload_files": [file]}
    manifest["total_uncompressed_num_bytes"] = sum(record["uncompressed_num_bytes"] for record in records)
    manifest["total_compressed_num_bytes"] = sum(record["compressed_num_bytes"] for record in records)
    (target / "manifest.json").write_text(json.dumps(manifest))
    return {"target_version": version, "version": version, "sync_dir": str(directory), "uri": str(target)}
