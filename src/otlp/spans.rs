//! From the notes of a request to its spans.
//!
//! ```text
//! llm_request (SERVER) ─┬─ prompt                          one for each prompt that was put into ids
//!                       ├─ queue, prefill, decode          of the only sequence
//!                       └─ sequence ─ queue, prefill, …    of each, where there are several
//! ```

use std::time::{Duration, Instant, UNIX_EPOCH};

use super::{
    context::Parent,
    ids::{SpanId, TraceId, new_span},
    protobuf::{KeyValue, Span, SpanEnd, SpanKind, Status},
};
use crate::{
    engine::RequestTimes,
    request_trace::{PromptVerdict, RequestRecord, SequenceRecord},
};

/// The names of attributes that vLLM has (`vllm/tracing/utils.py`).
mod vllm {
    pub(super) const COMPLETION_TOKENS: &str = "gen_ai.usage.completion_tokens";
    pub(super) const PROMPT_TOKENS: &str = "gen_ai.usage.prompt_tokens";
    pub(super) const NUM_SEQUENCES: &str = "gen_ai.usage.num_sequences";
    pub(super) const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    pub(super) const TOP_P: &str = "gen_ai.request.top_p";
    pub(super) const TEMPERATURE: &str = "gen_ai.request.temperature";
    pub(super) const REQUEST_ID: &str = "gen_ai.request.id";
    pub(super) const N: &str = "gen_ai.request.n";
    pub(super) const MODEL: &str = "gen_ai.response.model";
    pub(super) const IN_QUEUE: &str = "gen_ai.latency.time_in_queue";
    pub(super) const TO_FIRST_TOKEN: &str = "gen_ai.latency.time_to_first_token";
    pub(super) const E2E: &str = "gen_ai.latency.e2e";
    pub(super) const IN_PREFILL: &str = "gen_ai.latency.time_in_model_prefill";
    pub(super) const IN_DECODE: &str = "gen_ai.latency.time_in_model_decode";
    pub(super) const IN_INFERENCE: &str = "gen_ai.latency.time_in_model_inference";
}

/// The phases of a sequence, which are a span each.
const PHASES: usize = 3;
/// W3C's flag of a trace that is recorded.
const SAMPLED: u32 = 1;
/// OTLP's flags: it is said whether the parent is of another process, and it is.
const REMOTE_IS_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// A request that has ended, and its place in a trace.
pub(super) struct Ended {
    pub(super) trace_id: TraceId,
    pub(super) parent: Option<Parent>,
    pub(super) record: RequestRecord,
}

impl Ended {
    /// How many spans it has.
    pub(super) fn count(&self) -> usize {
        let phases = |sequence: &SequenceRecord| if sequence.times.is_some() { PHASES } else { 0 };
        let sequences = &self.record.sequences;
        let own = if self.has_several() { sequences.len() } else { 0 };
        1 + self.record.prompts.len() + own + sequences.iter().map(phases).sum::<usize>()
    }

    /// Whether it has several sequences, so that each needs a span of its own.
    fn has_several(&self) -> bool {
        self.record.asked.as_ref().is_some_and(|asked| asked.sequences > 1)
    }

    /// Its spans; `model` is what the model is called where no adapter is asked for.
    pub(super) fn spans(&self, model: &str) -> Vec<Span> {
        let mut spans = Spans { of: self, root: new_span(), made: Vec::with_capacity(self.count()) };
        spans.request(model);
        for prompt in &self.record.prompts {
            let attributes = prompt.verdict.as_ref().map(of_verdict).unwrap_or_default();
            let mut span = spans.child(spans.root, "prompt", (prompt.started, prompt.ended), attributes);
            span.status = prompt.verdict.is_none().then_some(ERROR);
            spans.made.push(span);
        }
        for sequence in &self.record.sequences {
            spans.sequence(sequence);
        }
        spans.made
    }
}

const ERROR: Status = Status { code: SpanEnd::Error as i32 };

struct Spans<'a> {
    of: &'a Ended,
    root: SpanId,
    made: Vec<Span>,
}

