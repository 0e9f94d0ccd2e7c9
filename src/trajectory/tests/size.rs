//! What is counted for turns is no less than what they take, and not much more.

use serde_json::value::RawValue;

use super::*;
use crate::{
    store::BatchStore,
    trajectory::{fingerprint::Fingerprint, index::Index},
};

/// One more than half of a table's places have when it doubles: the worst that a table can be.
const TURNS: usize = 115_000;

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * told.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

/// Turns in trajectories of so many, with records of 100 bytes.
fn fill(index: &mut Index, store: &MemoryStore, turns: usize) {
    let id = |kind: &str| -> Arc<str> { format!("{kind}{}", uuid::Uuid::new_v4().simple()).into() };
    for number in 0..TURNS / turns {
        let session = (turns > 1).then(|| Arc::from(format!("a rollout with the number {number}")));
        let mut tree = None;
        for turn in 0..turns {
            let (number, planted, trajectory) = index.reserve(tree, None, session.as_ref());
            let parent = tree.map(|_| number - 1);
            tree = Some(planted);
            let place = Place {
                id: id("turn_"),
                number,
                trajectory,
                tree: planted,
                parent,
                parent_id: None,
                prompt_tokens: turn,
                ambiguous: false,
                messages_before: 0,
                digest: String::new(),
            };
            let generation = Generation { request_ids: vec![id("chatcmpl-")], ..generation(&[1], &[1]) };
            let record = TurnRecord { place, generation };
            let (key, encoded) = (turn_key(number), [1; 100]);
            index.make_room(planted, weight::of_turn(&record, encoded.len()), u64::MAX).unwrap();
            store.write(&[], &[(&key, &encoded)]).unwrap();
            let ids = [u32::try_from(number).unwrap(), u32::try_from(planted).unwrap()];
            index.enter(&record, index.base.after(Fingerprint::default(), &ids));
        }
    }
}

fn compare(turns: usize) {
    if !cfg!(target_os = "linux") || !std::env::args().any(|argument| argument == "--exact") {
        println!("SKIPPED: only in a process of its own, and where /proc says how large that is");
        return;
    }
    let (mut index, store) = (Index::new(), a_store());
    let before = resident();
    fill(&mut index, &store, turns);
    let (taken, counted) = (resident() - before, index.bytes());
    let (taken_each, counted_each) = (taken / TURNS as u64, counted / TURNS as u64);
    println!("a turn, {turns} in a trajectory: {taken_each} bytes taken, {counted_each} counted");
    assert!(counted >= taken, "{counted_each} of {taken_each}");
    assert!(counted < 2 * taken, "{counted_each} of {taken_each}");
}

#[test]
fn turns_of_long_trajectories_take_what_is_counted() {
    compare(10);
}

#[test]
fn trajectories_of_one_turn_take_what_is_counted() {
    compare(1);
}

#[test]
fn notes_are_counted_and_bounded() {
    let store = a_store();
    let policy = CapturePolicy { bytes: 30_000, ..POLICY };
    let trajectories = opened(&store, policy);
    for number in 0..3 {
        trajectories.capture(generation(&[number], &[1])).unwrap();
    }
    let ids: Vec<_> =
        trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories.into_iter().map(|told| told.id).collect();
    let before = trajectories.index.lock().bytes();
    let tags = |from: usize, to: usize| (from..to).map(|tag| format!("{tag:0200}")).collect::<Vec<_>>();
    let note = |id: &str, add, remove| trajectories.note(&None, id, Note::Tags { add, remove });
    assert!(matches!(note(&ids[2], tags(0, 20), Vec::new()).unwrap(), Noted::Done(_)));
    let noted = trajectories.index.lock().bytes();
    assert!(noted > before + 20 * 400, "{before} {noted}");
    assert_eq!(opened(&store, policy).index.lock().bytes(), noted, "a new process counts the same");
    assert!(matches!(note(&ids[2], Vec::new(), tags(0, 20)).unwrap(), Noted::Done(_)));
    assert_eq!(trajectories.index.lock().bytes(), before);
    // The oldest leave for notes too, and what cannot fit is refused and changes nothing.
    assert!(matches!(note(&ids[2], tags(0, 45), Vec::new()).unwrap(), Noted::Done(_)));
    let left: Vec<_> = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories;
    assert!(left.len() < 3 && left.last().unwrap().id == ids[2], "{left:?}");
    let most = trajectories.index.lock().bytes();
    assert!(most <= 30_000);
    let error = note(&ids[2], tags(45, 64), Vec::new()).unwrap_err();
    assert!(matches!(error, CaptureError::TooLarge { .. }), "{error}");
    assert_eq!(trajectories.index.lock().bytes(), most);
}

/// The answers to one prompt: its ids and its text are kept once, whichever of them leave.
#[test]
fn eight_answers_keep_their_prompt_once() {
    const LENGTH: u32 = 16_000;
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let prompt: Vec<TokenId> = (0..LENGTH).map(|id| id.wrapping_mul(2_654_435_761) % 50_000).collect();
    let text = prompt.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let message: Arc<RawValue> = serde_json::value::to_raw_value(&text).unwrap().into();
    let mut kept = Vec::new();
    for index in 0..8 {
        let sampled: Vec<TokenId> = (0..100).map(|id| id * 7 + index).collect();
        let (messages, index) = (vec![Arc::clone(&message)], index as usize);
        trajectories.capture(Generation { index, messages, ..generation(&prompt, &sampled) }).unwrap();
        kept.push(store.bytes());
    }
    println!("{} bytes of a prompt; kept after each answer: {kept:?}", 4 * prompt.len() + text.len());
    assert!(kept[7] < kept[0] + 7 * kept[0] / 10, "{kept:?}");
    let answers = keys(&trajectories, &None, Unit::Leaf);
    assert_eq!(answers.len(), 8);
    for (number, key) in answers.iter().enumerate() {
        for rest in &answers[number..] {
            assert_eq!(trajectories.sequence(rest, 50_000).unwrap().token_ids[..prompt.len()], prompt);
        }
        assert!(trajectories.delete(&None, &key.trajectory).unwrap());
    }
    assert_eq!(store.bytes(), 0);
}
