//! Captures what is generated as turns of trajectories, before the last event of each goes out.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use serde_json::value::{RawValue, to_raw_value};
use tokio::{runtime::Handle, task};

use super::{captured_images::image_to_keep, routing::experts_to_keep};
use crate::{
    chat::{Content, ContentPart, FunctionTool, Image, Message, ToolCall},
    continuity::Verdict,
    engine::{Adapter, EngineError, GivenRoutes, SampledToken},
    generation::{Delta, Event, Finish, GenerationRequest, WeightSpans},
    json::{Format, Object, Value},
    prompt::ChatPrompt,
    sampling::Logprobs,
    structured::Demand,
    trajectory::{
        AdapterUsed, CaptureError, ContinuityFound, Ended, Generation, Said, SamplingUsed, Trajectories, WeightsUsed,
        now,
    },
};

/// Where turns are captured, and what the model is called there.
#[derive(Clone)]
pub struct Capture {
    /// All turns.
    pub trajectories: Arc<Trajectories>,
    /// The name of the model.
    pub model: Arc<str>,
    /// The id of this process.
    pub process: Arc<str>,
}

/// What a conversation says beside its ids, and what it continues.
#[derive(Default)]
pub(super) struct CapturedConversation {
    messages: Vec<Arc<RawValue>>,
    tools: Option<Vec<Arc<RawValue>>>,
    said: Option<Said>,
    continues: Option<Arc<str>>,
}

impl Capture {
    /// Takes what a conversation says, where texts are kept.
    pub(super) fn capture_conversation(
        &self,
        prompt: &ChatPrompt,
        said: Option<Said>,
        continues: Option<Arc<str>>,
    ) -> CapturedConversation {
        if !self.trajectories.keeps_texts() {
            return CapturedConversation { continues, ..CapturedConversation::default() };
        }
        let messages = prompt.messages.iter().map(|said| raw(&message(said))).collect();
        let tools = prompt.tools.as_ref().map(|tools| tools.iter().map(|told| raw(&tool(told))).collect());
        CapturedConversation { messages, tools, said, continues }
    }

    /// Begins the turn of a request; `demand` says what its outputs have to keep to.
    pub(super) fn begun(
        &self,
        request: &GenerationRequest,
        session: Option<&str>,
        demand: impl FnOnce() -> Option<Demand>,
    ) -> Generation {
        let demand = if self.trajectories.keeps_texts() { demand() } else { None };
        let keeps_images = self.trajectories.keeps_images();
        let used = |adapter: &Arc<Adapter>| AdapterUsed {
            name: Arc::clone(adapter.name()),
            label: Arc::clone(adapter.label()),
            checksum: None,
        };
        Generation {
            prompt: Arc::clone(&request.prompt_token_ids),
            images: request.images.iter().map(|image| image_to_keep(image, keeps_images)).collect(),
            owner: request.owner.clone(),
            session: session.map(Into::into),
            request_ids: request.request_ids.to_vec(),
            model: Arc::clone(&self.model),
            process: Arc::clone(&self.process),
            adapter: request.adapter.as_ref().map(used),
            // It is made of JSON and of numbers.
            demand: demand.and_then(|demand| to_raw_value(&demand).ok()),
            ..Generation::default()
        }
    }

    /// The sampling of a sequence.
    fn sampling(&self, request: &GenerationRequest, index: usize) -> SamplingUsed {
        let stop = self.trajectories.keeps_texts().then_some(request.text.stop.as_slice());
        SamplingUsed::new(&request.sampling.of_sequence(index), stop, request.routing.given.is_some())
    }

    /// The turns of all sequences of a request.
    pub(super) fn turns(&self, begun: &Generation, request: &GenerationRequest) -> Vec<Capturing> {
        let capturing = |index| {
            let (sampling, created) = (Some(self.sampling(request, index)), now());
            let index = begun.index + index;
            let generation = Generation { index, created, sampling, ..begun.clone() };
            Capturing {
                trajectories: Arc::clone(&self.trajectories),
                generation,
                weights: WeightSpans::default(),
                adapter: request.adapter.clone(),
                given_routes: request.routing.given.clone(),
                has_masks: request.sampling.sampling_mask.is_some(),
                has_alternatives: matches!(request.sampling.logprobs, Some(Logprobs::Top(1..) | Logprobs::All)),
            }
        };
        (0..request.sequences).map(capturing).collect()
    }
}

impl CapturedConversation {
    /// Adds it to a turn.
    pub(super) fn tell(self, generation: &mut Generation, verdict: &Verdict) {
        generation.messages = self.messages;
        generation.tools = self.tools;
        generation.said = self.said;
        generation.continues = self.continues;
        generation.continuity = Some(continuity_found(verdict));
    }
}

