//! What is shown of trajectories, and what clients attach to them.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    TokenId,
    trajectory::{
        ContinuityFound, Ended, Generation, ImageUsed, Notes, PackedMasks, Place, Said, SamplingUsed,
        TrajectorySummary, TurnRecord, WeightsUsed,
    },
    wire::body::{self, Body, Rules},
};

/// A trajectory, without its turns.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrajectoryShown {
    #[schema(value_type = String)]
    id: Arc<str>,
    /// Always `trajectory`.
    object: &'static str,
    /// The session that the requests named.
    #[schema(value_type = Option<String>)]
    session: Option<Arc<str>>,
    /// How many turns there are.
    turn_count: usize,
    /// How many turns no other one continues.
    leaf_count: usize,
    /// How many turns continue no other one.
    root_count: usize,
    /// How many ids were sampled.
    sampled_tokens: usize,
    /// When the first turn began, in seconds since 1970.
    created_at: f64,
    /// When the last turn ended, in seconds since 1970.
    updated_at: f64,
    /// Whether every leaf ended by itself: by an end, a stop token or a stop string.
    complete: bool,
    /// Whether several turns had the ids that a turn continues, and nothing told which one it was.
    ambiguous: bool,
    /// What requests call the models and adapters that sampled.
    #[schema(value_type = Vec<String>)]
    models: Vec<Arc<str>>,
    /// What the weights are called that sampled.
    #[schema(value_type = Vec<String>)]
    weight_versions: Vec<Arc<str>>,
    #[serde(flatten)]
    notes: NotesShown,
}

/// What clients attached to a trajectory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotesShown {
    /// The reward of the whole trajectory.
    reward: Option<f64>,
    /// Rewards of single turns, by their ids.
    #[schema(value_type = BTreeMap<String, f64>)]
    turn_rewards: BTreeMap<Arc<str>, f64>,
    /// Its tags.
    tags: Vec<String>,
}

impl From<Notes> for NotesShown {
    fn from(notes: Notes) -> Self {
        let Notes { reward, turn_rewards, tags } = notes;
        Self { reward, turn_rewards, tags: tags.into_iter().collect() }
    }
}

impl From<TrajectorySummary> for TrajectoryShown {
    fn from(summary: TrajectorySummary) -> Self {
        Self {
            id: summary.id,
            object: "trajectory",
            session: summary.session,
            turn_count: summary.turns,
            leaf_count: summary.leaves,
            root_count: summary.roots,
            sampled_tokens: summary.sampled_tokens,
            created_at: summary.created,
            updated_at: summary.updated,
            complete: summary.complete,
            ambiguous: summary.ambiguous,
            models: summary.models,
            weight_versions: summary.versions,
            notes: summary.notes.into(),
        }
    }
}

/// A part of the list of trajectories.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrajectoryList {
    /// Always `list`.
    object: &'static str,
    /// Trajectories, in the order that was asked for.
    data: Vec<TrajectoryShown>,
    /// The first of them.
    #[schema(value_type = Option<String>)]
    first_id: Option<Arc<str>>,
    /// The last of them; with `after`, the list goes on behind it.
    #[schema(value_type = Option<String>)]
    last_id: Option<Arc<str>>,
    /// Whether there are more.
    has_more: bool,
}

impl TrajectoryList {
    pub(crate) fn new(summaries: Vec<TrajectorySummary>, has_more: bool) -> Self {
        let data: Vec<TrajectoryShown> = summaries.into_iter().map(Into::into).collect();
        let id = |shown: Option<&TrajectoryShown>| shown.map(|shown| Arc::clone(&shown.id));
        Self { object: "list", first_id: id(data.first()), last_id: id(data.last()), data, has_more }
    }
}

/// A trajectory with its turns, which make a tree by their parents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrajectoryTree {
    #[serde(flatten)]
    summary: TrajectoryShown,
    /// The turns, the oldest first.
    turns: Vec<TurnShown>,
}

impl TrajectoryTree {
    pub(crate) fn new(summary: TrajectorySummary, turns: Vec<TurnRecord>) -> Self {
        Self { summary: summary.into(), turns: turns.into_iter().map(Into::into).collect() }
    }
}

