//! The continuity cache: what was answered to which conversation, in bounded memory.
//!
//! Two answers with the same text and other ids are told apart by nothing that a client sends back. So the cache keeps,
//! much longer than the ids themselves, a fingerprint of the ids under each key: a key that ever had two is ambiguous,
//! even after one of them was evicted.

use std::{sync::Arc, time::Duration};

use metrics::{Counter, counter, gauge};
use moka::{notification::RemovalCause, policy::EvictionPolicy, sync::Cache};

use super::{
    answered::{Answered, Texts},
    fingerprint::Fingerprint,
    turn::{ENTRY_BYTES, Turn},
};

/// The bounds of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Bytes, as far as they can be counted from outside.
    pub bytes: u64,
    /// How long ids are kept after they were last used.
    pub ttl: Duration,
}

/// Where ids come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// The conversation up to and including the answer.
    pub(super) through: Fingerprint,
    /// The conversation before the answer.
    pub(super) before: Fingerprint,
    /// The rest of what decides the prompt.
    pub(super) context: Fingerprint,
    /// The images before the answer.
    pub(super) images: Fingerprint,
    /// What the answer thought, if it told that.
    pub(super) thought: Option<Fingerprint>,
    /// No client has brought any of them.
    pub(super) own: bool,
}

impl Origin {
    fn key(&self, ids: Fingerprint) -> Fingerprint {
        origin_key(ids, self.through, self.context)
    }
}

fn origin_key(ids: Fingerprint, through: Fingerprint, context: Fingerprint) -> Fingerprint {
    Fingerprint::joined(b"origin", &[ids, through, context])
}

/// What the cache knows of a key.
#[derive(Debug, Clone)]
pub(super) enum Recall {
    /// There was one answer, and its ids are known.
    Known(Arc<Turn>),
    /// There were several answers with different ids.
    Ambiguous,
    /// There was one answer, and its ids were evicted.
    Forgotten,
    /// Nothing is known, or nothing any more.
    Unknown,
}

/// The ids that an answer had, by their fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    One(Fingerprint),
    Several,
}

/// The store; shared by all requests.
#[derive(Debug)]
pub(super) struct Memory {
    turns: Cache<Fingerprint, Arc<Turn>>,
    answers: Cache<Fingerprint, Answers>,
    origins: Cache<Fingerprint, Option<Origin>>,
    /// What was answered to prompts that are texts.
    pub(super) texts: Texts,
    ambiguous: Counter,
}

/// How long things are kept that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lifetimes {
    /// How long the ids of an answer are kept.
    ids: Duration,
    /// How long it is known that there was an answer, and where its ids came from.
    answers: Duration,
}

impl Lifetimes {
    fn new(ttl: Duration) -> Self {
        Self { ids: ttl.min(LONGEST), answers: ttl.saturating_mul(LONGER).min(LONGEST) }
    }
}

/// By how much longer it is remembered that there was an answer than which ids it had.
const LONGER: u32 = 24;

impl Memory {
    /// An empty store.
    pub(super) fn new(bounds: MemoryBounds) -> Self {
        Self::keeping(bounds.bytes, Lifetimes::new(bounds.ttl))
    }

    fn keeping(bytes: u64, lifetimes: Lifetimes) -> Self {
        let evicted = |cause: RemovalCause| match cause {
            RemovalCause::Expired => counter!("tito:continuity_cache_evictions_total", "cause" => "expired"),
            RemovalCause::Size => counter!("tito:continuity_cache_evictions_total", "cause" => "size"),
            RemovalCause::Explicit | RemovalCause::Replaced => Counter::noop(),
        };
        let turns = Cache::builder()
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(bytes / 2)
            .weigher(|_, turn: &Arc<Turn>| turn.weight())
            .time_to_idle(lifetimes.ids)
            .eviction_listener(move |_, _, cause| evicted(cause).increment(1))
            .build();
        Self {
            turns,
            answers: small(bytes / 16 * 5, lifetimes.answers),
            origins: small(bytes / 8, lifetimes.answers),
            texts: texts(bytes / 16, lifetimes.answers),
            ambiguous: counter!("tito:continuity_cache_ambiguous_keys_total"),
        }
    }

