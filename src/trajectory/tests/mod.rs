//! Trajectories against a model that knows nothing but whole sequences.

mod experts;
mod faults;
mod images;
mod many;
mod parts;
mod removed;
mod size;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{TokenId, store::MemoryStore};

const POLICY: CapturePolicy = CapturePolicy { bytes: 1 << 30, ttl: None, texts: true, images: true };

fn a_store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(u64::MAX, Duration::MAX))
}

fn opened(store: &Arc<MemoryStore>, policy: CapturePolicy) -> Trajectories {
    Trajectories::open(Arc::clone(store) as Arc<dyn BatchStore>, policy).unwrap()
}

fn generation(prompt: &[TokenId], sampled: &[TokenId]) -> Generation {
    Generation {
        prompt: prompt.into(),
        sampled: sampled.into(),
        logprobs: sampled.iter().map(|id| -0.5 - f32::from(u16::try_from(*id).unwrap())).collect(),
        ranks: sampled.iter().map(|id| id + 1).collect(),
        entropies: sampled.iter().filter(|_| prompt.len().is_multiple_of(2)).map(|_| 0.25).collect(),
        masks: masks(if prompt.len().is_multiple_of(3) { sampled } else { &[] }),
        ended: now(),
        finish: Ended::Eos,
        ..Generation::default()
    }
}

/// A row for each id: itself, and the first ones before it.
fn masks(sampled: &[TokenId]) -> PackedMasks {
    let mut masks = PackedMasks::default();
    for id in sampled {
        masks.push(&(id.saturating_sub(2)..=*id).collect::<Vec<_>>());
    }
    masks
}

/// All sequences.
fn keys(trajectories: &Trajectories, owner: &Owner, unit: Unit) -> Vec<SequenceKey> {
    let mut keys = trajectories.sequences(owner, &Filter::default(), unit).unwrap();
    let mut all = Vec::new();
    loop {
        let next = trajectories.next_sequences(&mut keys);
        if next.is_empty() {
            return all;
        }
        all.extend(next);
    }
}

/// A generation as it was asked for, with all that is known of its place.
#[derive(Debug, Clone)]
struct Seen {
    owner: Option<u8>,
    tree: usize,
    prompt: Vec<TokenId>,
    whole: Vec<TokenId>,
    parent: Option<usize>,
    ambiguous: bool,
    request: String,
}

/// The independent model: every turn with its whole sequence, compared with every other one.
#[derive(Debug, Default)]
struct Naive {
    seen: Vec<Seen>,
    sessions: BTreeMap<(Option<u8>, String), usize>,
    trees: usize,
}

/// A request: by whom, in which session, after which earlier one, what it adds, what is sampled for it.
#[derive(Debug, Clone)]
struct Step {
    owner: Option<u8>,
    session: Option<u8>,
    after: usize,
    /// How much of the earlier sequence the prompt starts with, from its end.
    dropped: usize,
    names_it: bool,
    added: Vec<TokenId>,
    sampled: Vec<TokenId>,
}

fn a_step() -> impl Strategy<Value = Step> {
    // Few ids and short pieces, so that conversations meet by chance.
    let ids = |least| proptest::collection::vec(0..2_u32, least..3);
    let dropped = prop_oneof![6 => Just(0_usize), 1 => 1..4_usize, 1 => Just(100)];
    (
        prop_oneof![3 => Just(None), 1 => (0..2_u8).prop_map(Some)],
        prop_oneof![2 => Just(None), 1 => (0..3_u8).prop_map(Some)],
        0..12_usize,
        dropped,
        prop_oneof![3 => Just(false), 1 => Just(true)],
        ids(0),
        ids(0),
    )
        .prop_map(|(owner, session, after, dropped, names_it, added, sampled)| Step {
            owner,
            session,
            after,
            dropped,
            names_it,
            added,
            sampled,
        })
}

