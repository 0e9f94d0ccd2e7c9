//! What is kept of a turn, and its bytes.
//!
//! A record is a head in JSON and arrays of little-endian numbers: the ids that the prompt adds to those of the turn before,
//! the sampled ids, their log-probs, their ranks and, where they were asked for, their entropies and their sampling masks, and
//! the experts that the request gave. The head has the images of the prompt; their files are records of their own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{CaptureError, GivenExperts, ImageUsed, PackedMasks, Said, SamplingUsed};
use crate::TokenId;

/// One generation, as whoever ran it describes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Generation {
    /// The prompt; in a record, the part of it that follows the ids of the turn before.
    #[serde(skip)]
    pub prompt: Arc<[TokenId]>,
    /// What was sampled.
    #[serde(skip)]
    pub sampled: Vec<TokenId>,
    /// The log-prob of each sampled id.
    #[serde(skip)]
    pub logprobs: Vec<f32>,
    /// The rank of each sampled id, 1 for the most probable one.
    #[serde(skip)]
    pub ranks: Vec<u32>,
    /// The least entropy, in nats, that the distribution of each sampled id can have, given the alternatives that the
    /// request asked for; empty where it asked for none.
    #[serde(skip)]
    pub entropies: Vec<f32>,
    /// The ids that each sampled id was drawn from; empty where the request did not ask for them.
    #[serde(skip)]
    pub masks: PackedMasks,
    /// The experts that the request gave for its prompt. A record that is read does not have them here, as they may be the most
    /// of its bytes: [`Trajectories::given_experts`](super::Trajectories::given_experts) reads them.
    #[serde(skip)]
    pub given_experts: GivenExperts,
    /// The images of the prompt in their order; in a record, those after the ids of the turn before, with their places in the
    /// whole prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageUsed>,
    /// Whose it is; `None` where all clients are one.
    pub owner: Option<Arc<str>>,
    /// The client's name for the conversation, or for a group of conversations.
    pub session: Option<Arc<str>>,
    /// The request that the client says it continues.
    pub continues: Option<Arc<str>>,
    /// The ids of the request.
    pub request_ids: Vec<Arc<str>>,
    /// Its number among the sequences of its prompt.
    pub index: usize,
    /// The model that is served.
    pub model: Arc<str>,
    /// The process that sampled, by an id that no other one has.
    pub process: Arc<str>,
    /// The adapter that sampled.
    pub adapter: Option<AdapterUsed>,
    /// The weights that computed each sampled id, without gaps.
    pub weights: Vec<WeightsUsed>,
    /// How it ended.
    pub finish: Ended,
    /// When the request was ready to be sampled, in seconds since 1970.
    pub created: f64,
    /// When its last id was sampled, in seconds since 1970.
    pub ended: f64,
    /// What became of the ids of earlier turns; `None` for a prompt that came as ids.
    pub continuity: Option<ContinuityFound>,
    /// The fields that decided what was sampled.
    pub sampling: Option<SamplingUsed>,
    /// What the output had to keep to, where it had to and where texts are kept.
    pub demand: Option<Box<RawValue>>,
    /// The messages as the chat template is given them; in a record, those after the first `place.messages_before`.
    pub messages: Vec<Arc<RawValue>>,
    /// The tools as the chat template is given them; in a record `None` where they are those of the turn before.
    pub tools: Option<Vec<Arc<RawValue>>>,
    /// What the client said, in the JSON of its dialect; in a record, what it said more than in the turn before. Records of tito
    /// 0.1.0 do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Said>,
}

/// An adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterUsed {
    /// The name under which requests ask for it.
    pub name: Arc<str>,
    /// The name and the version of it.
    pub label: Arc<str>,
    /// The checksum of its matrices. Records of tito 0.1.0 do not say it.
    #[serde(default)]
    pub checksum: Option<String>,
}

/// Ids that the same weights computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsUsed {
    /// What the weights are called.
    pub version: Arc<str>,
    /// Where an adapter sampled, what the weights of the base are called. Records of tito 0.1.0 do not say it.
    #[serde(default)]
    pub base_version: Option<Arc<str>>,
    /// How often the process had replaced its weights.
    pub number: u64,
    /// The first of the sampled ids.
    pub start: usize,
    /// The one after the last.
    pub end: usize,
    /// Whether the weights read keys and values that older ones wrote.
    pub reuse_older_keys: bool,
    /// The checksum of the weights, where it is known; it is kept beside the turns.
    #[serde(default, skip_deserializing)]
    pub checksum: Option<String>,
}

/// How a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The model ended its turn.
    Eos,
    /// Another stop token was sampled, which is the last of the sampled ids.
    StopToken,
    /// A stop string was completed.
    StopString,
    /// The tokens to generate ran out.
    Length,
    /// What was sampled went round in circles.
    Repetition,
    /// The server ended it.
    Abort,
    /// Nobody read it any more.
    #[default]
    Disconnect,
    /// The engine failed.
    Error,
}

impl Ended {
    /// Whether it came to an end of its own.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Eos | Self::StopToken | Self::StopString)
    }
}

