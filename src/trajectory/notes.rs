//! What clients attach to trajectories.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// The rewards and tags of a trajectory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    /// The reward of the whole trajectory.
    pub reward: Option<f64>,
    /// Rewards of single turns, by their ids; that of a leaf is the reward of its sequence.
    #[serde(default)]
    pub turn_rewards: BTreeMap<Arc<str>, f64>,
    /// Words to find it by.
    #[serde(default)]
    pub tags: BTreeSet<String>,
}

impl Notes {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn change(&mut self, note: Note) {
        match note {
            Note::Reward { turn: None, value } => self.reward = value,
            Note::Reward { turn: Some(turn), value: Some(value) } => drop(self.turn_rewards.insert(turn, value)),
            Note::Reward { turn: Some(turn), value: None } => drop(self.turn_rewards.remove(&turn)),
            Note::Tags { add, remove } => {
                self.tags.extend(add);
                self.tags.retain(|tag| !remove.contains(tag));
            }
        }
    }
}

/// A change of the notes.
#[derive(Debug, Clone)]
pub enum Note {
    /// The reward of a turn, or of the whole trajectory; without a value, there is none any more.
    Reward {
        /// The turn's id.
        turn: Option<Arc<str>>,
        /// The reward.
        value: Option<f64>,
    },
    /// Tags to add, then tags to remove.
    Tags {
        /// Those to add.
        add: Vec<String>,
        /// Those to remove.
        remove: Vec<String>,
    },
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Noted {
    /// These are the notes now.
    Done(Notes),
    /// There is no such trajectory.
    NoTrajectory,
    /// The trajectory has no such turn.
    NoTurn,
    /// There would be more than [`MOST_TAGS`].
    TooManyTags,
}

/// Most tags of a trajectory.
pub const MOST_TAGS: usize = 64;