impl Naive {
    fn take(&mut self, step: &Step) -> (Generation, Option<Seen>) {
        let earlier = self.seen.len().checked_sub(1 + step.after).map(|at| self.seen[at].clone());
        let whole = earlier.as_ref().map(|earlier| earlier.whole.clone()).unwrap_or_default();
        let mut prompt = whole[..whole.len().saturating_sub(step.dropped)].to_vec();
        prompt.extend(&step.added);
        if prompt.is_empty() {
            prompt.push(0);
        }
        let continued = earlier.filter(|earlier| step.names_it && earlier.owner == step.owner);
        let session = step.session.map(|session| format!("session {session}"));
        let request = format!("request {}", self.seen.len());
        let owner = |owner: Option<u8>| owner.map(|owner| Arc::from(format!("owner {owner}")));
        let generation = Generation {
            owner: owner(step.owner),
            session: session.as_deref().map(Into::into),
            continues: continued.as_ref().map(|continued| continued.request.as_str().into()),
            request_ids: vec![request.as_str().into()],
            ..generation(&prompt, &step.sampled)
        };
        if step.sampled.is_empty() {
            return (generation, None);
        }
        let named = continued.map(|turn| self.seen.iter().position(|seen| seen.request == turn.request).unwrap());
        // Among which trees to look.
        let of_session = session.as_ref().map(|session| self.sessions.get(&(step.owner, session.clone())).copied());
        let among = match (of_session, named) {
            (Some(tree), _) => Some(tree),
            (None, Some(named)) => Some(Some(self.seen[named].tree)),
            (None, None) => None,
        };
        let mut fitting: Vec<usize> = (0..self.seen.len())
            .filter(|&at| {
                let seen = &self.seen[at];
                let in_scope = among.is_none_or(|tree| tree == Some(seen.tree));
                seen.owner == step.owner && in_scope && prompt.starts_with(&seen.whole)
            })
            .collect();
        let longest = fitting.iter().map(|&at| self.seen[at].whole.len()).max();
        fitting.retain(|&at| Some(self.seen[at].whole.len()) == longest);
        let by_name = fitting.iter().copied().find(|at| Some(*at) == named);
        let parent = by_name.or(fitting.first().copied());
        let tree = parent.map(|parent| self.seen[parent].tree).or(among.flatten()).unwrap_or_else(|| {
            self.trees += 1;
            self.trees
        });
        if let Some(session) = session
            && among.flatten().is_none()
        {
            self.sessions.insert((step.owner, session), tree);
        }
        let whole = [&*prompt, &*step.sampled].concat();
        let ambiguous = by_name.is_none() && fitting.len() > 1;
        let seen = Seen { owner: step.owner, tree, prompt, whole, parent, ambiguous, request };
        self.seen.push(seen.clone());
        (generation, Some(seen))
    }
}