/// A turn that is being generated.
pub(super) struct Capturing {
    trajectories: Arc<Trajectories>,
    generation: Generation,
    weights: WeightSpans,
    /// The adapter that samples.
    adapter: Option<Arc<Adapter>>,
    /// The experts that the request gave.
    given_routes: Option<Arc<GivenRoutes>>,
    /// Whether the request asked for the most probable alternatives of each token.
    has_alternatives: bool,
    /// Whether the request asked for the ids that each token was drawn from.
    has_masks: bool,
}

impl Capturing {
    fn push(&mut self, delta: &Delta) {
        self.weights.push(delta);
        for token in &delta.tokens {
            self.generation.sampled.push(token.id);
            self.generation.logprobs.push(token.logprob);
            self.generation.ranks.push(token.rank);
            if self.has_alternatives {
                self.generation.entropies.push(least_entropy(token));
            }
            if self.has_masks {
                // A token without its mask makes an answer an error, and an empty row makes its sequence one.
                self.generation.masks.push(token.sampling_mask.as_deref().unwrap_or_default());
            }
        }
    }

    /// Keeps the turn; blocking.
    fn keep(mut self, finish: Ended) -> Result<(), CaptureError> {
        let used = self.weights.spans().into_iter().map(|span| WeightsUsed {
            version: span.label,
            base_version: span.base,
            number: span.number,
            start: span.start,
            end: span.end,
            reuse_older_keys: span.reuse_older_keys,
            checksum: None,
        });
        self.generation.weights = used.collect();
        if let (Some(used), Some(adapter)) = (&mut self.generation.adapter, &self.adapter) {
            used.checksum = Some(adapter.checksum().to_string());
        }
        if let Some(given) = &self.given_routes {
            self.generation.given_experts = experts_to_keep(given);
        }
        (self.generation.finish, self.generation.ended) = (finish, now());
        let captured = self.trajectories.capture(self.generation);
        if let Err(error) = &captured {
            tracing::error!(%error, "a turn was not captured");
            metrics::counter!("tito:capture_failures_total").increment(1);
        }
        captured.map(drop)
    }
}

/// The turns of a request. Those that have not ended when this is dropped are kept with what they have: nobody waits for
/// them any more.
struct Unfinished {
    turns: Vec<Option<Capturing>>,
    finish: Ended,
}

impl Unfinished {
    /// Says that those that have not ended do so by an error.
    fn fail(&mut self) {
        self.finish = Ended::Error;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let finish = self.finish;
        for turn in self.turns.drain(..).flatten().filter(|turn| !turn.generation.sampled.is_empty()) {
            // It logs what goes wrong, and there is nobody else to tell. A server that stops waits for it.
            let unawaited = turn.trajectories.keep_unawaited();
            let keep = move || {
                drop(turn.keep(finish));
                drop(unawaited);
            };
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(keep)),
                Err(_) => keep(),
            }
        }
    }
}

/// Passes on the events of several sequences, each of which is captured before its last event goes out, if it is to be. Where
/// that fails, the events end with an error instead.
pub(super) fn captured(
    events: impl Stream<Item = Result<(usize, Event), EngineError>> + Send + 'static,
    turns: Vec<Option<Capturing>>,
) -> impl Stream<Item = Result<(usize, Event), EngineError>> + Send + 'static {
    let mut unfinished = Unfinished { turns, finish: Ended::Disconnect };
    async_stream::stream! {
        let mut events = std::pin::pin!(events);
        while let Some(item) = events.next().await {
            match &item {
                Ok((index, Event::Delta(delta))) => {
                    let turn = unfinished.turns.get_mut(*index);
                    if let Some(Some(turn)) = turn {
                        turn.push(delta);
                    }
                    if let Some(finish) = &delta.finish
                        && let Some(turn) = unfinished.turns.get_mut(*index).and_then(Option::take)
                    {
                        let finish = ended(finish);
                        let kept = task::spawn_blocking(move || turn.keep(finish)).await;
                        let kept = kept.unwrap_or_else(|error| Err(CaptureError::Failed(error.to_string())));
                        if let Err(error) = kept {
                            // The others end by it, and by no client that left.
                            unfinished.fail();
                            yield Err(EngineError::Uncaptured(error.to_string()));
                            return;
                        }
                    }
                }
                Ok(_) | Err(EngineError::Unread) => {}
                Err(_) => unfinished.fail(),
            }
            yield item;
        }
    }
}

