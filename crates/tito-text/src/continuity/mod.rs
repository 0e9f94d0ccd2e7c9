//! Which ids are known for a conversation, and which message they end with.
//!
//! Owns the carriers of ids, their precedence and their checks, the cache for clients that carry none, and the verdict
//! on what became of them: a whole prompt wins over `required_prefix_token_ids`, these over the ids on messages, and
//! these over the cache. Refuses rendering. `prompt` turns known ids into a prompt. It also finds the message that they
//! end with, if nothing says it.
//!
//! Deliberate deviations from NeMo-RL, whose servers define the fields: the anchor is the latest assistant message that
//! has both lists, as NVIDIA Dynamo's wrapper has it (NeMo-RL cuts at the last assistant message and loses the turns in
//! between); ids on other roles are not ids of a generation and are ignored; one list without the other is an error.

mod answered;
mod carriers;
mod error;
mod fingerprint;
mod lookup;
mod memory;
mod recall;
mod record;
mod shared;
mod texts;
mod turn;
mod verdict;
mod wanted;

use std::sync::Arc;

pub use carriers::{Carriers, known_prefix};
pub use error::{ContinuityError, Reason};
pub use memory::MemoryBounds;
pub use record::Recorder;
pub use shared::{MOST_ANSWER_BYTES, MOST_RECORD_BYTES, Namespace, SEVERAL, SharedKey, SharedTurn, StoreFault};
pub use texts::{TextRecorder, TextScope};
pub use verdict::{Gap, MatchedBy, Outcome, Source, Verdict, Warning};
pub use wanted::Wanted;

use crate::{
    TokenId,
    prompt::{ChatPrompt, Edits, KnownPrefix, OnUnprovable, Provenance, RenderedPrompt, UnprovableSplice},
};
use carriers::Explicit;
use lookup::Lookup;
use memory::Memory;
use recall::Recalled;

/// What a server decides about continuity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContinuityPolicy {
    /// The bounds of the cache; without, nothing is remembered.
    pub memory: Option<MemoryBounds>,
    /// Refuse what would otherwise be a warning.
    pub strict: bool,
    /// Find the drift of every prompt.
    pub check_drift: bool,
}

/// Knows which ids are known.
#[derive(Debug)]
pub struct Continuity {
    memory: Option<Arc<Memory>>,
    policy: ContinuityPolicy,
    /// Ids that the model knows.
    vocab_size: usize,
    /// What a store keeps the answers under, where several servers share one.
    namespace: Option<Namespace>,
}

/// What is known for one request, before its prompt is rendered.
#[derive(Debug)]
pub struct Found {
    source: Source,
    gap: Option<Gap>,
    matched_by: Option<MatchedBy>,
    warnings: Vec<Warning>,
    whole_prompt: Option<Vec<TokenId>>,
    adapter: Option<Arc<str>>,
    /// Whether the ids are another server's, and are to be checked.
    is_from_elsewhere: bool,
    /// What is needed to remember the answers.
    lookup: Option<Lookup>,
}

impl Found {
    /// The whole prompt, where the client gave it: there is nothing to render.
    pub fn take_whole_prompt(&mut self) -> Option<Vec<TokenId>> {
        self.whole_prompt.take()
    }
}

impl Continuity {
    /// For a model that knows `vocab_size` ids.
    pub fn new(policy: ContinuityPolicy, vocab_size: usize) -> Self {
        let memory = policy.memory.filter(|bounds| bounds.bytes > 0).map(|bounds| Arc::new(Memory::new(bounds)));
        Self { memory, policy, vocab_size, namespace: None }
    }

    /// Shares what is remembered with the servers of this namespace, by a store.
    #[must_use]
    pub fn shared(self, namespace: Option<Namespace>) -> Self {
        Self { namespace, ..self }
    }

    /// Whether what would otherwise be a warning is refused.
    pub fn is_strict(&self) -> bool {
        self.policy.strict
    }

    /// Finds the ids that the prompt must start with and hands them to it, with the checks that they need; `asked` means
    /// that the client wants to know more than the ids. Blocking: time grows with the conversation.
    pub fn find(&self, prompt: &mut ChatPrompt, carriers: &Carriers, asked: bool) -> Result<Found, ContinuityError> {
        self.find_with(prompt, carriers, asked, None)
    }