/// What a trajectory says of all turns, by their ids: place and whole sequence.
fn all_turns(
    trajectories: &Trajectories,
    owner: Option<u8>,
) -> BTreeMap<Arc<str>, (TurnRecord, Vec<TokenId>, Vec<bool>)> {
    let owner: Owner = owner.map(|owner| format!("owner {owner}").into());
    let mut all = BTreeMap::new();
    for key in keys(trajectories, &owner, Unit::Turn) {
        let sequence = trajectories.sequence(&key, 2).unwrap();
        assert_eq!(sequence.logprobs.len(), sequence.token_ids.len());
        // Each turn's masks are where its ids are, and nobody else's.
        let mut asked = false;
        for turn in &sequence.turns {
            let sampled = &sequence.token_ids[turn.start..turn.end];
            let expected = masks(if turn.start.is_multiple_of(3) { sampled } else { &[] });
            asked |= !expected.is_empty();
            assert_eq!(sequence.masks.of(turn.start, turn.end), expected);
        }
        assert_eq!(sequence.masks.counts.len(), if asked { sequence.token_ids.len() } else { 0 });
        assert_eq!(sequence.masks.counts.iter().sum::<u32>() as usize, sequence.masks.ids.len());
        for (id, logprob) in sequence.token_ids.iter().zip(&sequence.logprobs) {
            let expected = generation(&[], &[*id]).logprobs[0];
            assert!(logprob.is_none_or(|logprob| logprob.to_bits() == expected.to_bits()));
        }
        let (_, turns) = trajectories.get(&owner, &key.trajectory).unwrap().unwrap();
        let turn = turns.into_iter().find(|turn| turn.place.id == key.turn).unwrap();
        all.insert(key.turn, (turn, sequence.token_ids, sequence.loss_mask));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn turns_are_joined_as_a_model_that_compares_everything_joins_them(
        steps in proptest::collection::vec(a_step(), 1..40), restart in any::<prop::sample::Index>(),
    ) {
        let store = a_store();
        let mut trajectories = opened(&store, POLICY);
        let mut naive = Naive::default();
        let mut ids: Vec<Arc<str>> = Vec::new();
        let restart = restart.index(steps.len());
        for (at, step) in steps.iter().enumerate() {
            if at == restart {
                trajectories = opened(&store, POLICY);
            }
            let (generation, seen) = naive.take(step);
            let id = trajectories.capture(generation).unwrap();
            prop_assert_eq!(id.is_some(), seen.is_some());
            ids.extend(id);
        }
        let bytes = trajectories.bytes();
        let again = opened(&store, POLICY);
        prop_assert_eq!(again.bytes(), bytes);
        for owner in [None, Some(0), Some(1)] {
            parts::summaries_add_up(&trajectories, owner);
            parts::summaries_add_up(&again, owner);
            let all = all_turns(&trajectories, owner);
            let own = naive.seen.iter().filter(|seen| seen.owner == owner).count();
            prop_assert_eq!(all.len(), own);
            prop_assert_eq!(all_turns(&again, owner).len(), own);
            for (at, seen) in naive.seen.iter().enumerate().filter(|(_, seen)| seen.owner == owner) {
                let (turn, whole, mask) = &all[&ids[at]];
                prop_assert_eq!(whole, &seen.whole);
                prop_assert_eq!(turn.place.parent_id.as_ref(), seen.parent.map(|parent| &ids[parent]));
                prop_assert_eq!(turn.place.ambiguous, seen.ambiguous);
                prop_assert_eq!(turn.place.prompt_tokens, seen.prompt.len());
                let sampled = seen.whole.len() - seen.prompt.len();
                let expected: Vec<bool> = (0..seen.whole.len()).map(|at| at >= seen.whole.len() - sampled).collect();
                prop_assert_eq!(mask, &expected);
                // A turn keeps what its prompt adds, and nothing twice.
                let parent = seen.parent.map_or(0, |parent| naive.seen[parent].whole.len());
                prop_assert_eq!(&*turn.generation.prompt, &seen.prompt[parent..]);
                for (other, also) in naive.seen.iter().enumerate().filter(|(_, also)| also.owner == owner) {
                    let same = all[&ids[other]].0.place.trajectory == turn.place.trajectory;
                    prop_assert_eq!(same, also.tree == seen.tree);
                }
            }
        }
    }

    #[test]
    fn bytes_are_never_more_than_the_bound_and_trajectories_leave_whole(
        steps in proptest::collection::vec(a_step(), 1..60),
    ) {
        let policy = CapturePolicy { bytes: 30_000, ..POLICY };
        let (store, mut naive) = (a_store(), Naive::default());
        let trajectories = opened(&store, policy);
        for step in &steps {
            let (generation, _) = naive.take(step);
            match trajectories.capture(generation) {
                Ok(_) => {}
                Err(CaptureError::TooLarge { bytes, most }) => prop_assert!(bytes > most && most == 30_000),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
            prop_assert!(trajectories.bytes() <= 30_000);
        }
        // What is left is whole: every sequence can be made, and a new process finds the same.
        let count: usize = [None, Some(0), Some(1)].into_iter().map(|owner| all_turns(&trajectories, owner).len()).sum();
        trajectories.settle(None).unwrap();
        let again = opened(&store, policy);
        let kept: usize = [None, Some(0), Some(1)].into_iter().map(|owner| all_turns(&again, owner).len()).sum();
        prop_assert_eq!(count, kept);
        prop_assert_eq!(store.ids().unwrap().len(), kept);
    }
}

#[test]
fn a_chain_takes_what_its_turns_add() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let mut prompt: Vec<TokenId> = vec![7; 100];
    for _ in 0..100 {
        trajectories.capture(generation(&prompt, &[1; 50])).unwrap();
        prompt.extend([1; 50]);
        prompt.extend([2; 50]);
    }
    let bytes: usize = store.ids().unwrap().iter().map(|id| store.read(id).unwrap().unwrap().len()).sum();
    // 100 turns of 100 new ids and 50 log-probs, and a head of less than 2 kB each; whole prompts would take 2 MB.
    assert!(bytes < 100 * (150 * 4 + 2000), "{bytes}");
}

#[test]
fn messages_and_tools_that_a_turn_shares_are_kept_once() {
    let said = |text: &str| Arc::from(serde_json::value::to_raw_value(text).unwrap());
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let first = Generation { messages: vec![said("a")], tools: Some(vec![said("tool")]), ..generation(&[1], &[1]) };
    trajectories.capture(first).unwrap();
    let messages = vec![said("a"), said("b"), said("c")];
    let second = Generation { messages, tools: Some(vec![said("tool")]), ..generation(&[1, 1, 0], &[1]) };
    trajectories.capture(second).unwrap();
    let messages = vec![said("a"), said("B"), said("c"), said("d")];
    let third = Generation { messages, tools: None, ..generation(&[1, 1, 0, 1, 0], &[1]) };
    trajectories.capture(third).unwrap();
    let id = trajectories.list(&None, &Filter::default(), 1).unwrap().trajectories[0].id.clone();
    let (_, turns) = trajectories.get(&None, &id).unwrap().unwrap();
    let kept = |turn: &TurnRecord| {
        let messages = turn.generation.messages.iter().map(|said| said.get().to_owned()).collect::<Vec<_>>();
        (turn.place.messages_before, messages, turn.generation.tools.as_ref().map(Vec::len))
    };
    assert_eq!(kept(&turns[0]), (0, vec!["\"a\"".to_owned()], Some(1)));
    assert_eq!(kept(&turns[1]), (1, vec!["\"b\"".to_owned(), "\"c\"".to_owned()], None));
    assert_eq!(kept(&turns[2]).0, 1);
    assert_eq!(kept(&turns[2]).2, Some(0), "that there are no tools any more is said");
}

#[test]
fn what_was_added_to_longest_ago_is_forgotten_after_the_ttl() {
    let policy = CapturePolicy { ttl: Some(Duration::from_secs(10)), ..POLICY };
    let trajectories = opened(&a_store(), policy);
    let at = |ended, prompt: &[TokenId]| {
        trajectories.capture(Generation { ended, ..generation(prompt, &[1]) }).unwrap();
        trajectories.index.lock().nodes.len()
    };
    let start = now();
    assert_eq!(at(start, &[1]), 1);
    assert_eq!(at(start + 5.0, &[2]), 2);
    assert_eq!(at(start + 9.0, &[1, 1, 0]), 3);
    assert_eq!(at(start + 16.0, &[3]), 3, "the second one has left, and the first one was added to");
}

#[test]
fn a_sequence_that_is_not_what_was_sampled_is_refused_with_the_reason() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    trajectories.capture(generation(&[1], &[5])).unwrap();
    let key = keys(&trajectories, &None, Unit::Leaf).remove(0);
    let refused = |vocabulary| trajectories.sequence(&key, vocabulary).unwrap_err().to_string();
    assert_eq!(refused(5), "the trajectory store is corrupted: id 5 is out of the vocabulary of 5 ids");
    assert!(trajectories.sequence(&key, 6).is_ok());
    let id = store.ids().unwrap().remove(0);
    let written = store.read(&id).unwrap().unwrap();
    let change = |change: &dyn Fn(&mut TurnRecord)| {
        let mut record = TurnRecord::decode(&written).unwrap();
        change(&mut record);
        store.write(&[], &[(&id, &record.encode().unwrap())]).unwrap();
        refused(100)
    };
    assert!(change(&|record| record.generation.sampled = vec![6]).contains("has other ids than those"));
    assert!(change(&|record| record.generation.prompt = [1, 2].into()).contains("of another length"));
    assert!(change(&|record| record.generation.logprobs = vec![f32::NAN]).contains("a log-prob that is no number"));
    assert!(change(&|record| record.place.parent = Some(9)).contains("does not follow"));
    assert!(
        change(&|record| record.generation.masks.push(&[4]))
            .contains("a sampling mask that is none of its sampled ids")
    );
    assert!(change(&|record| record.generation.masks.push(&[5, 100])).contains("id 100 is out of the vocabulary"));
    store.write(&[], &[(&id, &written[..written.len() - 1])]).unwrap();
    assert!(refused(100).contains("not the length that it says"));
    store.write(&[id], &[]).unwrap();
    assert!(refused(100).contains("deleted while it was exported"));
}

