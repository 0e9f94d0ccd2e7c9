"""Writes tests/golden/kv_events.json: batches of events, and the bytes that vLLM publishes for them.

    pip install msgspec==0.22.0
    python record_kv_events.py
"""

import json
import pathlib
from typing import Any

import msgspec

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "kv_events.json"


# The shapes are those of vLLM 0.33, `distributed/kv_events.py`.
class Event(msgspec.Struct, omit_defaults=True, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: list[list[int]] | None = None


class BlockRemoved(Event):
    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


def stored(hashes, parent, tokens, lora_id=None, lora_name=None, extra_keys=None, block_size=2):
    keys = extra_keys or [None] * len(hashes)
    return BlockStored(hashes, parent, tokens, block_size, lora_id, "GPU", lora_name, keys, 0, "full_attention")


BATCHES = {
    "one block": [stored([1], None, [5, 6])],
    "sizes of numbers": [stored([2**64 - 1, 2**32, 255], 128, [0, 127, 128, 65535, 65536, 2**32 - 1])],
    "many tokens": [stored(list(range(20)), 2**63, list(range(640)), block_size=32)],
    "an adapter": [stored([1, 2], None, [1, 2, 3, 4], 7, "a" * 40, [("a" * 40,), ("a" * 40,)])],
    "a salt": [stored([1, 2], None, [1, 2, 3, 4], extra_keys=[("pepper",), None])],
    "images": [stored([1, 2], 3, [1, 2, 3, 4], 1, "a", [("a", ("ff" * 32, 1)), ("a", ("ff" * 32, -1), ("00" * 32, -300))])],
    "all kinds": [BlockRemoved([1, 2**40], "GPU", 0), AllBlocksCleared(), stored([9], None, [5, 6])],
}


def main():
    encoder = msgspec.msgpack.Encoder()
    golden = {name: encoder.encode(Batch(1700000000.25, events, 0)).hex() for name, events in BATCHES.items()}
    GOLDEN.write_text(json.dumps(golden, indent=2) + "\n")


if __name__ == "__main__":
    main()
