//! From a generation to its place: the turn that it continues, and what it adds.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{
    CaptureError, Generation, Trajectories,
    fingerprint::Fingerprint,
    images::Holding,
    index::turn_key,
    record::{Place, RecordIds, TurnRecord},
    said::Said,
    weight::Weight,
};
use crate::TokenId;

/// The turn that a generation continues.
struct Parent {
    number: u64,
    tree: u64,
    id: Arc<str>,
    /// The length of its whole sequence.
    len: usize,
    ambiguous: bool,
}

/// Messages and tools, and what the client said.
#[derive(Default)]
struct Texts {
    messages: Vec<Arc<RawValue>>,
    tools: Option<Vec<Arc<RawValue>>>,
    said: Option<Said>,
}

impl Trajectories {
    /// Keeps a generation, and returns the id of its turn; when this returns, the store has it. A generation that sampled
    /// nothing is not kept: `None`.
    ///
    /// # Errors
    ///
    /// If the store failed, or has no room. The turn is not kept then.
    pub fn capture(&self, generation: Generation) -> Result<Option<Arc<str>>, CaptureError> {
        if generation.sampled.is_empty() {
            return Ok(None);
        }
        self.expire(generation.ended);
        let base = self.index.lock().base;
        let prefixes = base.prefixes(&generation.prompt, &generation.images);
        let whole = base.after(prefixes[prefixes.len() - 1], &generation.sampled, &[]);
        let parent = self.parent(&generation, &prefixes)?;
        let before = match &parent {
            Some(parent) if !generation.messages.is_empty() => self.texts(parent.number)?,
            _ => Texts::default(),
        };
        let (owner, session) = (generation.owner.clone(), generation.session.clone());
        let (number, tree, trajectory) = {
            let mut index = self.index.lock();
            let named = index.search(owner.as_ref(), session.as_ref(), generation.continues.as_ref()).named;
            let named = named.filter(|_| session.is_none()).and_then(|turn| index.nodes.get(&turn));
            let tree = parent.as_ref().map(|parent| parent.tree).or(named.map(|turn| turn.tree));
            index.reserve(tree, owner.as_ref(), session.as_ref())
        };
        // The trajectory of the parent may have left since.
        let parent = parent.filter(|parent| parent.tree == tree);
        let place = Place {
            id: format!("turn_{}", uuid::Uuid::new_v4().simple()).into(),
            number,
            trajectory,
            tree,
            parent: parent.as_ref().map(|parent| parent.number),
            parent_id: parent.as_ref().map(|parent| Arc::clone(&parent.id)),
            prompt_tokens: generation.prompt.len(),
            ambiguous: parent.as_ref().is_some_and(|parent| parent.ambiguous),
            messages_before: 0,
            digest: digest(&generation),
        };
        let record = record(place, generation, parent.as_ref().map(|parent| (parent.len, before)));
        self.keep(&record, whole)?;
        Ok(Some(record.place.id))
    }

    /// Writes a turn whose place is reserved, and enters it.
    fn keep(&self, record: &TurnRecord, whole: Fingerprint) -> Result<(), CaptureError> {
        let tree = record.place.tree;
        let Holding { images, new: mut written } = self.index.lock().hold(&record.generation.images);
        let given_up = |counted, error| {
            self.index.lock().give_up(tree, counted, &images);
            Err(error)
        };
        let encoded = match record.encode() {
            Ok(encoded) => encoded,
            Err(error) => return given_up(Weight::default(), error),
        };
        let turn = Weight::of(record, &encoded);
        written.push((turn_key(record.place.number), encoded.into()));
        let new: Vec<(&str, &[u8])> = written.iter().map(|(key, bytes)| (key.as_str(), &**bytes)).collect();
        if let Err(error) = self.check_size(tree, turn.known, &new) {
            return given_up(Weight::default(), error);
        }
        self.index.lock().count(tree, turn);
        match self.write(Vec::new(), written) {
            Ok(()) => self.index.lock().enter(record, whole, images),
            Err(error) => return given_up(turn, error),
        }
        self.settle_later(tree);
        Ok(())
    }

