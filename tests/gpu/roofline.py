"""What a machine's memory and arithmetic allow a shape to reach: the arithmetic, not the measuring."""

from dataclasses import dataclass

from .shapes import BYTES


@dataclass(frozen=True)
class Roofline:
    """Bytes and bf16 operations a second that were measured, each None where it was not."""

    bytes_per_s: float | None
    flops: float | None

    def seconds(self, size, operations):
        """(the least seconds for reading `size` bytes and computing `operations`, what they hang on), or None."""
        memory = size / self.bytes_per_s if self.bytes_per_s else None
        arithmetic = operations / self.flops if self.flops else None
        if memory is None or arithmetic is None:
            return None
        return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")


def attention(shape, context):
    """Operations of one token's attention to `context` tokens."""
    return 4 * shape.layers * shape.heads * shape.head_dim * context


def decode_step(shape, streams, context):
    """(bytes, operations) of one token for each stream, after `context` tokens on average."""
    size = shape.read_by(streams) * BYTES + streams * context * shape.kv_bytes
    operations = streams * (2 * shape.read_parameters + attention(shape, context))
    return size, operations


def prompt(shape, tokens):
    """(bytes, operations) of one whole prompt alone; logits of its last token only."""
    operations = tokens * (2 * shape.layer_parameters + attention(shape, tokens / 2)) + 2 * shape.vocab * shape.hidden
    return shape.read_by(tokens) * BYTES, operations


def decode_rate(roofline, shape, streams, context):
    """(output tokens a second of all streams together at most, what they hang on), or None."""
    if (least := roofline.seconds(*decode_step(shape, streams, context))) is None:
        return None
    return streams / least[0], least[1]


def prompt_rate(roofline, shape, tokens):
    """(prompt tokens a second at most, what they hang on), or None."""
    if (least := roofline.seconds(*prompt(shape, tokens))) is None:
        return None
    return tokens / least[0], least[1]


def whole_run(roofline, shape, streams, tokens_in, tokens_out):
    """Least seconds for `streams` requests at once, prompts first and then all answers in step, or None."""
    if roofline.bytes_per_s is None or roofline.flops is None:
        return None
    # Prompts share a step, so that weights are read once.
    size, operations = prompt(shape, tokens_in)
    total, _ = roofline.seconds(size, streams * operations)
    # A step's time is linear in the context on either side of the bend: the middle stands for all.
    step, _ = roofline.seconds(*decode_step(shape, streams, tokens_in + tokens_out / 2))
    return total + (tokens_out - 1) * step
