"""A GGUF file is served as it is, with the tokenizer and the template that it carries."""

import json
import os
import pathlib

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