    /// The answer under a key; using it keeps it.
    pub(super) fn recall(&self, key: Fingerprint) -> Recall {
        match self.answers.get(&key) {
            None => Recall::Unknown,
            Some(Answers::Several) => Recall::Ambiguous,
            Some(Answers::One(ids)) => match self.turns.get(&key) {
                Some(turn) if turn.ids == ids => Recall::Known(turn),
                _ => Recall::Forgotten,
            },
        }
    }

    /// Remembers an answer under a key.
    pub(super) fn remember(&self, key: Fingerprint, turn: &Arc<Turn>) {
        match self.answered(key, Answers::One(turn.ids)) {
            Answers::One(_) => self.turns.insert(key, Arc::clone(turn)),
            Answers::Several => self.turns.invalidate(&key),
        }
    }

    /// Takes the ids under a key that other servers know by their fingerprint alone.
    pub(super) fn note(&self, key: Fingerprint, ids: Fingerprint) {
        if self.answered(key, Answers::One(ids)) == Answers::Several {
            self.turns.invalidate(&key);
        }
    }

    /// Takes that other servers know several lists of ids under a key.
    pub(super) fn note_several(&self, key: Fingerprint) {
        self.answered(key, Answers::Several);
        self.turns.invalidate(&key);
    }

    /// Keeps the ids under a key, whose fingerprint is known already.
    pub(super) fn adopt(&self, key: Fingerprint, turn: Arc<Turn>) {
        if self.answers.get(&key) == Some(Answers::One(turn.ids)) {
            self.turns.insert(key, turn);
        }
    }

    /// What is known of the ids under a key, now that these are known too.
    fn answered(&self, key: Fingerprint, now: Answers) -> Answers {
        let mut became_ambiguous = false;
        let answers = self.answers.entry(key).and_upsert_with(|known| match known.map(moka::Entry::into_value) {
            None => now,
            Some(answers) if answers == now => now,
            Some(answers) => {
                became_ambiguous = answers != Answers::Several;
                Answers::Several
            }
        });
        if became_ambiguous {
            self.ambiguous.increment(1);
        }
        answers.into_value()
    }

    /// Remembers where ids come from, which may be several conversations: templates do not show all that differs.
    pub(super) fn remember_origin(&self, ids: Fingerprint, origin: Origin) {
        self.origins.insert(ids, Some(origin));
        self.origins.entry(origin.key(ids)).and_upsert_with(|known| {
            // What nobody brought once is the server's own, even if somebody brings it later.
            let own = known.and_then(moka::Entry::into_value).is_some_and(|known| known.own);
            Some(Origin { own: origin.own || own, ..origin })
        });
    }

    /// The conversation that ids came from last.
    pub(super) fn origin(&self, ids: Fingerprint) -> Option<Origin> {
        self.origins.get(&ids).flatten()
    }

    /// Where ids come from if they were also seen in this conversation, whichever they came from last.
    pub(super) fn origin_in(&self, ids: Fingerprint, through: Fingerprint, context: Fingerprint) -> Option<Origin> {
        self.origins.get(&origin_key(ids, through, context)).flatten()
    }

    /// Remembers that there is something under a key.
    pub(super) fn mark(&self, key: Fingerprint) {
        self.origins.insert(key, None);
    }

    /// Whether there is something under a key.
    pub(super) fn is_marked(&self, key: Fingerprint) -> bool {
        self.origins.contains_key(&key)
    }

    /// Shows the size of the cache in the process's metrics.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    pub(super) fn measure(&self) {
        self.turns.run_pending_tasks();
        gauge!("tito:continuity_cache_bytes").set(self.turns.weighted_size() as f64);
        gauge!("tito:continuity_cache_turns").set(self.turns.entry_count() as f64);
    }
}

/// moka takes a thousand years at most.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// A store of small facts.
fn small<V: Clone + Send + Sync + 'static>(bytes: u64, ttl: Duration) -> Cache<Fingerprint, V> {
    Cache::builder()
        .eviction_policy(EvictionPolicy::lru())
        .max_capacity(bytes)
        .weigher(|_, _| ENTRY_BYTES)
        .time_to_idle(ttl)
        .build()
}

