//! What is counted for turns is no less than what they take, and not much more.

use serde_json::value::RawValue;

use super::*;
use crate::{
    store::BatchStore,
    trajectory::{fingerprint::Fingerprint, index::Index, weight::Weight},
};

/// One more than half of a table's places have when it doubles: the worst that a table can be.
const TURNS: usize = 115_000;

/// The memory of this process, in bytes, without what was freed.
#[expect(unsafe_code, reason = "an allocator has no safe name for it")]
fn resident() -> u64 {
    // SAFETY: it may be called at any time and from any thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
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
            index.count(planted, Weight::of(&record, &encoded));
            store.write(&[], &[(&key, &encoded)]).unwrap();
            let ids = [u32::try_from(number).unwrap(), u32::try_from(planted).unwrap()];
            index.enter(&record, index.base.after(Fingerprint::default(), &ids, &[]), Box::default());
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
    let (taken, counted) = (resident() - before, index.bytes() + store.kept_bytes().unwrap());
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
    let before = trajectories.bytes();
    let tags = |from: usize, to: usize| (from..to).map(|tag| format!("{tag:0200}")).collect::<Vec<_>>();
    let note = |id: &str, add, remove| trajectories.note(&None, id, Note::Tags { add, remove });
    assert!(matches!(note(&ids[2], tags(0, 20), Vec::new()).unwrap(), Noted::Done(_)));
    let noted = trajectories.bytes();
    assert!(noted > before + 20 * 400, "{before} {noted}");
    assert_eq!(opened(&store, policy).bytes(), noted, "a new process counts the same");
    assert!(matches!(note(&ids[2], Vec::new(), tags(0, 20)).unwrap(), Noted::Done(_)));
    assert_eq!(trajectories.bytes(), before);
    // The oldest leave for notes too, and what cannot fit is refused and changes nothing.
    assert!(matches!(note(&ids[2], tags(0, 45), Vec::new()).unwrap(), Noted::Done(_)));
    let left: Vec<_> = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories;
    assert!(left.len() < 3 && left.last().unwrap().id == ids[2], "{left:?}");
    let most = trajectories.bytes();
    assert!(most <= 30_000);
    let error = note(&ids[2], tags(45, 64), Vec::new()).unwrap_err();
    assert!(matches!(error, CaptureError::TooLarge { .. }), "{error}");
    assert_eq!(trajectories.bytes(), most);
}

/// Another answer to a prompt of 16,000 ids.
fn an_answer(index: u32) -> Generation {
    let prompt: Vec<TokenId> = (0..16_000_u32).map(|id| id.wrapping_mul(2_654_435_761) % 50_000).collect();
    let text = prompt.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let message: Arc<RawValue> = serde_json::value::to_raw_value(&text).unwrap().into();
    let sampled: Vec<TokenId> = (0..100).map(|id| id * 7 + index).collect();
    Generation { index: index as usize, messages: vec![message], ..generation(&prompt, &sampled) }
}

/// The answers to one prompt: its ids and its text are kept once, whichever of them leave.
#[test]
fn eight_answers_keep_their_prompt_once() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let mut kept = Vec::new();
    for index in 0..8 {
        trajectories.capture(an_answer(index)).unwrap();
        kept.push(store.kept_bytes().unwrap());
    }
    println!("kept after each answer: {kept:?}");
    assert!(kept[7] < kept[0] + 7 * kept[0] / 10, "{kept:?}");
    let (answers, prompt) = (keys(&trajectories, &None, Unit::Leaf), an_answer(0).prompt);
    assert_eq!(answers.len(), 8);
    for (number, key) in answers.iter().enumerate() {
        for rest in &answers[number..] {
            assert_eq!(trajectories.sequence(rest, 50_000).unwrap().token_ids[..prompt.len()], *prompt);
        }
        assert!(trajectories.delete(&None, &key.trajectory).unwrap());
    }
    assert_eq!(store.kept_bytes().unwrap(), 0);
}

/// What answers share counts once: in the room of two prompts, eight answers stay, and as many as really fit.
#[test]
fn eight_answers_count_their_prompt_once() {
    let left = |trajectories: &Trajectories| keys(trajectories, &None, Unit::Leaf).len();
    let unbounded = opened(&a_store(), POLICY);
    unbounded.capture(an_answer(0)).unwrap();
    let (store, policy) = (a_store(), CapturePolicy { bytes: 2 * unbounded.bytes(), ..POLICY });
    let trajectories = opened(&store, policy);
    let most = (0..100).map(|index| {
        trajectories.capture(an_answer(index)).unwrap();
        left(&trajectories)
    });
    let most = most.max().unwrap();
    assert!(most >= 8, "{most}");
    // A new process counts the same; with a byte less than there is, the oldest leaves.
    let (kept, bytes) = (left(&trajectories), trajectories.bytes());
    let again = opened(&store, policy);
    assert_eq!((left(&again), again.bytes()), (kept, bytes));
    assert_eq!(left(&opened(&store, CapturePolicy { bytes: bytes - 1, ..POLICY })), kept - 1);
}

