//! The sequences that a trainer takes: ids, which of them were sampled, and their log-probs.
//!
//! A sequence is checked before it leaves: its ids are those that the model saw, to the hash that was taken when they were
//! sampled; it has a log-prob for each sampled id; and no id is out of the vocabulary.

use std::sync::Arc;

use super::{CaptureError, Filter, Generation, Notes, Owner, Place, Trajectories, TurnRecord, join::hash, now};
use crate::TokenId;

/// What one sequence is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A turn that no other one continues, with all turns before it.
    Leaf,
    /// Every turn; only what it sampled itself is learnt from.
    Turn,
}

/// A sequence that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceKey {
    /// The trajectory.
    pub trajectory: Arc<str>,
    /// The last turn of the sequence.
    pub turn: Arc<str>,
    tree: u64,
    number: u64,
    unit: Unit,
}

/// A turn of a sequence.
#[derive(Debug, Clone)]
pub struct SequenceTurn {
    /// Where it stands.
    pub place: Place,
    /// What was generated, without ids.
    pub generation: Generation,
    /// Where its sampled ids begin in the sequence.
    pub start: usize,
    /// Where they end.
    pub end: usize,
}

/// A sequence for training.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The trajectory.
    pub trajectory: Arc<str>,
    /// All ids, from the first of the prompt to the last that was sampled.
    pub token_ids: Vec<TokenId>,
    /// Whether each id is one to learn from: it was sampled here, by the model or the adapter that the last turn has.
    pub loss_mask: Vec<bool>,
    /// The log-prob of each id that was sampled here; `None` for all others.
    pub logprobs: Vec<Option<f32>>,
    /// How many ids come before the first one to learn from.
    pub prompt_tokens: usize,
    /// The turns, the oldest first.
    pub turns: Vec<SequenceTurn>,
    /// The reward: of the last turn, else of the whole trajectory.
    pub reward: Option<f64>,
    /// What clients attached to the trajectory.
    pub notes: Notes,
}

impl Trajectories {
    /// The sequences of an owner's trajectories, in the order in which they began; `None` if the trajectory is not there
    /// that they are to go on after.
    pub fn sequences(&self, owner: &Owner, filter: &Filter, unit: Unit) -> Option<Vec<SequenceKey>> {
        self.expire(now());
        let index = self.index.lock();
        let mut keys = Vec::new();
        for summary in index.filtered(owner, filter)? {
            let Some((tree, found)) = index.find(owner.as_ref(), &summary.id) else { continue };
            let mut turns = found.turns.clone();
            turns.sort_unstable();
            for number in turns {
                let node = &index.nodes[&number];
                if unit == Unit::Turn || !node.has_children {
                    let (trajectory, turn) = (Arc::clone(&summary.id), Arc::clone(&node.place.id));
                    keys.push(SequenceKey { trajectory, turn, tree, number, unit });
                }
            }
        }
        Some(keys)
    }

    /// The sequence that ends with a turn of an owner's trajectory, as [`Unit::Turn`] has it; `None` if there is no such turn.
    pub fn sequence_of(&self, owner: &Owner, trajectory: &str, turn: &str) -> Option<SequenceKey> {
        self.expire(now());
        let index = self.index.lock();
        let (tree, found) = index.find(owner.as_ref(), trajectory)?;
        let number = *found.turns.iter().find(|number| *index.nodes[number].place.id == *turn)?;
        let (trajectory, turn) = (Arc::clone(&found.id), Arc::clone(&index.nodes[&number].place.id));
        Some(SequenceKey { trajectory, turn, tree, number, unit: Unit::Turn })
    }

