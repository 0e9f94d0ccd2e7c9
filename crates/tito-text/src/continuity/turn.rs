//! One answer, with the ids of its conversation: turns of one conversation share what they have in common.

use std::sync::Arc;

use super::fingerprint::Fingerprint;
use crate::TokenId;

/// One answer, and all ids of the conversation that it ends.
#[derive(Debug)]
pub(super) struct Turn {
    /// Prompts and generations in turns; the turns of one conversation share their first pieces.
    pieces: Vec<Arc<[TokenId]>>,
    /// How many of the pieces an earlier turn shares.
    shared: usize,
    /// How many ids were sampled.
    pub(super) sampled: usize,
    /// The fingerprint of all ids.
    pub(super) ids: Fingerprint,
    /// No client has brought any of the ids, so that others may be given them.
    pub(super) own: bool,
    /// What the weights are called that sampled the last id.
    pub(super) weights: Option<Arc<str>>,
    /// What each assistant message thought, up to the last one of which that is known.
    thoughts: Vec<Option<Fingerprint>>,
    /// Another server says so, and nothing was checked yet.
    is_from_elsewhere: bool,
}

/// What an entry takes besides its ids, as measured: keys, links and counters of the cache.
pub(super) const ENTRY_BYTES: u32 = 500;
/// A turn links to the pieces of all turns before it, so the links of a conversation add up.
const MOST_PIECES: usize = 128;
impl Turn {
    /// The turn that follows `parent`, whose ids `prompt` starts with, or the first one that is known.
    pub(super) fn new(
        parent: Option<&Arc<Self>>,
        prompt: Arc<[TokenId]>,
        sampled: Arc<[TokenId]>,
        mut thoughts: Vec<Option<Fingerprint>>,
        own: bool,
    ) -> Self {
        thoughts.truncate(thoughts.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        let mut pieces = parent.map(|parent| parent.pieces.clone()).unwrap_or_default();
        // A parent that nobody but the caller holds was evicted.
        let shared = if parent.is_some_and(|parent| Arc::strong_count(parent) > 1) { pieces.len() } else { 0 };
        let sampled_len = sampled.len();
        pieces.extend([prompt, sampled]);
        let ids = Fingerprint::of_ids(pieces.iter().map(|piece| &**piece));
        if pieces.len() < MOST_PIECES {
            return Self {
                pieces,
                shared,
                sampled: sampled_len,
                ids,
                own,
                weights: None,
                thoughts,
                is_from_elsewhere: false,
            };
        }
        let pieces = vec![pieces.concat().into()];
        Self { pieces, shared: 0, sampled: sampled_len, ids, own, weights: None, thoughts, is_from_elsewhere: false }
    }

    /// Sets what the weights are called that sampled the last id.
    pub(super) fn sampled_by(self, weights: Option<Arc<str>>) -> Self {
        Self { weights, ..self }
    }

    /// Says that another server remembered it.
    pub(super) fn brought_from_elsewhere(self) -> Self {
        Self { is_from_elsewhere: true, ..self }
    }

    /// Whether another server remembered it, so that it has to be checked whenever it is used.
    pub(super) fn is_from_elsewhere(&self) -> bool {
        self.is_from_elsewhere
    }

    /// All ids.
    pub(super) fn token_ids(&self) -> Vec<TokenId> {
        self.pieces.concat()
    }

    /// Whether `ids` start with those of the turn.
    pub(super) fn begins(&self, ids: &[TokenId]) -> bool {
        let mut rest = Some(ids);
        for piece in &self.pieces {
            rest = rest.and_then(|rest| rest.strip_prefix(&**piece));
        }
        rest.is_some()
    }

    /// How many ids there are.
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Whether no thought of a request is another than the one remembered.
    pub(super) fn agrees(&self, thoughts: &[Option<Fingerprint>]) -> bool {
        let remembered = self.thoughts.iter().chain(std::iter::repeat(&None));
        thoughts.iter().zip(remembered).all(|(sent, remembered)| sent.is_none() || sent == remembered)
    }

    /// Whether a thought of a request is another than the one remembered. Thoughts that only one of the two has say nothing.
    pub(super) fn contradicts(&self, thoughts: &[Option<Fingerprint>]) -> bool {
        self.thoughts.iter().zip(thoughts).any(|(known, sent)| are_two(*known, *sent))
    }

    /// What the message before this one thought, and so on, for a turn that follows.
    pub(super) fn thoughts(&self) -> &[Option<Fingerprint>] {
        &self.thoughts
    }

    /// The bytes that it takes besides what it shares.
    pub(super) fn weight(&self) -> u32 {
        let own: usize = self.pieces[self.shared..].iter().map(|piece| size_of_val(&**piece)).sum();
        let links = self.pieces.len() * size_of::<Arc<[TokenId]>>() + size_of_val(self.thoughts.as_slice());
        u32::try_from(own + links).unwrap_or(u32::MAX).saturating_add(ENTRY_BYTES)
    }
}

/// Whether both are known and differ.
pub(super) fn are_two(known: Option<Fingerprint>, sent: Option<Fingerprint>) -> bool {
    known.zip(sent).is_some_and(|(known, sent)| known != sent)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn key(name: &str) -> Fingerprint {
        Fingerprint::of_text(b"test", name)
    }

    pub(in super::super) fn turn(parent: Option<&Arc<Turn>>, prompt: &[TokenId], sampled: &[TokenId]) -> Arc<Turn> {
        Arc::new(Turn::new(parent, prompt.into(), sampled.into(), Vec::new(), true))
    }

    #[test]
    fn a_turn_shares_the_ids_of_the_one_before() {
        let first = turn(None, &[1, 2], &[3]);
        let kept = Arc::clone(&first);
        let second = turn(Some(&kept), &[4, 5], &[6]);
        assert_eq!(second.token_ids(), [1, 2, 3, 4, 5, 6]);
        assert_eq!((second.len(), second.sampled), (6, 1));
        assert_eq!(second.ids, turn(None, &[1, 2, 3, 4, 5], &[6]).ids);
        assert!(second.begins(&[1, 2, 3, 4, 5, 6, 7]) && !second.begins(&[1, 2, 3, 4, 5]));
        let many = (0..200).fold(first.clone(), |last, number| turn(Some(&last), &[number], &[number]));
        assert_eq!(many.len(), 403);
        assert!(many.pieces.len() < MOST_PIECES);
        assert!(second.weight() - ENTRY_BYTES < first.weight() - ENTRY_BYTES + 40);
    }

    /// A thousand short answers without thoughts must not cost a thousand times what the last one says.
    #[test]
    fn a_conversation_without_thoughts_grows_evenly() {
        let thoughts = vec![None; 1000];
        let last = Turn::new(None, [1].into(), [2].into(), thoughts, true);
        assert_eq!(last.weight(), turn(None, &[1], &[2]).weight());
        let sent = [vec![None; 999], vec![Some(key("a"))]].concat();
        assert!(!last.agrees(&sent));
    }

    /// What a turn shares with one that was forgotten is its own.
    #[test]
    fn a_turn_weighs_what_nobody_else_keeps() {
        let first = turn(None, &[1; 1000], &[2]);
        let kept = Arc::clone(&first);
        assert!(Turn::new(Some(&first), [3].into(), [4].into(), Vec::new(), true).weight() < 1000);
        drop(kept);
        assert!(Turn::new(Some(&first), [3].into(), [4].into(), Vec::new(), true).weight() > 4000);
    }

    #[test]
    fn a_thought_that_was_sent_back_must_be_the_one_remembered() {
        let thought = |text: &str| Some(key(text));
        let turn = Turn::new(None, [1].into(), [2].into(), vec![thought("a"), None], true);
        for (sent, agrees) in [
            (vec![None, None], true),
            (vec![thought("a"), None], true),
            (vec![thought("b"), None], false),
            (vec![thought("a"), thought("c")], false),
        ] {
            assert_eq!(turn.agrees(&sent), agrees, "{sent:?}");
        }
    }
}
