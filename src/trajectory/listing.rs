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
    /// The model or the adapter that sampled a turn.
    pub model: Option<String>,
    /// What the weights are called that sampled an id of a turn.
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
    /// Whether those that began last stand in front.
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
    /// What the model is called, and its weights, in the order of turns.
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
        let index = self.index.lock();
        let mut found = index.filtered(owner, filter)?;
        let trajectories: Vec<_> = found.by_ref().take(limit).collect();
        let has_more = found.next().is_some();
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
            (index.summary(tree), tree.turns.clone())
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

impl Index {
    /// The trajectories that a filter lets through, in its order.
    pub(super) fn filtered<'i>(
        &'i self,
        owner: &'i Owner,
        filter: &'i Filter,
    ) -> Option<impl Iterator<Item = TrajectorySummary> + use<'i>> {
        let after = match &filter.after {
            None => None,
            Some(id) => Some(self.find(owner.as_ref(), id)?.0),
        };
        let trees: Box<dyn Iterator<Item = (&u64, &Tree)>> = match (filter.newest_first, after) {
            (false, after) => Box::new(self.trees.range(after.map_or(0, |after| after + 1)..)),
            (true, None) => Box::new(self.trees.iter().rev()),
            (true, Some(after)) => Box::new(self.trees.range(..after).rev()),
        };
        let trees = trees.map(|(_, tree)| tree);
        let own = trees.filter(move |tree| tree.owner == *owner && !tree.turns.is_empty());
        Some(own.map(|tree| self.summary(tree)).filter(|summary| filter.lets_through(summary)))
    }

    pub(super) fn summary(&self, tree: &Tree) -> TrajectorySummary {
        let mut summary = TrajectorySummary {
            id: Arc::clone(&tree.id),
            session: tree.session.clone(),
            turns: tree.turns.len(),
            leaves: 0,
            roots: 0,
            sampled_tokens: 0,
            created: f64::INFINITY,
            updated: 0.0,
            complete: true,
            ambiguous: false,
            models: Vec::new(),
            versions: Vec::new(),
            notes: tree.notes.clone(),
        };
        for turn in tree.turns.iter().map(|number| &self.nodes[number]) {
            if !turn.has_children {
                summary.leaves += 1;
                summary.complete &= turn.is_complete;
            }
            summary.roots += usize::from(turn.place.parent.is_none());
            summary.sampled_tokens += turn.sampled;
            summary.created = summary.created.min(turn.created);
            summary.updated = summary.updated.max(turn.ended);
            summary.ambiguous |= turn.place.ambiguous;
            if !summary.models.contains(&turn.model) {
                summary.models.push(Arc::clone(&turn.model));
            }
            for version in &turn.versions {
                if !summary.versions.contains(version) {
                    summary.versions.push(Arc::clone(version));
                }
            }
        }
        summary
    }
}

impl Filter {
    fn lets_through(&self, summary: &TrajectorySummary) -> bool {
        let is = |wanted: &Option<String>, found: &[Arc<str>]| {
            wanted.as_ref().is_none_or(|wanted| found.iter().any(|found| **found == **wanted))
        };
        self.trajectory.as_ref().is_none_or(|id| **id == *summary.id)
            && is(&self.session, summary.session.as_slice())
            && is(&self.model, &summary.models)
            && is(&self.version, &summary.versions)
            && self.tag.as_ref().is_none_or(|tag| summary.notes.tags.contains(tag))
            && self.since.is_none_or(|since| summary.updated >= since)
            && self.until.is_none_or(|until| summary.updated < until)
            && self.complete.is_none_or(|complete| summary.complete == complete)
    }
}
