"""What is measured: each mode asks, prints its table, and returns its figures for JSON, in seconds and tokens."""

import math

from .bandwidth import read_bandwidth
from .load import burst, closed_loop, measured
from .report import median, milliseconds, number, percentile, share, table

# Enough conversations that no figure is of one alone.
MIN_CONVERSATIONS = 3
# Agents have their instructions in common. With as long answers as by default, eight turns fit a context of 8,192.
INSTRUCTIONS = 512
# Tokens of a tool's output, turn by turn: most are short, some are long.
TOOL_OUTPUTS = (700, 500, 2000, 600, 500, 1200, 500, 800)
# By the shortest prompt they are for.
PREFILL_REPEATS = {0: 5, 1024: 3}
TTFT = ["TTFT p50, ms", "p90, ms", "max, ms"]


async def throughput(target, options):
    """Output tokens a second at some concurrencies, in a closed loop and in a burst."""
    figures = []
    for streams in options.concurrency:
        count = options.requests or max(4, 2 * streams)
        shapes = {"closed loop": max(count, streams)} | ({} if options.no_burst else {"burst": streams})
        for shape, requests in shapes.items():
            prompts = [target.prompts.ids(options.tokens_in) for _ in range(requests)]
            if shape == "burst":
                run = await burst(target, prompts, options.tokens_out)
            else:
                run = await closed_loop(target, prompts, options.tokens_out, streams)
            figures.append({"streams": streams, "shape": shape} | figures_of(run))
    print(f"\n## Throughput: {options.tokens_in} in, {options.tokens_out} out\n")
    columns = ["streams", "requests", "out tok/s", "decode tok/s per stream", *TTFT]
    columns += ["gap p50, ms", "gap p99, ms", "events/token", "client CPU"]
    print(table(columns, [throughput_row(figure) for figure in figures]))
    warn_of_cache(sum(figure["cached_tokens"] or 0 for figure in figures))
    return figures


def figures_of(run):
    """What every run is summed up to."""
    return {
        "requests": len(run.answers),
        "wall_s": run.wall,
        "output_tokens_per_s": run.output_rate,
        "prompt_tokens": sum(answer.prompt_tokens for answer in run.answers),
        "output_tokens": sum(answer.tokens for answer in run.answers),
        "cached_tokens": run.cached,
        "decode_tokens_per_s_p50": median(run.decode_rates),
        "ttft_s": {"p50": median(run.ttfts), "p90": percentile(run.ttfts, 90), "max": max(run.ttfts)},
        "gap_s": {"p50": median(run.gaps), "p99": percentile(run.gaps, 99)},
        "events_per_token": run.seen_share,
        "client_cpu_share": run.client_share,
    }


def throughput_row(figure):
    ttft, gap = figure["ttft_s"], figure["gap_s"]
    return [
        f"{figure['streams']}, {figure['shape']}",
        number(figure["requests"]),
        number(figure["output_tokens_per_s"]),
        number(figure["decode_tokens_per_s_p50"]),
        *(milliseconds(ttft[name]) for name in ("p50", "p90", "max")),
        *(milliseconds(gap[name]) for name in ("p50", "p99")),
        f"{figure['events_per_token']:.2f}",
        share(figure["client_cpu_share"]),
    ]


async def prefill(target, options):
    """Time to the first token of one prompt alone, at some lengths."""
    figures, cached = [], 0
    for length in options.prefill:
        repeats = max((start, count) for start, count in PREFILL_REPEATS.items() if start <= length)[1]
        prompts = [target.prompts.ids(length) for _ in range(repeats)]
        run = await closed_loop(target, prompts, 1, 1)
        ttft = median(run.ttfts)
        cached += run.cached or 0
        figures.append({
            "prompt_tokens": run.answers[0].prompt_tokens,
            "runs": repeats,
            "ttft_s": {"p50": ttft, "min": min(run.ttfts), "max": max(run.ttfts)},
            "tokens_per_s": run.answers[0].prompt_tokens / ttft,
        })
    print("\n## Prefill: one prompt alone\n")
    rows = []
    for figure in figures:
        ttft = figure["ttft_s"]
        spread = [milliseconds(ttft[name]) for name in ("p50", "min", "max")]
        rows.append([number(figure["prompt_tokens"]), number(figure["runs"]), *spread, number(figure["tokens_per_s"])])
    print(table(["prompt tokens", "runs", "TTFT p50, ms", "min, ms", "max, ms", "prompt tok/s"], rows))
    warn_of_cache(cached)
    return figures