/// One turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnShown {
    #[serde(flatten)]
    head: TurnHead,
    /// The ids that the prompt adds to all ids of the parent.
    #[schema(value_type = Vec<TokenId>)]
    added_token_ids: Arc<[TokenId]>,
    /// The ids that were sampled.
    sampled_token_ids: Vec<TokenId>,
    /// The log-prob of each of them.
    logprobs: Vec<f32>,
    /// The rank of each of them, 1 for the most probable one.
    ranks: Vec<u32>,
    /// The least entropy, in nats, that the distribution of each of them can have, given the alternatives that the request
    /// asked for; empty where it asked for none.
    entropies: Vec<f32>,
    /// The ids that each of them was drawn from, where the request asked for them with `return_sampling_mask`.
    sampling_mask: Option<PackedMask>,
    /// The images that the prompt adds to those of the parent.
    images: Vec<ImageShown>,
    /// How many of the turn's messages are the first ones of the parent.
    messages_before: usize,
    /// The messages after those, as the chat template is given them.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Arc<RawValue>>,
    /// The tools, as the chat template is given them; null where they are those of the parent, or where there are none.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Arc<RawValue>>>,
    /// What the client said, in the JSON of its own dialect; null where that is not kept, or where the endpoint has no messages.
    said: Option<SaidShown>,
}

/// An image of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImageShown {
    /// A hash of its file and of the settings of the processor, in hexadecimal digits.
    #[schema(value_type = String)]
    identity: Arc<str>,
    /// The position of its first placeholder in the whole prompt.
    offset: usize,
    /// How many placeholders it has.
    length: usize,
    /// Frames, rows and columns of patches, as `image_grid_thw` of transformers.
    grid_thw: [usize; 3],
    /// Whether its file was kept with the turn.
    file_kept: bool,
}

impl From<ImageUsed> for ImageShown {
    fn from(ImageUsed { identity, offset, length, rows, columns, file_bytes, .. }: ImageUsed) -> Self {
        Self { identity, offset, length, grid_thw: [1, rows, columns], file_kept: file_bytes.is_some() }
    }
}

/// What a client said in its request. Ids and log-probs that items carried are left out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SaidShown {
    /// `chat_completions`, `messages` or `responses`.
    #[schema(value_type = String)]
    dialect: Arc<str>,
    /// How many of its items are the first ones that the parent has.
    items_before: usize,
    /// The messages or input items after those, to the letter.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Arc<RawValue>>,
    /// The `system` or the `instructions`; null where they are those of the parent, or where there are none, and false where there
    /// are none any more.
    #[schema(value_type = Option<Object>)]
    system: Option<Arc<RawValue>>,
    /// The tools, likewise.
    #[schema(value_type = Option<Object>)]
    tools: Option<Arc<RawValue>>,
}

impl From<Said> for SaidShown {
    fn from(Said { dialect, items, before, system, tools }: Said) -> Self {
        Self { dialect, items_before: before, items, system, tools }
    }
}

impl From<TurnRecord> for TurnShown {
    fn from(TurnRecord { place, mut generation }: TurnRecord) -> Self {
        Self {
            added_token_ids: std::mem::take(&mut generation.prompt),
            sampled_token_ids: std::mem::take(&mut generation.sampled),
            logprobs: std::mem::take(&mut generation.logprobs),
            ranks: std::mem::take(&mut generation.ranks),
            entropies: std::mem::take(&mut generation.entropies),
            sampling_mask: PackedMask::new(std::mem::take(&mut generation.masks)),
            images: std::mem::take(&mut generation.images).into_iter().map(Into::into).collect(),
            messages_before: place.messages_before,
            messages: std::mem::take(&mut generation.messages),
            tools: generation.tools.take(),
            said: generation.said.take().map(Into::into),
            head: TurnHead::new(place, generation),
        }
    }
}

/// The ids that tokens were drawn from, one row after the other.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PackedMask {
    /// How many ids the row of each token has; 0 for a token without a row.
    counts: Vec<u32>,
    /// The ids of all rows, each row in ascending order.
    #[schema(value_type = Vec<TokenId>)]
    ids: Vec<TokenId>,
}

