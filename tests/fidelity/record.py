"""Records renders and ids: record.py TEMPLATES DIRECTORY, where TEMPLATES is what scripts/fetch-templates prints."""

import json
import multiprocessing
import pathlib
import random
import sys

import tokenizers

import grid
import messages
import texts
from chat_template import ChatTemplate, Failed, Raised, TemplateFailed

REPOSITORY = pathlib.Path(__file__).parents[2]
# The same for every template, so that one vocabulary can show them.
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
# Where templates come from.
SOURCES = ("trl", "llama.cpp", "vllm")
# Which templates' renders a family's ids are recorded for.
FAMILIES = {
    "qwen3": ["qwen3", "qwen3_8"],
    "llama3_1": ["llama3_1", "llama3"],
    "gemma3": ["gemma3", "gemma4"],
    "gptoss": ["gptoss"],
    "deepseek_v3": ["deepseekv3", "deepseek_r1_distill"],
    "smollm2": ["qwen2_5", "lfm2"],
}
SMOLLM2_SPECIAL_TOKENS = 17
# Every how many-th request of the grid ids are recorded for.
STRIDE = 7
RANDOM_IDS = 1000


def rendered(template, line):
    """The recording of one request."""
    request = json.loads(line)
    shape = messages.content_format(template.source)
    has_calls = any(message.get("tool_calls") for message in request["messages"])
    try:
        try:
            text = one_render(template, request, shape, False)
        except TemplateFailed:
            # Deliberate: where vLLM fails, tito tries the arguments as text, which DeepSeek's templates want.
            if not has_calls:
                raise
            text = one_render(template, request, shape, True)
    except Raised as error:
        return {"raised": str(error)}
    except Failed as error:
        return {"failed": str(error)}
    return {"text": text}


def one_render(template, request, shape, arguments_as_text):
    shown, variables = messages.template_input(request, template.source, shape, arguments_as_text)
    return template.render(shown, variables, request.get("continue_final_message", False))


def record_template(job):
    path, directory, lines = job
    template = ChatTemplate(path.read_text(), SPECIAL_TOKENS)
    results = [rendered(template, line) for line in lines]
    write(directory / "renders" / path.parent.name / f"{path.stem}.jsonl", results)
    return path.stem, results


def smollm2():
    """SmolLM2's tokenizer, of its merges."""
    golden = REPOSITORY / "tests/golden/multiturn"
    first = (golden / "smollm2-first-tokens.txt").read_text().split("\n")[:-1]
    lines = (golden / "smollm2-merges.txt").read_text().split("\n")[:-1]
    merges = [tuple(line.split(" ")) for line in lines]
    tokens = first + ["".join(merge) for merge in merges]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    pre = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(first[:SMOLLM2_SPECIAL_TOKENS])
    return tokenizer


def record_ids(job):
    family, templates, directory, lines = job
    if family == "smollm2":
        tokenizer = smollm2()
    else:
        tokenizer = tokenizers.Tokenizer.from_file(str(templates / "tokenizers" / family / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    some = added[:: max(1, len(added) // 40)]
    samples = list(texts.ALL)
    samples += [f"a {token} b\n{token}{token}" for token in some]
    for name in FAMILIES[family]:
        template = ChatTemplate((templates / "trl" / f"{name}.jinja").read_text(), SPECIAL_TOKENS)
        results = [rendered(template, line) for line in lines[::STRIDE]]
        samples += [result["text"] for result in results if "text" in result]
    results = []
    for text in dict.fromkeys(samples):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        with_special = tokenizer.encode(text).ids
        result = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
        result["spoken"] = tokenizer.decode(ids, skip_special_tokens=True)
        if with_special != ids:
            result["ids_with_special"] = with_special
        results.append(result)
    results += list(random_ids(tokenizer))
    write(directory / "ids" / f"{family}.jsonl", results)
    return family, len(results)


def random_ids(tokenizer):
    """Ids that are no text's, broken UTF-8 among them."""
    choose = random.Random(grid.SEED)
    known = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    for _ in range(RANDOM_IDS):
        ids = choose.choices(known, k=choose.randint(1, 12))
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        yield {"ids": ids, "decoded": decoded, "spoken": tokenizer.decode(ids, skip_special_tokens=True)}


def write(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def main(templates, directory):
    lines = grid.lines()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "requests.jsonl").write_text("\n".join(lines) + "\n")
    for name in (*SOURCES, "tokenizers"):
        (directory / name).symlink_to(templates / name)
    paths = [path for source in SOURCES for path in sorted((templates / source).glob("*.jinja"))]
    counts = {"text": 0, "raised": 0, "failed": 0}
    with multiprocessing.Pool() as pool:
        ids = pool.imap_unordered(record_ids, [(family, templates, directory, lines) for family in FAMILIES])
        for _name, results in pool.imap_unordered(record_template, [(path, directory, lines) for path in paths]):
            for result in results:
                counts[next(iter(result))] += 1
        encoded = dict(ids)
    print(f"{len(paths)} templates, {len(lines)} requests: {counts}; texts and ids: {encoded}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
