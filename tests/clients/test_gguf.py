"""A GGUF file is served as it is, with the tokenizer and the template that it carries."""

import json
import os
import pathlib
import re

from conftest import Server

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "gemma3_270m.json"

MESSAGES = [{"role": "user", "content": "What is 7 x 6?"}]


def test_a_gguf_file_puts_conversations_into_the_same_ids(server):
    served = Server(model=os.environ["TITO_TEST_GGUF"])
    try:
        ids = served.post("/tokenize", messages=MESSAGES)["tokens"]
        assert ids == server.post("/tokenize", messages=MESSAGES)["tokens"]
        answer = served.post("/v1/chat/completions", messages=MESSAGES, max_tokens=4, return_token_ids=True)
        assert answer["prompt_token_ids"] == ids
    finally:
        served.stop()


def test_a_draft_model_stays_in_its_blocks_beside_a_model_in_bfloat16():
    draft = {"method": "draft_model", "model": os.environ["TITO_TEST_GGUF"], "num_speculative_tokens": 4}
    flags = ["--dtype", "bfloat16", "--max-model-len", "512", "--admin-on-main-port", "--insecure-admin"]
    answers = []
    for speculation, more in [(None, []), (draft, ["--gguf-weights", "native"]), (draft, [])]:
        served = Server(*flags, *more, "--speculative-config", json.dumps(speculation))
        try:
            asked = {"max_tokens": 24, "seed": 3, "logprobs": True, "return_token_ids": True}
            answers.append(served.post("/v1/chat/completions", messages=MESSAGES, **asked)["choices"])
            if speculation:
                # By default it does where that is as fast.
                stays = bool(more) or re.search(r"\bcpu \((avx512|amx)", served.logged()) is not None
                assert ("of weights in blocks or codes, beside the model's " in served.logged()) == stays
                assert "a row of the draft model takes " in served.logged()
            if more:
                body = {"model_path": os.environ["TITO_TEST_MODEL"], "selector": "draft"}
                status, refused = served.exchange("/update_weights_from_disk", body)
                assert status == 400 and "--gguf-weights widened" in refused
        finally:
            served.stop()
    assert answers[0] == answers[1] == answers[2]


def test_a_real_gemma_3_has_the_ids_of_its_tokenizer_and_the_log_probs_of_transformers():
    served = Server("--dtype", "float32", "--max-model-len", "1024", model=os.environ["TITO_TEST_GEMMA"])
    try:
        for case in json.loads(GOLDEN.read_text()):
            assert served.post("/tokenize", prompt=case["text"])["tokens"] == case["ids"]
            asked = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "return_token_ids": True}
            choice = served.post("/v1/completions", prompt=case["text"], **asked)["choices"][0]
            assert choice["token_ids"] == [case["next"]]
            scores = choice["prompt_logprobs"][1:]
            found = [score[str(token)]["logprob"] for score, token in zip(scores, case["ids"][1:], strict=True)]
            worst = max(abs(left - right) for left, right in zip(found, case["logprobs"], strict=True))
            print(f"{len(found)} log-probs, at most {worst:.1e} apart")
            assert worst < 1e-4
    finally:
        served.stop()
