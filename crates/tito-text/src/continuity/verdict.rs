//! What became of the ids of earlier turns, for clients, logs and metrics.

use std::sync::Arc;

use strum::IntoStaticStr;

use crate::prompt::{Drift, Provenance, RenderedPrompt};

/// Where known ids came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Source {
    /// No ids are known.
    None,
    /// The latest message that carries ids.
    Message,
    /// `required_prefix_token_ids`.
    RequiredPrefix,
    /// The continuity cache.
    Cache,
    /// The store that several servers share: another one sampled the ids.
    Store,
    /// The client gave the whole prompt.
    PromptOverride,
}

/// How much of the prompt is known to be what the model saw and sampled, from all of it to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// No assistant message stands in the conversation, so nothing was sampled for it yet.
    Fresh,
    /// Everything up to the latest assistant message, with a proof.
    Exact,
    /// Everything up to an earlier assistant message, with a proof; later ones were encoded from their texts.
    Partial,
    /// Joined by counting end tokens, as asked for; nothing proves it.
    Unproven,
    /// None of it: assistant messages were encoded from their texts.
    Retokenized,
}

/// How a remembered turn was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MatchedBy {
    /// By its messages, among those of the same session.
    Session,
    /// By the id of a tool call, which only this server's answer can have given: ids that a model writes by itself count for nothing.
    ToolCall,
    /// By its messages alone.
    Messages,
}

/// What proves that the prompt continues the known ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Proof {
    /// The prompt starts with them and ends with the bytes of the whole render, see `prompt::splice`.
    AnchoredTail,
    /// The prompt is the known ids: the message that they end with is continued.
    OpenMessage,
    /// The render was cut after as many end tokens as the known ids have, which proves nothing.
    EosCount,
    /// The client's own word.
    WholePrompt,
}

/// Why a prompt does not continue from the ids of the latest assistant message, although one is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Gap {
    /// No carrier brought ids, and the cache is off.
    CacheOff,
    /// No carrier brought ids, and none are remembered.
    Unknown,
    /// No carrier brought ids, and the store of several servers cannot be reached.
    StoreUnavailable,
    /// No carrier brought ids, and that store did not answer in time.
    StoreTimeout,
    /// The ids were remembered once, and were evicted.
    Forgotten,
    /// What that store has for the conversation is no record, or not of these messages.
    StoreRefused,
    /// The session is known, its messages are not: they were edited, or never sampled here.
    HistoryEdited,
    /// The messages are known with other tools or template variables.
    ContextChanged,
    /// Several answers had this text and other ids.
    Ambiguous,
    /// The client said that no ids are known.
    Declined,
    /// The prompt is a text that starts with an answer, and tokenizing it gave other ids than were sampled.
    Drifted,
}

/// What speaks against the ids that were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Warning {
    /// They do not start with the ids of an earlier message.
    ChainBroken,
    /// The message carries other ids than the ones that were given beside the messages.
    CarriersDisagree,
    /// The server remembers other ids for these messages.
    CacheConflict,
    /// They were sampled after other messages.
    HistoryEdited,
    /// They were sampled for a message that says something else.
    MessageEdited,
    /// They were sampled with other tools or template variables.
    ContextChanged,
    /// They were sampled with other images. Never only told: the model would see images that the ids were not sampled with.
    ImagesEdited,
    /// They end with a stop token that the template does not close messages with.
    ForeignStop,
}

/// What became of the ids of earlier turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Where the known ids came from.
    pub source: Source,
    /// How much of the prompt is what the model saw and sampled.
    pub outcome: Outcome,
    /// Why the latest assistant message was not continued from its ids: the name of a [`Gap`] or of an
    /// [`crate::prompt::UnprovableSplice`].
    pub reason: Option<&'static str>,
    /// The index of the message that the known ids end with.
    pub anchor: Option<usize>,
    /// Known ids at the start of the prompt.
    pub reused: usize,
    /// How many ids follow them.
    pub new: usize,
    /// What proves it.
    pub proof: Option<Proof>,
    /// How the cache found the ids.
    pub matched_by: Option<MatchedBy>,
    /// The name of the adapter that is asked: what the cache knows of other adapters and of the base is not looked at.
    pub adapter: Option<Arc<str>>,
    /// What the weights are called that sampled the last of the known ids, when the server sampled them last; `None`
    /// where it does not remember them.
    pub weights: Option<Arc<str>>,
    /// What speaks against the known ids.
    pub warnings: Vec<Warning>,
    /// Whether encoding the whole conversation would have given other ids, if that was asked.
    pub drift: Option<Drift>,
}

