#!/usr/bin/env python3
"""Writes tito.json, the board: python3 board.py. What it shows is the list below."""

import json
import pathlib

ROWS = {
    "Requests": [
        ("Running and waiting", "short", {
            "running {{instance}}": "sum by (instance) (vllm:num_requests_running{$SELECTED})",
            "waiting {{instance}}": "sum by (instance) (vllm:num_requests_waiting{$SELECTED})",
            "clients do not read {{instance}}": "sum by (instance) (tito:num_requests_paused{$SELECTED})",
        }),
        ("Answers by status", "reqps", {
            "{{status}}": 'sum by (status) (rate(http_requests_total{$PROCESS, handler!~"/metrics|/health|/livez|/readyz"}[$__rate_interval]))',
        }),
        ("How generations ended", "reqps", {
            "{{finished_reason}}": "sum by (finished_reason) (rate(vllm:request_success_total{$SELECTED}[$__rate_interval]))",
        }),
    ],
    "Speed": [
        ("Tokens", "short", {
            "sampled per second": "sum(rate(vllm:generation_tokens_total{$SELECTED}[$__rate_interval]))",
            "prompts per second": "sum(rate(vllm:prompt_tokens_total{$SELECTED}[$__rate_interval]))",
        }),
        ("Time to the first token", "s", {
            "median": "$QUANTILE(0.5, vllm:time_to_first_token_seconds)",
            "99 %": "$QUANTILE(0.99, vllm:time_to_first_token_seconds)",
        }),
        ("Time between tokens", "s", {
            "median": "$QUANTILE(0.5, vllm:inter_token_latency_seconds)",
            "99 %": "$QUANTILE(0.99, vllm:inter_token_latency_seconds)",
        }),
        ("Time of a request", "s", {
            "median": "$QUANTILE(0.5, vllm:e2e_request_latency_seconds)",
            "99 %": "$QUANTILE(0.99, vllm:e2e_request_latency_seconds)",
            "99 % in the queue": "$QUANTILE(0.99, vllm:request_queue_time_seconds)",
        }),
    ],
    "Keys and values": [
        ("Used", "percentunit", {"{{instance}}": "max by (instance) (vllm:kv_cache_usage_perc{$SELECTED})"}),
        ("Prompt tokens that were cached", "percentunit", {
            "{{instance}}": "sum by (instance) (rate(vllm:prefix_cache_hits_total{$SELECTED}[$__rate_interval]))"
            " / sum by (instance) (rate(vllm:prefix_cache_queries_total{$SELECTED}[$__rate_interval]))",
        }),
        ("Sequences that had to begin again", "short", {
            "{{instance}}": "sum by (instance) (rate(vllm:num_preemptions_total{$SELECTED}[$__rate_interval]))",
        }),
    ],
    "Token continuity": [
        ("What became of earlier ids", "reqps", {
            "{{outcome}}: {{reason}}": "sum by (outcome, reason) (rate(tito:prefix_repair_total{$SELECTED}[$__rate_interval]))",
        }),
        ("Where prompt ids came from", "short", {
            "{{kind}}": "sum by (kind) (rate(tito:prompt_ids_total{$SELECTED}[$__rate_interval]))",
        }),
        ("The cache", "short", {
            "{{outcome}}": "sum by (outcome) (rate(tito:continuity_cache_lookups_total{$SELECTED}[$__rate_interval]))",
        }),
        ("The shared store", "short", {
            "read: {{outcome}}": "sum by (outcome) (rate(tito:continuity_store_lookups_total{$SELECTED}[$__rate_interval]))",
            "written: {{outcome}}": "sum by (outcome) (rate(tito:continuity_store_writes_total{$SELECTED}[$__rate_interval]))",
        }),
        ("Turns that could not be captured", "short", {
            "{{instance}}": "sum by (instance) (increase(tito:capture_failures_total{$SELECTED}[$__rate_interval]))",
        }),
    ],
    "Training": [
        ("Versions of the weights", "short", {"{{version}}": "count by (version) (tito:weight_version_info{$PROCESS})"}),
        ("Time of an update", "s", {
            "99 %, {{operation}}": "histogram_quantile(0.99, sum by (le, operation)"
            " (rate(vllm:rl_weight_update_operation_duration_seconds_bucket{$SELECTED}[$__rate_interval])))",
        }),
        ("Asleep", "short", {"{{instance}}": 'sum by (instance) (vllm:engine_sleep_state{$SELECTED, sleep_state!="awake"})'}),
    ],
    "The process": [
        ("Memory", "bytes", {"{{instance}}": "process_resident_memory_bytes{$PROCESS}"}),
        ("Processors", "short", {"{{instance}}": "rate(process_cpu_seconds_total{$PROCESS}[$__rate_interval])"}),
        ("Ended because nothing moved", "short", {
            "{{what}}": "sum by (what) (rate(tito:stalled_total{$SELECTED}[$__rate_interval]))",
        }),
    ],
}
WIDTH, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}


def expression(text):
    if text.startswith("$QUANTILE("):
        share, name = text.removeprefix("$QUANTILE(").removesuffix(")").split(", ")
        text = f"histogram_quantile({share}, sum by (le) (rate({name}_bucket{{$SELECTED}}[$__rate_interval])))"
    text = text.replace("$PROCESS", 'job=~"$job", instance=~"$instance"')
    return text.replace("$SELECTED", 'job=~"$job", instance=~"$instance", model_name=~"$model"')


def variable(name, metric, label, **more):
    query = f"label_values({metric}, {label})"
    return {
        "name": name, "label": name, "type": "query", "datasource": SOURCE, "query": query, "definition": query,
        "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, **more,
    }


def panels():
    down = 0
    for row, shown in ROWS.items():
        yield {"type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": down, "w": WIDTH, "h": 1}}
        down += 1
        width = WIDTH // len(shown)
        for index, (title, unit, queries) in enumerate(shown):
            targets = [
                {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression(text), "legendFormat": legend}
                for place, (legend, text) in enumerate(queries.items())
            ]
            yield {
                "type": "timeseries", "title": title, "datasource": SOURCE, "targets": targets,
                "gridPos": {"x": index * width, "y": down, "w": width, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            }
        down += HEIGHT


def board():
    found = [{"id": number, **panel} for number, panel in enumerate(panels(), 1)]
    source = {"name": "source", "label": "source", "type": "datasource", "query": "prometheus", "current": {}}
    variables = [
        source,
        variable("job", "vllm:num_requests_running", "job"),
        variable("instance", 'vllm:num_requests_running{job=~"$job"}', "instance"),
        variable("model", 'vllm:num_requests_running{job=~"$job"}', "model_name"),
    ]
    return {
        "uid": "tito", "title": "tito", "tags": ["tito", "vllm"], "timezone": "browser", "schemaVersion": 39, "version": 1,
        "refresh": "15s", "time": {"from": "now-1h", "to": "now"}, "templating": {"list": variables}, "panels": found,
    }


def text():
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    pathlib.Path(__file__).with_name("tito.json").write_text(text())