def warn_of_cache(tokens):
    """Says that prompts were known which should not have been."""
    if tokens:
        print(f"\n**{tokens:,} prompt tokens came from a cache: use another --seed, or start the server anew.**")


async def conversation(target, history, turns, tokens, new_ids):
    """The answers of one conversation, turn by turn; `new_ids` says what a turn adds to the history."""
    answers = []
    for turn in range(turns):
        history = history + new_ids(turn, history)
        answer = await target.ask(history, tokens, want_ids=target.returns_ids)
        answers.append(answer)
        history += answer.ids if target.returns_ids else target.prompts.ids(tokens)
    return answers


async def conversations(target, count, at_a_time, begin):
    """A `Run` of as many conversations, each of which `begin` begins."""
    left = iter(range(count))

    async def worker():
        answers = []
        for _ in left:
            answers += await begin()
        return answers

    await target.client.prepare(at_a_time)
    return await measured(worker() for _ in range(at_a_time))


def warn_of_random_answers(target):
    """Says that a server is not asked with the ids that it returned."""
    if not target.returns_ids:
        why = "Prompts are words" if target.prompts.as_text else "The server returns no ids"
        print(f"**{why}: random ones stand in for its answers, which it has to read again.**\n")


async def multi_turn(target, options):
    """Time to the first token of each turn, as the history grows."""
    figures = []
    for at_a_time in options.conversations:
        rounds = math.ceil(MIN_CONVERSATIONS / at_a_time)

        def begin():
            def new_ids(_turn, _history):
                return target.prompts.ids(options.turn_in)

            return conversation(target, target.prompts.ids(options.history), options.turns, options.turn_out, new_ids)

        answers = (await conversations(target, rounds * at_a_time, at_a_time, begin)).answers
        turns = [turn_figures(answers[turn :: options.turns]) for turn in range(options.turns)]
        last, second = turns[-1]["ttft_s"], turns[min(1, options.turns - 1)]["ttft_s"]
        figures.append({
            "conversations": at_a_time,
            "rounds": rounds,
            "turns": turns,
            "last_to_second": last / second,
            "answers": "returned ids" if target.returns_ids else "RANDOM IDS",
        })
    print(f"\n## Conversations of {options.turns} turns: {options.turn_in} in, {options.turn_out} out each\n")
    warn_of_random_answers(target)
    print(table(*turn_table(figures, options.turns)))
    return figures


def turn_figures(answers):
    """One turn of all conversations."""
    cached = [answer.cached for answer in answers if answer.cached is not None]
    return {
        "prompt_tokens": answers[0].prompt_tokens,
        "ttft_s": median([answer.ttft for answer in answers]),
        "cached_tokens": median(cached),
    }


def turn_table(figures, turns):
    """Columns and rows: a row a turn, and the ratio below."""
    columns, rows = ["turn", "prompt tokens"], []
    for figure in figures:
        columns += [f"{figure['conversations']} at a time: TTFT p50, ms", "cached tokens"]
    for turn in range(turns):
        row = [str(turn + 1), number(figures[0]["turns"][turn]["prompt_tokens"])]
        for figure in figures:
            told = figure["turns"][turn]
            row += [milliseconds(told["ttft_s"]), number(told["cached_tokens"])]
        rows.append(row)
    ratios = [f"turn {turns} / turn 2", ""]
    for figure in figures:
        ratios += [number(figure["last_to_second"]), ""]
    return columns, [*rows, ratios]