/// The least entropy, in nats, that a distribution with these alternatives can have: all that is left is one token.
fn least_entropy(token: &SampledToken) -> f32 {
    let sampled = (token.id, token.logprob);
    let others = token.top_logprobs.iter().map(|top| (top.id, top.logprob)).filter(|(id, _)| *id != token.id);
    let (mut left, mut entropy) = (1.0, 0.0);
    for (_, logprob) in others.chain([sampled]) {
        let logprob = f64::from(logprob);
        left -= logprob.exp();
        entropy -= logprob.exp() * logprob;
    }
    // What rounding leaves is nothing.
    if left > 1e-6 {
        entropy -= left * f64::ln(left);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is for looking at")]
    let entropy = entropy.max(0.0) as f32;
    entropy
}

/// An end of a generation, as records have it.
pub(crate) fn ended(finish: &Finish) -> Ended {
    match finish {
        Finish::Eos => Ended::Eos,
        Finish::StopToken(_) => Ended::StopToken,
        Finish::StopString(_) => Ended::StopString,
        Finish::Length => Ended::Length,
        Finish::Repetition => Ended::Repetition,
        Finish::Abort => Ended::Abort,
    }
}

fn continuity_found(verdict: &Verdict) -> ContinuityFound {
    let named = |name: &'static str| name.to_owned();
    ContinuityFound {
        source: named(verdict.source.into()),
        outcome: named(verdict.outcome.into()),
        reason: verdict.reason.map(named),
        reused: verdict.reused,
        proof: verdict.proof.map(|proof| named(proof.into())),
        matched_by: verdict.matched_by.map(|matched| named(matched.into())),
        warnings: verdict.warnings.iter().map(|warning| named(warning.into())).collect(),
    }
}

fn object<'v>(fields: impl IntoIterator<Item = (&'v str, Option<Value>)>) -> Value {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Object>())
}

fn text(text: Option<&String>) -> Option<Value> {
    text.cloned().map(Value::String)
}

fn raw(value: &Value) -> Arc<RawValue> {
    let written = value.to_json_string_with(&Format::compact());
    // Python's JSON has numbers that JSON has not; such a message is kept as the text that Python writes.
    let text = || Value::String(written.clone()).to_json_string();
    let raw = RawValue::from_string(written.clone()).or_else(|_| RawValue::from_string(text()));
    raw.expect("a string is JSON").into()
}

fn message(said: &Message) -> Value {
    object([
        ("role", Some(said.role.as_str().into())),
        ("content", Some(content(&said.content))),
        ("name", text(said.name.as_ref())),
        ("reasoning", text(said.reasoning.as_ref())),
        ("tool_calls", said.tool_calls.as_ref().map(|calls| Value::Array(calls.iter().map(call).collect()))),
        ("tool_call_id", text(said.tool_call_id.as_ref())),
        ("tools", said.tools.clone()),
        ("task", text(said.task.as_ref())),
    ])
}

/// An image as the template is given it, with its identity: its file is kept once, beside the turns.
fn image_part(image: &Image) -> Value {
    let identity = blake3::Hash::from_bytes(image.identity).to_hex().to_string();
    let mut fields = Object::default();
    fields.insert("type".to_owned(), "image".into());
    fields.insert("identity".to_owned(), Value::String(identity));
    fields.extend(image.extras.clone());
    Value::Object(fields)
}

fn content(said: &Content) -> Value {
    let part = |part: &ContentPart| match part {
        ContentPart::Text(text) => Value::String(text.clone()),
        ContentPart::Object { fields, .. } => Value::Object(fields.clone()),
        ContentPart::Image(image) => image_part(image),
    };
    match said {
        Content::Empty => Value::Null,
        Content::Text(text) => Value::String(text.clone()),
        Content::Parts(parts) => Value::Array(parts.iter().map(part).collect()),
    }
}

fn call(made: &ToolCall) -> Value {
    let function = object([("name", Some(made.name.as_str().into())), ("arguments", text(made.arguments.as_ref()))]);
    let mut call = object([("id", Some(made.id.as_str().into())), ("type", Some("function".into()))]);
    if let (Value::Object(call), Value::Object(mut function)) = (&mut call, function) {
        function.extend(made.function_extras.clone());
        call.insert("function".to_owned(), Value::Object(function));
        call.extend(made.extras.clone());
    }
    call
}

fn tool(told: &FunctionTool) -> Value {
    let function = object([
        ("name", Some(told.name.as_str().into())),
        ("description", text(told.description.as_ref())),
        ("parameters", told.parameters.clone()),
        ("strict", told.strict.map(Value::Bool)),
        ("defer_loading", told.defer_loading.map(Value::Bool)),
    ]);
    object([
        ("type", Some("function".into())),
        ("function", Some(function)),
        ("defer_loading", told.outer_defer_loading.map(Value::Bool)),
    ])
}
