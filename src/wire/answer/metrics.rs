//! `metrics` of an answer, with `--enable-per-request-metrics`, as vLLM 0.33 has it
//! (`entrypoints/generate/base/serving.py`).

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::RequestTimes;

/// The times of a request with one sequence. All are null where the engine did not report any.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, ToSchema)]
pub struct PerRequestMetrics {
    /// Milliseconds from the request's first step to its first token. Unlike in `/metrics`, the queue is not in it.
    time_to_first_token_ms: Option<f64>,
    /// Milliseconds from the first token to the last one.
    generation_time_ms: Option<f64>,
    /// Milliseconds in the queue.
    queue_time_ms: Option<f64>,
    /// Milliseconds from one token to the next on average; null for a single token.
    mean_itl_ms: Option<f64>,
    /// Sampled tokens, by the seconds from the first step to the last token.
    tokens_per_second: Option<f64>,
    /// Always null: `/metrics` counts drafts over all requests.
    speculative_decoding: Option<u8>,
}

impl PerRequestMetrics {
    /// Makes the metrics of a request that sampled `tokens` tokens in these times.
    #[expect(clippy::cast_precision_loss, reason = "no sequence has 2^52 tokens")]
    pub(crate) fn new(times: Option<RequestTimes>, tokens: usize) -> Self {
        let Some(RequestTimes { queued, prefill, decode }) = times else { return Self::default() };
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let inference = (prefill + decode).as_secs_f64();
        Self {
            time_to_first_token_ms: Some(milliseconds(prefill)),
            generation_time_ms: Some(milliseconds(decode)),
            queue_time_ms: Some(milliseconds(queued)),
            mean_itl_ms: (tokens > 1).then(|| milliseconds(decode) / (tokens - 1) as f64),
            tokens_per_second: (inference > 0.0).then(|| tokens as f64 / inference),
            speculative_decoding: None,
        }
    }
}

/// The same in the last chunk of a stream: what is null is absent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub(crate) struct StreamedMetrics {
    /// As in a whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_to_first_token_ms: Option<f64>,
    /// As in a whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_time_ms: Option<f64>,
    /// As in a whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_time_ms: Option<f64>,
    /// As in a whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_itl_ms: Option<f64>,
    /// As in a whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_second: Option<f64>,
}

impl From<PerRequestMetrics> for StreamedMetrics {
    fn from(metrics: PerRequestMetrics) -> Self {
        let PerRequestMetrics {
            time_to_first_token_ms,
            generation_time_ms,
            queue_time_ms,
            mean_itl_ms,
            tokens_per_second,
            speculative_decoding: _,
        } = metrics;
        Self { time_to_first_token_ms, generation_time_ms, queue_time_ms, mean_itl_ms, tokens_per_second }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn whole(times: Option<RequestTimes>, tokens: usize) -> Value {
        serde_json::to_value(PerRequestMetrics::new(times, tokens)).unwrap()
    }

    #[test]
    fn rates_need_a_second_token_or_a_time_and_nothing_is_said_without_times() {
        let times = |queued, prefill, decode| {
            let [queued, prefill, decode] = [queued, prefill, decode].map(Duration::from_millis);
            Some(RequestTimes { queued, prefill, decode })
        };
        for (times, tokens, expected) in [
            (times(5, 100, 400), 5, [json!(100.0), json!(400.0), json!(5.0), json!(100.0), json!(10.0)]),
            (times(0, 250, 0), 1, [json!(250.0), json!(0.0), json!(0.0), Value::Null, json!(4.0)]),
            (times(7, 0, 0), 1, [json!(0.0), json!(0.0), json!(7.0), Value::Null, Value::Null]),
            (None, 3, [const { Value::Null }; 5]),
        ] {
            let [first, generation, queue, between, rate] = expected;
            let expected = json!({
                "time_to_first_token_ms": first,
                "generation_time_ms": generation,
                "queue_time_ms": queue,
                "mean_itl_ms": between,
                "tokens_per_second": rate,
                "speculative_decoding": null,
            });
            assert_eq!(whole(times, tokens), expected);
            let streamed = serde_json::to_value(StreamedMetrics::from(PerRequestMetrics::new(times, tokens))).unwrap();
            let said = expected.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
            assert_eq!(streamed, said.map(|(name, value)| (name.clone(), value.clone())).collect::<Value>());
        }
    }
}