impl Verdict {
    /// The verdict on a render, before what the carriers say is added to it; `latest` is the last assistant message.
    pub(super) fn of_render(rendered: &RenderedPrompt, latest: Option<usize>, open: bool) -> Self {
        let len = rendered.token_ids.len();
        let mut verdict = Self {
            source: Source::None,
            outcome: if latest.is_none() { Outcome::Fresh } else { Outcome::Retokenized },
            reason: None,
            anchor: None,
            reused: 0,
            new: len,
            proof: None,
            matched_by: None,
            adapter: None,
            weights: None,
            warnings: Vec::new(),
            drift: rendered.drift,
        };
        match rendered.provenance {
            Provenance::Rendered => {}
            Provenance::Given => {
                verdict.outcome = Outcome::Exact;
                (verdict.reused, verdict.new) = (len, 0);
                verdict.proof = Some(Proof::WholePrompt);
            }
            Provenance::Spliced { anchor, reused, foreign_stop } => {
                let whole = latest.is_none_or(|latest| latest <= anchor);
                verdict.outcome = if whole { Outcome::Exact } else { Outcome::Partial };
                verdict.anchor = Some(anchor);
                (verdict.reused, verdict.new) = (reused, len - reused);
                let is_open = open && reused == len;
                verdict.proof = Some(if is_open { Proof::OpenMessage } else { Proof::AnchoredTail });
                verdict.warnings.extend(foreign_stop.then_some(Warning::ForeignStop));
            }
            Provenance::SplicedByEosCount { reused } => {
                verdict.outcome = Outcome::Unproven;
                (verdict.reused, verdict.new) = (reused, len - reused);
                verdict.proof = Some(Proof::EosCount);
            }
            Provenance::Retokenized(reason) => {
                verdict.outcome = Outcome::Retokenized;
                verdict.reason = Some(reason.into());
            }
        }
        verdict
    }

    /// Counts a request whose known ids could not be continued.
    pub(super) fn count_refusal(source: Source, reason: &'static str) {
        let source = <&str>::from(source);
        metrics::counter!("tito:prefix_repair_total", "outcome" => "refused", "reason" => reason, "source" => source)
            .increment(1);
    }

    /// The verdict on a prompt in ids that the client gave.
    pub fn of_given(len: usize, adapter: Option<Arc<str>>) -> Self {
        let rendered = RenderedPrompt::from_ids(Vec::new());
        let verdict = Self::of_render(&rendered, None, false);
        Self { source: Source::PromptOverride, reused: len, adapter, ..verdict }.counted()
    }

    /// The same, once it is counted.
    pub(super) fn counted(self) -> Self {
        self.count();
        self
    }

    /// How bad it is, of several verdicts on one request.
    pub fn badness(&self) -> (Outcome, bool, bool) {
        (self.outcome, !self.warnings.is_empty(), self.source == Source::Cache)
    }

    /// Counts the verdict in the process's metrics.
    pub(super) fn count(&self) {
        let reason = self.reason.or(self.warnings.first().map(<&str>::from)).unwrap_or("none");
        let (outcome, source) = (<&str>::from(self.outcome), <&str>::from(self.source));
        metrics::counter!("tito:prefix_repair_total", "outcome" => outcome, "reason" => reason, "source" => source)
            .increment(1);
        for (kind, ids) in [("reused", self.reused), ("new", self.new)] {
            metrics::counter!("tito:prompt_ids_total", "kind" => kind).increment(ids as u64);
        }
    }
}

impl Warning {
    /// Whether every server refuses a request with it, strict or not.
    pub(super) fn is_fatal(self) -> bool {
        self == Self::ImagesEdited
    }

    /// What strict servers refuse a request with; the others are only told.
    pub(super) fn refusal(self) -> Option<&'static str> {
        match self {
            Self::ChainBroken => Some("do not start with the ids of an earlier message: trajectories were mixed"),
            Self::CarriersDisagree => Some("are not those of the message that carries ids"),
            Self::CacheConflict => Some("are not those that this server sampled for these messages"),
            Self::HistoryEdited => Some("were sampled after other messages than these"),
            Self::MessageEdited => Some("were sampled for a message that says something else"),
            Self::ContextChanged => Some("were sampled with other tools or template variables"),
            Self::ImagesEdited => Some("were sampled with other images than those of the messages"),
            Self::ForeignStop => None,
        }
    }
}
