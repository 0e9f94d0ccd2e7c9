//! Parallel branches of one conversation, as a GRPO group makes them, by clients that send no ids back.

use futures::future::join_all;
use serde_json::json;
use tito::TokenId;

use super::ids;
use crate::it::app::{IM_END, TestApp};

const BRANCHES: usize = 64;
const TURNS: usize = 4;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    exact: usize,
    /// Continued from an earlier turn, since the latest is ambiguous.
    partial: usize,
    /// Encoded again, since no turn is known unambiguously.
    retokenized: usize,
}

/// One branch of four turns; `known` is what the model saw and sampled in it, turn by turn.
async fn branch(app: &TestApp, number: usize, session: bool) -> Counts {
    let mut counts = Counts::default();
    let mut messages = Vec::new();
    let mut known: Vec<Vec<TokenId>> = Vec::new();
    for turn in 0..TURNS {
        messages.push(json!({"role": "user", "content": format!("question {turn}")}));
        // Few tokens that spell the same words in many ways make texts that tell little.
        let spellings: Vec<TokenId> =
            ["l", "ll"].iter().filter_map(|text| app.tokenizer().id_of(text)).chain([IM_END]).collect();
        let mut body = json!({"messages": messages, "temperature": 1.0, "seed": number * TURNS + turn, "max_tokens": 6,
            "allowed_token_ids": spellings, "return_token_ids": true});
        if session {
            body["session_id"] = json!(format!("branch {number}"));
        }
        let answer = app.post("/v1/chat/completions", body).await.ok();
        let prompt = ids(&answer["prompt_token_ids"]);
        let verdict = &answer["token_continuity"];
        let own = |turn: usize| prompt.starts_with(&known[turn]);
        match (turn, verdict["outcome"].as_str().unwrap()) {
            (0, outcome) => assert_eq!(outcome, "fresh"),
            (_, "exact") => {
                assert!(own(turn - 1), "branch {number}, turn {turn} has other ids than its own: {verdict}");
                counts.exact += 1;
            }
            (_, "partial") => {
                assert_eq!(verdict["reason"], "ambiguous", "{verdict}");
                let anchor = usize::try_from(verdict["anchor"].as_u64().unwrap()).unwrap();
                assert!(own(anchor / 2), "branch {number}, turn {turn}: {verdict}");
                counts.partial += 1;
            }
            (_, outcome) => {
                assert_eq!((outcome, &verdict["reason"]), ("retokenized", &json!("ambiguous")), "{verdict}");
                counts.retokenized += 1;
            }
        }
        let choice = &answer["choices"][0];
        known.push([prompt, ids(&choice["token_ids"])].concat());
        messages.push(json!({"role": "assistant", "content": choice["message"]["content"]}));
    }
    counts
}

async fn group(session: bool) -> Counts {
    let app = TestApp::new();
    let branches = (0..BRANCHES).map(|number| branch(&app, number, session));
    let add = |sum: Counts, counts: Counts| Counts {
        exact: sum.exact + counts.exact,
        partial: sum.partial + counts.partial,
        retokenized: sum.retokenized + counts.retokenized,
    };
    join_all(branches).await.into_iter().fold(Counts::default(), add)
}

#[tokio::test]
async fn branches_without_sessions_are_exact_or_ambiguous() {
    let counts = group(false).await;
    eprintln!("{BRANCHES} branches of {TURNS} turns, without sessions: {counts:?}");
    assert_eq!(counts.exact + counts.partial + counts.retokenized, BRANCHES * (TURNS - 1));
    // The tokens are chosen so that both happen.
    assert!(counts.exact > 50 && counts.retokenized > 5, "{counts:?}");
}

#[tokio::test]
async fn branches_with_sessions_are_all_exact() {
    let counts = group(true).await;
    eprintln!("{BRANCHES} branches of {TURNS} turns, with sessions: {counts:?}");
    assert_eq!(counts, Counts { exact: BRANCHES * (TURNS - 1), ..Counts::default() });
}
