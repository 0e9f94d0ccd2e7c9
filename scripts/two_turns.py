"""Plays two turns of a tool conversation and shows what became of the ids of the first one.

Needs nothing but Python's standard library. Exits with 1 unless turn 2 starts with every id of turn 1.
"""

import json
import sys
import urllib.error
import urllib.request

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CITY = "Llanfairpwllgwyngyll"
RESULT = {"role": "tool", "tool_call_id": "call_0", "content": '{"celsius": 11, "sky": "rain"}'}
# Turn 1 is sampled with these. The first seeds are known to give a call whose text encodes to other ids than were
# sampled; on machines whose arithmetic rounds otherwise, another one may be needed.
SAMPLING = {"temperature": 1.2, "min_p": 0.01}
SEEDS = [18, 21, *range(64)]
CONTEXT = 3


def user(city):
    return {"role": "user", "content": f"Call the tool for {city}."}


def call_of(city):
    """The text of a call, in the format that the template tells the model to use."""
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


# So small a model needs examples.
EXAMPLES = [
    message
    for city in ("Rome", "New York")
    for message in (user(city), {"role": "assistant", "content": call_of(city)})
]
FIRST = [*EXAMPLES, user(CITY)]


class Tito:
    """The server's endpoints."""

    def __init__(self, url):
        self.url = url

    def post(self, path, **body):
        data = json.dumps({"tools": [TOOL], **body}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            sys.exit(f"{path}: {error.code} {error.read().decode()}")

    def chat(self, messages, **sampling):
        # The tools are shown to the model; what it makes of them is text.
        options = {"tool_choice": "none", "return_token_ids": True, "max_tokens": 48, **sampling}
        return self.post("/v1/chat/completions", messages=messages, **options)

    def tokenize(self, messages):
        # An empty prefix declines what the server remembers: it knows this conversation by its texts.
        return self.post("/tokenize", messages=messages, required_prefix_token_ids=[])["tokens"]

    def text(self, ids):
        return self.post("/detokenize", tokens=ids)["prompt"]


def without_ids(message):
    return {"role": message["role"], "content": message["content"]}


def first_difference(left, right):
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(left), len(right)))


def first_turn(tito):
    """A turn that calls the tool, and whose text encodes differently from what was sampled."""
    for seed in SEEDS:
        answer = tito.chat(FIRST, seed=seed, **SAMPLING)
        message = answer["choices"][0]["message"]
        known = message["prompt_token_ids"] + message["generation_token_ids"]
        retokenised = tito.tokenize([*FIRST, without_ids(message), RESULT])
        if message["content"] == call_of(CITY) and retokenised[: len(known)] != known:
            return seed, message, known, retokenised
    sys.exit("no seed gave a call that encodes differently: nothing to show")


def show(title, ids):
    print(f"\n{title} ({len(ids)} ids)")
    line = " "
    for id in ids:
        if len(line) + len(str(id)) > 116:
            print(line)
            line = " "
        line += f" {id}"
    print(line)


def cell(tito, ids, at):
    return f"{ids[at]:>6} {tito.text([ids[at]])!r:<16}" if at < len(ids) else f"{'-':>6} {'':<16}"


def side_by_side(tito, known, second, retokenised):
    """The rows around the first difference and around the end of turn 1."""
    difference = first_difference(second, retokenised)
    marks = {difference: "<- first difference", len(known) - 1: "<- turn 1 ends here"}
    print(f"\n{'':>8}  {'turn 1':<23}  {'turn 2':<23}  re-tokenised")
    shown = sorted({row for at in marks for row in range(max(at - CONTEXT, 0), at + CONTEXT + 1)})
    before = -1
    for at in shown:
        if at != before + 1:
            print(f"{'...':>8}")
        columns = "  ".join(cell(tito, ids, at) for ids in (known, second, retokenised))
        print(f"{at:>8}  {columns}  {marks.get(at, '')}".rstrip())
        before = at
    return difference


def main(url):
    tito = Tito(url)
    seed, message, known, retokenised = first_turn(tito)
    print(f"\nuser: {FIRST[-1]['content']}")
    print(f"model, at temperature {SAMPLING['temperature']} and seed {seed}: {message['content']}")
    print(f"tool: {RESULT['content']}")
    answer = tito.chat([*FIRST, message, RESULT], temperature=0)
    second = answer["prompt_token_ids"]
    print(f"model: {answer['choices'][0]['message']['content']}")

    show("turn 1: prompt and generation", known)
    show("turn 2: prompt, after the message of turn 1 was sent back with its ids, and the tool's result", second)
    show("re-tokenised: the same conversation without ids", retokenised)
    difference = side_by_side(tito, known, second, retokenised)

    if second[: len(known)] != known:
        sys.exit(f"\nturn 2 does NOT start with the ids of turn 1: they differ at {first_difference(second, known)}")
    print(f"\nturn 2 starts with all {len(known)} ids of turn 1")
    print(f"re-tokenised, it would have left them at position {difference}, although the text is the same")


if __name__ == "__main__":
    main(sys.argv[1])
