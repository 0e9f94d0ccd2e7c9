//! The sequences that a trainer takes: ids, which of them were sampled, and their log-probs.
//!
//! A sequence is checked before it leaves: its ids are those that the model saw, to the hash that was taken when they were
//! sampled; it has a log-prob for each sampled id; and no id is out of the vocabulary.

use std::sync::Arc;

use serde::Deserialize;

use super::{
    CaptureError, Filter, Generation, GivenExperts, ImageUsed, Notes, Owner, PackedMasks, Place, Trajectories,
    TurnRecord, images,
    index::{Index, Tree},
    join::hash,
    listing::Walk,
    now,
    promised::{Promised, PromisedTree},
    record,
};
use crate::TokenId;

/// How many sequences are looked up before they are made, unless one trajectory has more.
const MOST_KEYS: usize = 1024;

/// What one sequence is of; its names in a query are those of the variants in small letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A turn that no other one continues, with all turns before it.
    #[default]
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
    pub(super) unit: Unit,
}

/// The sequences of trajectories that are still to be made, in the order in which the trajectories began. They are looked
/// up a part at a time; what begins later is left out. Of a trajectory that leaves before it is looked up, there is one: it
/// ends with the last turn that there was, and cannot be made.
#[derive(Debug)]
pub struct SequenceKeys {
    walk: Walk,
    promised: Promised,
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
    /// Whether a sequence of the trajectory that went out earlier learns from it too: both leaves of a branch have the turns before
    /// it. [`Learnt`](super::Learnt) says so.
    pub repeated: bool,
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
    /// The ids that each id was drawn from, where it was sampled here for a request that asked for them; empty where none was.
    pub masks: PackedMasks,
    /// The images of the prompts, in the order of their places in the sequence.
    pub images: Vec<ImageUsed>,
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
    /// The sequences of an owner's trajectories; `None` if the trajectory is not there that they are to go on after.
    pub fn sequences(&self, owner: &Owner, filter: &Filter, unit: Unit) -> Option<SequenceKeys> {
        self.expire(now());
        let walk = Walk::new(&self.index.lock(), owner, filter)?;
        let promised = Promised::by(walk.clone(), &self.index);
        Some(SequenceKeys { walk, promised, unit })
    }

    /// The sequences of some trajectories more, each of which has all of its own; none where there are no more.
    pub fn next_sequences(&self, keys: &mut SequenceKeys) -> Vec<SequenceKey> {
        let mut found = Vec::new();
        let SequenceKeys { walk, promised, unit } = keys;
        while found.is_empty() && !walk.is_over() {
            let (index, before) = (self.index.lock(), walk.clone());
            walk.part(&index, |number, tree| {
                let gone = promised.left_behind(&index, |other| before.is_up_to(other, number));
                found.extend(gone.map(|gone| gone.key(*unit)));
                index.sequences_of(number, tree, *unit, &mut found);
                found.len() < MOST_KEYS
            });
            let gone = promised.left_behind(&index, |number| walk.has_passed(number));
            found.extend(gone.map(|gone| gone.key(*unit)));
        }
        found
    }

