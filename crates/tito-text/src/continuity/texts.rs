//! Prompts that are texts: whether one goes on from an answer of this server, and whether it does so by its ids.
//!
//! A client that sends a text back has it tokenized anew, which may give other ids than were sampled. No proof can be had
//! by which the sampled ids could take their place: a text has no messages. So the prompt stays what the text says, and
//! the verdict says what became of the ids. Only fingerprints are kept. To find the answer that a text starts with, it is
//! hashed once, and looked up after every block of its bytes.

use std::sync::Arc;

use super::{
    Continuity, ContinuityError, Gap, Outcome, Source, Verdict,
    answered::{Answered, AnsweredIds},
    fingerprint::{Fingerprint, TextDigest},
    memory::Memory,
};
use crate::TokenId;

/// The bytes after which a text is looked up.
const BLOCK: usize = 64;
/// Whose texts are looked for: the salt, the adapter and the session of a request.
#[derive(Debug, Clone, Default)]
pub struct TextScope {
    /// What keeps this client's texts from those of others.
    pub salt: Option<Arc<str>>,
    /// The adapter that is asked.
    pub adapter: Option<Arc<str>>,
    /// The session that the request belongs to.
    pub session: Option<String>,
}

/// Remembers the answers to one prompt.
#[derive(Debug)]
pub struct TextRecorder {
    memory: Arc<Memory>,
    /// The hash of the prompt so far, which the answer is added to.
    digest: TextDigest,
    /// The hash at the last whole block, and the bytes after it.
    block: TextDigest,
    rest: Vec<u8>,
    length: usize,
    prompt: Arc<[TokenId]>,
}

impl TextScope {
    fn digest(&self) -> TextDigest {
        let salt = Fingerprint::of_salt(self.salt.as_deref(), self.adapter.as_deref());
        TextDigest::new(salt, self.session.as_deref())
    }
}

impl Continuity {
    /// The verdict on the ids that a text was tokenized to, and what remembers its answers. Blocking: time grows with the
    /// text.
    pub fn judge_text(
        &self,
        scope: &TextScope,
        text: &str,
        token_ids: &Arc<[TokenId]>,
    ) -> Result<(Verdict, Option<TextRecorder>), ContinuityError> {
        let Some(memory) = &self.memory else {
            let verdict = Verdict::of_text(token_ids.len(), Some(Gap::CacheOff), scope.adapter.clone());
            return Ok((verdict.counted(), None));
        };
        let (known, recorder) = TextRecorder::begin(memory, scope.digest(), text, token_ids);
        let gap = match known.map(|known| known.ids) {
            None => Some(Gap::Unknown),
            Some(AnsweredIds::Several) => Some(Gap::Ambiguous),
            Some(AnsweredIds::One { count, ids }) => {
                let begins = token_ids.get(..count).is_some_and(|begin| Fingerprint::of_ids([begin]) == ids);
                (!begins).then_some(Gap::Drifted)
            }
        };
        let mut verdict = Verdict::of_text(token_ids.len(), gap, scope.adapter.clone());
        if let (Some(Answered { ids: AnsweredIds::One { count, .. }, .. }), None) = (known, gap) {
            (verdict.reused, verdict.new) = (count, token_ids.len() - count);
        }
        self.refuse_text(gap)?;
        Ok((verdict.counted(), Some(recorder)))
    }

    /// Strict servers refuse a text of which they know that its ids are others, or may be.
    fn refuse_text(&self, gap: Option<Gap>) -> Result<(), ContinuityError> {
        let why = match gap {
            Some(Gap::Drifted) => "gives other token ids than this server sampled for the text that it starts with",
            Some(Gap::Ambiguous) => "starts with a text that was answered more than once with other token ids",
            _ => return Ok(()),
        };
        if !self.policy.strict {
            return Ok(());
        }
        Verdict::count_refusal(Source::Cache, gap.map_or("", <&str>::from));
        Err(ContinuityError::new("prompt", format_args!("{why}; send token ids, or a session id with every request")))
    }
}