impl Spans<'_> {
    fn nanoseconds(&self, at: Instant) -> u64 {
        let RequestRecord { began, started, .. } = self.of.record;
        let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = began + at.saturating_duration_since(started);
        u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
    }

    fn span(&self, name: &str, (started, ended): (Instant, Instant), attributes: Vec<KeyValue>) -> Span {
        let state = self.of.parent.as_ref().map(|parent| parent.state.clone());
        Span {
            trace_id: self.of.trace_id.to_vec(),
            span_id: new_span().to_vec(),
            trace_state: state.unwrap_or_default(),
            parent_span_id: Vec::new(),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: self.nanoseconds(started),
            end_time_unix_nano: self.nanoseconds(ended),
            attributes,
            status: None,
            flags: SAMPLED | REMOTE_IS_KNOWN,
        }
    }

    fn child(&self, of: SpanId, name: &str, times: (Instant, Instant), attributes: Vec<KeyValue>) -> Span {
        let span = self.span(name, times, attributes);
        Span { parent_span_id: of.to_vec(), ..span }
    }

    fn request(&mut self, model: &str) {
        let RequestRecord { started, ended, .. } = self.of.record;
        let mut span = self.span("llm_request", (started, ended), self.of_request(model));
        span.kind = SpanKind::Server.into();
        span.span_id = self.root.to_vec();
        if let Some(parent) = &self.of.parent {
            span.parent_span_id = parent.span_id.to_vec();
            span.flags |= IS_REMOTE;
        }
        span.status = self.error().is_some().then_some(ERROR);
        self.made.push(span);
    }

    /// What went wrong: the error that was answered, or the failure in the middle of an answer.
    fn error(&self) -> Option<String> {
        let RequestRecord { answer, totals, .. } = &self.of.record;
        let refused = answer.filter(|answer| answer.status >= 400);
        let refused = refused.map(|answer| answer.error.map_or_else(|| answer.status.to_string(), str::to_owned));
        refused.or_else(|| totals.failure.map(str::to_owned))
    }

    fn of_request(&self, model: &str) -> Vec<KeyValue> {
        let RequestRecord { route, asked, sequences, totals, answer, .. } = &self.of.record;
        let mut attributes = vec![KeyValue::new("http.route", &**route)];
        if let Some(answer) = answer {
            attributes.push(KeyValue::new("http.response.status_code", usize::from(answer.status)));
        }
        if let Some(error) = self.error() {
            attributes.push(KeyValue::new("error.type", error.as_str()));
        }
        let Some(asked) = asked else { return attributes };
        attributes.push(KeyValue::new(vllm::MODEL, asked.adapter.as_deref().unwrap_or(model)));
        attributes.extend(asked.id.as_deref().map(|id| KeyValue::new(vllm::REQUEST_ID, id)));
        attributes.push(KeyValue::new(vllm::PROMPT_TOKENS, asked.prompt_tokens));
        attributes.push(KeyValue::new(vllm::COMPLETION_TOKENS, totals.sampled));
        attributes.push(KeyValue::new(vllm::NUM_SEQUENCES, asked.sequences));
        attributes.push(KeyValue::new(vllm::N, asked.n));
        attributes.push(KeyValue::new(vllm::MAX_TOKENS, asked.max_tokens));
        // As in vLLM, which does not tell of a temperature of 0.
        if asked.top_p != 0.0 {
            attributes.push(KeyValue::new(vllm::TOP_P, asked.top_p));
        }
        if asked.temperature != 0.0 {
            attributes.push(KeyValue::new(vllm::TEMPERATURE, asked.temperature));
        }
        match &sequences[..] {
            [only] if !self.of.has_several() => attributes.extend(of_sequence(only)),
            _ if totals.sequences > sequences.len() => {
                attributes.push(KeyValue::new("tito.sequences_without_span", totals.sequences - sequences.len()));
            }
            _ => {}
        }
        attributes
    }

    fn sequence(&mut self, sequence: &SequenceRecord) {
        let mut parent = self.root;
        if self.of.has_several() {
            let mut attributes = of_sequence(sequence);
            attributes.push(KeyValue::new(vllm::PROMPT_TOKENS, sequence.prompt_tokens));
            attributes.push(KeyValue::new(vllm::COMPLETION_TOKENS, sequence.sampled));
            attributes.extend(sequence.failure.map(|failure| KeyValue::new("error.type", failure)));
            let mut span = self.child(self.root, "sequence", (sequence.arrived, sequence.ended), attributes);
            span.status = sequence.failure.is_some().then_some(ERROR);
            parent = new_span();
            span.span_id = parent.to_vec();
            self.made.push(span);
        }
        let Some(RequestTimes { queued, prefill, decode }) = sequence.times else { return };
        let mut from = sequence.arrived;
        let phases: [(&str, Duration); PHASES] = [("queue", queued), ("prefill", prefill), ("decode", decode)];
        for (name, took) in phases {
            let span = self.child(parent, name, (from, from + took), Vec::new());
            self.made.push(span);
            from += took;
        }
    }
}

/// The times of a sequence, in seconds, and how it ended.
fn of_sequence(sequence: &SequenceRecord) -> Vec<KeyValue> {
    let seconds = |name, time: Duration| KeyValue::new(name, time.as_secs_f64());
    let mut attributes = vec![
        seconds(vllm::E2E, sequence.ended.saturating_duration_since(sequence.arrived)),
        KeyValue::new("tito.cached_tokens", sequence.cached_tokens),
        KeyValue::new("tito.finish_reason", sequence.finish),
    ];
    if let Some(RequestTimes { queued, prefill, decode }) = sequence.times {
        attributes.extend([
            seconds(vllm::TO_FIRST_TOKEN, queued + prefill),
            seconds(vllm::IN_QUEUE, queued),
            seconds(vllm::IN_PREFILL, prefill),
            seconds(vllm::IN_DECODE, decode),
            seconds(vllm::IN_INFERENCE, prefill + decode),
        ]);
    }
    attributes
}

/// What became of the ids of earlier turns.
fn of_verdict(verdict: &PromptVerdict) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("tito.continuity.verdict", verdict.outcome),
        KeyValue::new("tito.continuity.source", verdict.source),
        KeyValue::new("tito.continuity.reused_tokens", verdict.reused),
        KeyValue::new("tito.continuity.new_tokens", verdict.new),
    ];
    attributes.extend(verdict.reason.map(|reason| KeyValue::new("tito.continuity.reason", reason)));
    attributes
}
