"""Models of tests/golden whose weights are drawn from a seed: making one, and how far a server is from what transformers makes of it."""

import json
import sys

from conftest import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "reference"))

from drawn_weights import write_model  # noqa: E402

# In float32, log-probs of another program may differ by this much.
TOLERANCE = 5e-5


def write(directory, case, seed=None):
    """The model, with a tokenizer that spells each id by its number."""
    write_model(directory, case["config"], case["tensors"], case["seed"] if seed is None else seed)
    words = {str(number): number for number in range(case["config"]["vocab_size"])}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "0"},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def deviation(server, case):
    """The greatest difference of a log-prob."""
    ids = case["token_ids"]
    body = {"temperature": 0, "return_token_ids": True, "ignore_eos": True}
    # One position after the other.
    scored = server.post("/v1/completions", prompt=ids, max_tokens=1, prompt_logprobs=0, **body)
    entries = scored["choices"][0]["prompt_logprobs"][1:]
    found = [entry[str(id)]["logprob"] for entry, id in zip(entries, ids[1:], strict=True)]
    differences = [abs(mine - theirs) for mine, theirs in zip(found, case["next_log_probs"], strict=True)]
    for prompt in case["prompts"]:
        # The prompt at once, then token by token.
        greedy = prompt["greedy"]
        prompt_ids = ids[: prompt["length"]]
        answer = server.post("/v1/completions", prompt=prompt_ids, max_tokens=len(greedy), logprobs=0, **body)
        choice = answer["choices"][0]
        log_probs = choice["logprobs"]["token_logprobs"]
        assert len(log_probs) == len(greedy)
        for mine, theirs, one, other in zip(log_probs, prompt["log_probs"], choice["token_ids"], greedy, strict=True):
            differences.append(abs(mine - theirs))
            if one != other:
                # Another token is wrong however near its log-prob is, and what follows it is another question.
                differences.append(2 * TOLERANCE)
                break
    return max(differences)
