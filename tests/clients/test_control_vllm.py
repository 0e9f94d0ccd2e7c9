"""The control plane answers in vLLM 0.33's words, and `vllm.distributed.weight_transfer.clients` can drive it.

The words are those of vllm/entrypoints/rl/online/api_router.py, vllm/entrypoints/serve/dev and vllm/v1/worker/gpu_worker.py.
The client's wheel has 336 MB, so that its few lines are repeated here.
"""

import json

import pytest
import requests

from control import LONG, MODEL, Trained, prompt


class HTTPVLLMWeightSyncClient:
    """Of vllm/distributed/weight_transfer/clients.py."""

    def __init__(self, base_url, timeout=300.0):
        self.base_url, self.timeout = base_url, timeout

    def _post(self, path, json=None):
        requests.post(f"{self.base_url}/{path}", json=json, timeout=self.timeout).raise_for_status()

    def init_weight_transfer_engine(self, init_info):
        self._post("init_weight_transfer_engine", {"init_info": init_info})

    def shutdown_weight_transfer_engine(self):
        self._post("shutdown_weight_transfer_engine")

    def start_weight_update(self):
        self._post("start_weight_update")

    def update_weights(self, update_info):
        self._post("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version=None):
        self._post("finish_weight_update", {"weight_version": weight_version} if weight_version is not None else None)


def invalid(error):
    """What 0.33 says of a parameter that does not validate."""
    return f"1 validation error:\n  {error}"


MODES = "'abort', 'wait' or 'keep'"
FAILED = "Call to collective_rpc method failed: "
CALLS = [
    # method, path, body, status, what is answered
    ("POST", "/pause?mode=keep", None, 200, {"status": "paused"}),
    ("GET", "/is_paused", None, 200, {"is_paused": True}),
    ("GET", "/is_sleeping", None, 200, {"is_sleeping": True}),
    ("POST", "/resume", None, 200, {"status": "resumed"}),
    ("POST", "/resume", None, 200, {"status": "resumed"}),
    ("GET", "/is_paused", None, 200, {"is_paused": False}),
    ("POST", "/sleep", None, 200, {"status": "sleeping", "level": 1}),
    ("POST", "/wake_up?tags=weights", None, 200, {"status": "sleeping", "tags": ["weights"]}),
    ("POST", "/wake_up?tags=kv_cache", None, 200, {"status": "awake", "tags": ["kv_cache"]}),
    ("POST", "/sleep?level=0&mode=keep", None, 200, {"status": "sleeping", "level": 0}),
    ("POST", "/wake_up", None, 200, {"status": "awake", "tags": None}),
    ("GET", "/is_sleeping", None, 200, {"is_sleeping": False}),
    ("POST", "/reset_prefix_cache", None, 200, {"success": True}),
    ("POST", "/abort_requests", {}, 200, {"status": "aborted", "aborted": 0}),
    ("GET", "/get_world_size?include_dp=false", None, 200, {"world_size": 1}),
    ("POST", "/update_weight_version", {"new_version": "9"}, 200, {"success": True, "new_version": "9"}),
    ("POST", "/shutdown_weight_transfer_engine", None, 200, {"message": "Weight transfer shut down"}),
    # What is refused: the message.
    ("POST", "/pause?mode=x", None, 400, invalid({"type": "literal_error", "loc": "query.mode", "msg": f"Input should be {MODES}", "input": "x", "ctx": {"expected": MODES}})),
    ("POST", "/sleep?level=3", None, 400, invalid({"type": "less_than_equal", "loc": "query.level", "msg": "Input should be less than or equal to 2", "input": "3", "ctx": {"le": 2}})),
    ("POST", "/pause?clear_cache=x", None, 400, invalid({"type": "bool_parsing", "loc": "query.clear_cache", "msg": "Input should be a valid boolean, unable to interpret input", "input": "x"})),
    ("POST", "/update_weights", {"x": 1}, 400, invalid({"type": "missing", "loc": "body.update_info", "msg": "Field required", "input": "<dict of 1 items>"})),
    ("POST", "/update_weight_version", {}, 400, invalid({"type": "missing", "loc": "body.new_version", "msg": "Field required", "input": "<dict of 0 items>"})),
    ("POST", "/abort_requests", None, 400, "Invalid JSON format"),
    ("POST", "/abort_requests", [], 400, "Request body must be a JSON object"),
    ("POST", "/collective_rpc", {}, 400, "Missing 'method' in request body"),
    ("POST", "/collective_rpc", [], 400, "Request body must be a JSON object"),
    ("POST", "/weight_checker", {"action": "compare"}, 400, "action='compare' requires a 'baseline' object"),
    ("POST", "/update_weights", {"update_info": {"path": "/none"}}, 500, FAILED + "start_weight_update must be called before update_weights."),
    ("POST", "/finish_weight_update", None, 500, FAILED + "finish_weight_update called without a matching start_weight_update."),
    ("POST", "/release_kv_cache_memory", None, 500, "Call to release_kv_cache_memory method failed: release_kv_cache_memory() requires a completed pause first"),
]  # fmt: skip


def test_answers_are_vllms(trained):
    assert [wrong for wrong in (difference(trained, *call) for call in CALLS) if wrong] == []


def difference(trained, method, path, body, status, said):
    """How an answer differs from what is expected, if it does."""
    answer = requests.request(method, trained.url + path, json=body, timeout=300)
    if answer.status_code != status:
        return method, path, answer.status_code, answer.text
    # SkyRL reads only what has a length, and only what is JSON by its media type.
    if answer.headers.get("Content-Length") != str(len(answer.content)):
        return method, path, "no length"
    if answer.headers["Content-Type"] != "application/json":
        return method, path, answer.headers["Content-Type"]
    if status == 200:
        found, expected = {name: answer.json().get(name) for name in said}, said
    else:
        found = answer.json()["error"]
        param = said.split("'loc': '")[1].split("'")[0] if "'loc'" in said else None
        kind = {400: "Bad Request", 500: "InternalServerError"}[status]
        expected = {"message": said, "type": kind, "param": param, "code": status}
    return None if found == expected else (method, path, found, expected)


ASKED = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/inference/v1/generate": {"token_ids": [5], "sampling_params": {"max_tokens": 1}},
}


