//! The ids of a turn's whole sequence, with all that a person wants to see of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;
use utoipa::ToSchema;

use super::types::ImageShown;
use crate::TokenId;

/// The sequence that ends with a turn, from the first id of its first prompt to the last id that it sampled. This is for
/// looking at: which ids are a message's and which the template's is found by looking for the messages in the text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnTokens {
    /// Always `trajectory.turn.tokens`.
    pub object: &'static str,
    /// The trajectory.
    #[schema(value_type = String)]
    pub trajectory_id: Arc<str>,
    /// The turn.
    #[schema(value_type = String)]
    pub turn_id: Arc<str>,
    /// All ids.
    #[schema(value_type = Vec<TokenId>)]
    pub token_ids: Vec<TokenId>,
    /// What each id stands for in the middle of a text, by its id; bytes that are no whole characters are written as `\xF0`.
    /// Empty where there is no tokenizer.
    #[schema(value_type = BTreeMap<String, String>)]
    pub texts: BTreeMap<TokenId, String>,
    /// The ids whose bytes are no whole characters.
    #[schema(value_type = Vec<TokenId>)]
    pub fragments: BTreeSet<TokenId>,
    /// The log-prob of each id that was sampled here, null for all others.
    pub logprobs: Vec<Option<f32>>,
    /// The rank of each id that was sampled here, 1 for the likeliest one; null where it is not known, and as a whole where
    /// none is.
    pub ranks: Option<Vec<Option<u32>>>,
    /// The least entropy, in nats, that the distribution of each id can have, given the alternatives that the request asked
    /// for; null as `ranks` is.
    pub entropies: Option<Vec<Option<f32>>>,
    /// The images of the prompts, in the order of their places.
    pub images: Vec<ImageShown>,
    /// Where ids came from, without gaps.
    pub spans: Vec<OriginShown>,
    /// Where encoding the text of the sequence again gives other ids; null where that cannot be told.
    pub drift: Option<Vec<DriftShown>>,
}

/// Ids that stand beside each other and came from the same place.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OriginShown {
    /// The first of them.
    pub start: usize,
    /// The one behind the last.
    pub end: usize,
    /// `template`: written by the chat template; `message`: the text of a message; `prompt`: of a prompt whose texts are not
    /// known; `reused`: given or remembered as ids; `sampled`: by a turn of this trajectory.
    pub origin: &'static str,
    /// Whose message they are the text of.
    pub role: Option<String>,
    /// The turn that brought them.
    #[schema(value_type = String)]
    pub turn_id: Arc<str>,
    /// By what they were known as ids, in the words of `token_continuity`: to the turn that brought them if they are
    /// `reused`, else to the turn that follows it. Null where they were not.
    pub source: Option<String>,
    /// What the weights are called that sampled them.
    #[schema(value_type = Option<String>)]
    pub weight_version: Option<Arc<str>>,
    /// Where an adapter sampled them, what the weights of the base are called.
    #[schema(value_type = Option<String>)]
    pub base_version: Option<Arc<str>>,
    /// The adapter that sampled them, with its version.
    #[schema(value_type = Option<String>)]
    pub adapter: Option<Arc<str>>,
}

/// Ids whose text, encoded again, has other ids.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DriftShown {
    /// The first of them.
    pub start: usize,
    /// The one behind the last; `start` where the text has ids that the sequence lacks.
    pub end: usize,
    /// The ids that their text has.
    #[schema(value_type = Vec<TokenId>)]
    pub token_ids: Vec<TokenId>,
}