impl Verdict {
    /// The verdict on a text of `len` ids; without a gap, they start with all ids of the answer that it goes on from.
    fn of_text(len: usize, gap: Option<Gap>, adapter: Option<Arc<str>>) -> Self {
        let knows = !matches!(gap, Some(Gap::Unknown | Gap::CacheOff));
        Self {
            source: if knows { Source::Cache } else { Source::None },
            outcome: if gap.is_none() { Outcome::Exact } else { Outcome::Retokenized },
            reason: gap.map(Into::into),
            anchor: None,
            reused: 0,
            new: len,
            proof: None,
            matched_by: None,
            adapter,
            weights: None,
            warnings: Vec::new(),
            drift: None,
        }
    }
}

impl TextRecorder {
    /// The longest answer that the text starts with, and what remembers answers to it; `block` is the hash of no text.
    fn begin(
        memory: &Arc<Memory>,
        mut block: TextDigest,
        text: &str,
        prompt: &Arc<[TokenId]>,
    ) -> (Option<Answered>, Self) {
        let (mut longest, mut rest) = (None, text.as_bytes());
        loop {
            let at = text.len() - rest.len();
            let starts = |known: &&Answered| {
                let more = known.length.checked_sub(at).and_then(|more| rest.get(..more));
                more.is_some_and(|more| block.clone().with(more).fingerprint() == known.text)
            };
            if let Some(listed) = memory.texts.get(&block.fingerprint()) {
                longest = listed.iter().filter(starts).max_by_key(|known| known.length).copied().or(longest);
            }
            let Some((whole, more)) = rest.split_at_checked(BLOCK) else { break };
            block = block.with(whole);
            rest = more;
        }
        let digest = block.clone().with(rest);
        let (rest, prompt) = (rest.to_vec(), Arc::clone(prompt));
        (longest, Self { memory: Arc::clone(memory), digest, block, rest, length: text.len(), prompt })
    }

