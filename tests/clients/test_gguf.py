"""A GGUF file is served as it is, with the tokenizer and the template that it carries."""

import os

from conftest import Server

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
