//! The shapes of trainers: what a sequence is called in each framework.
//!
//! A shape borrows what it can of its sequence, and is written without a tree of values between them: log-probs keep the
//! few digits that tell an `f32` from every other one.

use std::ops::Range;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;

use super::pictures::data_url;
use crate::{
    TokenId,
    trajectory::{ImageUsed, PackedMasks, Sequence},
};

/// What a shape was made of.
#[derive(Debug, Serialize)]
struct Origin<'s> {
    trajectory_id: &'s str,
    turn_id: Option<&'s str>,
}

/// The column `prompt_ids` and those beside it, as TRL has them.
#[derive(Debug, Serialize)]
pub(super) struct Trl<'s> {
    prompt_ids: &'s [TokenId],
    completion_ids: &'s [TokenId],
    logprobs: Vec<f32>,
    env_mask: Vec<u8>,
    reward: Option<f64>,
    #[serde(flatten)]
    origin: Origin<'s>,
}

/// verl's `AgentLoopOutput`.
#[derive(Debug, Serialize)]
pub(super) struct Verl<'s> {
    prompt_ids: &'s [TokenId],
    response_ids: &'s [TokenId],
    response_mask: Vec<u8>,
    response_logprobs: Vec<f32>,
    reward_score: Option<f64>,
    /// Only where there are images.
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_modal_data: Option<VerlImages>,
    num_turns: usize,
    metrics: Empty,
    extra_fields: Origin<'s>,
}

/// The images of a sequence, as `data:` URLs, which transformers' processors load.
#[derive(Debug, Serialize)]
struct VerlImages {
    images: Vec<String>,
}

/// An object without fields.
#[derive(Debug, Serialize)]
struct Empty {}

/// A message log of NeMo-RL.
#[derive(Debug, Serialize)]
pub(super) struct NemoRl<'s> {
    message_log: Vec<NemoMessage<'s>>,
    reward: Option<f64>,
    #[serde(flatten)]
    origin: Origin<'s>,
}

/// A message of such a log.
#[derive(Debug, Serialize)]
struct NemoMessage<'s> {
    role: &'static str,
    content: &'static str,
    token_ids: &'s [TokenId],
    /// Only where something is learnt.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_logprobs: Option<Vec<f32>>,
    /// The images that its ids show. NeMo-RL prepares them for each message by itself, and leaves ids as they are
    /// (`attach_image_model_inputs_to_message` of `nemo_rl/data/multimodal_utils.py`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<PlacedFile>,
}

/// prime-rl's `TrainingSample`.
#[derive(Debug, Serialize)]
pub(super) struct PrimeRl<'s> {
    token_ids: &'s [TokenId],
    mask: Vec<bool>,
    logprobs: Vec<f32>,
    temperatures: Vec<f64>,
    env_name: &'s str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mm_refs: Option<PrimeImages>,
    /// 1 for the placeholders of images and for what belongs to them beside these, 0 for all else.
    #[serde(skip_serializing_if = "Option::is_none")]
    mm_token_type_ids: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling_mask: Option<PrimeSamplingMask>,
    reward: Option<f64>,
    #[serde(flatten)]
    origin: Origin<'s>,
}

/// prime-rl's `MMRefs`.
#[derive(Debug, Serialize)]
struct PrimeImages {
    images: Vec<PlacedFile>,
}

/// An image: its file, and where its placeholders are. prime-rl's `MMImageRef`.
#[derive(Debug, Serialize)]
struct PlacedFile {
    url: String,
    offset: usize,
    length: usize,
}

impl PrimeImages {
    fn new(sequence: &Sequence) -> Option<Self> {
        let images = placed_files(sequence, 0..sequence.token_ids.len());
        (!images.is_empty()).then_some(Self { images })
    }
}

/// The images of a part of a sequence, with places that count from its start.
fn placed_files(sequence: &Sequence, part: Range<usize>) -> Vec<PlacedFile> {
    let images = urls(sequence).zip(&sequence.images).filter(|(_, image)| part.contains(&image.offset));
    let placed = |(url, image): (String, &ImageUsed)| PlacedFile {
        url,
        offset: image.offset - part.start,
        length: image.length,
    };
    images.map(placed).collect()
}