@pytest.mark.parametrize("path", ASKED)
def test_a_request_during_a_pause_is_refused_as_vllm_refuses_it(trained, path):
    body = {"model": MODEL, **ASKED[path]}
    requests.post(f"{trained.url}/pause", timeout=300).raise_for_status()
    try:
        refused = requests.post(trained.url + path, json=body, timeout=300)
        message = "Generation is paused. Please retry after it resumes."
        error = {"message": message, "type": "ServiceUnavailableError", "param": None, "code": 503}
        assert (refused.status_code, refused.json()) == (503, {"error": error})
        assert refused.headers["X-Retry"] == "anywhere; done=nothing"
        # A stream too, so that a router sees it. vLLM's has begun by then.
        streamed = requests.post(trained.url + path, json=body | {"stream": True}, timeout=300)
        assert (streamed.status_code, streamed.json()) == (503, {"error": error})
        assert streamed.headers["X-Retry"] == "anywhere; done=nothing"
    finally:
        requests.post(f"{trained.url}/resume", timeout=300).raise_for_status()
    assert requests.post(trained.url + path, json=body, timeout=300).status_code == 200


@pytest.mark.parametrize("call", ["pause", "sleep"])
def test_what_was_kept_is_finished_where_it_is_waited_for(trained, call):
    """In vLLM, the last pause counts: `wait` lets what `keep` held run to its end."""
    [kept] = trained.under_way(prompt(0))
    requests.post(f"{trained.url}/pause?mode=keep", timeout=300).raise_for_status()
    trained.gate.go_on()
    assert not kept.future.done()
    requests.post(f"{trained.url}/{call}?mode=wait", timeout=300).raise_for_status()
    assert kept.rollout().finish_reason == "length"
    requests.post(f"{trained.url}/wake_up", timeout=300).raise_for_status()


def test_metrics_say_what_sleeps_and_how_long_calls_took(trained):
    def sample(name):
        lines = [line for line in trained.server.get("/metrics").splitlines() if line.startswith(name)]
        return {line.split(" ")[0].removeprefix(name): float(line.split(" ")[1]) for line in lines}

    def sleeping():
        states = sample("vllm:engine_sleep_state")
        [state] = [labels.split('sleep_state="')[1].split('"')[0] for labels, on in states.items() if on]
        return state

    assert sleeping() == "awake"
    for level, state in ((1, "weights_offloaded"), (2, "discard_all")):
        requests.post(f"{trained.url}/sleep?level={level}", timeout=300).raise_for_status()
        assert sleeping() == state
    requests.post(f"{trained.url}/wake_up", timeout=300).raise_for_status()
    assert sleeping() == "awake"
    body = {"weight_dir": str(trained.checkpoints.write("measured", 5)), "weight_version": 'a "name"'}
    requests.post(f"{trained.url}/update_weights", json=body, timeout=300).raise_for_status()
    trained.has_now("measured")
    # A label has quotes and a space in it.
    assert 'tito:weight_version_info{version="a \\"name\\""} 1.0\n' in trained.server.get("/metrics")
    counts = sample("vllm:rl_weight_update_operation_duration_seconds_count")
    assert any('operation="update_weights"' in labels and count >= 1 for labels, count in counts.items())
    slept = sample("vllm:sleep_mode_operation_duration_seconds_count")
    assert sum(count for labels, count in slept.items() if 'operation="sleep"' in labels) >= 2
    assert set(sample("vllm:rl_weight_update_operations_in_flight").values()) == {0.0}