/// What became of the ids of earlier turns, in the words of `token_continuity` in answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuityFound {
    /// Where known ids came from.
    pub source: String,
    /// How much of the prompt is what the model saw and sampled.
    pub outcome: String,
    /// Why it is not all.
    pub reason: Option<String>,
    /// How many ids are.
    pub reused: usize,
    /// What proves it.
    pub proof: Option<String>,
    /// How the cache found them.
    pub matched_by: Option<String>,
    /// What speaks against them.
    pub warnings: Vec<String>,
}

/// Where a turn stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The turn's id.
    pub id: Arc<str>,
    /// Its number among all turns, from the oldest.
    pub number: u64,
    /// The trajectory's id.
    pub trajectory: Arc<str>,
    /// The number of the trajectory.
    pub tree: u64,
    /// The number of the turn that it continues.
    pub parent: Option<u64>,
    /// The id of that turn.
    pub parent_id: Option<Arc<str>>,
    /// The length of the whole prompt.
    pub prompt_tokens: usize,
    /// Whether several turns had the ids that it continues, and nothing told which one it was.
    pub ambiguous: bool,
    /// How many of its messages are the first ones of the turn before.
    pub messages_before: usize,
    /// The BLAKE3 hash of all its ids, prompt and sampled, as little-endian numbers of 4 bytes.
    pub digest: String,
}

/// A turn as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Where it stands.
    pub place: Place,
    /// What was generated.
    pub generation: Generation,
}

/// The ids of a record.
pub(super) struct RecordIds {
    pub(super) added: Vec<TokenId>,
    pub(super) sampled: Vec<TokenId>,
    pub(super) images: Vec<ImageUsed>,
}

/// The number of the layout of most records; the lengths of [`Parts`] follow it, as far as it has them.
const FORMAT: u32 = 2;
/// The number of the layout that ends with sampling masks.
const FORMAT_WITH_MASKS: u32 = 3;
/// The number of the layout that ends with sampling masks, of which it may have none, and with experts.
const FORMAT_WITH_EXPERTS: u32 = 4;
/// The number of the layout that may have all that the others have, and whose head has images: a version that does not know of
/// them must not take placeholders for ordinary ids.
const FORMAT_WITH_IMAGES: u32 = 5;

impl TurnRecord {
    /// The bytes of the record.
    pub(super) fn encode(&self) -> Result<Vec<u8>, CaptureError> {
        let Generation { prompt, sampled, logprobs, ranks, entropies, masks, given_experts, images, .. } =
            &self.generation;
        let head = serde_json::to_vec(self).map_err(|error| CaptureError::Failed(error.to_string()))?;
        let of_each = |what: &str, length: usize| {
            let ids = sampled.len();
            let reason = || CaptureError::Failed(format!("{ids} ids were sampled with {length} {what}"));
            if length == ids { Ok(()) } else { Err(reason()) }
        };
        of_each("log-probs", logprobs.len())?;
        of_each("ranks", ranks.len())?;
        if !entropies.is_empty() {
            of_each("entropies", entropies.len())?;
        }
        if !masks.is_empty() {
            of_each("rows of a sampling mask", masks.counts.len())?;
        }
        let lengths = [head.len(), prompt.len(), sampled.len(), entropies.len()];
        let of_experts =
            [given_experts.mixtures as usize, given_experts.per_token as usize, given_experts.experts.len()];
        let of_all = &[masks.ids.len(), masks.counts.len()][..];
        let (format, of_masks, of_experts) = match (images.is_empty(), masks.is_empty(), given_experts.is_empty()) {
            (true, true, true) => (FORMAT, &[][..], &[][..]),
            (true, false, true) => (FORMAT_WITH_MASKS, &[masks.ids.len()][..], &[][..]),
            (true, _, false) => (FORMAT_WITH_EXPERTS, of_all, &of_experts[..]),
            (false, _, _) => (FORMAT_WITH_IMAGES, of_all, &of_experts[..]),
        };
        let numbers = prompt.len() + 3 * sampled.len() + entropies.len() + masks.counts.len() + masks.ids.len();
        let mut bytes =
            Vec::with_capacity(4 * (MOST_LENGTHS + 1 + numbers) + head.len() + 2 * given_experts.experts.len());
        bytes.extend_from_slice(&format.to_le_bytes());
        for length in lengths.iter().chain(of_masks).chain(of_experts) {
            let length = u32::try_from(*length).map_err(|error| CaptureError::Failed(error.to_string()))?;
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.extend_from_slice(&head);
        let ids = prompt.iter().chain(sampled).copied();
        let floats = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
        let masks = masks.counts.iter().chain(&masks.ids).copied();
        for number in ids.chain(floats(logprobs)).chain(ranks.iter().copied()).chain(floats(entropies)).chain(masks) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for expert in &given_experts.experts {
            bytes.extend_from_slice(&expert.to_le_bytes());
        }
        Ok(bytes)
    }

    /// The record of these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CaptureError> {
        let parts = Parts::of(bytes)?;
        let mut record: Self =
            serde_json::from_slice(parts.head).map_err(|error| CaptureError::Corrupted(error.to_string()))?;
        record.generation.prompt = parts.added().collect();
        record.generation.sampled = parts.sampled().collect();
        record.generation.logprobs = numbers(parts.logprobs).map(f32::from_bits).collect();
        record.generation.ranks = numbers(parts.ranks).collect();
        record.generation.entropies = numbers(parts.entropies).map(f32::from_bits).collect();
        record.generation.masks =
            PackedMasks { counts: numbers(parts.mask_counts).collect(), ids: numbers(parts.mask_ids).collect() };
        Ok(record)
    }
}