/// The files of a sequence's images, which were read.
fn urls(sequence: &Sequence) -> impl Iterator<Item = String> {
    sequence.images.iter().map(|image| data_url(image.file.as_deref().unwrap_or_default()))
}

/// Whether each id is a placeholder of an image; `None` where there are no images.
fn token_types(sequence: &Sequence) -> Option<Vec<u8>> {
    let mut types = vec![0; sequence.token_ids.len()];
    for image in &sequence.images {
        types[image.offset..image.end()].fill(1);
    }
    (!sequence.images.is_empty()).then_some(types)
}

/// prime-rl's `SamplingMask`: the bytes of two arrays of int32, in base64 as msgspec reads bytes out of JSON.
#[derive(Debug, Serialize)]
struct PrimeSamplingMask {
    ids: String,
    counts: String,
}

impl PrimeSamplingMask {
    fn new(masks: &PackedMasks) -> Option<Self> {
        let shown = || Self { ids: base64_of(&masks.ids), counts: base64_of(&masks.counts) };
        (!masks.is_empty()).then(shown)
    }
}

/// The nodes of a `Trace` of verifiers.
#[derive(Debug, Serialize)]
pub(super) struct Verifiers<'s> {
    nodes: Vec<Node<'s>>,
    reward: Option<f64>,
    #[serde(flatten)]
    origin: Origin<'s>,
}

/// A node of such a trace.
#[derive(Debug, Serialize)]
struct Node<'s> {
    parent: Option<usize>,
    message: NodeMessage,
    sampled: bool,
    token_ids: &'s [TokenId],
    mask: Vec<bool>,
    /// Those of the ids that the mask marks.
    logprobs: Vec<f32>,
    /// The ids that each of them was drawn from, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling_mask: Option<NodeSamplingMask>,
}

/// The sampling mask of a node.
#[derive(Debug, Serialize)]
struct NodeSamplingMask {
    ids: Ndarray,
    counts: Ndarray,
}

/// An array of int32 as verifiers sends it, whose bytes are in base64 here since JSON has none.
#[derive(Debug, Serialize)]
struct Ndarray {
    #[serde(rename = "__nd__")]
    is_array: bool,
    dtype: &'static str,
    shape: [usize; 1],
    data: String,
}

impl Ndarray {
    fn new(numbers: &[u32]) -> Self {
        Self { is_array: true, dtype: "int32", shape: [numbers.len()], data: base64_of(numbers) }
    }
}

/// Numbers as int32: ids and counts are those of a vocabulary, and fit.
fn base64_of(numbers: &[u32]) -> String {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

impl NodeSamplingMask {
    fn new(masks: &PackedMasks) -> Option<Self> {
        let shown = || Self { ids: Ndarray::new(&masks.ids), counts: Ndarray::new(&masks.counts) };
        (!masks.is_empty()).then(shown)
    }
}

/// The message of a node, whose text is not known.
#[derive(Debug, Serialize)]
struct NodeMessage {
    role: &'static str,
    content: &'static str,
}

/// The `RolloutLegacy` of agent-lightning 0.3. Version 1.0 has none.
#[derive(Debug, Serialize)]
pub(super) struct AgentLightning<'s> {
    rollout_id: &'s str,
    final_reward: Option<f64>,
    triplets: Vec<Triplet<'s>>,
    metadata: TurnNamed<'s>,
}

/// A triplet of it.
#[derive(Debug, Serialize)]
struct Triplet<'s> {
    prompt: TripletPrompt<'s>,
    response: TripletResponse<'s>,
    reward: Option<f64>,
    metadata: TurnNamed<'s>,
}

/// The prompt of a triplet.
#[derive(Debug, Serialize)]
struct TripletPrompt<'s> {
    token_ids: &'s [TokenId],
}

/// The response of a triplet.
#[derive(Debug, Serialize)]
struct TripletResponse<'s> {
    token_ids: &'s [TokenId],
    logprobs: Vec<ChatLogprob>,
}

/// A log-prob as it stands in an answer to a chat.
#[derive(Debug, Serialize)]
struct ChatLogprob {
    logprob: f32,
}

/// The turn that something is of.
#[derive(Debug, Serialize)]
struct TurnNamed<'s> {
    turn_id: Option<&'s str>,
}