    /// Makes a sequence and checks it against a vocabulary of `vocab_size` ids.
    ///
    /// # Errors
    ///
    /// If it is gone, cannot be read, or is not what was sampled.
    pub fn sequence(&self, key: &SequenceKey, vocab_size: usize) -> Result<Sequence, CaptureError> {
        let gone = || CaptureError::Failed("the trajectory was deleted while it was exported".to_owned());
        let (chain, notes) = {
            let index = self.index.lock();
            let notes = index.trees.get(&key.tree).map(|tree| tree.notes.clone());
            (index.chain(key.number).ok_or_else(gone)?, notes.ok_or_else(gone)?)
        };
        let mut building = Building::default();
        for number in chain {
            let bytes = self.read(number)?.ok_or_else(gone)?;
            building.add(self.decoded(&bytes)?)?;
        }
        let mut sequence = building.sequence;
        if let Some(id) = sequence.token_ids.iter().find(|id| **id as usize >= vocab_size) {
            let reason = format!("id {id} is out of the vocabulary of {vocab_size} ids");
            return Err(CaptureError::Corrupted(reason));
        }
        sequence.trajectory = Arc::clone(&key.trajectory);
        let own = sequence.turns.last().and_then(|turn| notes.turn_rewards.get(&turn.place.id)).copied();
        sequence.reward = own.or(notes.reward);
        sequence.notes = notes;
        sequence.learn_from(key.unit);
        Ok(sequence)
    }
}

/// A sequence, turn by turn.
struct Building {
    hasher: blake3::Hasher,
    sequence: Sequence,
}

impl Default for Building {
    fn default() -> Self {
        let sequence = Sequence {
            trajectory: Arc::default(),
            token_ids: Vec::new(),
            loss_mask: Vec::new(),
            logprobs: Vec::new(),
            prompt_tokens: 0,
            turns: Vec::new(),
            reward: None,
            notes: Notes::default(),
        };
        Self { hasher: blake3::Hasher::new(), sequence }
    }
}

impl Building {
    /// Goes on with the turn that follows.
    fn add(&mut self, TurnRecord { place, mut generation }: TurnRecord) -> Result<(), CaptureError> {
        let Self { hasher, sequence } = self;
        let refuse = |what: &str| Err(CaptureError::Corrupted(format!("the turn {} {what}", place.id)));
        if sequence.turns.last().map(|turn| turn.place.number) != place.parent {
            return refuse("does not follow the turn before it");
        }
        let added = std::mem::take(&mut generation.prompt);
        let (sampled, logprobs) = (std::mem::take(&mut generation.sampled), std::mem::take(&mut generation.logprobs));
        sequence.token_ids.extend_from_slice(&added);
        if sequence.token_ids.len() != place.prompt_tokens {
            return refuse("has a prompt of another length than it was sampled for");
        }
        let start = sequence.token_ids.len();
        sequence.token_ids.extend_from_slice(&sampled);
        hash(hasher, &added);
        hash(hasher, &sampled);
        if *hasher.finalize().to_hex() != *place.digest {
            return refuse("has other ids than those that were sampled");
        }
        if logprobs.len() != sampled.len() {
            return refuse("has not one log-prob for each sampled id");
        }
        if !logprobs.iter().all(|logprob| logprob.is_finite()) {
            return refuse("has a log-prob that is no number");
        }
        sequence.logprobs.resize(start, None);
        sequence.logprobs.extend(logprobs.into_iter().map(Some));
        let end = sequence.token_ids.len();
        sequence.turns.push(SequenceTurn { place, generation, start, end });
        Ok(())
    }
}

impl Sequence {
    /// Marks what is learnt from.
    fn learn_from(&mut self, unit: Unit) {
        self.loss_mask = vec![false; self.token_ids.len()];
        let Some(last) = self.turns.last() else { return };
        let policy = |turn: &SequenceTurn| {
            let generation = &turn.generation;
            (Arc::clone(&generation.model), generation.adapter.as_ref().map(|adapter| Arc::clone(&adapter.name)))
        };
        let (wanted, number) = (policy(last), last.place.number);
        let is_learnt =
            |turn: &&SequenceTurn| policy(turn) == wanted && (unit == Unit::Leaf || turn.place.number == number);
        for turn in self.turns.iter().filter(is_learnt) {
            self.loss_mask[turn.start..turn.end].fill(true);
        }
        self.prompt_tokens = self.loss_mask.iter().position(|learnt| *learnt).unwrap_or(self.token_ids.len());
    }
}
