//! 10,000 conversations that are held at once, against a recorder that knows whole sequences by their ids and nothing else.

use std::collections::HashMap;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use super::*;

const CONVERSATIONS: usize = 10_000;

/// Every sequence by its ids.
#[derive(Default)]
struct Recorder {
    turns: Vec<Recorded>,
    by_ids: HashMap<Vec<TokenId>, Vec<usize>>,
    sessions: HashMap<Arc<str>, usize>,
    trees: usize,
}

struct Recorded {
    tree: usize,
    prompt: usize,
    whole: Vec<TokenId>,
    parent: Option<usize>,
    ambiguous: bool,
}

impl Recorder {
    /// Sees a turn in a session, or one that follows another one by name.
    fn see(&mut self, prompt: &[TokenId], sampled: &[TokenId], session: Option<&Arc<str>>, named: Option<usize>) {
        let of_session = session.map(|session| self.sessions.get(session).copied());
        let among = of_session.or(named.map(|turn| Some(self.turns[turn].tree)));
        let in_scope = |turn: &usize| among.is_none_or(|tree| tree == Some(self.turns[*turn].tree));
        let fitting = (0..=prompt.len()).rev().find_map(|length| {
            let all = self.by_ids.get(&prompt[..length])?;
            Some(all.iter().copied().filter(in_scope).collect::<Vec<_>>()).filter(|fitting| !fitting.is_empty())
        });
        let fitting = fitting.unwrap_or_default();
        let by_name = fitting.iter().copied().find(|turn| Some(*turn) == named && session.is_none());
        let parent = by_name.or(fitting.first().copied());
        let tree = parent.map(|turn| self.turns[turn].tree).or(among.flatten()).unwrap_or_else(|| {
            self.trees += 1;
            self.trees
        });
        if let Some(session) = session {
            self.sessions.insert(Arc::clone(session), tree);
        }
        let whole = [prompt, sampled].concat();
        self.by_ids.entry(whole.clone()).or_default().push(self.turns.len());
        let ambiguous = by_name.is_none() && fitting.len() > 1;
        self.turns.push(Recorded { tree, prompt: prompt.len(), whole, parent, ambiguous });
    }
}

/// How the turns of a conversation are told to belong together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Session,
    Name,
    IdsAlone,
}

struct Conversation {
    told: Told,
    session: Arc<str>,
    /// Its turns, by their numbers among all.
    turns: Vec<usize>,
    left: usize,
}

/// What all conversations begin with.
const SYSTEM: [TokenId; 3] = [1, 2, 3];

fn below(random: &mut ChaCha8Rng, bound: usize) -> usize {
    random.next_u32() as usize % bound
}

fn some_ids(random: &mut ChaCha8Rng, least: usize) -> Vec<TokenId> {
    // Few words, so that conversations and sub-agents meet by chance.
    (0..least + below(random, 3)).map(|_| 4 + random.next_u32() % 16).collect()
}

/// The prompt of the next turn: it goes on, branches off, or begins anew behind what all share.
fn prompt(random: &mut ChaCha8Rng, conversation: &Conversation, recorder: &Recorder) -> (Vec<TokenId>, Option<usize>) {
    let turn = match below(random, 10) {
        0..=5 => conversation.turns.last().copied(),
        // A branch.
        6..=7 if !conversation.turns.is_empty() => Some(conversation.turns[below(random, conversation.turns.len())]),
        // A summary, or a sub-agent.
        _ => None,
    };
    let mut prompt = turn.map_or_else(|| SYSTEM.to_vec(), |turn| recorder.turns[turn].whole.clone());
    if below(random, 20) == 0 {
        // An edited history.
        prompt.truncate(prompt.len() - below(random, prompt.len().min(4)));
    }
    prompt.extend(some_ids(random, 2));
    (prompt, turn)
}

