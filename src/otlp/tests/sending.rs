//! How batches are sent, and what becomes of those that are not taken.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message;

use super::{
    collectors::{Behaviour, Collector},
    probe::seen,
};
use crate::{
    otlp::{
        OtlpSettings, Prepared, Tracer,
        collector::{Again, Collector as Client},
        exporter::Exporter,
        protobuf::{ExportTraceServiceRequest, ExportTraceServiceResponse, PartialSuccess},
    },
    request_trace::{Answer, RequestTrace},
};

const OK: Behaviour = Behaviour::Answers(200, "", b"");
/// A bound for what never comes.
const PATIENCE: Duration = Duration::from_mins(4);
/// A time that no test waits for.
const LONG: Duration = Duration::from_mins(50);

fn settings(endpoint: &str, variables: &[(&str, &str)]) -> OtlpSettings {
    let variables: BTreeMap<_, _> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    OtlpSettings::new(endpoint, &variables).unwrap().unwrap()
}

fn at_http(collector: &Collector) -> String {
    format!("http://127.0.0.1:{}/v1/traces", collector.port)
}

fn at_grpc(collector: &Collector) -> String {
    format!("127.0.0.1:{}", collector.port)
}

fn started(endpoint: &str, variables: &[(&str, &str)]) -> (Tracer, Exporter) {
    let at_once = [("OTEL_BSP_SCHEDULE_DELAY", "1")];
    Prepared::new(settings(endpoint, &[&at_once, variables].concat())).unwrap().start("tiny")
}

/// A request that was answered.
fn trace(tracer: &Tracer, route: &str) {
    let trace: Arc<RequestTrace> = tracer.begin(route, &[], &[]).unwrap();
    trace.generates();
    trace.answered(Answer { status: 200, error: None });
}

