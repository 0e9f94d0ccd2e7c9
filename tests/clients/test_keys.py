"""What a real engine's cache tells clients with other API keys or salts: nothing."""

import json
import urllib.request

import pytest

from conftest import Server

KEYS = ["--api-key", "one", "two", "--enable-prompt-tokens-details"]
QUESTION = "Count the lakes of Finland and name three of them please."


def cached_tokens(server, key, salt):
    """How many tokens of the same prompt the server says that it had."""
    body = {"model": "smollm2", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 1, "cache_salt": salt}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("shares", [False, True])
def test_prefixes_are_cached_for_the_same_key_and_salt(shares):
    server = Server("--engine", "native", *KEYS, *(["--share-between-api-keys"] if shares else []))
    for salt in [None, "a", "b"]:
        assert cached_tokens(server, "one", salt) == 0
        assert cached_tokens(server, "one", salt) > 0
        assert (cached_tokens(server, "two", salt) > 0) == shares
    server.stop()
