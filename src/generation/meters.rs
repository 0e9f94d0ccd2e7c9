//! What generations count and time, under vLLM's names (`v1/metrics/loggers.py`).

use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};

use super::{Delta, Finish};

/// Handles of the process's recorder; cheap to use for every token.
#[derive(Clone)]
pub(super) struct Meters {
    prompt_tokens: Counter,
    generation_tokens: Counter,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    request_latency: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
}

impl Meters {
    /// Handles of the recorder that is installed now.
    pub(super) fn new() -> Self {
        Self {
            prompt_tokens: counter!("vllm:prompt_tokens_total"),
            generation_tokens: counter!("vllm:generation_tokens_total"),
            time_to_first_token: histogram!("vllm:time_to_first_token_seconds"),
            inter_token_latency: histogram!("vllm:inter_token_latency_seconds"),
            request_latency: histogram!("vllm:e2e_request_latency_seconds"),
            request_prompt_tokens: histogram!("vllm:request_prompt_tokens"),
            request_generation_tokens: histogram!("vllm:request_generation_tokens"),
        }
    }

    /// Starts the clock of one generation.
    pub(super) fn start(&self, prompt_tokens: usize) -> Meter {
        let now = Instant::now();
        Meter { meters: self.clone(), started: now, last: None, prompt_tokens, sampled: 0, ended: false }
    }
}

/// Counts and times one generation.
pub(super) struct Meter {
    meters: Meters,
    started: Instant,
    /// When the last token came.
    last: Option<Instant>,
    prompt_tokens: usize,
    sampled: usize,
    ended: bool,
}

impl Meter {
    /// Takes note of what was sampled.
    pub(super) fn record(&mut self, delta: &Delta) {
        let now = Instant::now();
        if !delta.tokens.is_empty() {
            match self.last.replace(now) {
                None => {
                    self.meters.prompt_tokens.increment(self.prompt_tokens as u64);
                    self.meters.time_to_first_token.record(now - self.started);
                }
                Some(last) => self.meters.inter_token_latency.record(now - last),
            }
            self.sampled += delta.tokens.len();
            self.meters.generation_tokens.increment(delta.tokens.len() as u64);
        }
        if let Some(finish) = &delta.finish {
            self.finish(finish, now);
        }
    }

    fn finish(&mut self, finish: &Finish, now: Instant) {
        self.ended = true;
        let reason = match finish {
            Finish::Eos | Finish::StopToken(_) | Finish::StopString(_) => "stop",
            Finish::Length => "length",
            Finish::Abort => "abort",
        };
        counter!("vllm:request_success_total", "finished_reason" => reason).increment(1);
        self.meters.request_latency.record(now - self.started);
        #[expect(clippy::cast_precision_loss, reason = "no sequence has 2^52 tokens")]
        for (histogram, tokens) in [
            (&self.meters.request_prompt_tokens, self.prompt_tokens),
            (&self.meters.request_generation_tokens, self.sampled),
        ] {
            histogram.record(tokens as f64);
        }
    }
}

/// A client that hangs up ends its generation too.
impl Drop for Meter {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(&Finish::Abort, Instant::now());
        }
    }
}