/// The same in one trajectory, of which nothing leaves: what does not fit is refused and changes nothing.
#[test]
fn eight_answers_of_a_session_count_their_prompt_once() {
    let answer = |index| Generation { session: Some("s".into()), ..an_answer(index) };
    let unbounded = opened(&a_store(), POLICY);
    unbounded.capture(answer(0)).unwrap();
    let most = 2 * unbounded.bytes();
    let trajectories = opened(&a_store(), CapturePolicy { bytes: most, ..POLICY });
    let (mut taken, mut before) = (0, 0);
    let error = loop {
        match trajectories.capture(answer(taken)) {
            Ok(_) => (taken, before) = (taken + 1, trajectories.bytes()),
            Err(error) => break error,
        }
    };
    assert!(taken >= 8, "{taken}");
    assert!(matches!(error, CaptureError::TooLarge { bytes, most: told } if bytes > most && told == most), "{error}");
    assert_eq!((keys(&trajectories, &None, Unit::Leaf).len(), trajectories.bytes()), (taken as usize, before));
}

/// Something to do to trajectories that share a lot.
#[derive(Debug, Clone)]
enum Step {
    /// The prompt, how much of it there is, the answer, and the session.
    Capture(u32, usize, u32, Option<u8>),
    Note(usize, u8),
    Delete(usize),
}

fn a_step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![1..50_usize, 1..6_000_usize];
    prop_oneof![
        6 => (0..3_u32, length, 0..4_u32, proptest::option::of(0..2_u8))
            .prop_map(|(seed, length, answer, session)| Step::Capture(seed, length, answer, session)),
        1 => (0..20_usize, 0..40_u8).prop_map(|(at, tags)| Step::Note(at, tags)),
        1 => (0..20_usize).prop_map(Step::Delete),
    ]
}

fn take_step(trajectories: &Trajectories, step: &Step) -> Result<(), CaptureError> {
    let id = |at: usize| {
        let all = trajectories.list(&None, &Filter::default(), 999).unwrap().trajectories;
        all.get(at).map_or_else(String::new, |told| told.id.to_string())
    };
    match *step {
        Step::Capture(seed, length, answer, session) => {
            let prompt: Vec<TokenId> = (0..6_000_u32)
                .map(|id| (id + 7_000 * seed).wrapping_mul(2_654_435_761) % 50_000)
                .take(length)
                .collect();
            let session = session.map(|session| session.to_string().into());
            trajectories.capture(Generation { session, ..generation(&prompt, &[answer; 20]) }).map(drop)
        }
        Step::Note(at, tags) => {
            let add = (0..tags).map(|tag| format!("{tag:0100}")).collect();
            trajectories.note(&None, &id(at), Note::Tags { add, remove: vec![format!("{:0100}", 3)] }).map(drop)
        }
        Step::Delete(at) => trajectories.delete(&None, &id(at)).map(drop),
    }
}

proptest! {
    #[test]
    fn what_is_counted_is_what_is_kept(steps in proptest::collection::vec(a_step(), 1..60)) {
        const MOST: u64 = 100_000;
        let (store, policy) = (a_store(), CapturePolicy { bytes: MOST, ..POLICY });
        let trajectories = opened(&store, policy);
        for step in &steps {
            let (before, all) = (trajectories.bytes(), trajectories.index.lock().trees.len());
            let done = take_step(&trajectories, step);
            let known = trajectories.index.lock().bytes();
            prop_assert_eq!(trajectories.bytes(), known + store.kept_bytes().unwrap());
            prop_assert!(trajectories.bytes() <= MOST);
            if let Err(error) = done {
                prop_assert!(matches!(error, CaptureError::TooLarge { .. }), "{}", error);
                prop_assert_eq!((trajectories.bytes(), trajectories.index.lock().trees.len()), (before, all));
            }
        }
        let keys = keys(&trajectories, &None, Unit::Leaf);
        let again = opened(&store, policy);
        prop_assert_eq!(again.bytes(), trajectories.bytes());
        let trees: Vec<u64> = again.index.lock().trees.keys().copied().collect();
        prop_assert_eq!(keys.iter().all(|key| again.sequence(key, 50_000).is_ok()), true);
        for tree in trees {
            again.index.lock().fell(tree);
        }
        again.settle(None).unwrap();
        prop_assert_eq!((again.bytes(), store.kept_bytes().unwrap()), (0, 0));
    }
}
