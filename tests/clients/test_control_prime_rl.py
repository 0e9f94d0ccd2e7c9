"""The calls of prime-rl's orchestrator with weights on a shared file system.

prime-rl is not on PyPI: these are the calls of src/prime_rl/utils/client.py (`update_weights`, `check_health`,
`load_lora_adapter`, `init_nccl_broadcast`; commit 559b447 of August 2026), with its own HTTP client and settings.
"""

import httpx
import pytest

from checkpoints import Checkpoints
from conftest import Server
from control import LONG, MODEL, Rollout, prompt


@pytest.fixture
def admin(trained):
    limits = httpx.Limits(max_connections=4, max_keepalive_connections=1)
    with httpx.Client(base_url=trained.url, limits=limits, timeout=httpx.Timeout(300)) as client:
        yield client


def update(admin, directory):
    """`update_weights`: what failed is only known after the server was resumed."""
    admin.post("/pause", params={"mode": "keep", "clear_cache": "false"}).raise_for_status()
    try:
        # Touched by the client before the call, as the trainer touched STABLE before.
        (directory / "NCCL_READY").touch()
        (directory / "STABLE").touch()
        return admin.post("/update_weights", json={"weight_dir": directory.as_posix()})
    finally:
        admin.post("/resume").raise_for_status()


def rollout(admin, ids, salt, **asked):
    """A rollout by ids, whose caches are those of one policy version; see orchestrator/envs.py."""
    sampling = {"max_tokens": 12, "temperature": 1.0, "logprobs": 1, "ignore_eos": True, **asked}
    body = {"model": MODEL, "token_ids": ids, "sampling_params": sampling, "cache_salt": salt}
    answer = admin.post("/inference/v1/generate", json=body)
    answer.raise_for_status()
    [choice] = answer.json()["choices"]
    log_probs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return Rollout(ids, choice["token_ids"], log_probs, choice["finish_reason"], choice.get("weight_versions"))


def test_a_few_steps(admin, trained):
    assert admin.get("/health").status_code == 200
    assert admin.get("/liveness").json() == {"status": "ok"}
    assert any(model["id"] == MODEL for model in admin.get("/v1/models").json()["data"])
    for step in range(3):
        name = trained.names[trained.version()]
        for number in range(4):
            assert trained.check(rollout(admin, prompt(number), str(step), seed=number)) == [name]
        update(admin, trained.checkpoints.write(f"step_{step}", step + 1)).raise_for_status()
        trained.has_now(f"step_{step}")


def test_the_whole_prompt_is_scored_by_the_new_weights(admin, trained):
    """`prefill_logprobs`, the same prompt before and after: what was cached of it is of the old weights."""

    def scored():
        sampling = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "prompt_logprobs": 1}
        body = {"model": MODEL, "token_ids": ids, "sampling_params": sampling}
        rows = admin.post("/inference/v1/generate", json=body).raise_for_status().json()["prompt_logprobs"]
        assert rows[0] is None
        return [next(iter(row.values()))["logprob"] for row in rows[1:]]

    ids = prompt(7) * 5
    assert scored() == pytest.approx(trained.checkpoints.log_probs("base", ids[:1], ids[1:]), abs=1e-3)
    update(admin, trained.checkpoints.write("one", 1)).raise_for_status()
    assert scored() == pytest.approx(trained.checkpoints.log_probs("one", ids[:1], ids[1:]), abs=1e-3)


def test_what_is_in_flight_goes_on_with_the_new_weights(admin, trained):
    checkpoint = trained.checkpoints.write("one", 1)
    running = trained.under_way(*map(prompt, range(4)))
    update(admin, checkpoint).raise_for_status()
    trained.has_now("one")
    for kept in running:
        assert kept.rollout().finish_reason == "length"
        assert len(kept.rollout().ids) == LONG
        assert trained.check(kept.rollout()) == ["base", "one"]


def damaged(trained, what):
    directory = trained.checkpoints.write(what, 1)
    second = directory / "model-00002-of-00002.safetensors"
    if what == "one of two files is missing":
        second.unlink()
    elif what == "one of two files ends early":
        second.write_bytes(second.read_bytes()[:-100])
    elif what == "a directory that is not there":
        return directory / "elsewhere"
    return directory


@pytest.mark.parametrize(
    "what", ["one of two files is missing", "one of two files ends early", "a directory that is not there"]
)
def test_what_cannot_be_loaded_is_refused_for_good_and_leaves_the_old_weights(admin, trained, what):
    """prime-rl sends again, for minutes, what is answered with 5xx."""
    directory = damaged(trained, what)
    version = trained.version()
    if directory.exists():
        refused = update(admin, directory)
    else:
        refused = admin.post("/update_weights", json={"weight_dir": directory.as_posix()})
    assert 400 <= refused.status_code < 500, refused.text
    assert refused.json()["error"]["message"]
    assert trained.version() == version
    trained.check(trained.complete(prompt(3)), "base")


def test_calls_may_be_repeated(admin, trained):
    """A lost answer is asked for again, the whole call with it."""
    directory = trained.checkpoints.write("one", 1)
    for path in ["/pause?mode=keep&clear_cache=false"] * 2:
        admin.post(path).raise_for_status()
    for _ in range(2):
        admin.post("/update_weights", json={"weight_dir": directory.as_posix()}).raise_for_status()
    for _ in range(2):
        admin.post("/resume").raise_for_status()
    trained.has_now("one")
    trained.check(trained.complete(prompt(3)), "one")


def test_what_the_server_has_not_is_said_at_once(admin):
    """NCCL: the client goes on without the broadcaster, and must not be told to try the update again."""
    broadcaster = {"host": "127.0.0.1", "port": 29501, "rank_offset": 0, "inference_world_size": 1, "timeout": 60}
    assert 400 <= admin.post("/init_broadcaster", json=broadcaster).status_code < 500
    assert 400 <= admin.post("/update_weights", json={"weight_dir": None}).status_code < 500


def test_its_key_opens_the_control_plane(tmp_path):
    """Its admin client sends the key of the API, and nobody without one pauses a server."""
    base = Checkpoints(tmp_path).base
    flags = ["--engine", "native", "--max-model-len", "256", "--api-key", "secret", "--admin-on-main-port"]
    server = Server(*flags, model=str(base))
    try:
        with httpx.Client(base_url=server.url, headers={"Authorization": "Bearer secret"}) as admin:
            for path in ["/pause?mode=keep&clear_cache=false", "/resume"]:
                assert httpx.post(server.url + path).status_code == 401
                admin.post(path).raise_for_status()
    finally:
        server.stop()