#[test]
fn what_another_adapter_sampled_is_not_learnt_from() {
    let trajectories = opened(&a_store(), POLICY);
    let through = |name: &str, version, generation| {
        let label = format!("{name}@{version}").into();
        Generation { adapter: Some(AdapterUsed { name: name.into(), label, checksum: None }), ..generation }
    };
    trajectories.capture(through("a", 1, generation(&[1], &[1]))).unwrap();
    trajectories.capture(through("b", 1, generation(&[1, 1, 0], &[1]))).unwrap();
    trajectories.capture(through("a", 2, generation(&[1, 1, 0, 1, 0], &[1, 1]))).unwrap();
    let key = keys(&trajectories, &None, Unit::Leaf).remove(0);
    let sequence = trajectories.sequence(&key, 2).unwrap();
    let mask: Vec<u8> = sequence.loss_mask.iter().map(|learnt| u8::from(*learnt)).collect();
    assert_eq!(mask, [0, 1, 0, 0, 0, 1, 1]);
    assert!(sequence.logprobs[3].is_some() && sequence.prompt_tokens == 1);
}

#[test]
fn notes_survive_and_are_their_owners() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let owner: Owner = Some("one".into());
    let turn = trajectories.capture(Generation { owner: owner.clone(), ..generation(&[1], &[1]) }).unwrap().unwrap();
    let id = trajectories.list(&owner, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
    let reward = |turn: Option<&str>, value| Note::Reward { turn: turn.map(Into::into), value };
    let other: Owner = Some("two".into());
    for foreign in [&other, &None] {
        assert_eq!(trajectories.note(foreign, &id, reward(None, Some(1.0))).unwrap(), Noted::NoTrajectory);
        assert!(trajectories.get(foreign, &id).unwrap().is_none() && !trajectories.delete(foreign, &id).unwrap());
        assert!(trajectories.list(foreign, &Filter::default(), 9).unwrap().trajectories.is_empty());
    }
    assert_eq!(trajectories.note(&owner, &id, reward(Some("turn_x"), Some(1.0))).unwrap(), Noted::NoTurn);
    assert!(matches!(trajectories.note(&owner, &id, reward(None, Some(1.0))).unwrap(), Noted::Done(_)));
    assert!(matches!(trajectories.note(&owner, &id, reward(Some(&turn), Some(2.0))).unwrap(), Noted::Done(_)));
    let tags = |add: Vec<String>| trajectories.note(&owner, &id, Note::Tags { add, remove: vec!["b".into()] }).unwrap();
    assert!(matches!(tags(vec!["a".into(), "b".into()]), Noted::Done(_)));
    assert_eq!(tags((0..MOST_TAGS).map(|tag| tag.to_string()).collect()), Noted::TooManyTags);
    let again = opened(&store, POLICY);
    let notes = again.list(&owner, &Filter::default(), 9).unwrap().trajectories.remove(0).notes;
    assert_eq!((notes.reward, notes.turn_rewards[&turn], notes.tags.len()), (Some(1.0), 2.0, 1));
    let key = keys(&again, &owner, Unit::Leaf).remove(0);
    assert_eq!(again.sequence(&key, 9).unwrap().reward, Some(2.0));
    assert!(again.delete(&owner, &id).unwrap() && store.ids().unwrap().is_empty());
}

