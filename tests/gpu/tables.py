"""gpu.md: what was found, as Markdown, in the style of benches/engine.md. Owns words and columns, and no arithmetic."""

from serve.report import milliseconds, number, share, table

WORDS = {True: "passed", False: "**FAILED**", None: "told"}


def page(found):
    """The whole page; parts that are not there yet are left out."""
    sections = [heading(found), state(found), checks(found), ceilings(found), throughput(found), prompts(found)]
    sections += [reuse(found), conversations(found), compared(found), servers(found), legend()]
    return "\n\n".join(section for section in sections if section) + "\n"


def heading(found):
    """Where the figures come from."""
    machine = found["machine"]
    title = "# The native engine on a GPU" if machine["device"] == "cuda" else "# The native engine on the CPU"
    if found["rehearsal"]:
        title = f"# REHEARSAL with tiny models on {machine['device']}: these are no figures"
    rows = [[name, str(value)] for name, value in machine.items()]
    return f"{title}\n\nWritten by `scripts/gpu-check`.\n\n" + words(["", ""], rows)


def words(columns, rows):
    """A table of words, nothing of which is aligned as numbers are."""
    lines = [columns, ["---"] * len(columns), *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text):
    """Without what would end a cell or a row."""
    return str(text).replace("|", "\\|").replace("\n", "<br>")


def state(found):
    """What did not run, or not to its end; loudly."""
    lines = [f"- **{part}: {why.splitlines()[0]}**" for part, why in found["cut"].items()]
    lines += [f"- **{text}**" for text in found["loud"]]
    if not lines:
        return ""
    return "## What was cut, failed or is missing\n\n" + "\n".join(lines)


def checks(found):
    """All results."""
    if not found["checks"]:
        return ""
    rows = [[check["model"], check["name"], WORDS[check["ok"]], check["text"]] for check in found["checks"]]
    return "## Correctness\n\n" + words(["model", "check", "", "what was seen"], rows)


def ceilings(found):
    """What the machine itself can do."""
    told = found.get("roofline")
    if not told:
        return ""
    rows = []
    if told["bytes_per_s"]:
        rows.append(["memory", f"{told['bytes_per_s'] / 1e9:,.0f} GB/s", told["bytes_how"]])
    if told["flops"]:
        rows.append(["arithmetic", f"{told['flops'] / 1e12:,.2f} TFLOP/s", told["flops_how"]])
    return "## The roofline, measured on this machine\n\n" + words(["", "", "how"], rows)


def throughput(found):
    """Bursts by model and number of streams."""
    columns = ["streams", "out tok/s", "of the bound", "decode tok/s", "bound", "of it", "hangs on", "TTFT p50, ms"]
    columns += ["p99, ms", "client CPU", "server cores", ""]
    texts = []
    for model, figures in found["speed"].items():
        if not (bursts := figures.get("bursts")):
            continue
        sizes = f"{bursts[0]['tokens_in']} in, {bursts[0]['tokens_out']} out"
        texts.append(f"## {model}: {sizes}, all at once\n\n" + table(columns, [burst_row(one) for one in bursts]))
    return "\n\n".join(texts)


def burst_row(figure):
    """One burst."""
    ttft = figure["ttft_s"]
    return [
        number(figure["streams"]),
        number(figure["output_tokens_per_s"]),
        share(figure["whole_share"]),
        number(figure["decode_tokens_per_s"]),
        number(figure["decode_bound"]),
        share(figure["decode_share"]),
        figure["decode_hangs_on"] or "–",
        milliseconds(ttft["p50"]),
        milliseconds(ttft["p99"]),
        share(max(figure["client_cpu_shares"])),
        number(figure["server_cores"]),
        remarks(figure),
    ]


def remarks(figure):
    """What makes a figure less than one."""
    said = []
    if figure["cut"]:
        said.append(f"**cut: {figure['requests']} of {figure['requests'] + figure['unfinished']} were whole**")
    if figure["failed"]:
        said.append(f"**{figure['failed']} failed: {figure['errors'][0][:120]}**")
    if figure["client_bound"]:
        said.append("**the client may be what bounds it**")
    return cell("; ".join(said))


