//! What `/metrics` counts, beside what a client counted.
#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::{
    program::Server,
    quantized::{model, serve},
};

/// How often to look for the end of a request that was left.
const LOOKS: usize = 20_000;

/// The sum of all series of a name that have these words in their labels.
fn counted(page: &str, name: &str, labels: &str) -> f64 {
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
    let series = page.lines().filter(of_name).filter(|line| line.contains(labels));
    series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// What a client counted.
#[derive(Default)]
struct Told {
    requests: f64,
    sequences: f64,
    prompt_tokens: f64,
    cached_tokens: f64,
    generated: f64,
    most_generated: f64,
    asked: f64,
    stopped: f64,
    cut: f64,
}

impl Told {
    fn take(&mut self, body: &Value, answers: &[Value]) {
        let n = body["n"].as_f64().unwrap_or(1.0);
        let usage = answers.iter().find_map(|answer| answer["usage"].as_object()).unwrap();
        let generated = usage["completion_tokens"].as_f64().unwrap();
        self.requests += 1.0;
        self.sequences += n;
        // vLLM counts a prompt for each of its sequences, and tells of the first one's cached tokens.
        self.prompt_tokens += n * usage["prompt_tokens"].as_f64().unwrap();
        self.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"].as_f64().unwrap_or(0.0);
        self.generated += generated;
        self.most_generated += generated / n;
        self.asked += n * body["max_tokens"].as_f64().unwrap();
        let ends = answers.iter().flat_map(|answer| answer["choices"].as_array().unwrap());
        for end in ends.filter_map(|choice| choice["finish_reason"].as_str()) {
            match end {
                "stop" => self.stopped += 1.0,
                "length" => self.cut += 1.0,
                other => panic!("{other}"),
            }
        }
    }
}

/// The answers of a request: one, or the chunks of a stream.
fn answers(server: &Server, body: &Value) -> Vec<Value> {
    if body["stream"] != true {
        return vec![server.post("/v1/completions", body)];
    }
    let text = server.ask("/v1/completions", body);
    text.lines()
        .filter_map(|line| line.strip_prefix("data: {"))
        .map(|line| serde_json::from_str(&format!("{{{line}")).unwrap())
        .collect()
}

/// Leaves a request after its first token.
fn leave(server: &Server, body: &Value) {
    let mut connection = TcpStream::connect(server.address).unwrap();
    let body = body.to_string();
    let headers = "Host: localhost\r\nContent-Type: application/json";
    let length = body.len();
    write!(connection, "POST /v1/completions HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let first = BufReader::new(connection).lines().find(|line| line.as_ref().unwrap().starts_with("data: {"));
    assert!(first.is_some());
}

#[test]
fn counters_say_what_a_client_counted() {
    let model = model("fp8_blocks", true);
    // Drafts would give several tokens a step.
    let server = serve(model.path(), &["--enable-prompt-tokens-details", "--speculative-config", "null"]);
    let prompt = |first: u32| (0..40).map(|place| (first + 7 * place) % 90 + 3).collect::<Vec<_>>();
    let whole = |first: u32, max_tokens: u32| json!({ "prompt": prompt(first), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true });
    let with = |mut body: Value, more: Value| {
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let streamed = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let mut told = Told::default();
    for body in [
        whole(1, 10),
        // Most of its prompt is cached.
        whole(1, 10),
        with(whole(2, 5), streamed),
        with(whole(3, 1), json!({})),
        with(whole(4, 6), json!({ "stop_token_ids": (0..96).collect::<Vec<_>>() })),
    ] {
        let answers = answers(&server, &body);
        told.take(&body, &answers);
    }
    // One sequence at a time: each step gave one token.
    let page = server.get("/metrics");
    assert_eq!(counted(&page, "vllm:iteration_tokens_total_count", ""), told.generated, "{page}");
    let both = with(whole(5, 4), json!({ "n": 2, "temperature": 1, "seed": 1 }));
    told.take(&both, &answers(&server, &both));
    let page = server.get("/metrics");
    let computed = told.prompt_tokens - counted(&page, "vllm:prompt_tokens_cached_total", "");
    for (name, labels, value) in [
        ("vllm:prompt_tokens_total", "", told.prompt_tokens),
        ("vllm:prompt_tokens_by_source_total", "local_compute", computed),
        ("vllm:prompt_tokens_by_source_total", "", told.prompt_tokens),
        ("vllm:generation_tokens_total", "", told.generated),
        ("vllm:iteration_tokens_total_sum", "", computed + told.generated),
        ("vllm:request_success_total", "\"stop\"", told.stopped),
        ("vllm:request_success_total", "\"length\"", told.cut),
        ("vllm:request_success_total", "", told.sequences),
        ("vllm:request_prompt_tokens_sum", "", told.prompt_tokens),
        ("vllm:request_prompt_tokens_count", "", told.sequences),
        ("vllm:request_prefill_kv_computed_tokens_sum", "", computed),
        ("vllm:request_generation_tokens_sum", "", told.generated),
        ("vllm:request_generation_tokens_count", "", told.sequences),
        ("vllm:request_max_num_generation_tokens_sum", "", told.most_generated),
        ("vllm:request_params_max_tokens_sum", "", told.asked),
        ("vllm:request_params_max_tokens_count", "", told.sequences),
        ("vllm:request_params_n_sum", "", told.sequences),
        ("vllm:request_params_n_count", "", told.requests),
        ("vllm:time_to_first_token_seconds_count", "", told.sequences),
        ("vllm:inter_token_latency_seconds_count", "", told.generated - told.sequences),
        ("vllm:request_time_per_output_token_seconds_count", "", told.sequences),
        ("vllm:e2e_request_latency_seconds_count", "", told.sequences),
        ("vllm:request_queue_time_seconds_count", "", told.sequences),
        ("vllm:request_prefill_time_seconds_count", "", told.sequences),
        ("vllm:request_decode_time_seconds_count", "", told.sequences),
        ("vllm:request_inference_time_seconds_count", "", told.sequences),
        ("vllm:request_num_preemptions_count", "", told.sequences),
        ("vllm:prefix_cache_queries_total", "", told.prompt_tokens),
        ("vllm:prefix_cache_hits_total", "", told.prompt_tokens - computed),
        ("http_requests_total", "handler=\"/v1/completions\"", told.requests),
    ] {
        assert_eq!(counted(&page, name, labels), value, "{name} {labels}: {page}");
    }
    assert!(told.cached_tokens > 0.0 && told.stopped > 0.0);
    // Nobody counts the tokens of a request that was left, but all counters are of the same ones.
    leave(&server, &with(whole(6, 200), json!({ "stream": true })));
    let ends = ["vllm:request_success_total", "vllm:request_num_preemptions_count"];
    let has_ended = |page: &String| ends.iter().all(|name| counted(page, name, "") > told.sequences);
    (0..LOOKS).map(|_| server.get("/metrics")).find(has_ended).expect("it ends");
    // Counters are read one after the other, so that the sequence may have ended while that page was made.
    let page = server.get("/metrics");
    assert_eq!(counted(&page, "vllm:request_success_total", ""), told.sequences + 1.0, "{page}");
    assert_eq!(counted(&page, "vllm:prompt_tokens_total", ""), told.prompt_tokens + 40.0, "{page}");
    let generated = counted(&page, "vllm:generation_tokens_total", "");
    assert!(generated > told.generated && generated <= told.generated + 200.0, "{page}");
    let computed = counted(&page, "vllm:prompt_tokens_by_source_total", "local_compute");
    assert_eq!(counted(&page, "vllm:iteration_tokens_total_sum", ""), computed + generated, "{page}");
    server.stop("-TERM");
}