async def agentic(target, options):
    """Conversations whose turns add the output of a tool: long, of many lengths, and in part known already."""
    figures = []
    for agents in options.agents:
        instructions = target.prompts.ids(INSTRUCTIONS)

        def new_ids(turn, history):
            return target.prompts.tool_output(TOOL_OUTPUTS[turn % len(TOOL_OUTPUTS)], history)

        def begin():
            return conversation(target, instructions, options.turns, options.turn_out, new_ids)

        run = await conversations(target, max(MIN_CONVERSATIONS, agents), agents, begin)
        figures.append({"agents": agents, "longest_prompt": max(a.prompt_tokens for a in run.answers)} | figures_of(run))
    lengths = f"{min(TOOL_OUTPUTS):,} to {max(TOOL_OUTPUTS):,} tokens of a tool's output"
    print(f"\n## Agents: {options.turns} turns, each after {lengths}, {options.turn_out} out\n")
    warn_of_random_answers(target)
    columns = ["at a time", "requests", "longest prompt", "out tok/s", "decode tok/s per stream", *TTFT]
    columns += ["prompt tokens", "cached tokens"]
    print(table(columns, [agentic_row(figure) for figure in figures]))
    return figures


def agentic_row(figure):
    names = ("agents", "requests", "longest_prompt", "output_tokens_per_s", "decode_tokens_per_s_p50")
    ttft = [milliseconds(figure["ttft_s"][name]) for name in ("p50", "p90", "max")]
    return [*(number(figure[name]) for name in names), *ttft, number(figure["prompt_tokens"]), number(figure["cached_tokens"])]


async def groups(target, options):
    """Some groups of requests with one prompt each, all at once."""
    prompts = []
    for _ in range(options.groups):
        prompts += [target.prompts.ids(options.shared_prompt)] * options.samples
    run = await burst(target, prompts, options.tokens_out)
    figure = {"groups": options.groups, "samples": options.samples} | figures_of(run)
    both = figure["prompt_tokens"] + figure["output_tokens"]
    figure["prompt_and_output_tokens_per_s"] = both / run.wall
    print(f"\n## Groups of {options.samples} requests with one prompt of {options.shared_prompt} tokens\n")
    columns = ["groups", "requests", "out tok/s", "in and out tok/s", *TTFT, "cached tokens"]
    ttft = figure["ttft_s"]
    row = [number(options.groups), number(figure["requests"]), number(figure["output_tokens_per_s"])]
    row += [number(figure["prompt_and_output_tokens_per_s"])]
    row += [*(milliseconds(ttft[name]) for name in ("p50", "p90", "max")), number(figure["cached_tokens"])]
    print(table(columns, [row]))
    return figure


def bandwidth(options):
    """Bytes a second, read while no server runs that was started here."""
    rate, how = read_bandwidth(options.bandwidth_mb * 10**6)
    return {"bytes_per_s": rate, "how": how, "buffer_bytes": options.bandwidth_mb * 10**6}


def print_bandwidth(figure, options, reached):
    """The wall, and how much of it a single stream reached."""
    print("\n## Bandwidth wall\n")
    rate = figure["bytes_per_s"]
    if rate is None:
        print(f"Not measured: {figure['how']}.")
        return
    columns = ["reading memory", "GB/s"]
    row = [f"{figure['how']}, {options.bandwidth_mb} MB", number(rate / 1e9)]
    if options.weights_bytes:
        wall = rate / options.weights_bytes
        figure |= {"wall_tokens_per_s": wall, "reached": reached / wall if reached else None}
        columns += ["weights", "wall, tok/s", "one stream, tok/s", "reached"]
        row += [f"{options.weights_bytes / 1e6:,.0f} MB", number(wall), number(reached), share(figure["reached"])]
    print(table(columns, [row]))
