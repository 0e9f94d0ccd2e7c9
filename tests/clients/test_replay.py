"""Every exchange recorded from vLLM, sent to tito: status, JSON to the last key and null, framing, errors, and where
nothing is random ids, texts and log-probs.

The table at the end counts what is equal and what differs on purpose. Nothing else passes. What tito says where nothing is
random is in tests/golden/vllm/answers.jsonl, word for word, so that a change of it is read; UPDATE_EXPECT=1 writes that file.
"""

import collections
import json
import os
import re

import pytest

from conftest import REPOSITORY, Server, note
from deviations import DEVIATIONS, FINISH_REASONS
from parsed import parsed
from recorded import ANSWERS, Comparison, exchanges

EXCHANGES = exchanges()
UPDATE = os.environ.get("UPDATE_EXPECT") == "1"
BASE = ["--engine", "native", "--dtype", "float32", "--max-model-len", "4096", "--continuity-cache-size", "0"]
TOOLS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--trust-request-chat-template"]
TOOLS += ["--enable-tokenizer-info-endpoint", "--enable-scale-out"]
FLAGS = {
    "plain": [],
    "auth": ["--api-key", "sekret"],
    "tools": TOOLS,
    "extras": TOOLS,
    "patched": TOOLS,
    "nemo_real": [*TOOLS, "--return-tokens-as-token-ids"],
}
PAGE = REPOSITORY / "docs" / "vllm-compatibility.md"
counts = collections.Counter()
# What tito says now, by exchange.
saying = {}
# The ids of stored responses, by those that vLLM gave.
stored = {}


@pytest.fixture(scope="module")
def servers():
    """Servers by their flags, started when first asked for."""
    started = {}

    def server(group):
        flags = tuple(FLAGS[group])
        if flags not in started:
            started[flags] = Server(*BASE, *flags)
        return started[flags]

    yield server
    for server in started.values():
        server.stop()
    note("replayed: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    if UPDATE:
        lines = [json.dumps({"name": name, "said": said}, ensure_ascii=False) for name, said in saying.items()]
        ANSWERS.write_text("".join(line + "\n" for line in lines))


def deviation(exchange):
    """The places that may differ, by the sentence of the page that says why."""
    return {why: places for why, names in DEVIATIONS.items() for name, places in names.items() if name == exchange.name}


def reasons(said):
    """Why each choice of an answer ended; a refusal has none."""
    return [choice["finish_reason"] for choice in said or []]


def answers():
    """What tito says, by exchange."""
    if UPDATE:
        return saying
    lines = map(json.loads, ANSWERS.read_text().splitlines())
    return {line["name"]: line["said"] for line in lines}


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_tito_answers_as_vllm_answered(servers, exchange):
    answer = exchange.ask(servers(exchange.group).url, stored)
    found = Comparison(exact=not exchange.samples).answers(exchange.recorded, answer)
    allowed = deviation(exchange)
    places = [place for places in allowed.values() for place in places]
    for place in places:
        assert any(re.fullmatch(place, at) for at, _ in found), f"{place} no longer differs: take it from the list"
    wrong = [(at, what) for at, what in found if not any(re.fullmatch(place, at) for place in places)]
    counts["wrong" if wrong else "deviations" if allowed else "equal"] += 1
    assert not wrong, "\n".join(f"{at}: {what}" for at, what in wrong)
    if not exchange.samples and parsed(exchange.recorded):
        saying[exchange.name] = parsed(answer)
        assert UPDATE or saying[exchange.name] == answers()[exchange.name]


def test_deviations_are_those_of_the_page():
    """Each list of places has a row there that begins with the same words."""
    page = PAGE.read_text()
    names = {exchange.name for exchange in EXCHANGES}
    for why, places in DEVIATIONS.items():
        assert why in page, f"{PAGE.name} does not say: {why}"
        assert places.keys() <= names, f"{places.keys() - names} were not recorded"


def test_finish_reasons_that_differ_are_those_of_the_list():
    theirs = {exchange.name: parsed(exchange.recorded) for exchange in EXCHANGES if not exchange.samples}
    assert answers().keys() == {name for name, said in theirs.items() if said}
    differ = {name for name, said in answers().items() if reasons(said) != reasons(theirs[name])}
    assert differ == FINISH_REASONS.keys()