fn compare(trajectories: &Trajectories, recorder: &Recorder, ids: &[Arc<str>]) -> (usize, usize) {
    let numbers: HashMap<&str, usize> = ids.iter().enumerate().map(|(number, id)| (&**id, number)).collect();
    let (mut trees, mut count, mut after) = (HashMap::new(), 0, None);
    loop {
        let page = trajectories.list(&None, &Filter { after, ..Filter::default() }, 1000).unwrap();
        after = page.trajectories.last().map(|told| told.id.to_string());
        for told in &page.trajectories {
            for turn in trajectories.get(&None, &told.id).unwrap().unwrap().1 {
                let seen = &recorder.turns[numbers[&*turn.place.id]];
                assert_eq!(*trees.entry(seen.tree).or_insert_with(|| Arc::clone(&told.id)), told.id);
                assert_eq!(turn.place.parent_id.as_ref(), seen.parent.map(|parent| &ids[parent]));
                assert_eq!((turn.place.ambiguous, turn.place.prompt_tokens), (seen.ambiguous, seen.prompt));
                let before = seen.parent.map_or(0, |parent| recorder.turns[parent].whole.len());
                assert_eq!(*turn.generation.prompt, seen.whole[before..seen.prompt]);
                assert_eq!(turn.generation.sampled, seen.whole[seen.prompt..]);
                count += 1;
            }
        }
        if !page.has_more {
            break;
        }
    }
    assert_eq!((count, trees.len()), (recorder.turns.len(), recorder.trees));
    let mut is_leaf = vec![true; recorder.turns.len()];
    for parent in recorder.turns.iter().filter_map(|turn| turn.parent) {
        is_leaf[parent] = false;
    }
    let leaves = keys(trajectories, &None, Unit::Leaf);
    assert_eq!(leaves.len(), is_leaf.iter().filter(|is_leaf| **is_leaf).count());
    for key in &leaves {
        let number = numbers[&*key.turn];
        let sequence = trajectories.sequence(key, 100).unwrap();
        assert!(is_leaf[number] && sequence.token_ids == recorder.turns[number].whole);
        let (mut mask, mut next) = (vec![false; sequence.token_ids.len()], Some(number));
        while let Some(turn) = next.map(|number| &recorder.turns[number]) {
            mask[turn.prompt..turn.whole.len()].fill(true);
            next = turn.parent;
        }
        assert_eq!(sequence.loss_mask, mask);
    }
    (recorder.turns.len(), leaves.len())
}

#[test]
fn ten_thousand_conversations_at_once_are_what_a_recorder_saw() {
    let mut random = ChaCha8Rng::seed_from_u64(19);
    let store = a_store();
    let mut trajectories = opened(&store, POLICY);
    let (mut recorder, mut ids) = (Recorder::default(), Vec::new());
    let mut open: Vec<Conversation> = (0..CONVERSATIONS)
        .map(|number| Conversation {
            told: [Told::Session, Told::Name, Told::IdsAlone][number % 3],
            session: format!("session {number}").into(),
            turns: Vec::new(),
            left: 2 + below(&mut random, 5),
        })
        .collect();
    let restart = CONVERSATIONS * 2;
    while !open.is_empty() {
        if ids.len() == restart {
            trajectories = opened(&store, POLICY);
        }
        let at = below(&mut random, open.len());
        let (prompt, after) = prompt(&mut random, &open[at], &recorder);
        let sampled = some_ids(&mut random, 1);
        let conversation = &mut open[at];
        let session = (conversation.told == Told::Session).then(|| Arc::clone(&conversation.session));
        let named = after.filter(|_| conversation.told == Told::Name);
        let request = |number: usize| -> Arc<str> { format!("request {number}").into() };
        let generation = Generation {
            session: session.clone(),
            continues: named.map(request),
            request_ids: vec![request(ids.len())],
            ..generation(&prompt, &sampled)
        };
        conversation.turns.push(ids.len());
        conversation.left -= 1;
        ids.push(trajectories.capture(generation).unwrap().unwrap());
        recorder.see(&prompt, &sampled, session.as_ref(), named);
        if conversation.left == 0 {
            open.swap_remove(at);
        }
    }
    let (turns, leaves) = compare(&trajectories, &recorder, &ids);
    assert_eq!(compare(&opened(&store, POLICY), &recorder, &ids), (turns, leaves));
    let branches = recorder.turns.iter().filter(|turn| turn.parent.is_some()).count();
    let ambiguous = recorder.turns.iter().filter(|turn| turn.ambiguous).count();
    println!(
        "{CONVERSATIONS} conversations, {turns} turns, {leaves} leaves, {branches} continue, {ambiguous} ambiguous"
    );
    assert!(turns > 3 * CONVERSATIONS && branches > turns / 3 && ambiguous > 50, "the conversations are not worth it");
}