impl RecordIds {
    /// The ids of a record, without the rest of it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CaptureError> {
        let parts = Parts::of(bytes)?;
        let images = if parts.format == FORMAT_WITH_IMAGES { parts.images()? } else { Vec::new() };
        Ok(Self { added: parts.added().collect(), sampled: parts.sampled().collect(), images })
    }
}

/// The experts of a record, without the rest of it.
pub(super) fn given_experts(bytes: &[u8]) -> Result<GivenExperts, CaptureError> {
    let Parts { mixtures, per_token, experts, .. } = Parts::of(bytes)?;
    let experts = experts.as_chunks().0.iter().map(|expert| u16::from_le_bytes(*expert)).collect();
    Ok(GivenExperts { mixtures, per_token, experts })
}

/// The most lengths that a record begins with, after the number of its layout.
const MOST_LENGTHS: usize = 9;

/// The parts of a record's bytes. The number of the layout is followed by the lengths of head, added ids, sampled ids (of
/// log-probs and ranks there are as many) and entropies; then that of the ids of masks; then that of their counts (where it is
/// not said, there are as many as sampled ids), mixtures, experts of a token, and the length of all experts. The parts follow.
struct Parts<'b> {
    format: u32,
    head: &'b [u8],
    added: &'b [u8],
    sampled: &'b [u8],
    logprobs: &'b [u8],
    ranks: &'b [u8],
    entropies: &'b [u8],
    mask_counts: &'b [u8],
    mask_ids: &'b [u8],
    mixtures: u32,
    per_token: u32,
    experts: &'b [u8],
}

impl<'b> Parts<'b> {
    fn of(bytes: &'b [u8]) -> Result<Self, CaptureError> {
        let broken = || CaptureError::Corrupted("a turn has not the length that it says".to_owned());
        let (format, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let format = u32::from_le_bytes(*format);
        let lengths = match format {
            FORMAT => 4,
            FORMAT_WITH_MASKS => 5,
            FORMAT_WITH_EXPERTS | FORMAT_WITH_IMAGES => MOST_LENGTHS,
            _ => {
                return Err(CaptureError::Corrupted(format!(
                    "a turn has format {format}, and this version reads {FORMAT} to {FORMAT_WITH_IMAGES}"
                )));
            }
        };
        let (lengths, mut rest) = rest.split_at_checked(4 * lengths).ok_or_else(broken)?;
        let mut lengths = numbers(lengths);
        let mut next = || lengths.next().unwrap_or_default();
        let [head, added, sampled, entropies, mask_ids] = [next(), next(), next(), next(), next()];
        let mask_counts = match format {
            FORMAT => 0,
            FORMAT_WITH_MASKS => sampled,
            _ => next(),
        };
        let [mixtures, per_token, experts] = [next(), next(), next()];
        let mut part = |count: u32, bytes: usize| {
            let (part, after) = rest.split_at_checked((count as usize).checked_mul(bytes)?)?;
            rest = after;
            Some(part)
        };
        let mut parts = || {
            Some(Self {
                format,
                head: part(head, 1)?,
                added: part(added, 4)?,
                sampled: part(sampled, 4)?,
                logprobs: part(sampled, 4)?,
                ranks: part(sampled, 4)?,
                entropies: part(entropies, 4)?,
                mask_counts: part(mask_counts, 4)?,
                mask_ids: part(mask_ids, 4)?,
                mixtures,
                per_token,
                experts: part(experts, 2)?,
            })
        };
        let parts = parts().ok_or_else(broken)?;
        let is_whole = rest.is_empty() && [0, sampled].contains(&entropies) && [0, sampled].contains(&mask_counts);
        if is_whole { Ok(parts) } else { Err(broken()) }
    }

    fn added(&self) -> impl Iterator<Item = TokenId> + use<'b> {
        numbers(self.added)
    }

    fn sampled(&self) -> impl Iterator<Item = TokenId> + use<'b> {
        numbers(self.sampled)
    }

    /// The images that the head has.
    fn images(&self) -> Result<Vec<ImageUsed>, CaptureError> {
        let head: Head =
            serde_json::from_slice(self.head).map_err(|error| CaptureError::Corrupted(error.to_string()))?;
        Ok(head.generation.images)
    }
}

/// What a head says of images.
#[derive(Deserialize)]
struct Head {
    generation: HeadImages,
}

#[derive(Deserialize)]
struct HeadImages {
    images: Vec<ImageUsed>,
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> + use<'_> {
    bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number))
}
