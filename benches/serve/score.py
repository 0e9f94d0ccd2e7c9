"""A teacher's work: log-probs of candidates at every position of given answers, beside generating answers as long."""

import base64
import time

from .client import BenchError
from .load import closed_loop, gathered
from .report import number, table

GENERATE = "/inference/v1/generate"


async def score(target, options):
    """Answers generated, then others of the same length scored, at some concurrencies."""
    figures = []
    for streams in options.concurrency:
        count = options.requests or max(4, 2 * streams)
        prompts = [target.prompts.ids(options.tokens_in) for _ in range(count)]
        generated = await closed_loop(target, prompts, options.tokens_out, streams)
        # Other ids, of which no cache knows anything.
        requests = [score_request(target, options) for _ in range(count)]
        await target.client.prepare(streams)
        wall = time.perf_counter()
        await gathered(scored(target, requests, options) for _ in range(streams))
        wall = time.perf_counter() - wall
        figures.append({
            "streams": streams,
            "requests": count,
            "candidates": options.candidates,
            "generated_tokens_per_s": generated.output_rate,
            "scored_positions_per_s": count * options.tokens_out / wall,
            "scored_and_prompt_tokens_per_s": count * (options.tokens_in + options.tokens_out) / wall,
        })
    lengths = f"{options.tokens_in} in, {options.tokens_out} generated or scored"
    print(f"\n## Scoring {options.candidates} candidates a position: {lengths}\n")
    columns = ["streams", "requests", "generated tok/s", "scored positions/s", "with prompts, tok/s", "ratio"]
    print(table(columns, [row(figure) for figure in figures]))
    return figures


def row(figure):
    generated, scored_rate = figure["generated_tokens_per_s"], figure["scored_positions_per_s"]
    cells = [figure["streams"], figure["requests"], generated, scored_rate, figure["scored_and_prompt_tokens_per_s"]]
    return [*map(number, cells), f"{scored_rate / generated:.1f}"]


def score_request(target, options):
    """The bytes that ask for the scores of an answer."""
    ids = target.prompts.ids(options.tokens_in + options.tokens_out)
    fields = {
        "model": target.model,
        "token_ids": ids,
        "sampling_params": {
            "max_tokens": 1,
            "temperature": 0.0,
            # The answer's own token is one of them, as it is where a student asks.
            "prompt_logprob_token_ids": [
                [token, *target.prompts.ids(options.candidates - 1)] for token in ids[options.tokens_in :]
            ],
            "prompt_logprob_start": options.tokens_in - 1,
        },
    }
    return target.client.post(GENERATE, fields)


async def scored(target, requests, options):
    """Scores what is left, one answer after the other."""
    while requests:
        reply = await target.client.send(requests.pop())
        if reply.status != 200:
            raise BenchError(f"status {reply.status}: {bytes(reply.body[:500]).decode(errors='replace')}")
        matrix = base64.b64decode(reply.json()["prompt_token_id_logprobs"] or "")
        shape = f"'shape': ({options.tokens_out}, {options.candidates})".encode()
        if shape not in matrix[:128]:
            raise BenchError(f"scores of another shape: {matrix[:128]!r}")