fn routes(message: &ExportTraceServiceRequest) -> Vec<String> {
    let spans = message.resource_spans.iter().flat_map(|of| &of.scope_spans).flat_map(|of| &of.spans);
    spans.map(|span| seen(span).attributes["http.route"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_batch_arrives_over_either_protocol_with_the_headers_that_were_asked_for() {
    let secret = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"), ("OTEL_SERVICE_NAME", "rollouts")];
    for of_grpc in [false, true] {
        let mut collector = if of_grpc {
            Collector::of_grpc(&[Behaviour::Answers(0, "", b"")]).await
        } else {
            Collector::of_http(&[OK]).await
        };
        let endpoint = if of_grpc { at_grpc(&collector) } else { at_http(&collector) };
        let (tracer, exporter) = started(&endpoint, &secret);
        trace(&tracer, "/a");
        let came = collector.came().await;
        let (line, media_type) = if of_grpc {
            ("/opentelemetry.proto.collector.trace.v1.traceservice/export", "application/grpc")
        } else {
            ("post /v1/traces http/1.1", "application/x-protobuf")
        };
        for part in [line, media_type, "bearer x", "tito/"] {
            assert!(came.head.contains(part), "{part}: {}", came.head);
        }
        assert_eq!(routes(&came.message), ["/a"]);
        let resource = came.message.resource_spans[0].resource.clone().unwrap().attributes;
        let name = resource.iter().find(|attribute| attribute.key == "service.name").unwrap();
        assert_eq!(name.value, crate::otlp::protobuf::KeyValue::new("", "rollouts").value);
        exporter.finish().await;
    }
}

#[tokio::test]
async fn what_waits_is_sent_at_the_end() {
    let mut collector = Collector::of_http(&[OK]).await;
    let (tracer, exporter) = started(&at_http(&collector), &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
    trace(&tracer, "/a");
    trace(&tracer, "/b");
    exporter.finish().await;
    assert_eq!(routes(&collector.came().await.message), ["/a", "/b"]);
    // Nobody sends any more.
    trace(&tracer, "/late");
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_keep_the_process() {
    let mut collector = Collector::of_http(&[Behaviour::IsSilent]).await;
    let (tracer, exporter) = started(&at_http(&collector), &[]);
    trace(&tracer, "/a");
    collector.came().await;
    trace(&tracer, "/b");
    let dropped = tokio::time::timeout(PATIENCE, exporter.finish()).await.unwrap();
    assert_eq!(dropped, 2, "the one that is being sent is lost too");
}

#[tokio::test]
async fn a_dead_collector_delays_neither_requests_nor_the_end() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (tracer, exporter) = started(&format!("127.0.0.1:{port}"), &[("OTEL_BSP_MAX_QUEUE_SIZE", "10")]);
    for _ in 0..1000 {
        trace(&tracer, "/a");
    }
    tokio::time::timeout(PATIENCE, exporter.finish()).await.unwrap();
}

#[tokio::test]
async fn a_collector_that_is_busy_is_asked_again() {
    let busy = Behaviour::Answers(503, "retry-after: 0", b"");
    let mut collector = Collector::of_http(&[busy, Behaviour::Answers(429, "retry-after: 0", b""), OK]).await;
    let (tracer, exporter) = started(&at_http(&collector), &[]);
    trace(&tracer, "/a");
    for _ in 0..3 {
        assert_eq!(routes(&collector.came().await.message), ["/a"]);
    }
    exporter.finish().await;
}

/// What becomes of a message that a collector answers so.
async fn answered(of_grpc: bool, behaviour: Behaviour) -> Result<Option<PartialSuccess>, (String, Again)> {
    let (collector, endpoint) = if of_grpc {
        let collector = Collector::of_grpc(&[behaviour]).await;
        let endpoint = at_grpc(&collector);
        (collector, endpoint)
    } else {
        let collector = Collector::of_http(&[behaviour]).await;
        let endpoint = at_http(&collector);
        (collector, endpoint)
    };
    let client = Client::new(&settings(&endpoint, &[])).unwrap();
    let sent = client.send(&Bytes::new(), LONG).await;
    drop(collector);
    sent.map_err(|not_taken| (not_taken.why, not_taken.again))
}

#[tokio::test]
async fn what_a_collector_answers_decides_what_becomes_of_a_batch() {
    for (status, again) in
        [(400, false), (401, false), (404, false), (302, false), (500, false), (502, true), (504, true)]
    {
        let (why, decided) =
            answered(false, Behaviour::Answers(status, "location: http://127.0.0.1:1/", b"")).await.unwrap_err();
        assert_eq!(decided == Again::After(None), again, "{status}");
        assert!(why.contains(&status.to_string()), "{why}");
    }
    for (status, again) in [(14, true), (16, false)] {
        let (why, decided) = answered(true, Behaviour::Answers(status, "no", b"")).await.unwrap_err();
        assert_eq!(decided == Again::After(None), again, "{status}");
        assert!(why.contains(&status.to_string()) && why.contains("no"), "{why}");
    }
    for of_grpc in [false, true] {
        let (_, decided) = answered(of_grpc, Behaviour::HangsUp).await.unwrap_err();
        assert_eq!(decided, Again::After(None));
    }
}

#[tokio::test]
async fn what_a_collector_took_only_in_part_is_told() {
    let partial = PartialSuccess { rejected_spans: 3, error_message: "too old".to_owned() };
    let answer = ExportTraceServiceResponse { partial_success: Some(partial.clone()) }.encode_to_vec().leak();
    assert_eq!(answered(false, Behaviour::Answers(200, "", answer)).await, Ok(Some(partial.clone())));
    assert_eq!(answered(true, Behaviour::Answers(0, "", answer)).await, Ok(Some(partial)));
    // What is no message is no complaint.
    assert_eq!(answered(false, Behaviour::Answers(200, "", b"{\"a\":1}")).await, Ok(None));
    let long = vec![b'x'; 1 << 20].leak();
    assert!(answered(false, Behaviour::Answers(200, "", long)).await.unwrap_err().0.contains("cannot be read"));
}

#[tokio::test]
async fn a_collector_of_the_other_protocol_takes_nothing() {
    let collector = Collector::of_http(&[OK]).await;
    let client = Client::new(&settings(&at_grpc(&collector), &[])).unwrap();
    client.send(&Bytes::new(), LONG).await.unwrap_err();
    let collector = Collector::of_grpc(&[OK]).await;
    let client = Client::new(&settings(&at_http(&collector), &[])).unwrap();
    client.send(&Bytes::new(), LONG).await.unwrap_err();
}

#[tokio::test]
async fn a_collector_over_tls_is_trusted_by_the_certificates_that_are_named() {
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/authority.pem");
    let trusting = [("OTEL_EXPORTER_OTLP_CERTIFICATE", authority)];
    for of_grpc in [false, true] {
        let (mut collector, path) = if of_grpc {
            (Collector::of_grpc_over_tls(&[Behaviour::Answers(0, "", b"")]).await, "")
        } else {
            (Collector::of_https(&[OK]).await, "/v1/traces")
        };
        let endpoint = format!("https://localhost:{}{path}", collector.port);
        let client = Client::new(&settings(&endpoint, &[])).unwrap();
        let not_taken = client.send(&Bytes::new(), LONG).await.unwrap_err();
        assert!(not_taken.why.contains("certificate"), "{}", not_taken.why);
        let client = Client::new(&settings(&endpoint, &trusting)).unwrap();
        assert_eq!(client.send(&Bytes::new(), LONG).await, Ok(None));
        collector.came().await;
    }
}

#[test]
fn certificates_that_are_none_are_refused_with_their_file() {
    let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")];
    let refused = Client::new(&settings("https://a:4317", &variables)).err().unwrap();
    assert!(refused.contains("/nowhere/ca.pem"), "{refused}");
}

/// Sequences and prompts without end make no spans without end.
#[test]
fn the_spans_of_a_request_have_a_bound() {
    use crate::{
        engine::RequestTimes,
        otlp::spans::Ended,
        request_trace::{Asked, MOST_NOTED, SequenceRecord},
    };

    let (give, given) = std::sync::mpsc::channel();
    let trace = RequestTrace::new("/a".into(), move |record| give.send(record).unwrap());
    let id = Some(Arc::from("cmpl-1"));
    let asked = Asked {
        id,
        prompt_tokens: 7,
        n: 1,
        sequences: 1000,
        max_tokens: 9,
        top_p: 1.0,
        temperature: 0.0,
        adapter: None,
    };
    trace.asks(asked.clone());
    let now = Instant::now();
    for _ in 0..1000 {
        let times = Some(RequestTimes::default());
        trace.sequence(SequenceRecord {
            arrived: now,
            ended: now,
            prompt_tokens: 1,
            cached_tokens: 0,
            sampled: 2,
            finish: "stop",
            failure: None,
            times,
        });
    }
    drop(trace);
    let record = given.recv().unwrap();
    let spans = Ended { trace_id: [1; 16], parent: None, record }.spans("tiny");
    assert_eq!(spans.len(), 1 + 4 * MOST_NOTED);
    let request = seen(&spans[0]);
    assert_eq!(request.attributes["gen_ai.usage.completion_tokens"], 2000);
    assert_eq!(request.attributes["tito.sequences_without_span"], 1000 - MOST_NOTED);
    // As in vLLM, which says no temperature of 0.
    assert!(!request.attributes.contains_key("gen_ai.request.temperature"));
}
