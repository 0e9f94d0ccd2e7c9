//! The application: the path of a turn from its request to its answer, whichever dialect asked.
//!
//! ```text
//! PromptRequest ─ Turns::prompt ──▶ Prompted      known ids, template, splice: the ids, and what became of known ones
//! Turn ────────── Turns::prepare ─▶ Prepared      the prompt, its checks, constraints compiled, a request to generate
//! Prepared ────── Turns::start ───▶ events        sampled, and remembered before an answer's last event goes out
//! ```
//!
//! All dialects take this path, so that the same conversation has the same ids and the same checks everywhere. This
//! module knows no HTTP, no wire shapes and no words of any dialect: its errors say what is wrong, and the API words
//! them for its clients.

mod answer_size;
mod capture;
mod captured_images;
mod client;
mod compiler;
mod encode;
mod error;
mod images;
pub mod in_flight;
mod inspection;
mod memory;
mod noted;
mod offsets;
mod policy;
mod prompt;
mod record;
mod rescore;
mod routing;
mod said;
mod sampling;
mod start;
mod templates;
mod thinking;
mod truncation;
mod vocabulary;

use std::sync::Arc;

use time::UtcOffset;

pub use capture::Capture;
pub(crate) use capture::ended;
pub(crate) use captured_images::kept_images;
pub use client::{Client, Identity};
pub use compiler::StructuredOutputCompiler;
pub use encode::{EncodedPrompt, PromptText};
pub use error::TurnError;
pub use images::IdsWithImages;
pub(crate) use images::{ImageTexts, SentImage};
pub use inspection::{Drift, Inspection, Origin, OriginSpan};
pub use offsets::WholePrompt;
pub use policy::{
    Policies, RESERVED_TEMPLATE_VARIABLES, RequestPolicy, SamplingMaskPolicy, SamplingPolicy, ToolPolicy,
    ToolStrictLevel,
};
pub use prompt::{PromptRequest, Prompted};
pub use record::TextForm;
pub use routing::RouteWishes;
pub(crate) use routing::kept_routes;
pub use sampling::Sampling;
pub use start::{Asker, Delivery, NamedPrompt, Prepared, PreparedTurn, Turn};
pub use templates::RequestTemplates;
pub use truncation::{Side, Truncation};
pub(crate) use vocabulary::Vocabulary;

use crate::{
    TokenId,
    continuity::{Continuity, ContinuityPolicy},
    continuity_store::ContinuityStore,
    engine::{Engine, EngineInfo},
    generation::Generator,
    media::MediaReader,
    model::EosTokens,
    prompt::PromptRenderer,
    tokenizer::Tokenizer,
};

/// Everything that turns are made with.
pub struct Turns {
    /// Renders conversations to ids.
    pub renderer: PromptRenderer,
    /// Generates events from ids.
    pub generator: Generator,
    /// Knows the ids of earlier turns of a conversation.
    pub continuity: Continuity,
    /// Compiles constraints on outputs to grammars.
    pub structured: Arc<StructuredOutputCompiler>,
    /// The policies that the server, not the request, decides.
    pub policies: Policies,
    /// The longest sequence, prompt and output together.
    pub max_model_len: usize,
    /// The time zone of templates that print the date.
    pub utc_offset: UtcOffset,
    /// Lets the templates of requests run in turn.
    pub request_templates: RequestTemplates,
    /// Captures what is generated, where that is asked for.
    pub capture: Option<Capture>,
    /// Reads images, for models that see some.
    pub media: Option<MediaReader>,
    /// Why a model that has images in its files sees none here.
    pub refused_images: Option<Arc<str>>,
    /// Keeps turns for other servers, and knows theirs.
    pub store: Option<Arc<ContinuityStore>>,
}

impl Turns {
    /// Makes the turns of a model whose generations end with one of `eos`, on a server without flags: with vLLM's
    /// defaults, nothing remembered, no tools, and no sampling defaults of the model.
    #[cfg_attr(
        not(any(test, feature = "internals")),
        expect(dead_code, reason = "start-up leaves nothing to a default")
    )]
    pub fn new(renderer: PromptRenderer, engine: Arc<dyn Engine>, eos: &EosTokens) -> Self {
        let tokenizer = Arc::clone(renderer.tokenizer());
        let EngineInfo { vocab_size, max_model_len, .. } = *engine.info();
        let ends = eos.primary.into_iter().chain(eos.others.iter().copied());
        Self {
            structured: Arc::new(StructuredOutputCompiler::new(Arc::clone(&tokenizer), ends)),
            generator: Generator::new(engine, tokenizer),
            renderer,
            continuity: Continuity::new(ContinuityPolicy::default(), vocab_size),
            policies: Policies::new(eos),
            max_model_len,
            utc_offset: UtcOffset::UTC,
            request_templates: RequestTemplates::default(),
            capture: None,
            media: None,
            refused_images: None,
            store: None,
        }
    }

    /// Returns the tokenizer, which turns text to ids and back.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        self.renderer.tokenizer()
    }

    /// Returns whether what clients say is captured.
    pub(crate) fn captures_texts(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| capture.trajectories.keeps_texts())
    }

    /// Resolves when no turn is being captured that no request waits for.
    pub fn captures_settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let settled = self.capture.as_ref().map(|capture| capture.trajectories.settled());
        async move {
            if let Some(settled) = settled {
                settled.await;
            }
        }
    }

    /// Returns which ids there are.
    pub(crate) fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary { tokenizer: self.tokenizer(), size: self.vocab_size() }
    }

    /// Returns how many ids the model knows, which may be more than the tokenizer knows, or fewer.
    pub fn vocab_size(&self) -> usize {
        self.generator.engine().info().vocab_size
    }

    /// Returns the text of ids. One that the model knows and the tokenizer does not may have been sampled, and has no text.
    pub(crate) fn text_of(&self, ids: &[TokenId]) -> Result<String, TurnError> {
        let tokenizer = self.tokenizer();
        let is_unknown = |id: &TokenId| !tokenizer.contains(*id) && *id as usize >= self.vocab_size();
        if let Some(id) = ids.iter().find(|id| is_unknown(id)) {
            return Err(TurnError::UnknownToken(*id));
        }
        let known: Vec<TokenId> = ids.iter().copied().filter(|id| tokenizer.contains(*id)).collect();
        Ok(tokenizer.decode(&known, false)?)
    }
}
