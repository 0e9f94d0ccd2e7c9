//! What becomes of one conversation: exact, a refusal that was expected, or not shown by the template; and what NeMo-RL
//! makes of it.

use std::{
    collections::BTreeMap,
    ops::{Add, AddAssign},
};

use serde_json::Value;
use tito::{
    TokenId,
    prompt::{ChatPrompt, PromptError, Provenance, UnprovableSplice, replace_prefix_tokens},
};

use super::{families::Family, oracle};

/// How many conversations came to what.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) exact: usize,
    pub(crate) exact_after_foreign_stop: usize,
    /// By reason.
    pub(crate) refused: BTreeMap<&'static str, usize>,
    /// The template cannot show the conversation at all.
    pub(crate) not_shown: usize,
    /// NeMo-RL's algorithm, cutting at the last assistant's message as its vLLM worker does.
    pub(crate) nemo: Compared,
    /// The same, cutting at the message that the ids came with, as NVIDIA Dynamo does.
    pub(crate) dynamo: Compared,
}

/// What another algorithm makes of the conversations that templates show.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Compared {
    pub(crate) exact: usize,
    pub(crate) failed: usize,
    pub(crate) wrong: usize,
}

impl Add for Compared {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { exact: self.exact + other.exact, failed: self.failed + other.failed, wrong: self.wrong + other.wrong }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.exact += other.exact;
        self.exact_after_foreign_stop += other.exact_after_foreign_stop;
        self.not_shown += other.not_shown;
        self.nemo = self.nemo + other.nemo;
        self.dynamo = self.dynamo + other.dynamo;
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
    }
}

/// What may be refused.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusals {
    /// What is known to be refused, for this reason; everything else is exact.
    For(Option<UnprovableSplice>),
    /// Anything: only what is silently wrong counts as a fault.
    WithAnyReason,
}

impl Refusals {
    fn allow(self, reason: UnprovableSplice) -> bool {
        match self {
            Self::For(expected) => expected == Some(reason),
            Self::WithAnyReason => true,
        }
    }
}

impl Counts {
    /// Counts one conversation. Anything that is neither exact nor one of the `refusals` is a complaint.
    pub(crate) fn check(
        &mut self,
        family: &Family,
        request: Result<Value, PromptError>,
        refusals: Refusals,
    ) -> Result<(), String> {
        let answer = request.and_then(|request| {
            let expected = oracle::find(family, &request)?;
            Ok((request, expected))
        });
        let (request, expected) = match answer {
            Ok(answer) => answer,
            Err(PromptError::Unprovable(reason)) => return self.refuse(reason, refusals),
            Err(_) => {
                self.not_shown += 1;
                return Ok(());
            }
        };
        let rendered = family.model.render(&request);
        let ids = rendered.as_ref().ok().map(|rendered| rendered.token_ids.to_vec());
        let refused = rendered.is_err() && matches!(refusals, Refusals::WithAnyReason);
        self.compare(family, &request, expected.as_deref(), ids.as_deref())
            .or_else(|complaint| if refused { Ok(()) } else { Err(complaint) })?;
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(PromptError::Unprovable(reason)) => return self.refuse(reason, refusals),
            Err(error) => return Err(error.to_string()),
        };
        if expected.as_deref() != Some(&*rendered.token_ids) {
            let should = expected.map(|ids| family.model.text(&ids));
            return Err(format!("silently wrong:\n{:?}\n{should:?}", family.model.text(&rendered.token_ids)));
        }
        match (rendered.provenance, refusals) {
            (_, Refusals::For(Some(reason))) => return Err(format!("was refused once: {reason:?}")),
            (Provenance::Spliced { foreign_stop: false, .. }, _) => self.exact += 1,
            (Provenance::Spliced { foreign_stop: true, .. }, _) => self.exact_after_foreign_stop += 1,
            (other, _) => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    fn refuse(&mut self, reason: UnprovableSplice, allowed: Refusals) -> Result<(), String> {
        *self.refused.entry(reason.into()).or_default() += 1;
        if allowed.allow(reason) { Ok(()) } else { Err(format!("refused, {reason:?} instead of {allowed:?}")) }
    }

    /// Where NeMo-RL or Dynamo are right, so are we.
    fn compare(
        &mut self,
        family: &Family,
        request: &Value,
        expected: Option<&[TokenId]>,
        ours: Option<&[TokenId]>,
    ) -> Result<(), String> {
        let messages = request["messages"].as_array().unwrap();
        let last = messages.iter().rposition(|message| message["role"] == "assistant").unwrap();
        let (anchor, known) = oracle::known(request);
        for (name, end, compared) in [("NeMo-RL", last, &mut self.nemo), ("Dynamo", anchor, &mut self.dynamo)] {
            let Some(theirs) = spliced_by_eos_count(family, request, end, &known) else {
                compared.failed += 1;
                continue;
            };
            if Some(theirs.as_slice()) != expected {
                compared.wrong += 1;
                continue;
            }
            compared.exact += 1;
            if ours != expected {
                return Err(format!("{name} is right, and we are not: {:?}", ours.map(|ids| family.model.text(ids))));
            }
        }
        Ok(())
    }
}

/// What NeMo-RL's algorithm makes of a conversation whose ids stand for the messages up to `end`; `None` where it fails.
fn spliced_by_eos_count(family: &Family, request: &Value, end: usize, known: &[TokenId]) -> Option<Vec<TokenId>> {
    let full = family.model.honest(request).ok()?;
    let mut prompt = ChatPrompt { known: None, add_generation_prompt: false, ..family.model.prompt(request) };
    prompt.messages.truncate(end + 1);
    let prefix = family.model.renderer.render(&prompt).ok()?.token_ids;
    replace_prefix_tokens(family.model.eos.primary, known, &prefix, &full).ok()
}