    /// The turn that a generation continues: the one with the longest whole sequence that its prompt starts with. Of
    /// several with this sequence it is the one that the client names, else the oldest.
    fn parent(&self, generation: &Generation, prefixes: &[Fingerprint]) -> Result<Option<Parent>, CaptureError> {
        let search = {
            let (session, continues) = (generation.session.as_ref(), generation.continues.as_ref());
            self.index.lock().search(generation.owner.as_ref(), session, continues)
        };
        let Some(scope) = search.scope else { return Ok(None) };
        let mut below = prefixes.len();
        loop {
            let found = self.index.lock().candidates(&scope, prefixes, below);
            let Some((len, mut candidates)) = found else { return Ok(None) };
            // False sorts before true.
            candidates.sort_by_key(|number| (Some(*number) != search.named, *number));
            let mut proven: Option<Parent> = None;
            for number in candidates {
                if !self.is_prefix(number, generation, len)? {
                    continue;
                }
                if let Some(proven) = &mut proven {
                    proven.ambiguous = true;
                    break;
                }
                let parent = self.index.lock().nodes.get(&number).map(|node| Parent {
                    number,
                    tree: node.tree,
                    id: Arc::clone(&node.id),
                    len,
                    ambiguous: false,
                });
                proven = parent;
                if search.named == Some(number) {
                    break;
                }
            }
            if proven.is_some() {
                return Ok(proven);
            }
            below = len;
        }
    }

    /// Whether the whole sequence of a turn is what a generation begins with, to this length: the same ids, with the same
    /// images among them. A turn that is gone is nothing's prefix.
    fn is_prefix(&self, number: u64, generation: &Generation, len: usize) -> Result<bool, CaptureError> {
        let Some(chain) = self.index.lock().chain(number) else { return Ok(false) };
        let mut rest = &generation.prompt[..len];
        let mut images_left = generation.images.iter().filter(|image| image.offset < len);
        for number in chain {
            let Some(bytes) = self.read(number)? else { return Ok(false) };
            let RecordIds { added, sampled, images } = RecordIds::decode(&bytes)?;
            if !images.iter().all(|image| images_left.next().is_some_and(|own| own.is(image))) {
                return Ok(false);
            }
            for part in [added, sampled] {
                let Some(after) = rest.strip_prefix(&*part) else { return Ok(false) };
                rest = after;
            }
        }
        Ok(rest.is_empty() && images_left.next().is_none())
    }

    /// The messages and tools of a turn, with those that it has from the turns before it.
    fn texts(&self, number: u64) -> Result<Texts, CaptureError> {
        let chain = self.index.lock().chain(number).unwrap_or_default();
        let mut texts = Texts::default();
        for number in chain {
            let Some(bytes) = self.read(number)? else { return Ok(Texts::default()) };
            texts.follow(TurnRecord::decode(&bytes)?);
        }
        Ok(texts)
    }
}

impl Texts {
    /// The texts of the turn that follows.
    fn follow(&mut self, TurnRecord { place, generation }: TurnRecord) {
        self.messages.truncate(place.messages_before);
        self.messages.extend(generation.messages);
        if generation.tools.is_some() {
            self.tools = generation.tools;
        }
        self.said = generation.said.map(|added| Said::after(self.said.take(), added));
    }
}

/// The record of a generation, without what it shares with the turn before: so many ids, and these texts.
fn record(mut place: Place, mut generation: Generation, shared: Option<(usize, Texts)>) -> TurnRecord {
    if let Some((len, before)) = shared {
        generation.prompt = generation.prompt[len..].into();
        generation.images.retain(|image| image.offset >= len);
        let shared = generation.messages.iter().zip(&before.messages);
        place.messages_before = shared.take_while(|(own, before)| own.get() == before.get()).count();
        generation.messages.drain(..place.messages_before);
        let own = generation.tools.take().unwrap_or_default();
        let same = own.iter().map(|tool| tool.get()).eq(before.tools.iter().flatten().map(|tool| tool.get()));
        // That there are no tools any more has to be said.
        generation.tools = (!same).then_some(own);
        generation.said = generation.said.map(|said| match &before.said {
            Some(before) => said.since(before),
            None => said,
        });
    }
    TurnRecord { place, generation }
}

/// The hash of a generation's ids.
fn digest(generation: &Generation) -> String {
    let mut hasher = blake3::Hasher::new();
    hash(&mut hasher, &generation.prompt);
    hash(&mut hasher, &generation.sampled);
    hasher.finalize().to_hex().to_string()
}

/// Goes on with ids.
pub(super) fn hash(hasher: &mut blake3::Hasher, ids: &[TokenId]) {
    let mut bytes = [0; 4096];
    for ids in ids.chunks(bytes.len() / 4) {
        for (place, id) in bytes.as_chunks_mut().0.iter_mut().zip(ids) {
            *place = id.to_le_bytes();
        }
        hasher.update(&bytes[..4 * ids.len()]);
    }
}