fn last(sequence: &Sequence) -> Option<&str> {
    sequence.turns.last().map(|turn| &*turn.place.id)
}

fn origin(sequence: &Sequence) -> Origin<'_> {
    Origin { trajectory_id: &sequence.trajectory, turn_id: last(sequence) }
}

fn mask(sequence: &Sequence, from: usize) -> Vec<u8> {
    sequence.loss_mask[from..].iter().copied().map(u8::from).collect()
}

/// Log-probs where something is learnt, and zeros elsewhere.
fn logprobs(sequence: &Sequence, range: Range<usize>) -> Vec<f32> {
    let all = sequence.logprobs[range.clone()].iter().zip(&sequence.loss_mask[range]);
    all.map(|(logprob, learnt)| logprob.filter(|_| *learnt).unwrap_or_default()).collect()
}

/// `env_mask` is 1 for what the model sampled, and `logprobs` are as long as `completion_ids`
/// (`trl/trainer/grpo_trainer.py`, TRL 1.16). Other columns go to reward functions.
pub(super) fn trl(sequence: &Sequence) -> Trl<'_> {
    let (prompt_ids, completion_ids) = sequence.token_ids.split_at(sequence.prompt_tokens);
    Trl {
        prompt_ids,
        completion_ids,
        logprobs: logprobs(sequence, sequence.prompt_tokens..sequence.token_ids.len()),
        env_mask: mask(sequence, sequence.prompt_tokens),
        reward: sequence.reward,
        origin: origin(sequence),
    }
}

/// `response_ids` are what follows the first prompt, tools' answers included; `response_mask` is 1 for what the model
/// sampled (`verl/experimental/agent_loop/agent_loop.py`).
pub(super) fn verl(sequence: &Sequence) -> Verl<'_> {
    let (prompt_ids, response_ids) = sequence.token_ids.split_at(sequence.prompt_tokens);
    Verl {
        prompt_ids,
        response_ids,
        response_mask: mask(sequence, sequence.prompt_tokens),
        response_logprobs: logprobs(sequence, sequence.prompt_tokens..sequence.token_ids.len()),
        reward_score: sequence.reward,
        multi_modal_data: (!sequence.images.is_empty()).then(|| VerlImages { images: urls(sequence).collect() }),
        num_turns: 2 * sequence.turns.len(),
        metrics: Empty {},
        extra_fields: origin(sequence),
    }
}

/// What is learnt from is an assistant's message with `generation_logprobs`; all other ids are the user's, as in the logs
/// that NeMo-RL makes of NeMo Gym's answers (`nemo_rl/experience/rollouts.py`).
pub(super) fn nemo_rl(sequence: &Sequence) -> NemoRl<'_> {
    let (mut message_log, mut from) = (Vec::new(), 0);
    while from < sequence.token_ids.len() {
        let learnt = sequence.loss_mask[from];
        let length = sequence.loss_mask[from..].iter().take_while(|other| **other == learnt).count();
        // A turn that follows another one without a prompt between them is a message of its own.
        let end = sequence.turns.iter().map(|turn| turn.end).find(|end| learnt && *end > from);
        let to = end.map_or(from + length, |end| end.min(from + length));
        message_log.push(NemoMessage {
            role: if learnt { "assistant" } else { "user" },
            content: "",
            token_ids: &sequence.token_ids[from..to],
            generation_logprobs: learnt.then(|| logprobs(sequence, from..to)),
            images: placed_files(sequence, from..to),
        });
        from = to;
    }
    NemoRl { message_log, reward: sequence.reward, origin: origin(sequence) }
}

