//! What generations count and time as a whole, under vLLM's names (`v1/metrics/loggers.py`).
//!
//! Refuses single tokens: the engine counts and times them as it samples them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use metrics::{Histogram, counter, histogram};

use super::{Delta, Event, Finish};
use crate::{
    engine::{EngineError, PromptOutput, RequestTimes},
    request_trace::{RequestTrace, SequenceRecord},
};

/// Handles of the process's recorder; cheap to use for every token.
#[derive(Clone)]
#[expect(clippy::struct_field_names, reason = "the metrics' own names")]
pub(super) struct Meters {
    request_latency: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_computed_tokens: Histogram,
    request_max_tokens: Histogram,
    request_token_time: Histogram,
    request_n: Histogram,
    request_most_tokens: Histogram,
}

/// The sequences of one prompt, which vLLM counts as one request.
pub(super) struct Siblings {
    n: usize,
    running: AtomicUsize,
    most_tokens: AtomicUsize,
}

impl Siblings {
    /// `n` sequences that are about to start.
    pub(super) fn new(n: usize) -> Arc<Self> {
        Arc::new(Self { n, running: AtomicUsize::new(n), most_tokens: AtomicUsize::new(0) })
    }

    /// Takes note that `sequences` of them never started. Returns the most tokens of any sequence if these were the
    /// last ones.
    fn skipped(&self, sequences: usize) -> Option<usize> {
        let before = self.running.fetch_sub(sequences, Ordering::AcqRel);
        (sequences > 0 && before == sequences).then(|| self.most_tokens.load(Ordering::Acquire))
    }

    /// Takes note that one has ended after `tokens` tokens. Returns the most tokens of any sequence if it was the last
    /// one.
    fn ended(&self, tokens: usize) -> Option<usize> {
        let most = self.most_tokens.fetch_max(tokens, Ordering::AcqRel).max(tokens);
        (self.running.fetch_sub(1, Ordering::AcqRel) == 1).then_some(most)
    }
}

impl Meters {
    /// Handles of the recorder that is installed now.
    pub(super) fn new() -> Self {
        Self {
            request_latency: histogram!("vllm:e2e_request_latency_seconds"),
            request_prompt_tokens: histogram!("vllm:request_prompt_tokens"),
            request_generation_tokens: histogram!("vllm:request_generation_tokens"),
            request_computed_tokens: histogram!("vllm:request_prefill_kv_computed_tokens"),
            request_max_tokens: histogram!("vllm:request_params_max_tokens"),
            request_token_time: histogram!("vllm:request_time_per_output_token_seconds"),
            request_n: histogram!("vllm:request_params_n"),
            request_most_tokens: histogram!("vllm:request_max_num_generation_tokens"),
        }
    }

    /// Counts sequences whose request ended before they started.
    pub(super) fn never_started(&self, siblings: &Siblings, sequences: usize) {
        if sequences == 0 {
            return;
        }
        counter!("vllm:request_success_total", "finished_reason" => "abort").increment(sequences as u64);
        self.last_sibling(siblings, siblings.skipped(sequences));
    }

    /// Records what all sequences of a prompt were together, once the last one has ended.
    #[expect(clippy::cast_precision_loss, reason = "no sequence has 2^52 tokens")]
    fn last_sibling(&self, siblings: &Siblings, most_tokens: Option<usize>) {
        if let Some(most) = most_tokens {
            self.request_n.record(siblings.n as f64);
            self.request_most_tokens.record(most as f64);
        }
    }

    /// Starts the clock of one generation, at the time when its request arrived.
    pub(super) fn start(
        &self,
        prompt_tokens: usize,
        max_tokens: usize,
        siblings: Arc<Siblings>,
        arrived: Instant,
    ) -> Meter {
        Meter {
            meters: self.clone(),
            started: arrived,
            sampled_at: None,
            prompt_tokens,
            cached_tokens: 0,
            max_tokens,
            sampled: 0,
            siblings,
            log: None,
            adapter: None,
            trace: None,
            times: None,
            failure: None,
            ended: false,
        }
    }
}

/// Counts and times one generation.
pub(super) struct Meter {
    meters: Meters,
    started: Instant,
    /// When the first and the last token were read.
    sampled_at: Option<(Instant, Instant)>,
    prompt_tokens: usize,
    cached_tokens: usize,
    max_tokens: usize,
    sampled: usize,
    siblings: Arc<Siblings>,
    /// Where the end is told, if it is.
    log: Option<tracing::Span>,
    /// The name of the adapter that is asked, where one is.
    adapter: Option<Arc<str>>,
    /// Where the end is noted, if it is.
    trace: Option<Arc<RequestTrace>>,
    /// How long the sequence was in each phase up to its latest token, where the engine tells.
    times: Option<RequestTimes>,
    /// The kind of the failure that ended it.
    failure: Option<&'static str>,
    ended: bool,
}

