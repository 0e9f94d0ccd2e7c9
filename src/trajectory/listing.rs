//! Trajectories as lists show them, and the turns of one.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    CaptureError, Notes, Owner, Trajectories, TurnRecord,
    index::{Index, Tree},
    now,
};

/// Which trajectories are meant; nothing that is `None` counts.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The client's name for the conversation.
    pub session: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// Names that requests ask for a model or an adapter by; one of them sampled a turn. An adapter's turns are not those of
    /// the model.
    pub models: Option<Vec<String>>,
    /// What the weights are called that sampled an id of a turn, or those of the base under an adapter that did.
    pub version: Option<String>,
    /// Those with a turn that ended at this time or later, in seconds since 1970.
    pub since: Option<f64>,
    /// Those without a turn that ended at this time or later.
    pub until: Option<f64>,
    /// Whether every leaf ended by itself: by an end, a stop token or a stop string.
    pub complete: Option<bool>,
    /// The id of a trajectory; those behind it, in the order of the list.
    pub after: Option<String>,
    /// The id of a trajectory: only that one.
    pub trajectory: Option<String>,
    /// Whether those stand in front whose first turn was captured last.
    pub newest_first: bool,
}

/// What a list shows of a trajectory.
#[derive(Debug, Clone)]
pub struct TrajectorySummary {
    /// Its id.
    pub id: Arc<str>,
    /// The client's name for the conversation.
    pub session: Option<Arc<str>>,
    /// How many turns it has.
    pub turns: usize,
    /// How many turns no other one continues.
    pub leaves: usize,
    /// How many turns continue no other one.
    pub roots: usize,
    /// How many ids were sampled.
    pub sampled_tokens: usize,
    /// When its first turn began, in seconds since 1970.
    pub created: f64,
    /// When its last turn ended.
    pub updated: f64,
    /// Whether every leaf ended by itself.
    pub complete: bool,
    /// Whether the place of a turn is uncertain.
    pub ambiguous: bool,
    /// What requests ask for the models and adapters by that sampled, in the order of turns.
    pub models: Vec<Arc<str>>,
    /// What the weights are called that sampled.
    pub versions: Vec<Arc<str>>,
    /// What clients attached.
    pub notes: Notes,
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Trajectories, in the order of the filter.
    pub trajectories: Vec<TrajectorySummary>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// A walk over the trajectories of an owner that a filter lets through, in the order in which their first turns were captured.
/// It looks at a part of them at a time, so that whoever captures waits for a part and not for all; what begins later is left
/// out.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    owner: Owner,
    filter: Filter,
    /// The numbers of the first and the last trajectory that were not seen yet.
    first: u64,
    last: u64,
}

/// How many trajectories a part has.
pub(super) const PART: usize = 256;

impl Walk {
    /// `None` if the trajectory is not there that it is to go on after.
    pub(super) fn new(index: &Index, owner: &Owner, filter: &Filter) -> Option<Self> {
        let after = match &filter.after {
            None => None,
            Some(id) => Some(index.find(owner.as_ref(), id)?.0),
        };
        let (mut first, mut last) = (1, index.last());
        match after {
            None => {}
            Some(after) if filter.newest_first => last = after - 1,
            Some(after) => first = after + 1,
        }
        // A session has one trajectory, but where all owners were made one; an id always has one.
        let session = filter.session.as_ref().filter(|_| !index.shares_sessions);
        let of_session = session.map(|session| index.of_session(owner.as_ref(), session));
        let of_id = filter.trajectory.as_ref().map(|id| index.find(owner.as_ref(), id).map(|(number, _)| number));
        for only in [of_session, of_id].into_iter().flatten() {
            (first, last) = only.filter(|only| (first..=last).contains(only)).map_or((1, 0), |only| (only, only));
        }
        Some(Self { owner: owner.clone(), filter: filter.clone(), first, last })
    }