/// All arrays are as long as `token_ids` (`prime_rl/transports/rollouts/types.py`). prime-rl sends these as arrays without
/// names, by msgpack; a temperature stands at each sampled id, and a count of a sampling mask at each id. A turn that several branches share is learnt from in the
/// first one only, as `iter_trainable_branches` has it (`prime_rl/orchestrator/trajectories.py`).
pub(super) fn prime_rl(sequence: &Sequence) -> PrimeRl<'_> {
    let tokens = sequence.token_ids.len();
    let (mut mask, mut fresh_logprobs) = (vec![false; tokens], vec![0.0; tokens]);
    for turn in sequence.fresh_turns() {
        mask[turn.start..turn.end].fill(true);
        fresh_logprobs[turn.start..turn.end].copy_from_slice(&logprobs(sequence, turn.start..turn.end));
    }
    let mut temperatures = vec![1.0; tokens];
    for turn in &sequence.turns {
        // Logits are divided by it. Log-probs of a greedy turn are those at temperature 1, or over a mask of the one token.
        let sampling = turn.generation.sampling.as_ref().filter(|sampling| !sampling.is_greedy());
        temperatures[turn.start..turn.end].fill(sampling.map_or(1.0, |sampling| sampling.temperature));
    }
    PrimeRl {
        token_ids: &sequence.token_ids,
        mask,
        logprobs: fresh_logprobs,
        temperatures,
        env_name: sequence.turns.first().and_then(|turn| turn.generation.session.as_deref()).unwrap_or_default(),
        mm_refs: PrimeImages::new(sequence),
        mm_token_type_ids: token_types(sequence),
        sampling_mask: PrimeSamplingMask::new(&sequence.fresh_masks()),
        reward: sequence.reward,
        origin: origin(sequence),
    }
}

/// A node of what each prompt adds, and one of what was sampled after it (`verifiers/v1/graph.py`); in a node, log-probs
/// are those of the ids that its mask marks. What is not learnt from is not marked as sampled.
pub(super) fn verifiers(sequence: &Sequence) -> Verifiers<'_> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    let mut add = |role, range: Range<usize>, learnt: bool| {
        nodes.push(Node {
            parent: nodes.len().checked_sub(1),
            message: NodeMessage { role, content: "" },
            sampled: learnt,
            token_ids: &sequence.token_ids[range.clone()],
            mask: vec![learnt; range.len()],
            sampling_mask: learnt
                .then(|| sequence.masks.of(range.start, range.end))
                .and_then(|masks| NodeSamplingMask::new(&masks)),
            logprobs: if learnt { logprobs(sequence, range) } else { Vec::new() },
        });
    };
    let mut end = 0;
    for turn in &sequence.turns {
        if end < turn.start {
            add("user", end..turn.start, false);
        }
        add("assistant", turn.start..turn.end, sequence.loss_mask[turn.start]);
        end = turn.end;
    }
    Verifiers { nodes, reward: sequence.reward, origin: origin(sequence) }
}

/// A triplet for each response that is learnt from, whose prompt is all that came before (`agentlightning/types/core.py` of 0.3.0).
/// Turns between which nothing was added are one response: of triplets that are to be one sample, the daemon takes the last
/// `n` ids of a prompt as the `n` that it adds, which are all of them where `n` is 0 (`agentlightning/verl/daemon.py`).
/// Log-probs stand as in an answer to a chat, one object for each id (`agentlightning/instrumentation/agentops.py`).
pub(super) fn agent_lightning(sequence: &Sequence) -> AgentLightning<'_> {
    let learnt: Vec<_> = sequence.learnt_turns().collect();
    let responses = learnt.chunk_by(|before, turn| before.end == turn.start);
    let triplets = responses.filter_map(|turns| {
        let (first, last) = (turns.first()?, turns.last()?);
        let of_turns = turns.iter().filter_map(|turn| sequence.notes.turn_rewards.get(&turn.place.id)).copied();
        let of_end = sequence.reward.filter(|_| last.end == sequence.token_ids.len());
        let logprobs = logprobs(sequence, first.start..last.end);
        Some(Triplet {
            prompt: TripletPrompt { token_ids: &sequence.token_ids[..first.start] },
            response: TripletResponse {
                token_ids: &sequence.token_ids[first.start..last.end],
                logprobs: logprobs.into_iter().map(|logprob| ChatLogprob { logprob }).collect(),
            },
            reward: of_turns.reduce(|sum, reward| sum + reward).or(of_end),
            metadata: TurnNamed { turn_id: Some(&last.place.id) },
        })
    });
    AgentLightning {
        rollout_id: &sequence.trajectory,
        final_reward: sequence.reward,
        triplets: triplets.collect(),
        metadata: TurnNamed { turn_id: self::last(sequence) },
    }
}