impl PackedMask {
    /// Shows the rows; `None` where no token has one.
    pub(crate) fn new(PackedMasks { counts, ids }: PackedMasks) -> Option<Self> {
        (!counts.is_empty()).then_some(Self { counts, ids })
    }
}

/// What is known of a turn besides its ids and texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnHead {
    #[schema(value_type = String)]
    id: Arc<str>,
    /// The turn that it continues.
    #[schema(value_type = Option<String>)]
    parent_id: Option<Arc<str>>,
    /// How many ids the prompt has.
    prompt_tokens: usize,
    /// Whether several turns had the ids that it continues, and nothing told which one it was.
    ambiguous: bool,
    /// The BLAKE3 hash of all ids, prompt and sampled, as little-endian numbers of 4 bytes.
    token_ids_digest: String,
    /// The ids of the request.
    #[schema(value_type = Vec<String>)]
    request_ids: Vec<Arc<str>>,
    /// The number of the answer among those of its prompt.
    index: usize,
    /// The session that the request named.
    #[schema(value_type = Option<String>)]
    session: Option<Arc<str>>,
    /// The model.
    #[schema(value_type = String)]
    model: Arc<str>,
    /// The adapter, and its version.
    #[schema(value_type = Option<String>)]
    adapter: Option<Arc<str>>,
    /// The checksum of the adapter; null where none sampled, or where it is not known.
    adapter_checksum: Option<String>,
    /// The weights that sampled each id.
    #[schema(value_type = Vec<Object>)]
    weights: Vec<WeightsUsed>,
    /// `eos`, `stop_token`, `stop_string`, `length`, `repetition`, `abort`, `disconnect` or `error`.
    #[schema(value_type = String)]
    finish_reason: Ended,
    /// When the request could be sampled, in seconds since 1970.
    created_at: f64,
    /// When its last id was sampled, in seconds since 1970.
    ended_at: f64,
    /// What became of the ids of earlier turns; null for a prompt that came as ids.
    #[schema(value_type = Option<Object>)]
    token_continuity: Option<ContinuityFound>,
    /// The fields that decided what was sampled.
    #[schema(value_type = Option<Object>)]
    sampling: Option<SamplingUsed>,
}

impl TurnHead {
    pub(crate) fn new(place: Place, generation: Generation) -> Self {
        Self {
            id: place.id,
            parent_id: place.parent_id,
            prompt_tokens: place.prompt_tokens,
            ambiguous: place.ambiguous,
            token_ids_digest: place.digest,
            request_ids: generation.request_ids,
            index: generation.index,
            session: generation.session,
            model: generation.model,
            adapter_checksum: generation.adapter.as_ref().and_then(|adapter| adapter.checksum.clone()),
            adapter: generation.adapter.map(|adapter| adapter.label),
            weights: generation.weights,
            finish_reason: generation.finish,
            created_at: generation.created,
            ended_at: generation.ended,
            token_continuity: generation.continuity,
            sampling: generation.sampling,
        }
    }
}

/// A reward.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewardRequest {
    /// The reward; null takes an earlier one away.
    #[serde(deserialize_with = "Option::deserialize")]
    pub reward: Option<f64>,
    /// The turn that it is for; without it, it is for the whole trajectory.
    #[serde(default)]
    pub turn_id: Option<String>,
}

impl Body for RewardRequest {
    const RULES: &'static Rules = &body::ANY;
}

/// A change of tags.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagsRequest {
    /// Tags to add, of 1 to 256 bytes.
    #[serde(default)]
    pub add: Vec<String>,
    /// Tags to remove.
    #[serde(default)]
    pub remove: Vec<String>,
}

impl Body for TagsRequest {
    const RULES: &'static Rules = &body::ANY;
}

/// That a trajectory is gone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrajectoryDeletion {
    /// The trajectory.
    pub id: String,
    /// Always `trajectory`.
    pub object: &'static str,
    /// Always true.
    pub deleted: bool,
}