    /// Does the same once a store was asked what it knows of the conversation.
    pub fn find_with(
        &self,
        prompt: &mut ChatPrompt,
        carriers: &Carriers,
        asked: bool,
        wanted: Option<Wanted>,
    ) -> Result<Found, ContinuityError> {
        let (looked_up, missed) = wanted.map(|wanted| (wanted.lookup, wanted.gap)).unzip();
        let lookup = |memory| Lookup::new(memory, self.namespace, prompt, carriers);
        let mut found = Found {
            source: Source::None,
            gap: None,
            matched_by: None,
            warnings: Vec::new(),
            whole_prompt: None,
            adapter: carriers.adapter.clone(),
            is_from_elsewhere: false,
            lookup: looked_up.or_else(|| self.memory.as_ref().map(lookup)),
        };
        prompt.checks.drift = asked || self.policy.check_drift;
        if let Some(whole_prompt) = carriers.whole_prompt(self.vocab_size)? {
            found.source = Source::PromptOverride;
            found.whole_prompt = Some(whole_prompt);
            found.disown();
            return Ok(found);
        }
        let required = carriers.required_prefix_token_ids.as_ref();
        match carriers::explicit(&prompt.messages, required, self.vocab_size)? {
            Explicit::Prefix(source, prefix) => {
                found.source = source;
                self.check(&mut found, prompt, prefix, asked);
            }
            Explicit::Nothing => found.gap = Some(Gap::Declined),
            Explicit::Silent => {
                self.recall(&mut found, prompt, missed.flatten());
                if carriers.context_changed {
                    let changed = |gap| if gap == Gap::Ambiguous { gap } else { Gap::ContextChanged };
                    found.gap = found.gap.map(changed);
                }
            }
        }
        self.refuse(&found)?;
        Ok(found)
    }

    /// What the store is to be asked before a conversation is looked for; `None` where there is nothing to ask, as the
    /// request brings ids or nothing was answered yet. Blocking: time grows with the conversation.
    pub fn wanted(&self, prompt: &ChatPrompt, carriers: &Carriers) -> Option<Wanted> {
        let (namespace, memory) = (self.namespace?, self.memory.as_ref()?);
        let required = carriers.required_prefix_token_ids.as_ref();
        let is_silent = carriers.whole_prompts.is_empty()
            && matches!(carriers::explicit(&prompt.messages, required, self.vocab_size), Ok(Explicit::Silent));
        if !is_silent || prompt.assistants().next().is_none() {
            return None;
        }
        let lookup = Lookup::new(memory, Some(namespace), prompt, carriers);
        Some(Wanted::new(lookup, namespace, self.vocab_size, prompt))
    }

    /// Takes ids that the request carries, and looks for what speaks against them.
    fn check(&self, found: &mut Found, prompt: &mut ChatPrompt, mut prefix: KnownPrefix, asked: bool) {
        let strict = self.policy.strict;
        found.warnings.extend(carriers::disagreement(&prompt.messages, found.source, &prefix, strict || asked));
        if let (None, Some(lookup)) = (prefix.anchor, &found.lookup) {
            prefix.anchor = lookup.place(&prefix.token_ids, prompt);
        }
        if !prefix.anchor.is_some_and(|anchor| found.compare(&prefix.token_ids, anchor, prompt)) {
            // The cache does not know them, or only that a client said so: the texts have to tell.
            found.disown();
            prompt.checks.message = true;
            prompt.checks.history = strict || asked;
        }
        prompt.known = Some(prefix);
    }

    /// Looks for the conversation in the cache; `missed` is why a store could not add to it.
    fn recall(&self, found: &mut Found, prompt: &mut ChatPrompt, missed: Option<Gap>) {
        if prompt.messages.iter().all(|message| !message.role.is_assistant()) {
            return;
        }
        let Some(lookup) = &mut found.lookup else {
            found.gap = Some(Gap::CacheOff);
            return;
        };
        let Recalled { turn, gap } = lookup.recall(prompt);
        // What the store missed may be what is missing.
        found.gap = gap.map(|gap| missed.filter(|_| matches!(gap, Gap::Unknown | Gap::Forgotten)).unwrap_or(gap));
        if let Some((anchor, matched_by, turn)) = turn {
            found.source = if turn.is_from_elsewhere() { Source::Store } else { Source::Cache };
            found.is_from_elsewhere = turn.is_from_elsewhere();
            prompt.checks.message |= found.is_from_elsewhere;
            prompt.checks.history |= found.is_from_elsewhere;
            found.matched_by = Some(matched_by);
            // Nobody asked for these ids, so a conversation that they cannot continue is served as without them.
            let on_unprovable = if self.policy.strict { OnUnprovable::Error } else { OnUnprovable::Retokenize };
            prompt.known = Some(KnownPrefix {
                token_ids: turn.token_ids(),
                anchor: Some(anchor),
                sampled: turn.sampled,
                on_unprovable: Some(on_unprovable),
            });
            lookup.own = turn.own;
            lookup.parent = Some(turn);
        }
    }

