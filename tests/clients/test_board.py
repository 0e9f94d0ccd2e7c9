"""The board of Grafana and the alerts of deploy/: each expression is PromQL, and names only metrics and labels that a server shows."""

import json
import re
import shutil
import subprocess
import sys

import promql_parser
import pytest
import yaml
from checkpoints import Checkpoints
from conftest import REPOSITORY, Server, note
from stores import REDIS, Redis

DEPLOY = REPOSITORY / "deploy"
BOARD = json.loads((DEPLOY / "grafana" / "tito.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "tito.rules.yml").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
FLAGS = ["--engine", "native", "--dtype", "float32", "--max-model-len", "2048", "--kv-cache-memory-bytes", "32M"]
FLAGS += ["--admin-on-main-port", "--insecure-admin"]
# What Prometheus adds.
ADDED = {"job", "instance"}
ALWAYS = {"engine", "model_name"}
# What a test cannot cause in a moment: where it is counted, and its labels there.
NOT_CAUSED = {
    "tito:capture_failures_total": ("src/turn/capture.rs", '!("tito:capture_failures_total")', set()),
    "tito:stalled_total": ("src/server/slow_body.rs", '!("tito:stalled_total", "what" =>', {"what"}),
}
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The labels of each metric, and their values, of a server that has done what the board shows."""
    if REDIS is None:
        note("NOT TRIED: the board and the alerts: redis-server is not installed")
        pytest.skip("no redis-server")
    directory = tmp_path_factory.mktemp("board")
    redis = Redis(directory)
    (directory / "model").mkdir()
    checkpoints = Checkpoints(directory / "model")
    server = Server(*FLAGS, "--continuity-store", redis.url, model=str(checkpoints.base))
    try:
        server.poll("redis answers", redis.answers)
        converse(server)
        server.post("/update_weights", weight_dir=str(checkpoints.write("one", 1)))
        server.post("/pause")
        assert server.exchange("/v1/completions", {"model": "smollm2", "prompt": "Hello"})[0] == 503
        server.post("/resume")
        yield series(server.get("/metrics"))
    finally:
        server.stop()
        redis.stop()


def converse(server):
    """Turns that are exact, exact up to an edited one, of ids that nobody knows, and refused."""

    def ask(*texts, **fields):
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        body = {"model": "smollm2", "messages": messages, "max_tokens": 4, "return_token_ids": True, **fields}
        return server.exchange("/v1/chat/completions", body)

    def answer(*texts):
        status, text = ask(*texts)
        assert status == 200, text
        body = json.loads(text)
        [choice] = body["choices"]
        return choice["message"]["content"], body["prompt_token_ids"] + choice["token_ids"]

    first, _ = answer("one")
    _, ids = answer("one", first, "two")
    edited = ["one", first, "two", "something else", "three"]
    answer(*edited)
    answer("one", "never said", "two")
    status, text = ask(*edited, required_prefix_token_ids=ids)
    assert status == 400, text


def series(page):
    found = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"([\w:]+)(?:\{(.*)\})? ", line).groups()
            for label, value in LABEL.findall(labels or "") or [("", "")]:
                found.setdefault(name, {}).setdefault(label, set()).add(value)
    for name, (path, counted, labels) in NOT_CAUSED.items():
        assert name not in found, f"{name} is caused: take it off the list"
        assert counted in (REPOSITORY / path).read_text(), f"{name} is not counted in {path} any more"
        found[name] = {label: set() for label in labels | ALWAYS}
    return found


def parsed(text):
    """An expression, with what Grafana puts in the place of its variables."""
    return promql_parser.parse(text.replace("$__rate_interval", "5m"))


def below(expression, kind):
    found = []
    promql_parser.walk(expression, lambda node: found.append(node) if isinstance(node, kind) else None)
    return found


def complaints(text, page):
    """What is wrong with an expression, given the metrics that there are."""
    expression = parsed(text)
    for selector in below(expression, promql_parser.VectorSelector):
        if selector.name == "up":
            continue
        if selector.name not in page:
            yield f"there is no {selector.name}"
            continue
        for matcher in selector.matchers.matchers:
            values = page[selector.name].get(matcher.name)
            if matcher.name not in ADDED and values is None:
                yield f"{selector.name} has no label {matcher.name}"
            elif values and "$" not in matcher.value and str(matcher.op) in ("MatchOp.Equal", "MatchOp.Re"):
                yield from (f"{matcher.name} is never {one}" for one in matcher.value.split("|") if one not in values)
    for aggregate in below(expression, promql_parser.AggregateExpr):
        for name in {selector.name for selector in below(aggregate.expr, promql_parser.VectorSelector)} & set(page):
            labels = set(aggregate.modifier.labels if aggregate.modifier else [])
            yield from (f"{name} has no label {label}" for label in labels - ADDED - set(page[name]) - {""})


def test_a_wrong_name_label_and_value_are_found(page):
    for text, expected in [
        ("vllm:num_request_running", ["there is no vllm:num_request_running"]),
        ("sum by (weights) (vllm:num_requests_running)", ["vllm:num_requests_running has no label weights"]),
        ('tito:weight_version_info{model_name="a"}', ["tito:weight_version_info has no label model_name"]),
        ('http_requests_total{status=~"2xx|6xx"}', ["status is never 6xx"]),
        ('sum(rate(http_requests_total{status=~"2xx"}[5m])) by (handler)', []),
    ]:
        assert list(complaints(text, page)) == expected


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_shows_what_there_is(page, panel):
    for target in panel["targets"]:
        text = target["expr"]
        assert list(complaints(text, page)) == [], text
        # Names in the legend are labels that the sums leave.
        sums = [one.modifier for one in below(parsed(text), promql_parser.AggregateExpr)]
        kept = {label for one in sums if one for label in one.labels} if sums else ADDED
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, text


def test_the_variables_of_the_board_are_labels(page):
    for variable in BOARD["templating"]["list"][1:]:
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
        assert list(complaints(f"count by ({label}) ({selector})", page)) == []


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_an_alert_is_about_what_there_is(page, alert):
    assert list(complaints(alert["expr"], page)) == []
    assert {"summary", "description"} == set(alert["annotations"])


def test_the_board_is_what_its_script_writes():
    sys.path.append(str(DEPLOY / "grafana"))
    import board

    assert board.text() == (DEPLOY / "grafana" / "tito.json").read_text()


def test_promtool_reads_the_rules_and_fires_the_alerts(tmp_path):
    if shutil.which("promtool") is None:
        note("SKIPPED: promtool is not installed (Debian's package prometheus); it did not read deploy/prometheus")
        pytest.skip("promtool is not installed")
    for command in (["check", "rules", "tito.rules.yml"], ["test", "rules", "tito.tests.yml"]):
        done = subprocess.run(["promtool", *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    config = tmp_path / "prometheus.yml"
    config.write_text((DEPLOY / "compose" / "prometheus.yml").read_text().replace("/etc/prometheus", str(DEPLOY / "prometheus")))
    done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