proptest! {
    #[test]
    fn bytes_that_are_no_record_are_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), cut: bool,
    ) {
        prop_assert!(TurnRecord::decode(&bytes).is_err());
        let store = a_store();
        opened(&store, POLICY).capture(generation(&[1, 2], &[3])).unwrap();
        let id = store.ids().unwrap().remove(0);
        let mut record = store.read(&id).unwrap().unwrap();
        if cut {
            record.truncate(at.index(record.len()));
            prop_assert!(TurnRecord::decode(&record).is_err());
        } else {
            // One of the four lengths in front.
            record[at.index(16)] ^= 1 << (bytes.len() % 8);
            prop_assert!(TurnRecord::decode(&record).is_err());
        }
        store.write(&[], &[(&id, &record)]).unwrap();
        prop_assert!(Trajectories::open(Arc::clone(&store) as Arc<dyn BatchStore>, POLICY).is_err());
    }
}

#[test]
fn looking_at_a_store_deletes_nothing_and_shows_everybodys_trajectories() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    for (owner, prompt) in [(None, [1]), (Some("one".into()), [2]), (Some("two".into()), [2])] {
        trajectories.capture(Generation { owner, ended: 1.0, ..generation(&prompt, &[1]) }).unwrap();
    }
    let looked = Trajectories::open_to_look(Arc::clone(&store) as Arc<dyn BatchStore>).unwrap();
    let listed = looked.list(&None, &Filter::default(), 9).unwrap().trajectories;
    assert_eq!((listed.len(), store.ids().unwrap().len()), (3, 3));
    let (_, turns) = looked.get(&None, &listed[2].id).unwrap().unwrap();
    assert!(looked.sequence_of(&None, &listed[2].id, &turns[0].place.id).is_some());
    assert!(looked.sequence_of(&None, &listed[1].id, &turns[0].place.id).is_none());
    // A server of these bounds forgets all but one of them.
    let policy = CapturePolicy { ttl: Some(Duration::from_secs(1)), ..POLICY };
    opened(&store, policy);
    assert!(store.ids().unwrap().is_empty());
}
