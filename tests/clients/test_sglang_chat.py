"""Chats as the session server of miles sends them (miles/rollout/session/sessions.py, 0.0.2): the prompt in ids, and what was
sampled out of `meta_info`."""

import concurrent.futures

import pytest
import requests

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}


def turn(server, messages, input_ids, **asked):
    """One turn: what the session server adds to an agent's request, and what it reads and checks of the answer."""
    added = {"logprobs": True, "return_meta_info": True, "no_stop_trim": False, "input_ids": input_ids}
    choice = server.post("/v1/chat/completions", messages=messages, **asked, **added)["choices"][0]
    entries = choice["meta_info"]["output_token_logprobs"]
    assert choice["message"]["content"] is not None
    assert len(entries) == choice["meta_info"]["completion_tokens"]
    return choice, [entry[1] for entry in entries], [entry[0] for entry in entries]


def scored(server, ids, from_):
    """`--recompute-logprobs-via-prefill`."""
    params = {"top_p": 1.0, "max_new_tokens": 0, "temperature": 0, "skip_special_tokens": False}
    body = {"input_ids": ids, "sampling_params": params, "return_logprob": True, "logprob_start_len": from_}
    return [entry[0] for entry in server.post("/generate", **body)["meta_info"]["input_token_logprobs"]][1:]


def test_the_turns_of_an_agent_keep_every_id(server):
    messages = [{"role": "user", "content": "Name a colour, and say why."}]
    known = server.post("/tokenize", messages=messages)["tokens"]
    for number in range(3):
        asked = {"max_tokens": 12, "seed": number, "return_prompt_token_ids": True, **SAMPLING}
        choice, sampled, log_probs = turn(server, messages, known, **asked)
        assert choice["prompt_token_ids"] == known
        assert choice["meta_info"]["prompt_tokens"] == len(known)
        assert scored(server, known + sampled, len(known) - 1) == log_probs
        more = {"role": "user", "content": f"And number {number}?"}
        tail = server.post("/tokenize", prompt=f"\n<|im_start|>user\n{more['content']}<|im_end|>\n<|im_start|>assistant\n")
        end = [] if sampled[-1] == 2 else [2]
        known = known + sampled + end + tail["tokens"]
        messages = [*messages, {"role": "assistant", "content": choice["message"]["content"]}, more]


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, SAMPLING], ids=["greedy", "seeded"])
def test_sglangs_words_and_vllms_sample_the_same_at_the_same_time(server, sampling):
    ids = server.post("/tokenize", messages=[{"role": "user", "content": "Write one line about the sea."}])["tokens"]

    def generated(seed):
        params = {"max_new_tokens": 12, "sampling_seed": seed, **sampling}
        answer = server.post("/generate", input_ids=ids, sampling_params=params, return_logprob=True)
        return [tuple(entry[:2]) for entry in answer["meta_info"]["output_token_logprobs"]]

    def chatted(seed):
        _, sampled, log_probs = turn(server, [{"role": "user", "content": ""}], ids, max_tokens=12, seed=seed, **sampling)
        return list(zip(log_probs, sampled, strict=True))

    def completed(seed):
        body = {"prompt": ids, "max_tokens": 12, "seed": seed, "logprobs": 0, "return_token_ids": True, **sampling}
        [choice] = server.post("/v1/completions", **body)["choices"]
        return list(zip(choice["logprobs"]["token_logprobs"], choice["token_ids"], strict=True))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for seed in range(2):
            first, *others = [future.result() for future in [pool.submit(call, seed) for call in (generated, chatted, completed)]]
            assert first
            assert others == [first, first], seed


def test_what_a_stream_has_no_place_for_and_ids_that_contradict_each_other_are_refused_by_name(server):
    message = {"role": "user", "content": "Hi"}
    for asked, param in [
        ({"return_meta_info": True, "stream": True}, "return_meta_info"),
        ({"return_prompt_token_ids": True, "stream": True}, "return_prompt_token_ids"),
        ({"input_ids": [1, 2], "prompt_token_ids": [1, 3]}, "input_ids"),
        ({"input_ids": [10**9]}, "input_ids"),
    ]:
        body = {"messages": [message], **asked}
        answer = requests.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
