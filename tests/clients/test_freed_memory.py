"""What large bodies took goes back to the system once they are answered."""

import concurrent.futures

import pytest
from conftest import REPOSITORY, Server

CHAT = "/v1/chat/completions"
TINY = REPOSITORY / "tests" / "fixtures" / "tiny-model"
# Of 20 MB each: a history of ids, and a text, both longer than the context.
IDS = [7] * 2_000_000
BODIES = [
    {"messages": [{"role": "user", "content": "word and more " * 1_400_000}]},
    {
        "messages": [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": "b",
                "prompt_token_ids": IDS,
                "generation_token_ids": IDS,
                "generation_log_probs": [-0.5] * len(IDS),
            },
            {"role": "user", "content": "c"},
        ]
    },
]
# What the allocator may keep of a round of such bodies beside what it kept of the round before. One of them takes more, parsed.
KEPT_MIB = 48


@pytest.fixture
def server():
    server = Server("--engine", "scripted", "--max-model-len", "512", model=str(TINY))
    yield server
    server.stop()


def test_memory_of_large_bodies_is_given_back(server):
    def round_of_bodies():
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda body: server.exchange(CHAT, {"model": "smollm2"} | body), BODIES * 4))
        assert [status for status, _ in answers] == [400] * len(answers)
        server.poll("the server is idle", server.idle)

    server.post(CHAT, messages=[{"role": "user", "content": "a"}], max_tokens=1)
    before = server.resident_mib()
    # Each thread that parses bodies or puts prompts into ids keeps its tables and a few pages, 25 to 53 MiB together.
    round_of_bodies()
    server.poll("the memory is given back", lambda: server.resident_mib() < before + 2 * KEPT_MIB)
    warm = server.resident_mib()
    round_of_bodies()
    server.poll("the memory is given back again", lambda: server.resident_mib() < warm + KEPT_MIB)
