"""The same question has the same answer, whatever else is asked, and log-probs are those of the model."""

import concurrent.futures
import random

import pytest

PROMPTS = [
    "Hi",
    "Name a colour.",
    "What is 2 + 2?",
    "Write one line about the sea.",
    "Who was Ada Lovelace?",
    "List three fruits.",
    "Translate 'good morning' into French.",
    "Why is the sky blue?",
]


def ask(server, prompt, **options):
    messages = [{"role": "user", "content": prompt}]
    options = {"max_tokens": 16, "temperature": 0, **options}
    body = server.post("/v1/chat/completions", messages=messages, return_token_ids=True, **options)
    message = body["choices"][0]["message"]
    return message["prompt_token_ids"], message["generation_token_ids"], message["generation_log_probs"]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 11}], ids=["greedy", "seeded"])
def test_company_changes_nothing(server, sampling):
    """Alone, and 8 at once in several orders: the same ids and the same log-probs, to the bit."""
    alone = {prompt: ask(server, prompt, **sampling) for prompt in PROMPTS}
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        for order in range(3):
            shuffled = random.Random(order).sample(PROMPTS, len(PROMPTS))
            together = pool.map(lambda prompt: ask(server, prompt, **sampling), shuffled)
            for prompt, answer in zip(shuffled, together, strict=True):
                assert answer == alone[prompt], prompt


def test_a_second_turn_is_the_one_that_vllm_computed(server):
    """Recorded from vLLM 0.32.0 in float32 with NeMo-RL's prefix repair; the known ids do not spell "Hello world"."""
    # fmt: off
    prompt = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
              2, 198, 1, 4093, 198, 26843, 2, 198, 1, 520, 9531, 198]
    generation = [56, 11222, 267, 1886, 2]
    tail = [198, 1, 4093, 198, 5507, 2, 198, 1, 520, 9531, 198]
    # fmt: on
    ids = {"prompt_token_ids": prompt, "generation_token_ids": generation}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello world", **ids},
        {"role": "user", "content": "More"},
    ]
    answer = server.post("/v1/chat/completions", messages=messages, temperature=0, max_tokens=6, return_token_ids=True)
    assert answer["prompt_token_ids"] == prompt + generation + tail
    assert answer["choices"][0]["token_ids"] == [5507, 905, 2]
    assert server.post("/tokenize", messages=messages)["tokens"] == answer["prompt_token_ids"]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.5, "seed": 5}], ids=["greedy", "hot"])
def test_log_probs_agree_with_a_second_look(server, sampling):
    """The sampled ids, given back as a prompt, are scored as they were when they were sampled."""
    for prompt in PROMPTS[:4]:
        prompt_ids, ids, log_probs = ask(server, prompt, **sampling)
        scored = server.post("/v1/completions", prompt=prompt_ids + ids, echo=True, max_tokens=0, logprobs=0)
        again = scored["choices"][0]["logprobs"]["token_logprobs"][len(prompt_ids) :]
        assert again == pytest.approx(log_probs, abs=1e-3), prompt
        listed = server.post("/v1/completions", prompt=prompt_ids + ids, max_tokens=1, prompt_logprobs=0)
        entries = listed["choices"][0]["prompt_logprobs"][len(prompt_ids) :]
        assert [entry[str(id)]["logprob"] for entry, id in zip(entries, ids, strict=True)] == again
