//! What generations count and time, under vLLM's names (`v1/metrics/loggers.py`).

use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};

use super::{Delta, Finish};
use crate::engine::PromptOutput;

/// Handles of the process's recorder; cheap to use for every token.
#[derive(Clone)]
pub(super) struct Meters {
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generation_tokens: Counter,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    request_latency: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_computed_tokens: Histogram,
    request_max_tokens: Histogram,
    request_token_time: Histogram,
}

impl Meters {
    /// Handles of the recorder that is installed now.
    pub(super) fn new() -> Self {
        Self {
            prompt_tokens: counter!("vllm:prompt_tokens_total"),
            cached_tokens: counter!("vllm:prompt_tokens_cached_total"),
            generation_tokens: counter!("vllm:generation_tokens_total"),
            time_to_first_token: histogram!("vllm:time_to_first_token_seconds"),
            inter_token_latency: histogram!("vllm:inter_token_latency_seconds"),
            request_latency: histogram!("vllm:e2e_request_latency_seconds"),
            request_prompt_tokens: histogram!("vllm:request_prompt_tokens"),
            request_generation_tokens: histogram!("vllm:request_generation_tokens"),
            request_computed_tokens: histogram!("vllm:request_prefill_kv_computed_tokens"),
            request_max_tokens: histogram!("vllm:request_params_max_tokens"),
            request_token_time: histogram!("vllm:request_time_per_output_token_seconds"),
        }
    }

    /// Starts the clock of one generation.
    pub(super) fn start(&self, prompt_tokens: usize, max_tokens: usize) -> Meter {
        Meter {
            meters: self.clone(),
            started: Instant::now(),
            sampled_at: None,
            prompt_tokens,
            cached_tokens: 0,
            max_tokens,
            sampled: 0,
            ended: false,
        }
    }
}

/// Counts and times one generation.
pub(super) struct Meter {
    meters: Meters,
    started: Instant,
    /// When the first and the last token came.
    sampled_at: Option<(Instant, Instant)>,
    prompt_tokens: usize,
    cached_tokens: usize,
    max_tokens: usize,
    sampled: usize,
    ended: bool,
}

impl Meter {
    /// Takes note of what was cached.
    pub(super) fn prompt(&mut self, prompt: &PromptOutput) {
        self.cached_tokens = prompt.cached_tokens;
    }

    /// Takes note of what was sampled.
    pub(super) fn record(&mut self, delta: &Delta) {
        let now = Instant::now();
        if !delta.tokens.is_empty() {
            let first = match self.sampled_at {
                None => {
                    self.meters.prompt_tokens.increment(self.prompt_tokens as u64);
                    self.meters.cached_tokens.increment(self.cached_tokens as u64);
                    self.meters.time_to_first_token.record(now - self.started);
                    now
                }
                Some((first, last)) => {
                    self.meters.inter_token_latency.record(now - last);
                    first
                }
            };
            self.sampled_at = Some((first, now));
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
            Finish::Repetition => "repetition",
            Finish::Abort => "abort",
        };
        counter!("vllm:request_success_total", "finished_reason" => reason).increment(1);
        self.meters.request_latency.record(now - self.started);
        #[expect(clippy::cast_precision_loss, reason = "no sequence has 2^52 tokens")]
        for (histogram, tokens) in [
            (&self.meters.request_prompt_tokens, self.prompt_tokens),
            (&self.meters.request_generation_tokens, self.sampled),
            (&self.meters.request_computed_tokens, self.prompt_tokens.saturating_sub(self.cached_tokens)),
            (&self.meters.request_max_tokens, self.max_tokens),
        ] {
            histogram.record(tokens as f64);
        }
        self.meters.request_token_time.record(self.token_time());
    }

    /// Seconds for each token after the first one; 0 without such a token, as in vLLM.
    #[expect(clippy::cast_precision_loss, reason = "no sequence has 2^52 tokens")]
    fn token_time(&self) -> f64 {
        match self.sampled_at {
            Some((first, last)) if self.sampled > 1 => (last - first).as_secs_f64() / (self.sampled - 1) as f64,
            _ => 0.0,
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
