//! Which turns there are, and how they hang together: what is known of them without reading a record.
//!
//! Owns which leave: the trajectory that was added to longest ago leaves first, as a whole, since a turn without those
//! before it has no prompt.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    CaptureError,
    fingerprint::{Base, Fingerprint},
    images::{self, Holding, ImageUsed, KeptImages},
    notes::Notes,
    record::TurnRecord,
    totals::Totals,
    weight::{self, Weight},
};

/// Whose turns are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    Owner(Option<Arc<str>>),
    Tree(u64),
}

/// What is known of a turn.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: Arc<str>,
    pub(super) tree: u64,
    pub(super) parent: Option<u64>,
    pub(super) fingerprint: Fingerprint,
    request_ids: Box<[Arc<str>]>,
    /// The images whose files it keeps.
    images: Box<[Arc<str>]>,
    is_complete: bool,
    pub(super) has_children: bool,
}

/// What is known of a trajectory.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) id: Arc<str>,
    pub(super) owner: Option<Arc<str>>,
    pub(super) session: Option<Arc<str>>,
    pub(super) turns: Vec<u64>,
    pub(super) totals: Totals,
    pub(super) notes: Notes,
    /// Its place among those that were added to.
    used: u64,
    /// What is known of it takes so many bytes.
    bytes: u64,
    /// The bytes of its records, whether they share some of them or not.
    records: u64,
    /// The bytes of the record of its notes.
    notes_record: u64,
    /// Turns that are being written.
    pending: usize,
}

/// All turns and trajectories.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) base: Base,
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) trees: BTreeMap<u64, Tree>,
    by_ids: HashMap<(Scope, Fingerprint), Vec<u64>>,
    sessions: HashMap<(Option<Arc<str>>, Arc<str>), u64>,
    /// Whether a session of an owner has several trajectories, as where all owners were made one to look at their
    /// trajectories. `sessions` has only one of them.
    pub(super) shares_sessions: bool,
    requests: HashMap<(Option<Arc<str>>, Arc<str>), u64>,
    tree_ids: HashMap<Arc<str>, u64>,
    uses: BTreeMap<u64, u64>,
    /// The files of images.
    pub(super) images: KeptImages,
    /// What all this takes, without the records.
    bytes: u64,
    next: u64,
    /// Records that have left, and that the store may still have.
    pub(super) gone: Vec<String>,
}

/// Where the parent of a generation is looked for.
#[derive(Debug)]
pub(super) struct Search {
    /// `None` where there is nothing to be found.
    pub(super) scope: Option<Scope>,
    /// The turn that the client says it continues.
    pub(super) named: Option<u64>,
}

/// The key of a turn's record; the order of keys is that of turns.
pub(super) fn turn_key(number: u64) -> String {
    format!("turn {number:016x}")
}

