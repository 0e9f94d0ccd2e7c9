"""The metrics page as Prometheus itself reads it; skipped where Debian's package `prometheus` is not installed."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import Server, free_port, note

# What promtool says of vLLM's own page too: the colon, and a histogram whose name ends like a counter's.
KNOWN = [
    re.compile(r"^\S+:\S+ metric names should not contain ':'$"),
    re.compile(r'^vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix$'),
]


def needs(program):
    if shutil.which(program) is None:
        note(f"SKIPPED: {program} is not installed (Debian's package prometheus); the metrics page was not read by it")
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def page():
    """A server that has answered a request, JSON and streamed."""
    server = Server("--engine", "scripted")
    server.post("/v1/completions", prompt="Hello", max_tokens=4, n=2)
    server.exchange("/v1/completions", {"prompt": "Hello", "max_tokens": 4, "stream": True})
    yield server
    server.stop()


def test_promtool_finds_nothing_in_the_page_that_it_does_not_find_in_vllms(page):
    needs("promtool")
    run = subprocess.run(
        ["promtool", "check", "metrics"], input=page.get("/metrics"), capture_output=True, text=True, check=False
    )
    # 3 is the status of complaints; 1 would be a page that cannot be read.
    assert run.returncode in (0, 3), run.stderr
    complaints = (run.stdout + run.stderr).splitlines()
    assert [text for text in complaints if not any(known.match(text) for known in KNOWN)] == []


def test_prometheus_scrapes_the_page_and_answers_queries(page, tmp_path):
    needs("prometheus")
    target = page.url.removeprefix("http://")
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"scrape_configs:\n- job_name: tito\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{target}']\n"
    )
    port = free_port()
    flags = [
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = subprocess.Popen(["prometheus", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ask(query):
        """The value of each series that the query finds, by its labels."""
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                result = json.load(response)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return []
        return [(series["metric"], float(series["value"][1])) for series in result]

    try:
        deadline = time.monotonic() + 300
        while not ask('vllm:generation_tokens_total{engine="0"} > 0') and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        assert ask('up{job="tito"}')[0][1] == 1
        (labels, tokens) = ask("vllm:generation_tokens_total")[0]
        assert (labels["model_name"], labels["engine"], tokens) == (
            "smollm2",
            "0",
            page.gauge("vllm:generation_tokens_total"),
        )
        # As dashboards ask.
        for query in (
            "vllm:num_requests_running",
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "histogram_quantile(0.5, sum by (le) (vllm:e2e_request_latency_seconds_bucket))",
            "histogram_quantile(0.5, sum by (le) (vllm:time_to_first_token_seconds_bucket))",
            'vllm:request_success_total{finished_reason="length"}',
            'http_requests_total{handler="/v1/completions",status="2xx"}',
            "process_resident_memory_bytes",
        ):
            assert len(ask(query)) == 1, query
        assert ask("vllm:request_params_n_sum")[0][1] == 3
    finally:
        process.terminate()
        process.wait(300)