/// A store of texts, in lists.
fn texts(bytes: u64, ttl: Duration) -> Texts {
    let weight = |listed: usize| u32::try_from(listed).unwrap_or(u32::MAX).saturating_add(ENTRY_BYTES);
    Cache::builder()
        .eviction_policy(EvictionPolicy::lru())
        .max_capacity(bytes)
        .weigher(move |_, listed: &Arc<[Answered]>| weight(size_of_val(&**listed)))
        .time_to_idle(ttl)
        .build()
}

#[cfg(test)]
mod tests {
    use super::{
        super::turn::tests::{key, turn},
        *,
    };
    use crate::TokenId;

    fn memory(bytes: u64) -> Memory {
        Memory::new(MemoryBounds { bytes, ttl: Duration::from_hours(1) })
    }

    fn ids(recall: &Recall) -> Option<Vec<TokenId>> {
        match recall {
            Recall::Known(turn) => Some(turn.token_ids()),
            _ => None,
        }
    }

    #[test]
    fn the_same_answer_twice_is_one_answer() {
        let memory = memory(1 << 20);
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        assert_eq!(ids(&memory.recall(key("a"))), Some(vec![1, 2]));
        assert!(matches!(memory.recall(key("b")), Recall::Unknown));
    }

    #[test]
    fn two_answers_stay_ambiguous_even_when_neither_is_kept() {
        let memory = memory(1 << 20);
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        memory.turns.invalidate(&key("a"));
        assert!(matches!(memory.recall(key("a")), Recall::Forgotten));
        // The branch whose ids were forgotten must not get those of its sibling.
        memory.remember(key("a"), &turn(None, &[1], &[3]));
        assert!(matches!(memory.recall(key("a")), Recall::Ambiguous));
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        assert!(matches!(memory.recall(key("a")), Recall::Ambiguous));
    }

    #[test]
    fn the_store_stays_within_its_bounds_and_forgets_what_was_used_least() {
        let memory = memory(1 << 18);
        let kept = turn(None, &[7; 100], &[8; 100]);
        memory.remember(key("kept"), &kept);
        for number in 0..2000 {
            memory.remember(key(&number.to_string()), &turn(None, &[number; 100], &[number; 100]));
            assert!(ids(&memory.recall(key("kept"))).is_some(), "{number}");
            memory.turns.run_pending_tasks();
        }
        assert!(memory.turns.weighted_size() <= 1 << 17);
        assert!(!matches!(memory.recall(key("0")), Recall::Known(_)));
        assert!(ids(&memory.recall(key("1999"))).is_some());
    }

    #[test]
    fn time_makes_it_forget_the_ids_and_not_that_there_was_an_answer() {
        let hour = Duration::from_hours(1);
        assert_eq!(Lifetimes::new(hour), Lifetimes { ids: hour, answers: Duration::from_hours(24) });
        let memory = Memory::keeping(1 << 20, Lifetimes { ids: Duration::ZERO, answers: hour });
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        assert!(matches!(memory.recall(key("a")), Recall::Forgotten));
        let memory = Memory::keeping(1 << 20, Lifetimes { ids: Duration::ZERO, answers: Duration::ZERO });
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        assert!(matches!(memory.recall(key("a")), Recall::Unknown));
    }

    #[test]
    fn an_answer_that_was_forgotten_is_known_again_once_it_is_given_again() {
        let memory = memory(1 << 20);
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        memory.turns.invalidate(&key("a"));
        assert!(matches!(memory.recall(key("a")), Recall::Forgotten));
        memory.remember(key("a"), &turn(None, &[1], &[2]));
        assert_eq!(ids(&memory.recall(key("a"))), Some(vec![1, 2]));
    }

    #[test]
    fn any_time_can_be_asked_for() {
        for ttl in [Duration::from_secs(1), Duration::from_secs(u64::MAX), Duration::MAX] {
            let memory = Memory::new(MemoryBounds { bytes: 1 << 20, ttl });
            memory.remember(key("a"), &turn(None, &[1], &[2]));
            assert!(ids(&memory.recall(key("a"))).is_some());
        }
    }
}