    /// The sequence that ends with a turn of an owner's trajectory, as [`Unit::Turn`] has it; `None` if there is no such turn.
    pub fn sequence_of(&self, owner: &Owner, trajectory: &str, turn: &str) -> Option<SequenceKey> {
        self.expire(now());
        let index = self.index.lock();
        let (tree, found) = index.find(owner.as_ref(), trajectory)?;
        let number = *found.turns.iter().find(|number| *index.nodes[number].id == *turn)?;
        let (trajectory, turn) = (Arc::clone(&found.id), Arc::clone(&index.nodes[&number].id));
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
        sequence.masks.fill(sequence.token_ids.len());
        let mut ids = sequence.token_ids.iter().chain(&sequence.masks.ids);
        if let Some(id) = ids.find(|id| **id as usize >= vocab_size) {
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

    /// Reads the experts that the request of a turn gave; `None` where it gave none, or where they were not kept: tito 0.1.0 did
    /// not. Blocking.
    ///
    /// # Errors
    ///
    /// If the turn is gone, or cannot be read.
    pub fn given_experts(&self, turn: &SequenceTurn) -> Result<Option<GivenExperts>, CaptureError> {
        if !turn.generation.sampling.as_ref().is_some_and(|used| used.gives_experts) {
            return Ok(None);
        }
        let gone = || CaptureError::Failed("the trajectory was deleted while it was read".to_owned());
        let bytes = self.read(turn.place.number)?.ok_or_else(gone)?;
        let given = record::given_experts(&bytes)?;
        match given.tokens() {
            Some(0) => Ok(None),
            Some(tokens) if tokens <= turn.place.prompt_tokens => Ok(Some(given)),
            _ => {
                let id = &turn.place.id;
                Err(CaptureError::Corrupted(format!("the turn {id} has experts that are none of its prompt")))
            }
        }
    }
}

impl PromisedTree {
    /// The sequence that stands for all of a trajectory that has left.
    fn key(self, unit: Unit) -> SequenceKey {
        let Self { tree, trajectory, number, turn } = self;
        SequenceKey { trajectory, turn, tree, number, unit }
    }
}

impl Index {
    /// The sequences of a trajectory, those that were sampled first in front.
    fn sequences_of(&self, tree: u64, found: &Tree, unit: Unit, keys: &mut Vec<SequenceKey>) {
        let mut turns = found.turns.clone();
        turns.sort_unstable();
        for number in turns {
            let node = &self.nodes[&number];
            if unit == Unit::Leaf && node.has_children {
                continue;
            }
            let (trajectory, turn) = (Arc::clone(&found.id), Arc::clone(&node.id));
            keys.push(SequenceKey { trajectory, turn, tree, number, unit });
        }
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
            masks: PackedMasks::default(),
            images: Vec::new(),
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
    fn add(&mut self, record: TurnRecord) -> Result<(), CaptureError> {
        let TurnRecord { place, mut generation } = record;
        let Self { hasher, sequence } = self;
        let refuse = |what: &str| Err(CaptureError::Corrupted(format!("the turn {} {what}", place.id)));
        if sequence.turns.last().map(|turn| turn.place.number) != place.parent {
            return refuse("does not follow the turn before it");
        }
        let added = std::mem::take(&mut generation.prompt);
        let (sampled, logprobs) = (std::mem::take(&mut generation.sampled), std::mem::take(&mut generation.logprobs));
        let begin = sequence.token_ids.len();
        sequence.token_ids.extend_from_slice(&added);
        if sequence.token_ids.len() != place.prompt_tokens {
            return refuse("has a prompt of another length than it was sampled for");
        }
        let start = sequence.token_ids.len();
        let images = std::mem::take(&mut generation.images);
        if let Err(what) = images::check(&images, begin, start) {
            return refuse(what);
        }
        sequence.images.extend(images);
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
        let masks = std::mem::take(&mut generation.masks);
        if !masks.is_empty() && !masks.are_of(&sampled) {
            return refuse("has a sampling mask that is none of its sampled ids");
        }
        sequence.masks.append(start, masks);
        sequence.logprobs.resize(start, None);
        sequence.logprobs.extend(logprobs.into_iter().map(Some));
        let end = sequence.token_ids.len();
        sequence.turns.push(SequenceTurn { place, generation, start, end, repeated: false });
        Ok(())
    }
}

impl Sequence {
    /// The turns that are learnt from.
    pub fn learnt_turns(&self) -> impl Iterator<Item = &SequenceTurn> {
        self.turns.iter().filter(|turn| self.loss_mask[turn.start..turn.end].contains(&true))
    }

    /// The turns that are learnt from here, and in no sequence that went out earlier.
    pub fn fresh_turns(&self) -> impl Iterator<Item = &SequenceTurn> {
        self.learnt_turns().filter(|turn| !turn.repeated)
    }

    /// Which distribution the log-probs of what is learnt from describe, in the words of `--logprobs-mode`; `None` where that is
    /// not known, or where turns differ.
    pub fn logprobs_mode(&self) -> Option<&str> {
        let mut modes =
            self.learnt_turns().map(|turn| turn.generation.sampling.as_ref().map(|used| &*used.logprobs_mode));
        let first = modes.next()??;
        modes.all(|mode| mode == Some(first)).then_some(first)
    }

    /// Checks that the log-probs of what is learnt from are those of the distribution that it was sampled from, which is what
    /// trainers take them for.
    ///
    /// # Errors
    ///
    /// If they are the model's own and the request edited its distribution, if they are processed ones of a greedy turn without a
    /// sampling mask, or if nobody knows.
    pub fn has_sampled_logprobs(&self) -> Result<(), CaptureError> {
        for turn in self.learnt_turns() {
            let refuse = |why: &str| {
                let id = &turn.place.id;
                let hint = "allow_raw=true exports it as it is";
                Err(CaptureError::Unfit(format!("the turn {id} {why}; {hint}")))
            };
            let Some(used) = &turn.generation.sampling else {
                return refuse("does not say how it was sampled, and which distribution its log-probs describe");
            };
            let (mode, edits) = (&*used.logprobs_mode, used.edits().join(", "));
            match mode {
                _ if edits.is_empty() => {}
                "processed_logprobs" if used.is_greedy() && !self.is_certain(turn) => {
                    return refuse(
                        "took the most probable tokens (temperature 0), and has log-probs (processed_logprobs) as if they were drawn at \
                         temperature 1; ask with return_sampling_mask to have those of what was sampled from, which are 0",
                    );
                }
                "processed_logprobs" => {}
                "raw_logprobs" => {
                    return refuse(&format!(
                        "has log-probs of the model's own distribution (raw_logprobs), and was sampled from one that the \
                         request edited ({edits}); serve with --logprobs-mode processed_logprobs to have those of that one"
                    ));
                }
                mode => {
                    return refuse(&format!(
                        "was sampled from a distribution that the request edited ({edits}), and its log-probs are of a mode \
                         that is not known here ({mode})"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether each token of a turn was the only one that could be sampled, and its log-prob says so.
    fn is_certain(&self, turn: &SequenceTurn) -> bool {
        let masks = self.masks.of(turn.start, turn.end);
        masks.counts.len() == turn.end - turn.start
            && masks.counts.iter().all(|count| *count == 1)
            && self.logprobs[turn.start..turn.end].iter().all(|logprob| *logprob == Some(0.0))
    }

    /// The masks of what is learnt from here first, with a count for each id of the sequence; empty where no such id has one.
    pub fn fresh_masks(&self) -> PackedMasks {
        let mut masks = PackedMasks::default();
        for turn in self.fresh_turns() {
            masks.append(turn.start, self.masks.of(turn.start, turn.end));
        }
        masks.fill(self.token_ids.len());
        masks
    }

    /// Checks that nothing that is learnt from has a mask, for a shape that has no field for it.
    ///
    /// # Errors
    ///
    /// If something has one: whoever learns from it without the mask takes its tokens for draws from the whole vocabulary.
    pub fn has_no_masks(&self) -> Result<(), CaptureError> {
        let has_mask = |turn: &&SequenceTurn| !self.masks.of(turn.start, turn.end).is_empty();
        let Some(turn) = self.learnt_turns().find(has_mask) else { return Ok(()) };
        let id = &turn.place.id;
        Err(CaptureError::Unfit(format!(
            "the turn {id} has a sampling mask, and this format has no field for it; allow_unmasked=true exports it without"
        )))
    }

    /// Checks that there are no images, for a shape that has no field for them.
    ///
    /// # Errors
    ///
    /// If there are some: whoever learns from placeholders without images learns from another prompt.
    pub fn has_no_images(&self) -> Result<(), CaptureError> {
        let Some(image) = self.images.first() else { return Ok(()) };
        let turn = self.turns.iter().find(|turn| image.offset < turn.start).map_or("", |turn| &*turn.place.id);
        Err(CaptureError::Unfit(format!(
            "the prompt of the turn {turn} has images, and this format has no field for them; jsonl, parquet, nemo_rl, prime_rl and verl have"
        )))
    }

    /// Checks that the files of all images were read, for a shape that has them.
    ///
    /// # Errors
    ///
    /// If one was not kept.
    pub fn has_all_files(&self) -> Result<(), CaptureError> {
        if self.images.iter().all(|image| image.file.is_some()) {
            return Ok(());
        }
        let reason = "the files of its images were not kept (--capture-images false), and this format has them; jsonl and parquet do without";
        Err(CaptureError::Unfit(reason.to_owned()))
    }

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