def prompts(found):
    """Prefill."""
    rows = []
    for model, figures in found["speed"].items():
        for one in figures.get("prompts", []):
            rows.append([
                f"{model}, {one['prompts']} x {one['tokens_in']:,}",
                number(one["prompt_tokens_per_s"]),
                number(one.get("bound")),
                share(one["share"]),
                one.get("hangs_on") or "–",
                milliseconds(one["ttft_s"]["p50"]),
                remarks(one),
            ])
    columns = ["prompts at once", "prompt tok/s", "bound", "of it", "hangs on", "TTFT p50, ms", ""]
    return "## Prompts\n\n" + table(columns, rows) if rows else ""


def reuse(found):
    """What a cached prompt costs."""
    rows = []
    for model, figures in found["speed"].items():
        if one := figures.get("reuse"):
            times = [milliseconds(one[f"{name}_s"]) for name in ("cold", "continued", "few")]
            rows.append([f"{model}, {one['tokens_in']:,} and {one['new']}", *times, number(one["cached"])])
    columns = ["prompt, new tokens", "cold, ms", "continued, ms", "new tokens alone, ms", "cached tokens"]
    return "## Time to the first token of a cached prompt\n\n" + table(columns, rows) if rows else ""


def conversations(found):
    """Groups and turns."""
    texts = []
    for model, figures in found["speed"].items():
        if not (one := figures.get("conversations")):
            continue
        title = f"## {model}: {one['groups']} groups of {one['samples']} samples, prompts of {one['shared']:,} shared, "
        title += f"{len(one['turns'])} turns of {one['turn_in']} in and {one['turn_out']} out"
        both = one["prompt_tokens"] + one["output_tokens"]
        line = f"{number(one['output_tokens_per_s'])} output tok/s, {number(both / one['wall_s'])} with prompts; of "
        line += f"what could be cached {share(one['cached_share'])} was, of later turns' history "
        line += f"{share(one['cached_share_of_history'])}. {remarks(one)}"
        rows = [
            [str(turn), number(told["answers"]), number(told["prompt_tokens"]), number(told["cached_tokens"]),
             milliseconds(told["ttft_s"]["p50"]), milliseconds(told["ttft_s"]["p99"])]
            for turn, told in enumerate(one["turns"], 1)
        ]  # fmt: skip
        columns = ["turn", "answers", "prompt tokens", "cached tokens", "TTFT p50, ms", "p99, ms"]
        texts.append(f"{title}\n\n{line}\n\n{table(columns, rows)}")
    return "\n\n".join(texts)


def compared(found):
    """Beside transformers."""
    rows = []
    for model, one in found.get("generate", {}).items():
        ours = next((figure for figure in found["speed"].get(model, {}).get("bursts", [])
                     if figure["streams"] == one["streams"]), {})  # fmt: skip
        rows.append([
            f"{model}, {one['streams']} streams, {one['tokens_in']} in, {one['tokens_out']} out",
            number(one["output_tokens_per_s"]),
            number(one["decode_tokens_per_s"]),
            number(ours.get("output_tokens_per_s")),
            number(ours.get("decode_tokens_per_s")),
        ])
    if not rows:
        return ""
    how = next(iter(found["generate"].values()))["how"]
    columns = ["", "generate, out tok/s", "decode tok/s", f"tito ({ours.get('tokens_out', '–')} out), out tok/s"]
    return f"## Beside {how}\n\n" + table([*columns, "decode tok/s"], rows)


def servers(found):
    """How each was started."""
    rows = [[name, f"{one['ready_s']:.1f} s", f"`{one['command']}`"] for name, one in found["servers"].items()]
    return "## Servers\n\n" + words(["", "ready", "command"], rows) if rows else ""


def legend():
    """What the columns mean."""
    return """\
## What the columns mean

- *out tok/s*: all tokens from the first request sent to the last token; *of the bound*: the least time that the
  roofline allows for prompts and answers together, to the time it took.
- *decode tok/s*: while all streams were being written, from the last one's first token to the first one's last; none
  where that was less than a fifth of the run. Its bound: a step reads the weights once and the keys and values of every
  stream, or multiplies as much as it must, whichever takes longer.
- Requests are streamed, at temperature 1 with a seed each, with `ignore_eos`; prompts are random ids, and no two alike.
- *client CPU*: of a core, the busiest process of the load. *server cores*: what the server took of the processor.
- Weights are random numbers, so that ends and speculative guesses mean nothing."""