    /// Remembers an answer, as the client gets it, with the ids that were sampled for it. To be called before the client
    /// can have the whole answer. An answer without text is none that a later prompt could show.
    pub fn remember(&self, answer: &str, sampled: &[TokenId]) {
        if answer.is_empty() {
            return;
        }
        let text = self.digest.clone().with(answer.as_bytes()).fingerprint();
        let mut block = self.block.clone();
        let bytes = [&self.rest, answer.as_bytes()].concat();
        for whole in bytes.chunks_exact(BLOCK) {
            block = block.with(whole);
        }
        let (count, ids) = (self.prompt.len() + sampled.len(), Fingerprint::of_ids([&*self.prompt, sampled]));
        let length = self.length + answer.len();
        let answered = Answered { length, text, ids: AnsweredIds::One { count, ids } };
        self.memory.texts.entry(block.fingerprint()).and_upsert_with(|known| {
            let known = known.map(moka::Entry::into_value);
            answered.added_to(known.as_deref().unwrap_or_default()).into()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::continuity::{ContinuityPolicy, MemoryBounds, answered::MOST};

    fn continuity(strict: bool) -> Continuity {
        let memory = Some(MemoryBounds { bytes: 1 << 20, ttl: Duration::from_hours(1) });
        Continuity::new(ContinuityPolicy { memory, strict, check_drift: false }, 1000)
    }

    /// A tokenizer that knows bytes only.
    fn ids(text: &str) -> Arc<[TokenId]> {
        text.bytes().map(TokenId::from).collect()
    }

    fn judge(continuity: &Continuity, scope: &TextScope, text: &str) -> (Verdict, TextRecorder) {
        let (verdict, recorder) = continuity.judge_text(scope, text, &ids(text)).unwrap();
        (verdict, recorder.unwrap())
    }

    fn says(verdict: &Verdict) -> (Outcome, Option<&'static str>, usize) {
        (verdict.outcome, verdict.reason, verdict.reused)
    }

    #[test]
    fn a_text_of_any_length_is_found_wherever_the_next_one_goes_on() {
        let scope = TextScope::default();
        for prompt in [1, 10, 63, 64, 65, 127, 128, 300] {
            for answer in [1, 5, 63, 64, 65, 200] {
                for more in [0, 1, 63, 64, 500] {
                    let continuity = continuity(false);
                    let (prompt, answer) = ("p".repeat(prompt), "a".repeat(answer));
                    let (first, recorder) = judge(&continuity, &scope, &prompt);
                    assert_eq!(says(&first), (Outcome::Retokenized, Some("unknown"), 0));
                    recorder.remember(&answer, &ids(&answer));
                    let whole = format!("{prompt}{answer}");
                    let (next, _) = judge(&continuity, &scope, &format!("{whole}{}", "m".repeat(more)));
                    assert_eq!(says(&next), (Outcome::Exact, None, whole.len()), "{whole} {more}");
                    assert_eq!(next.source, Source::Cache);
                    let (other, _) = judge(&continuity, &scope, &format!("{prompt}b{answer}"));
                    assert_eq!(says(&other), (Outcome::Retokenized, Some("unknown"), 0));
                }
            }
        }
    }

    #[test]
    fn ids_that_differ_are_told_and_refused_by_strict_servers() {
        for strict in [false, true] {
            let continuity = continuity(strict);
            let scope = TextScope::default();
            let (_, recorder) = judge(&continuity, &scope, "hello");
            recorder.remember(" world", &[1, 2]);
            let drifted = continuity.judge_text(&scope, "hello world!", &ids("hello world!"));
            recorder.remember(" world", &[1, 3]);
            let ambiguous = continuity.judge_text(&scope, "hello world!", &ids("hello world!"));
            for (found, reason) in [(drifted, "drifted"), (ambiguous, "ambiguous")] {
                match found {
                    Ok((verdict, _)) => assert_eq!(says(&verdict), (Outcome::Retokenized, Some(reason), 0)),
                    Err(error) => assert!(strict && error.field.to_string() == "prompt", "{error}"),
                }
            }
        }
    }

    #[test]
    fn the_longest_answer_counts_and_none_without_text() {
        let continuity = continuity(false);
        let scope = TextScope::default();
        let (_, first) = judge(&continuity, &scope, "a");
        first.remember("b", &[9]);
        first.remember("", &[2]);
        let (drifted, second) = judge(&continuity, &scope, "abc");
        assert_eq!(says(&drifted).1, Some("drifted"));
        second.remember("d", &ids("d"));
        assert_eq!(says(&judge(&continuity, &scope, "abcde").0), (Outcome::Exact, None, 4));
        assert_eq!(says(&judge(&continuity, &scope, "a.").0).1, Some("unknown"));
    }

    #[test]
    fn salts_adapters_and_sessions_have_texts_of_their_own() {
        let continuity = continuity(false);
        let scopes = [
            TextScope::default(),
            TextScope { salt: Some("s".into()), ..TextScope::default() },
            TextScope { adapter: Some("s".into()), ..TextScope::default() },
            TextScope { session: Some("s".to_owned()), ..TextScope::default() },
        ];
        for (number, scope) in scopes.iter().enumerate() {
            let (_, recorder) = judge(&continuity, scope, "hello");
            recorder.remember(" world", &ids(" world"));
            for (other, scope) in scopes.iter().enumerate() {
                let is_known = judge(&continuity, scope, "hello world").0.outcome == Outcome::Exact;
                assert_eq!(is_known, other <= number, "{number} {other}");
            }
        }
    }

    #[test]
    fn texts_with_the_same_beginning_do_not_add_up_for_ever() {
        let continuity = continuity(false);
        let scope = TextScope::default();
        let (_, recorder) = judge(&continuity, &scope, "p");
        for number in 0..1000 {
            let answer = format!("{number:03}");
            recorder.remember(&answer, &ids(&answer));
        }
        let known = |number: usize| judge(&continuity, &scope, &format!("p{number:03}")).0.outcome == Outcome::Exact;
        assert!(known(999) && known(1000 - MOST) && !known(999 - MOST));
    }
}
