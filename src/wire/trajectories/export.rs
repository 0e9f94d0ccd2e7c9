//! The lines of an export: one sequence each, in the shape that a trainer takes.

use std::{ops::Range, sync::Arc};

use serde::Serialize;
use serde_json::{Value, json};

use super::types::{NotesShown, TurnHead};
use crate::{
    TokenId,
    trajectory::{CaptureError, Rescored, Sequence, SequenceKey, SequenceTurn},
};

/// Whose shape a line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// tito's own, see docs/trajectories.schema.json.
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
    /// agent-lightning's `RolloutLegacy`, with its triplets.
    AgentLightning,
}

/// All formats of lines by their names.
pub(crate) const FORMATS: [(&str, Format); 7] = [
    ("jsonl", Format::Jsonl),
    ("trl", Format::Trl),
    ("nemo_rl", Format::NemoRl),
    ("verl", Format::Verl),
    ("prime_rl", Format::PrimeRl),
    ("verifiers", Format::Verifiers),
    ("agent_lightning", Format::AgentLightning),
];

/// A line of tito's own format.
#[derive(Debug, Serialize)]
struct Line {
    trajectory_id: Arc<str>,
    turn_id: Option<Arc<str>>,
    token_ids: Vec<TokenId>,
    /// 1 for what is learnt from.
    loss_mask: Vec<u8>,
    logprobs: Vec<Option<f32>>,
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
    Done {
        weight_version: Arc<str>,
        tokens: usize,
        equal_tokens: usize,
        token_mult_prob_error: f64,
        mean_difference: f64,
        median: f64,
        p90: f64,
        p99: f64,
        greatest: f64,
    },
    Failed {
        error: String,
    },
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

/// The line of a sequence, without its end.
pub(crate) fn line(format: Format, sequence: Sequence) -> Result<String, serde_json::Error> {
    match format {
        Format::Jsonl => serde_json::to_string(&own(sequence)),
        Format::Trl => serde_json::to_string(&trl(&sequence)),
        Format::NemoRl => serde_json::to_string(&nemo_rl(&sequence)),
        Format::Verl => serde_json::to_string(&verl(&sequence)),
        Format::PrimeRl => serde_json::to_string(&prime_rl(&sequence)),
        Format::Verifiers => serde_json::to_string(&verifiers(&sequence)),
        Format::AgentLightning => serde_json::to_string(&agent_lightning(&sequence)),
    }
}

/// A line of tito's own format, with what came of scoring it again.
pub(crate) fn rescored_line(
    sequence: Sequence,
    rescored: Result<Rescored, String>,
) -> Result<String, serde_json::Error> {
    let shown = match rescored {
        Err(error) => RescoredShown::Failed { error },
        Ok(Rescored { version, tokens, equal, mult_prob_error, mean_difference, quantiles }) => {
            let [median, p90, p99, greatest] = quantiles;
            RescoredShown::Done {
                weight_version: version,
                tokens,
                equal_tokens: equal,
                token_mult_prob_error: mult_prob_error,
                mean_difference,
                median,
                p90,
                p99,
                greatest,
            }
        }
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
        turn_id: last(&sequence),
        loss_mask: mask(&sequence, 0),
        logprobs: sequence.logprobs,
        token_ids: sequence.token_ids,
        prompt_tokens: sequence.prompt_tokens,
        turns: sequence.turns.into_iter().map(turn).collect(),
        sequence_reward: sequence.reward,
        notes: sequence.notes.into(),
        rescored: None,
    }
}

fn last(sequence: &Sequence) -> Option<Arc<str>> {
    sequence.turns.last().map(|turn| Arc::clone(&turn.place.id))
}

fn mask(sequence: &Sequence, from: usize) -> Vec<u8> {
    sequence.loss_mask[from..].iter().map(|learnt| u8::from(*learnt)).collect()
}

/// Log-probs where something is learnt, and zeros elsewhere, in as few digits as tell them from every other `f32`: a
/// [`Value`] would spell out all that an `f64` makes of them.
fn logprobs(sequence: &Sequence, range: Range<usize>) -> Vec<f64> {
    let all = sequence.logprobs[range.clone()].iter().zip(&sequence.loss_mask[range]);
    let learnt = all.map(|(logprob, learnt)| logprob.filter(|_| *learnt).unwrap_or_default());
    learnt.map(|logprob| logprob.to_string().parse().expect("a finite number is spelt as one")).collect()
}

/// `env_mask` is 1 for what the model sampled, and `logprobs` are as long as `completion_ids`
/// (`trl/trainer/grpo_trainer.py`, TRL 1.16). Other columns go to reward functions.
fn trl(sequence: &Sequence) -> Value {
    let start = sequence.prompt_tokens;
    json!({
        "prompt_ids": sequence.token_ids[..start],
        "completion_ids": sequence.token_ids[start..],
        "logprobs": logprobs(sequence, start..sequence.token_ids.len()),
        "env_mask": mask(sequence, start),
        "reward": sequence.reward,
        "trajectory_id": sequence.trajectory,
        "turn_id": last(sequence),
    })
}

/// `response_ids` are what follows the first prompt, tools' answers included; `response_mask` is 1 for what the model
/// sampled (`verl/experimental/agent_loop/agent_loop.py`).
fn verl(sequence: &Sequence) -> Value {
    let start = sequence.prompt_tokens;
    json!({
        "prompt_ids": sequence.token_ids[..start],
        "response_ids": sequence.token_ids[start..],
        "response_mask": mask(sequence, start),
        "response_logprobs": logprobs(sequence, start..sequence.token_ids.len()),
        "reward_score": sequence.reward,
        "num_turns": 2 * sequence.turns.len(),
        "metrics": {},
        "extra_fields": { "trajectory_id": sequence.trajectory, "turn_id": last(sequence) },
    })
}

/// What is learnt from is an assistant's message with `generation_logprobs`; all other ids are the user's, as in the logs
/// that NeMo-RL makes of NeMo Gym's answers (`nemo_rl/experience/rollouts.py`).
fn nemo_rl(sequence: &Sequence) -> Value {
    let (mut log, mut from) = (Vec::new(), 0);
    while from < sequence.token_ids.len() {
        let learnt = sequence.loss_mask[from];
        let length = sequence.loss_mask[from..].iter().take_while(|other| **other == learnt).count();
        // A turn that follows another one without a prompt between them is a message of its own.
        let end = sequence.turns.iter().map(|turn| turn.end).find(|end| learnt && *end > from);
        let to = end.map_or(from + length, |end| end.min(from + length));
        let ids = &sequence.token_ids[from..to];
        log.push(if learnt {
            let logprobs = logprobs(sequence, from..to);
            json!({ "role": "assistant", "content": "", "token_ids": ids, "generation_logprobs": logprobs })
        } else {
            json!({ "role": "user", "content": "", "token_ids": ids })
        });
        from = to;
    }
    json!({
        "message_log": log,
        "reward": sequence.reward,
        "trajectory_id": sequence.trajectory,
        "turn_id": last(sequence),
    })
}

/// All arrays are as long as `token_ids` (`prime_rl/transports/rollouts/types.py`). prime-rl sends these as arrays without
/// names, by msgpack; a temperature stands at each sampled id. A turn that several branches share is learnt from in the
/// first one only, as `iter_trainable_branches` has it (`prime_rl/orchestrator/trajectories.py`).
fn prime_rl(sequence: &Sequence) -> Value {
    let mut mask = sequence.loss_mask.clone();
    for turn in sequence.turns.iter().filter(|turn| turn.repeated) {
        mask[turn.start..turn.end].fill(false);
    }
    let mut temperatures = vec![1.0; sequence.token_ids.len()];
    for turn in &sequence.turns {
        let temperature = turn.generation.sampling.as_ref().map_or(1.0, |sampling| sampling.temperature);
        temperatures[turn.start..turn.end].fill(temperature);
    }
    json!({
        "token_ids": sequence.token_ids,
        "mask": mask,
        "logprobs": logprobs(sequence, 0..sequence.token_ids.len()),
        "temperatures": temperatures,
        "env_name": sequence.turns.first().and_then(|turn| turn.generation.session.clone()).unwrap_or_default(),
        "reward": sequence.reward,
        "trajectory_id": sequence.trajectory,
        "turn_id": last(sequence),
    })
}

/// A node of what each prompt adds, and one of what was sampled behind it (`verifiers/v1/graph.py`); in a node, log-probs
/// are those of the ids that its mask marks. What is not learnt from is not marked as sampled.
fn verifiers(sequence: &Sequence) -> Value {
    let mut nodes: Vec<Value> = Vec::new();
    let mut add = |role: &str, range: Range<usize>, learnt: bool| {
        let parent = nodes.len().checked_sub(1);
        let logprobs = if learnt { logprobs(sequence, range.clone()) } else { Vec::new() };
        nodes.push(json!({
            "parent": parent,
            "message": { "role": role, "content": "" },
            "sampled": learnt,
            "token_ids": sequence.token_ids[range.clone()],
            "mask": vec![learnt; range.len()],
            "logprobs": logprobs,
        }));
    };
    let mut end = 0;
    for turn in &sequence.turns {
        if end < turn.start {
            add("user", end..turn.start, false);
        }
        add("assistant", turn.start..turn.end, sequence.loss_mask[turn.start]);
        end = turn.end;
    }
    json!({
        "nodes": nodes,
        "reward": sequence.reward,
        "trajectory_id": sequence.trajectory,
        "turn_id": last(sequence),
    })
}

/// A triplet for each turn that is learnt from, whose prompt is all that came before (`agentlightning/types/core.py`).
/// Log-probs stand as in an answer to a chat, one object for each id (`agentlightning/instrumentation/agentops.py`).
fn agent_lightning(sequence: &Sequence) -> Value {
    let count = sequence.turns.len();
    let of_chat = |logprobs: Vec<f64>| -> Vec<Value> {
        logprobs.into_iter().map(|logprob| json!({ "logprob": logprob })).collect()
    };
    let learnt = sequence.turns.iter().enumerate().filter(|(_, turn)| sequence.loss_mask[turn.start]);
    let triplets = learnt.map(|(index, turn)| {
        json!({
            "prompt": { "token_ids": sequence.token_ids[..turn.start] },
            "response": {
                "token_ids": sequence.token_ids[turn.start..turn.end],
                "logprobs": of_chat(logprobs(sequence, turn.start..turn.end)),
            },
            "reward": sequence.notes.turn_rewards.get(&turn.place.id).copied()
                .or(sequence.reward.filter(|_| index + 1 == count)),
            "metadata": { "turn_id": turn.place.id },
        })
    });
    json!({
        "rollout_id": sequence.trajectory,
        "final_reward": sequence.reward,
        "triplets": triplets.collect::<Vec<_>>(),
        "metadata": { "turn_id": last(sequence) },
    })
}