    /// The verdict on a prompt, and what remembers its answers.
    pub fn conclude(
        &self,
        mut found: Found,
        prompt: &ChatPrompt,
        rendered: &RenderedPrompt,
    ) -> Result<(Verdict, Option<Recorder>), ContinuityError> {
        let latest = prompt.messages.iter().rposition(|message| message.role.is_assistant());
        let mut verdict = Verdict::of_render(rendered, latest, prompt.continue_final_message);
        if let (Some(KnownPrefix { token_ids, anchor: None, .. }), Provenance::Spliced { anchor, .. }) =
            (&prompt.known, rendered.provenance)
        {
            // Only the render showed which message the ids end with.
            if !found.compare(token_ids, anchor, prompt) {
                found.disown();
            }
        }
        let edits = rendered.edits;
        let told = [
            (edits.message, Warning::MessageEdited),
            (edits.history, Warning::HistoryEdited),
            (edits.context, Warning::ContextChanged),
        ];
        let told = told.into_iter().filter(|(is_told, _)| *is_told).map(|(_, warning)| warning);
        let told: Vec<_> = told.filter(|warning| !found.warnings.contains(warning)).collect();
        found.warnings.extend(told);
        self.refuse(&found)?;
        verdict.source = found.source;
        verdict.matched_by = found.matched_by;
        verdict.adapter = found.adapter.take();
        let parent = found.lookup.as_ref().and_then(|lookup| lookup.parent.as_ref());
        let continued = parent.filter(|parent| verdict.reused > 0 && parent.begins(&rendered.token_ids));
        verdict.weights = continued.and_then(|parent| parent.weights.clone());
        if matches!(verdict.outcome, Outcome::Partial | Outcome::Retokenized) {
            let gap = found.gap.unwrap_or(Gap::Unknown);
            verdict.reason = verdict.reason.or(Some(gap.into()));
        }
        verdict.warnings.extend(found.warnings);
        verdict.count();
        Ok((verdict, found.lookup.and_then(|lookup| lookup.recorder(prompt, rendered))))
    }

    /// Strict servers refuse doubts; every server refuses what would make another prompt of the same ids.
    fn refuse(&self, found: &Found) -> Result<(), ContinuityError> {
        let strict = self.policy.strict;
        if strict && found.gap == Some(Gap::Ambiguous) {
            Verdict::count_refusal(found.source, Gap::Ambiguous.into());
            let why = "has a turn that was answered more than once with this text and other token ids; send the ids on \
                       the message, or a session id with every request";
            return Err(ContinuityError::new("messages", why));
        }
        let refused = found.warnings.iter().filter(|warning| strict || warning.is_fatal());
        let Some((warning, why)) = refused.copied().find_map(|warning| Some((warning, warning.refusal()?))) else {
            return Ok(());
        };
        Verdict::count_refusal(found.source, warning.into());
        let param = if found.source == Source::RequiredPrefix { "required_prefix_token_ids" } else { "messages" };
        let message = format_args!("has token ids that cannot be trusted: they {why}");
        Err(ContinuityError::new(param, message))
    }

    /// Shows the size of the cache in the process's metrics.
    pub fn measure(&self) {
        if let Some(memory) = &self.memory {
            memory.measure();
        }
    }
}

impl Found {
    /// Whether the ids are another server's and do not say what the messages say, so that the prompt has to be rendered
    /// again without them. It is as if the store had nothing.
    pub fn drops_foreign_ids(&mut self, prompt: &mut ChatPrompt, rendered: &RenderedPrompt) -> bool {
        if !self.is_from_elsewhere || rendered.edits == Edits::default() {
            return false;
        }
        (self.source, self.matched_by, self.gap) = (Source::None, None, Some(Gap::StoreRefused));
        self.is_from_elsewhere = false;
        if let Some(lookup) = &mut self.lookup {
            (lookup.parent, lookup.own) = (None, true);
        }
        prompt.known = None;
        (prompt.checks.message, prompt.checks.history) = (false, false);
        true
    }

    /// Counts a request that was refused because its known ids cannot be continued.
    pub fn count_refusal(&self, reason: UnprovableSplice) {
        Verdict::count_refusal(self.source, reason.into());
    }

    /// Compares ids that the request carries with what the cache knows of them; whether it knows them as the server's own.
    fn compare(&mut self, token_ids: &[TokenId], anchor: usize, prompt: &ChatPrompt) -> bool {
        let Some(lookup) = &mut self.lookup else { return false };
        lookup.compare(token_ids, anchor, prompt, &mut self.warnings).is_some_and(|origin| origin.own)
    }

    /// The ids may be anybody's: what follows them is remembered for nobody else.
    fn disown(&mut self) {
        if let Some(lookup) = &mut self.lookup {
            lookup.own = false;
        }
    }
}