/// The key of what clients attached to a trajectory.
pub(super) fn notes_key(tree: u64) -> String {
    format!("notes {tree:016x}")
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            base: Base::random(),
            nodes: HashMap::new(),
            trees: BTreeMap::new(),
            by_ids: HashMap::new(),
            sessions: HashMap::new(),
            shares_sessions: false,
            requests: HashMap::new(),
            tree_ids: HashMap::new(),
            uses: BTreeMap::new(),
            images: KeptImages::default(),
            bytes: 0,
            next: 0,
            gone: Vec::new(),
        }
    }

    /// The last number that was given to a turn or a trajectory.
    pub(super) fn last(&self) -> u64 {
        self.next
    }

    /// The trajectory of a session.
    pub(super) fn of_session(&self, owner: Option<&Arc<str>>, session: &str) -> Option<u64> {
        self.sessions.get(&(owner.cloned(), session.into())).copied()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Where the parent of a generation is looked for: in the trajectory that a session or an earlier request names, else
    /// in all of its owner.
    pub(super) fn search(
        &self,
        owner: Option<&Arc<str>>,
        session: Option<&Arc<str>>,
        continues: Option<&Arc<str>>,
    ) -> Search {
        let owner = owner.cloned();
        let named = continues.and_then(|id| self.requests.get(&(owner.clone(), Arc::clone(id)))).copied();
        let scope = match (session, named.and_then(|turn| self.nodes.get(&turn))) {
            (Some(session), _) => self.of_session(owner.as_ref(), session).map(Scope::Tree),
            (None, Some(turn)) => Some(Scope::Tree(turn.tree)),
            (None, None) => Some(Scope::Owner(owner)),
        };
        Search { scope, named }
    }

    /// The turns with the longest whole sequence that may be a prefix of less than `below` ids, by fingerprint alone.
    pub(super) fn candidates(
        &self,
        scope: &Scope,
        prefixes: &[Fingerprint],
        below: usize,
    ) -> Option<(usize, Vec<u64>)> {
        let mut key = (scope.clone(), Fingerprint::default());
        for prefix in prefixes[..below.min(prefixes.len())].iter().rev() {
            key.1 = *prefix;
            if let Some(found) = self.by_ids.get(&key) {
                return Some((prefix.len, found.clone()));
            }
        }
        None
    }

    /// The turns from the first one to this one; `None` if it is gone.
    pub(super) fn chain(&self, number: u64) -> Option<Vec<u64>> {
        let mut chain = vec![number];
        let mut node = self.nodes.get(&number)?;
        while let Some(parent) = node.parent {
            chain.push(parent);
            node = self.nodes.get(&parent)?;
        }
        chain.reverse();
        Some(chain)
    }

    /// Takes a place in a trajectory, a new one where `tree` is `None` and the session has none. It stays until the turn is
    /// [entered](Self::enter) or [given up](Self::give_up).
    pub(super) fn reserve(
        &mut self,
        tree: Option<u64>,
        owner: Option<&Arc<str>>,
        session: Option<&Arc<str>>,
    ) -> (u64, u64, Arc<str>) {
        let owner = owner.cloned();
        let of_session = session.and_then(|session| self.sessions.get(&(owner.clone(), Arc::clone(session))).copied());
        let known = tree.or(of_session).filter(|tree| self.trees.contains_key(tree));
        let number = known.unwrap_or_else(|| {
            let id = format!("traj_{}", uuid::Uuid::new_v4().simple()).into();
            let number = self.number();
            self.plant(number, id, owner, session.cloned());
            number
        });
        let tree = self.trees.get_mut(&number).expect("it was found or planted");
        tree.pending += 1;
        let id = Arc::clone(&tree.id);
        (self.number(), number, id)
    }

    fn plant(&mut self, number: u64, id: Arc<str>, owner: Option<Arc<str>>, session: Option<Arc<str>>) {
        if let Some(session) = &session {
            let other = self.sessions.insert((owner.clone(), Arc::clone(session)), number);
            self.shares_sessions |= other.is_some();
        }
        self.tree_ids.insert(Arc::clone(&id), number);
        let bytes = weight::of_tree(session.as_deref());
        self.bytes += bytes;
        let tree = Tree {
            id,
            owner,
            session,
            turns: Vec::new(),
            totals: Totals::new(),
            notes: Notes::default(),
            used: 0,
            bytes,
            records: 0,
            notes_record: 0,
            pending: 0,
        };
        self.trees.insert(number, tree);
    }

    /// Counts a turn that is about to be written.
    pub(super) fn count(&mut self, tree: u64, turn: Weight) {
        if let Some(tree) = self.trees.get_mut(&tree) {
            tree.bytes += turn.known;
            tree.records += turn.record;
            self.bytes += turn.known;
        }
    }

    /// Holds the files of a turn that is to be written, until it is [given up](Self::give_up) or leaves.
    pub(super) fn hold(&mut self, images: &[ImageUsed]) -> Holding {
        let next = &mut self.next;
        self.images.hold(images, || {
            *next += 1;
            *next
        })
    }

    /// Knows a file of an earlier process by the key of its record.
    pub(super) fn restore_image(&mut self, key: &str) -> Result<(), CaptureError> {
        let Some((number, identity)) = images::parts_of(key) else {
            return Err(CaptureError::Corrupted(format!("an image is kept as `{key}`")));
        };
        self.next = self.next.max(number);
        if !self.images.know(identity, key) {
            self.gone.push(key.to_owned());
        }
        Ok(())
    }

    /// Has the files leave that no turn has, once all turns are known.
    pub(super) fn forget_unused_images(&mut self) {
        self.images.forget_unused(&mut self.gone);
    }

    /// Takes back what [`Self::reserve`], [`Self::hold`] and [`Self::count`] did for a turn that could not be written.
    pub(super) fn give_up(&mut self, tree: u64, counted: Weight, images: &[Arc<str>]) {
        self.images.release(images, &mut self.gone);
        let Some(found) = self.trees.get_mut(&tree) else { return };
        found.pending -= 1;
        found.bytes -= counted.known;
        found.records -= counted.record;
        self.bytes -= counted.known;
        if found.pending == 0 && found.turns.is_empty() {
            self.fell(tree);
        }
    }

    /// Enters a turn that was written; its trajectory may have been deleted meanwhile.
    pub(super) fn enter(&mut self, record: &TurnRecord, fingerprint: Fingerprint, images: Box<[Arc<str>]>) {
        let tree = record.place.tree;
        self.images.written(&images);
        let Some(found) = self.trees.get_mut(&tree) else {
            self.gone.push(turn_key(record.place.number));
            self.images.release(&images, &mut self.gone);
            return;
        };
        found.pending -= 1;
        self.grow(record, fingerprint, images);
    }

    /// Enters a turn that was written by an earlier process; turns come in their order.
    pub(super) fn restore(&mut self, record: &TurnRecord, turn: Weight) -> Result<(), CaptureError> {
        let TurnRecord { place, generation } = record;
        let begun = match place.parent.map(|parent| self.nodes.get(&parent)) {
            None => Fingerprint::default(),
            Some(Some(parent)) => parent.fingerprint,
            // The trajectory was deleted while this turn was written, and the process ended before the turn left too.
            Some(None) if !self.trees.contains_key(&place.tree) => {
                tracing::warn!(turn = &*place.id, "a turn of a deleted trajectory was left over, and leaves now");
                self.next = self.next.max(place.number);
                self.gone.push(turn_key(place.number));
                return Ok(());
            }
            Some(None) => return Err(CaptureError::Corrupted(format!("the turn before {} is missing", place.id))),
        };
        let prompt = self.base.after(begun, &generation.prompt, &generation.images);
        let fingerprint = self.base.after(prompt, &generation.sampled, &[]);
        if begun.len + generation.prompt.len() != place.prompt_tokens {
            return Err(CaptureError::Corrupted(format!("the prompt of {} has not the length that it says", place.id)));
        }
        if !self.trees.contains_key(&place.tree) {
            let (owner, session) = (generation.owner.clone(), generation.session.clone());
            self.plant(place.tree, Arc::clone(&place.trajectory), owner, session);
        }
        self.next = self.next.max(place.number);
        self.count(place.tree, turn);
        let Holding { images, .. } = self.hold(&generation.images);
        self.grow(record, fingerprint, images);
        Ok(())
    }

    fn grow(&mut self, record: &TurnRecord, fingerprint: Fingerprint, images: Box<[Arc<str>]>) {
        let TurnRecord { place, generation } = record;
        let number = place.number;
        for id in &generation.request_ids {
            self.requests.insert((generation.owner.clone(), Arc::clone(id)), number);
        }
        for scope in [Scope::Owner(generation.owner.clone()), Scope::Tree(place.tree)] {
            self.by_ids.entry((scope, fingerprint)).or_default().push(number);
        }
        let tree = self.trees.get_mut(&place.tree).expect("a turn is entered into a trajectory that is there");
        if let Some(parent) = place.parent.and_then(|parent| self.nodes.get_mut(&parent))
            && !std::mem::replace(&mut parent.has_children, true)
        {
            tree.totals.continued(parent.is_complete);
        }
        tree.totals.add(record);
        let node = Node {
            id: Arc::clone(&place.id),
            tree: place.tree,
            parent: place.parent,
            fingerprint,
            request_ids: generation.request_ids.as_slice().into(),
            images,
            is_complete: generation.finish.is_complete(),
            has_children: false,
        };
        self.nodes.insert(number, node);
        tree.turns.push(number);
        self.uses.remove(&std::mem::replace(&mut tree.used, number));
        self.uses.insert(number, place.tree);
    }

    /// Attaches notes that were written, in a record of so many bytes. Where the trajectory left meanwhile, its notes leave
    /// with it.
    pub(super) fn attach(&mut self, tree: u64, notes: Notes, encoded: usize) {
        let Some(found) = self.trees.get_mut(&tree) else {
            self.gone.push(notes_key(tree));
            return;
        };
        let (before, after) = (weight::of_notes(&found.notes), weight::of_notes(&notes));
        found.notes = notes;
        found.bytes = found.bytes - before + after;
        self.bytes = self.bytes - before + after;
        found.records = found.records - found.notes_record + encoded as u64;
        found.notes_record = encoded as u64;
    }

    /// The trajectory of an id, if it is this owner's and has turns.
    pub(super) fn find(&self, owner: Option<&Arc<str>>, id: &str) -> Option<(u64, &Tree)> {
        let number = *self.tree_ids.get(id)?;
        let tree = self.trees.get(&number)?;
        (tree.owner.as_ref() == owner && !tree.turns.is_empty()).then_some((number, tree))
    }

    /// Forgets a trajectory; its records are to be deleted.
    pub(super) fn fell(&mut self, number: u64) {
        let Some(tree) = self.trees.remove(&number) else { return };
        self.uses.remove(&tree.used);
        self.tree_ids.remove(&tree.id);
        self.bytes -= tree.bytes;
        if let Some(session) = tree.session {
            self.sessions.remove(&(tree.owner.clone(), session));
        }
        for turn in tree.turns {
            let Some(node) = self.nodes.remove(&turn) else { continue };
            self.gone.push(turn_key(turn));
            self.images.release(&node.images, &mut self.gone);
            for scope in [Scope::Owner(tree.owner.clone()), Scope::Tree(number)] {
                let key = (scope, node.fingerprint);
                if let Some(turns) = self.by_ids.get_mut(&key) {
                    turns.retain(|other| *other != turn);
                    if turns.is_empty() {
                        self.by_ids.remove(&key);
                    }
                }
            }
            for id in &node.request_ids {
                let key = (tree.owner.clone(), Arc::clone(id));
                if self.requests.get(&key) == Some(&turn) {
                    self.requests.remove(&key);
                }
            }
        }
        if tree.notes_record > 0 {
            self.gone.push(notes_key(number));
        }
    }

    /// Forgets the trajectories that nothing was added to since `oldest`, in seconds since 1970; how many they were.
    pub(super) fn expire(&mut self, oldest: f64) -> usize {
        let before = self.trees.len();
        while let Some(tree) = self.uses.values().next().copied() {
            let found = &self.trees[&tree];
            if found.totals.updated >= oldest || found.pending > 0 {
                break;
            }
            self.fell(tree);
        }
        before - self.trees.len()
    }

    /// Whether everything fits, with records that take so many bytes in the store.
    pub(super) fn fits(&self, stored: u64, most: u64) -> bool {
        self.bytes.saturating_add(stored) <= most
    }

    /// Has some of the oldest trajectories leave if not everything fits: never more than have to, so that this is to be
    /// asked again when the store has forgotten their records. `kept` stays, and so does what is being added to. Returns how many
    /// left.
    pub(super) fn shrink(&mut self, stored: u64, most: u64, kept: Option<u64>) -> usize {
        let mut excess = self.bytes.saturating_add(stored).saturating_sub(most);
        let mut leaving = Vec::new();
        for tree in self.uses.values().copied().filter(|tree| Some(*tree) != kept) {
            let found = &self.trees[&tree];
            if excess == 0 {
                break;
            }
            if found.pending == 0 {
                excess = excess.saturating_sub(found.bytes + found.most_stored());
                leaving.push(tree);
            }
        }
        for tree in &leaving {
            self.fell(*tree);
        }
        leaving.len()
    }

    /// The keys of all records of a trajectory.
    pub(super) fn keys(&self, tree: u64) -> Vec<String> {
        let Some(found) = self.trees.get(&tree) else { return Vec::new() };
        let mut images: Vec<&Arc<str>> = found.turns.iter().flat_map(|turn| &self.nodes[turn].images).collect();
        images.sort();
        images.dedup();
        let files = images.into_iter().filter_map(|identity| self.images.key(identity)).map(str::to_owned);
        found.turns.iter().map(|turn| turn_key(*turn)).chain(files).chain([notes_key(tree)]).collect()
    }

    /// What is known of all trajectories takes so many bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Tree {
    /// What is known of it takes so many bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most that a store takes for its records, if they share nothing.
    pub(super) fn most_stored(&self) -> u64 {
        weight::most_stored(self.turns.len() + self.pending + 1, self.records)
    }
}
