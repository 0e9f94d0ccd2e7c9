"""Traces over OTLP: a real collector (rotel) takes them by either protocol and sends them on, and what arrives is read with
OpenTelemetry's own messages. Collectors that are dead, slow or busy keep neither answers nor the end waiting.
"""

import contextlib
import gzip
import http.server
import json
import pathlib
import re
import subprocess
import threading

import httpx
import pytest
import rotel
from checkpoints import Checkpoints
from conftest import WAIT_SECONDS, Server, free_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

FLAGS = ["--engine", "native", "--dtype", "float32", "--max-model-len", "2048", "--kv-cache-memory-bytes", "32M"]
AGENT = pathlib.Path(rotel.__file__).parent / "rotel-agent"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "a-key-that-nobody-may-see"
SERVER, ERROR = 2, 2
MESSAGES = [{"role": "user", "content": "words that nobody may see"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(Checkpoints(tmp_path_factory.mktemp("otlp")).base)


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """Batches go out at once, and every collector is told a secret."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-collector-key={SECRET}")


class Sink:
    """Takes OTLP over HTTP, and answers with one status after the other, the last one for ever; `None` never answers."""

    def __init__(self, *statuses):
        self.statuses, self.spans, self.requests, self.texts = list(statuses or [200]), [], [], []
        self.came = threading.Condition()
        self.ended = threading.Event()
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = sink.take(self.headers, body)
                if status is None:
                    sink.ended.wait(WAIT_SECONDS)
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("retry-after", "0")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, headers, body):
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        with self.came:
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            self.requests.append((dict(headers), status))
            self.texts.append(body)
            if status == 200:
                for of in message.resource_spans:
                    resource = attributes(of.resource)
                    self.spans += [Seen(span, resource) for scope in of.scope_spans for span in scope.spans]
            self.came.notify_all()
        return status

    def wait(self, what, found):
        """What `found` finds, once it finds something."""
        with self.came:
            assert self.came.wait_for(found, WAIT_SECONDS), f"{what}: {self.requests} {self.spans}"
            return found()

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def close(self):
        self.ended.set()
        self.server.shutdown()


class Seen:
    def __init__(self, span, resource):
        self.name, self.kind, self.resource = span.name, span.kind, resource
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.state, self.status = span.trace_state, span.status.code
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = attributes(span)

    def __repr__(self):
        return f"{self.name} {self.attributes}"


def attributes(of):
    return {attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in of.attributes}


class Collector:
    """rotel, which takes OTLP at two ports and sends it on to a sink."""

    def __init__(self):
        self.sink = Sink()
        self.ports = {"grpc": free_port(), "http/protobuf": free_port()}
        command = [AGENT, "start", "--exporter", "otlp", "--otlp-exporter-protocol", "http"]
        command += ["--otlp-exporter-endpoint", f"http://127.0.0.1:{self.sink.port}"]
        command += ["--otlp-grpc-endpoint", f"127.0.0.1:{self.ports['grpc']}"]
        command += ["--otlp-http-endpoint", f"127.0.0.1:{self.ports['http/protobuf']}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def endpoint(self, protocol):
        port = self.ports[protocol]
        return f"http://127.0.0.1:{port}/v1/traces" if protocol == "http/protobuf" else f"grpc://127.0.0.1:{port}"

    def close(self):
        self.process.terminate()
        self.process.wait(WAIT_SECONDS)
        self.sink.close()


@contextlib.contextmanager
def serving(model, endpoint, *flags, gated=False):
    server = Server(*FLAGS, "--otlp-traces-endpoint", endpoint, *flags, model=model, gated=gated)
    try:
        yield server
    except BaseException:
        server.process.kill()
        raise
    server.stop()


def sum_of(server, name):
    """The sum of a histogram, over all its labels."""
    values = re.findall(rf"^{re.escape(name)}_sum(?:{{.*}})? (\S+)$", server.get("/metrics"), re.MULTILINE)
    assert values, name
    return sum(map(float, values))


def dropped(server):
    text = server.get("/metrics")
    return {
        reason: float(re.search(rf'^tito:trace_spans_dropped_total{{.*reason="{reason}".*}} (\S+)$', text, re.MULTILINE)[1])
        for reason in ("queue_full", "refused", "unreachable")
    }


def chat(server, **fields):
    return server.post("/v1/chat/completions", messages=MESSAGES, max_tokens=4, **fields)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_real_collector_takes_spans_that_agree_with_the_metrics(model, protocol):
    collector = Collector()
    sink = collector.sink
    try:
        with serving(model, collector.endpoint(protocol)) as server:
            # Until the collector listens, spans wait, and are sent again.
            answers = [chat(server) for _ in range(3)]
            answers.append(server.post("/v1/completions", prompt=["one", "two"], n=2, max_tokens=3))
            requests = sink.wait("all requests", lambda: len(sink.named("llm_request")) == 4 and sink.named("llm_request"))
            assert {span.attributes["gen_ai.request.id"] for span in requests} == {answer["id"] for answer in answers}
            for span in requests:
                assert (span.kind, span.status, span.parent) == (SERVER, 0, "")
                assert span.resource["service.name"] == "tito" and span.attributes["gen_ai.response.model"] == "smollm2"
            timed = [span for span in sink.spans if "gen_ai.latency.e2e" in span.attributes]
            assert len(timed) == 3 + 4, "three requests of one sequence, and four sequences of one request"
            for metric, attribute in [
                ("vllm:request_queue_time_seconds", "gen_ai.latency.time_in_queue"),
                ("vllm:request_prefill_time_seconds", "gen_ai.latency.time_in_model_prefill"),
                ("vllm:request_decode_time_seconds", "gen_ai.latency.time_in_model_decode"),
                ("vllm:request_inference_time_seconds", "gen_ai.latency.time_in_model_inference"),
                ("vllm:time_to_first_token_seconds", "gen_ai.latency.time_to_first_token"),
                ("vllm:e2e_request_latency_seconds", "gen_ai.latency.e2e"),
            ]:
                told = sum(span.attributes[attribute] for span in timed)
                assert told == pytest.approx(sum_of(server, metric), rel=1e-9), metric
            for span in timed:
                phases = [child for child in sink.spans if child.parent == span.id and child.name != "prompt"]
                phases = [child for child in phases if child.name != "sequence"]
                assert [child.name for child in phases] == ["queue", "prefill", "decode"]
                assert all(before.end == after.start for before, after in zip(phases, phases[1:]))
            usage = [answer["usage"] for answer in answers]
            for field in ("prompt_tokens", "completion_tokens"):
                told = sum(span.attributes[f"gen_ai.usage.{field}"] for span in requests)
                assert told == sum(tokens[field] for tokens in usage), field
            assert dropped(server) == {"queue_full": 0, "refused": 0, "unreachable": 0}
    finally:
        collector.close()
    assert not any(b"nobody may see" in text for text in sink.texts)


def test_a_trace_goes_on_and_garbage_begins_another(model):
    sink = Sink()
    with serving(model, f"http://127.0.0.1:{sink.port}/v1/traces") as server:
        def asks(count, **headers):
            body = {"model": "smollm2", "messages": MESSAGES, "max_tokens": 2}
            answer = httpx.post(server.url + "/v1/chat/completions", json=body, headers=headers, timeout=WAIT_SECONDS)
            assert answer.status_code == 200 and "traceparent" not in answer.headers
            return sink.wait("the request", lambda: len(sink.named("llm_request")) == count and sink.named("llm_request"))[-1]

        span = asks(1, traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="vendor=1")
        assert (span.trace, span.parent, span.state) == (TRACE, SPAN, "vendor=1")
        for count, garbage in enumerate(["00-zz", "x" * 100_000, f"00-{'0' * 32}-{SPAN}-01"], 2):
            span = asks(count, traceparent=garbage)
            assert span.trace != TRACE and len(span.trace) == 32 and span.parent == ""
    sink.close()


def test_a_stream_that_is_left_is_one_span_and_so_is_a_refusal(model):
    sink = Sink()
    with serving(model, f"http://127.0.0.1:{sink.port}/v1/traces", gated=True) as server:
        # It cannot end while its client leaves.
        server.gate.hold()
        body = {"model": "smollm2", "messages": MESSAGES, "max_tokens": 2000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, timeout=WAIT_SECONDS) as answer:
            server.gate.step()
            next(answer.iter_lines())
        span = sink.wait("the stream", lambda: sink.named("llm_request"))[0]
        assert (span.attributes["tito.finish_reason"], span.status) == ("abort", 0)
        status, _ = server.exchange("/v1/completions", {"model": "smollm2", "prompt": "many words " * 2000})
        assert status == 400
        spans = sink.wait("the refusal", lambda: len(sink.named("llm_request")) == 2 and sink.named("llm_request"))
        told = (spans[1].status, spans[1].attributes["error.type"], spans[1].attributes["http.response.status_code"])
        assert told == (ERROR, "BadRequestError", 400)
    sink.close()


def test_what_waits_is_sent_before_the_process_ends(model, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    sink = Sink()
    with serving(model, f"http://127.0.0.1:{sink.port}/v1/traces") as server:
        answer = chat(server)
        assert sink.spans == []
    assert [span.attributes["gen_ai.request.id"] for span in sink.named("llm_request")] == [answer["id"]]
    sink.close()


def test_a_busy_collector_is_asked_again_and_a_refusal_is_counted(model):
    sink = Sink(503, 429, 200)
    with serving(model, f"http://127.0.0.1:{sink.port}/v1/traces") as server:
        chat(server)
        sink.wait("the third try", lambda: sink.named("llm_request"))
        assert [status for _, status in sink.requests] == [503, 429, 200]
        sink.statuses = [401]
        chat(server)
        server.poll("the refusal is counted", lambda: dropped(server)["refused"] > 0)
        assert server.logged().count("the collector answers 401") == 1, server.logged()
        assert sink.requests[0][0]["x-collector-key"] == SECRET
    sink.close()


@pytest.mark.parametrize("collector", ["dead", "silent"])
def test_a_collector_that_is_gone_keeps_nobody_waiting(model, monkeypatch, collector):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3000")
    sink = Sink(None)
    if collector == "dead":
        sink.close()
        sink.server.server_close()
    with serving(model, f"http://127.0.0.1:{sink.port}/v1/traces") as server:
        # None of them waits: more spans than fit are dropped, and answers come all the same.
        while dropped(server)["queue_full"] == 0:
            chat(server)
    sink.close()


def test_secrets_are_neither_logged_nor_told(model, monkeypatch):
    monkeypatch.setenv("TITO_LOG", "trace")
    sink, collector = Sink(), Collector()
    try:
        endpoints = [f"http://user:{SECRET}@127.0.0.1:{sink.port}/v1/traces?key={SECRET}", collector.endpoint("grpc")]
        for endpoint, taken in zip(endpoints, [sink, collector.sink]):
            with serving(model, endpoint, "--admin-on-main-port", "--insecure-admin") as server:
                chat(server)
                taken.wait("the request", lambda taken=taken: taken.named("llm_request"))
                told = [server.get(path) for path in ("/get_server_info", "/server_info", "/metrics", "/v1/models")]
                told.append(server.logged())
                assert not any(SECRET in text for text in told)
        assert sink.requests[0][0]["x-collector-key"] == SECRET
        assert json.dumps(sink.requests[0][0]).count("Basic ") == 1
    finally:
        collector.close()
        sink.close()
