//! The lines of an export: one sequence each, in the shape that a trainer takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    check::RescoredDone,
    trainers,
    types::{ImageShown, NotesShown, PackedMask, TurnHead},
};
use crate::{
    TokenId,
    trajectory::{CaptureError, Rescored, Sequence, SequenceKey, SequenceTurn},
};

/// Whose shape an export has. A variant's name in the query is its own in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(strum::VariantArray, Serialize))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// tito's own lines, see docs/trajectories.schema.json.
    Jsonl,
    /// What TRL's `rollout_func` returns, one row.
    Trl,
    /// A message log of NeMo-RL.
    NemoRl,
    /// verl's `AgentLoopOutput`.
    Verl,
    /// prime-rl's `TrainingSample`, with names.
    PrimeRl,
    /// The nodes of a `Trace` of verifiers, from the first message to the last.
    Verifiers,
    /// The `RolloutLegacy` of agent-lightning 0.3, with its triplets. Version 1.0 has no reader of files.
    AgentLightning,
    /// A table with the columns of tito's own lines, which `table` writes.
    Parquet,
}

/// What a shape has of the images of prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImagesWritten {
    /// No field.
    Nothing,
    /// Their identities and places.
    Named,
    /// Their files too, as far as they were kept.
    FilesIfKept,
    /// Their files too.
    Files,
}

/// Writes a sequence as a line of JSON without its end.
pub(crate) type WriteLine = fn(Sequence) -> Result<String, serde_json::Error>;

impl Format {
    /// Whether the shape has a field for sampling masks.
    pub(crate) fn has_masks(self) -> bool {
        match self {
            Self::Jsonl | Self::Parquet | Self::Verifiers | Self::PrimeRl => true,
            Self::Trl | Self::Verl | Self::NemoRl | Self::AgentLightning => false,
        }
    }

    /// What the shape has of the images of prompts.
    pub(crate) fn images(self) -> ImagesWritten {
        match self {
            Self::Jsonl => ImagesWritten::Named,
            Self::Parquet => ImagesWritten::FilesIfKept,
            Self::PrimeRl | Self::Verl | Self::NemoRl => ImagesWritten::Files,
            Self::Verifiers | Self::Trl | Self::AgentLightning => ImagesWritten::Nothing,
        }
    }

    /// Returns what writes a line in this shape; `None` for a table.
    pub(crate) fn write_line(self) -> Option<WriteLine> {
        let write: WriteLine = match self {
            Self::Jsonl => |sequence| serde_json::to_string(&own(sequence)),
            Self::Trl => |sequence| serde_json::to_string(&trainers::trl(&sequence)),
            Self::NemoRl => |sequence| serde_json::to_string(&trainers::nemo_rl(&sequence)),
            Self::Verl => |sequence| serde_json::to_string(&trainers::verl(&sequence)),
            Self::PrimeRl => |sequence| serde_json::to_string(&trainers::prime_rl(&sequence)),
            Self::Verifiers => |sequence| serde_json::to_string(&trainers::verifiers(&sequence)),
            Self::AgentLightning => |sequence| serde_json::to_string(&trainers::agent_lightning(&sequence)),
            Self::Parquet => return None,
        };
        Some(write)
    }
}

/// A line of tito's own format.
#[derive(Debug, Serialize)]
struct Line {
    trajectory_id: Arc<str>,
    turn_id: Option<Arc<str>>,
    token_ids: Vec<TokenId>,
    /// 1 for what is learnt from.
    loss_mask: Vec<u8>,
    logprobs: Vec<Option<f32>>,
    /// Which distribution those describe that are learnt from.
    logprobs_mode: Option<String>,
    /// The ids that each id was drawn from, where that was asked for.
    sampling_mask: Option<PackedMask>,
    /// The images of the prompts, in the order of their places.
    images: Vec<ImageShown>,
    prompt_tokens: usize,
    turns: Vec<LineTurn>,
    sequence_reward: Option<f64>,
    #[serde(flatten)]
    notes: NotesShown,
    /// Only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    rescored: Option<RescoredShown>,
}

/// How far captured log-probs are from those of the present weights, or why that is not known.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum RescoredShown {
    Done(RescoredDone),
    Failed { error: String },
}

/// A turn of a line.
#[derive(Debug, Serialize)]
struct LineTurn {
    /// Where its sampled ids begin.
    start: usize,
    /// Where they end.
    end: usize,
    /// Whether an earlier line of the trajectory learns from it too.
    repeated: bool,
    #[serde(flatten)]
    head: TurnHead,
}

/// A line of tito's own format, with what came of scoring it again.
pub(crate) fn rescored_line(
    sequence: Sequence,
    rescored: Result<Rescored, String>,
) -> Result<String, serde_json::Error> {
    let shown = match rescored {
        Err(error) => RescoredShown::Failed { error },
        Ok(rescored) => RescoredShown::Done(rescored.into()),
    };
    serde_json::to_string(&Line { rescored: Some(shown), ..own(sequence) })
}

/// The line that stands for a sequence that could not be exported.
pub(crate) fn error_line(key: &SequenceKey, error: &CaptureError) -> String {
    let error = json!({ "trajectory_id": key.trajectory, "turn_id": key.turn, "message": error.to_string() });
    json!({ "error": error }).to_string()
}

fn own(sequence: Sequence) -> Line {
    let turn = |SequenceTurn { place, generation, start, end, repeated }| LineTurn {
        start,
        end,
        repeated,
        head: TurnHead::new(place, generation),
    };
    Line {
        trajectory_id: Arc::clone(&sequence.trajectory),
        turn_id: sequence.turns.last().map(|turn| Arc::clone(&turn.place.id)),
        loss_mask: sequence.loss_mask.iter().copied().map(u8::from).collect(),
        logprobs_mode: sequence.logprobs_mode().map(str::to_owned),
        logprobs: sequence.logprobs,
        sampling_mask: PackedMask::new(sequence.masks),
        images: sequence.images.into_iter().map(Into::into).collect(),
        token_ids: sequence.token_ids,
        prompt_tokens: sequence.prompt_tokens,
        turns: sequence.turns.into_iter().map(turn).collect(),
        sequence_reward: sequence.reward,
        notes: sequence.notes.into(),
        rescored: None,
    }
}