impl Meter {
    /// Tells the log, within the request's span, how the generation ended.
    pub(super) fn logging(mut self, span: tracing::Span, adapter: Option<Arc<str>>) -> Self {
        self.log = Some(span);
        self.adapter = adapter;
        self
    }

    /// Notes how the generation ended among what happens to its request.
    pub(super) fn tracing(mut self, trace: Option<Arc<RequestTrace>>) -> Self {
        self.trace = trace;
        self
    }

    /// Whether it is noted.
    pub(super) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Takes note of what comes out of a generation.
    pub(super) fn observe(&mut self, event: &Result<Event, EngineError>) {
        match event {
            Ok(Event::Prompt(prompt)) => self.prompt(prompt),
            Ok(Event::Delta(delta)) => self.record(delta),
            Err(EngineError::Overloaded) if self.sampled_at.is_none() => {
                counter!("vllm:admission_rejections_total", "reason" => "max_num_queued_reqs").increment(1);
                self.ended = true;
            }
            // As every request that is refused for what it asks.
            Err(EngineError::TooManySequences { .. }) => self.ended = true,
            Err(error) => {
                self.failure = Some(kind(error));
                self.end("error", Instant::now());
            }
        }
    }

    fn prompt(&mut self, prompt: &PromptOutput) {
        self.cached_tokens = prompt.cached_tokens;
    }

    fn record(&mut self, delta: &Delta) {
        let now = Instant::now();
        self.times = delta.times.or(self.times);
        if !delta.tokens.is_empty() {
            let first = self.sampled_at.map_or(now, |(first, _)| first);
            self.sampled_at = Some((first, now));
            self.sampled += delta.tokens.len();
        }
        if let Some(finish) = &delta.finish {
            self.end(name(finish), now);
        }
    }

    fn end(&mut self, reason: &'static str, now: Instant) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
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
        self.meters.last_sibling(&self.siblings, self.siblings.ended(self.sampled));
        self.log_end(reason, now);
        self.note_end(reason, now);
    }

    fn note_end(&mut self, finish: &'static str, ended: Instant) {
        // Notes are complete once nobody holds them.
        let Some(trace) = self.trace.take() else { return };
        trace.sequence(SequenceRecord {
            arrived: self.started,
            ended,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            sampled: self.sampled,
            finish,
            failure: self.failure,
            times: self.times,
        });
    }

    fn log_end(&self, reason: &'static str, now: Instant) {
        let Some(span) = &self.log else { return };
        let milliseconds = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1000.0;
        let first = self.sampled_at.map_or(0.0, |(first, _)| milliseconds(self.started, first));
        tracing::info!(
            parent: span,
            adapter = self.adapter.as_deref(),
            prompt_tokens = self.prompt_tokens,
            cached_tokens = self.cached_tokens,
            generation_tokens = self.sampled,
            finish_reason = reason,
            first_token_ms = format_args!("{first:.1}"),
            total_ms = format_args!("{:.1}", milliseconds(self.started, now)),
            "finished"
        );
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

/// What kind of failure an error is, for people who look for the same one again.
fn kind(error: &EngineError) -> &'static str {
    match error {
        EngineError::Unsupported(_) => "unsupported",
        EngineError::Unsampleable(_) => "unsampleable",
        EngineError::Overloaded => "overloaded",
        EngineError::TooManySequences { .. } => "too_many_sequences",
        EngineError::ShutDown => "shut_down",
        EngineError::Unread => "unread",
        EngineError::Paused => "paused",
        EngineError::WithoutWeights { .. } => "without_weights",
        EngineError::Uncaptured(_) => "uncaptured",
        EngineError::Failed(_) | EngineError::NonFiniteLogits => "failed",
    }
}

fn name(finish: &Finish) -> &'static str {
    match finish {
        Finish::Eos | Finish::StopToken(_) | Finish::StopString(_) => "stop",
        Finish::Length => "length",
        Finish::Repetition => "repetition",
        Finish::Abort => "abort",
    }
}

/// A client that hangs up ends its generation too.
impl Drop for Meter {
    fn drop(&mut self) {
        self.end("abort", Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_tell_the_most_tokens_once_all_have_ended() {
        let siblings = Siblings::new(3);
        assert_eq!([4, 9, 2].map(|tokens| siblings.ended(tokens)), [None, None, Some(9)]);
    }

    #[test]
    fn siblings_that_never_start_have_ended_too() {
        let siblings = Siblings::new(5);
        assert_eq!((siblings.ended(4), siblings.skipped(3), siblings.skipped(0)), (None, None, None));
        assert_eq!(siblings.ended(1), Some(4));
        assert_eq!(Siblings::new(2).skipped(2), Some(0));
    }
}