def test_a_server_that_stands_still_ends_at_once_when_it_is_told_to(tmp_path):
    """Nothing would come of waiting: its requests end with what they have, which is said."""
    # Whoever waited for its requests would wait for an hour, which `stop` does not.
    trained = Trained(tmp_path, "--shutdown-timeout", "3600")
    running = trained.under_way(prompt(0), prompt(1))
    requests.post(f"{trained.url}/pause?mode=keep", timeout=300).raise_for_status()
    trained.stop()
    rollouts = [kept.rollout() for kept in running]
    assert [rollout.finish_reason for rollout in rollouts] == ["abort", "abort"]
    assert all(0 < len(rollout.ids) < LONG for rollout in rollouts)


def test_its_client_goes_through_an_update(trained):
    client = HTTPVLLMWeightSyncClient(trained.url)
    client.init_weight_transfer_engine({})
    client.start_weight_update()
    client.update_weights([{"path": str(trained.checkpoints.write("one", 1))}])
    client.finish_weight_update("one")
    trained.has_now("one")
    assert trained.version() == "one"
    trained.check(trained.complete(prompt(0)), "one")


def test_one_request_is_aborted_by_its_id(trained):
    running = trained.under_way(prompt(0), prompt(1))
    answer = requests.post(f"{trained.url}/abort_requests", json={"request_ids": ["nobody"]}, timeout=300)
    assert answer.json()["status"] == "aborted"
    assert not any(kept.future.done() for kept in running)
    aborted = requests.post(f"{trained.url}/abort_requests", json={}, timeout=300).json()
    assert aborted["aborted"] == 2
    assert [kept.rollout().finish_reason for kept in running] == ["abort", "abort"]
    assert all(0 < len(kept.rollout().ids) < LONG for kept in running)


def test_weights_are_compared_by_their_checksums(trained):
    def checked(**asked):
        return requests.post(f"{trained.url}/weight_checker", json=asked, timeout=300).json()

    before = checked(action="checksum")["checksums"]
    assert set(before) == set(trained.checkpoints.tensors("base"))
    assert checked(action="compare", baseline=before) == {"match": True, "mismatches": []}
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(trained.checkpoints.write("two", 2))}}
    answer = requests.post(f"{trained.url}/collective_rpc", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.text)["results"] == [None]
    trained.has_now("two")
    trained.check(trained.complete(prompt(0)), "two")
    compared = checked(action="compare", baseline=before)
    assert compared == {"match": False, "mismatches": sorted(before)}


def test_a_reset_is_forgotten_only_when_all_weights_were_sent_again(trained):
    def asked(path, **body):
        return requests.post(trained.url + path, json=body, timeout=300)

    before = asked("/weight_checker", action="checksum").json()["checksums"]
    answer = asked("/weight_checker", action="reset")
    assert (answer.status_code, answer.json()) == (200, {"status": "reset"})
    # Nothing was transferred: neither a comparison nor a request succeeds.
    for refused in [
        asked("/weight_checker", action="compare", baseline=before),
        asked("/v1/completions", prompt=prompt(0), max_tokens=1),
    ]:
        assert refused.status_code == 503, refused.text
    directory = str(trained.checkpoints.write("after a reset", 3))
    answer = asked("/collective_rpc", method="reload_weights", kwargs={"weights_path": directory})
    assert answer.status_code == 200, answer.text
    trained.has_now("after a reset")
    trained.check(trained.complete(prompt(0)), "after a reset")
    compared = asked("/weight_checker", action="compare", baseline=before).json()
    assert compared == {"match": False, "mismatches": sorted(before)}


@pytest.mark.parametrize("lost", [("/weight_checker", {"action": "reset"}), ("/sleep?level=2", {})])
def test_weights_that_were_lost_are_read_again_from_where_the_model_came(trained, lost):
    """vLLM's way out of a sleep at level 2, and of a reset: `reload_weights` without a path."""

    def asked(path, **body):
        answer = requests.post(trained.url + path, json=body, timeout=300)
        assert answer.status_code == 200, answer.text
        return answer

    before = asked("/weight_checker", action="checksum").json()["checksums"]
    path, body = lost
    asked(path, **body)
    asked("/wake_up")
    asked("/collective_rpc", method="reload_weights")
    assert asked("/weight_checker", action="compare", baseline=before).json() == {"match": True, "mismatches": []}
    trained.has_now("base")
    trained.check(trained.complete(prompt(0)), "base")