    /// Shows what the next part lets through, as long as more is wanted.
    pub(super) fn part(&mut self, index: &Index, mut is_more_wanted: impl FnMut(u64, &Tree) -> bool) {
        if self.is_over() {
            return;
        }
        let newest_first = self.filter.newest_first;
        let mut rest = index.trees.range(self.first..=self.last);
        for _ in 0..PART {
            let Some((number, tree)) = (if newest_first { rest.next_back() } else { rest.next() }) else {
                (self.first, self.last) = (1, 0);
                return;
            };
            if newest_first {
                self.last = number - 1;
            } else {
                self.first = number + 1;
            }
            let is_meant = tree.owner == self.owner && !tree.turns.is_empty() && self.filter.lets_through(tree);
            if is_meant && !is_more_wanted(*number, tree) {
                return;
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.first > self.last
    }

    /// Whether the walk does not come to the trajectory of this number any more.
    pub(super) fn has_passed(&self, number: u64) -> bool {
        !(self.first..=self.last).contains(&number)
    }

    /// Whether the trajectory of this number stands in front of another one, or is that one.
    pub(super) fn is_up_to(&self, number: u64, other: u64) -> bool {
        if self.filter.newest_first { number >= other } else { number <= other }
    }
}

impl Trajectories {
    /// Those who have trajectories, each once.
    pub fn owners(&self) -> Vec<Owner> {
        let index = self.index.lock();
        let owners: BTreeSet<&Owner> = index.trees.values().map(|tree| &tree.owner).collect();
        owners.into_iter().cloned().collect()
    }

    /// The trajectories of an owner, in the order of the filter and at most so many; `None` if the trajectory is not there
    /// that the list is to go on after.
    pub fn list(&self, owner: &Owner, filter: &Filter, limit: usize) -> Option<Listed> {
        self.expire(now());
        let mut walk = Walk::new(&self.index.lock(), owner, filter)?;
        let mut trajectories = Vec::new();
        while !walk.is_over() && trajectories.len() <= limit {
            walk.part(&self.index.lock(), |_, tree| {
                trajectories.push(tree.summary());
                trajectories.len() <= limit
            });
        }
        let has_more = trajectories.len() > limit;
        trajectories.truncate(limit);
        Some(Listed { trajectories, has_more })
    }

    /// A trajectory and its turns, the oldest first; each has the ids that it adds. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the store failed.
    pub fn get(&self, owner: &Owner, id: &str) -> Result<Option<(TrajectorySummary, Vec<TurnRecord>)>, CaptureError> {
        self.expire(now());
        let (summary, mut numbers) = {
            let index = self.index.lock();
            let Some((_, tree)) = index.find(owner.as_ref(), id) else { return Ok(None) };
            (tree.summary(), tree.turns.clone())
        };
        numbers.sort_unstable();
        let mut turns = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Some(bytes) = self.read(number)? else { return Ok(None) };
            turns.push(self.decoded(&bytes)?);
        }
        Ok(Some((summary, turns)))
    }
}

impl Tree {
    pub(super) fn summary(&self) -> TrajectorySummary {
        let totals = &self.totals;
        let mut models: Vec<Arc<str>> = Vec::new();
        for policy in &totals.policies {
            if !models.contains(policy.name()) {
                models.push(Arc::clone(policy.name()));
            }
        }
        TrajectorySummary {
            id: Arc::clone(&self.id),
            session: self.session.clone(),
            turns: self.turns.len(),
            leaves: totals.leaves,
            roots: totals.roots,
            sampled_tokens: totals.sampled,
            created: totals.created,
            updated: totals.updated,
            complete: totals.cut_leaves == 0,
            ambiguous: totals.ambiguous,
            models,
            versions: totals.versions.clone(),
            notes: self.notes.clone(),
        }
    }
}

impl Filter {
    fn lets_through(&self, tree: &Tree) -> bool {
        let totals = &tree.totals;
        self.trajectory.as_ref().is_none_or(|id| **id == *tree.id)
            && is_among(self.session.as_ref(), tree.session.iter())
            && self.models.as_ref().is_none_or(|models| totals.policies.iter().any(|policy| policy.is_of(models)))
            && is_among(self.version.as_ref(), totals.versions.iter().chain(&totals.base_versions))
            && self.tag.as_ref().is_none_or(|tag| tree.notes.tags.contains(tag))
            && self.since.is_none_or(|since| totals.updated >= since)
            && self.until.is_none_or(|until| totals.updated < until)
            && self.complete.is_none_or(|complete| (totals.cut_leaves == 0) == complete)
    }
}

/// Whether a filter lets one of these through.
fn is_among<'f>(wanted: Option<&String>, mut found: impl Iterator<Item = &'f Arc<str>>) -> bool {
    wanted.is_none_or(|wanted| found.any(|found| **found == **wanted))
}
