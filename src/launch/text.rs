//! What makes ids of messages and messages of ids: read before the engine, which takes longer.

use std::sync::Arc;

use super::{
    device::Device,
    harmony,
    load_plan::LoadPlan,
    model,
    parsers::{self, Vocabulary},
    progress::Progress,
    settings::Settings,
};
use crate::{
    TokenId,
    continuity::Namespace,
    model::{EosTokens, ModelFiles, ModelSource},
    prompt::{Harmony, Templates},
    records::TextFingerprint,
    state::TokenizerInfo,
    tokenizer::Tokenizer,
    turn::ToolPolicy,
};

/// The text side of a model.
pub(super) struct TextSide {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) eos: EosTokens,
    /// The chat template that a flag gives, and what it is called.
    pub(super) given: Option<(String, String)>,
    pub(super) templates: Templates,
    /// What renders prompts instead of the templates, if the model reads it.
    pub(super) harmony: Option<Harmony>,
    /// What renders prompts, in words.
    pub(super) template_source: String,
    /// How answers are read.
    pub(super) tools: ToolPolicy,
    /// The answer of `/tokenizer_info`, if that endpoint is on.
    pub(super) tokenizer_info: Option<TokenizerInfo>,
}

impl TextSide {
    /// Reads the tokenizer and the templates, and chooses how answers are read.
    pub(super) fn read(settings: &Settings, files: &ModelFiles, progress: &Progress) -> anyhow::Result<Self> {
        let reading = progress.step("reading the tokenizer");
        let model = &settings.model;
        let tokenizer = Arc::new(model::tokenizer(model, files)?);
        let eos = files.eos(&tokenizer)?;
        log_ends(files, &tokenizer, &eos);
        let given = model::given_template(model)?;
        let (templates, template_source) = model::templates(model, files, given.as_ref())?;
        let (harmony, template_source) = harmony::of_model(model, files, &tokenizer, template_source);
        let texts = model::template_texts(files, given.as_ref());
        let tools = parsers::chosen(settings.parsers, texts, harmony.is_some(), progress)?;
        let vocabulary = Vocabulary::new(&tokenizer, &files.tokenizer_config);
        let tools = parsers::spelled(tools, vocabulary, &model.name)?;
        if tools.parser.is_some() && harmony.is_none() && !templates.show_tools() {
            tracing::warn!(
                "the chat template does not show tools: requests that send some are answered by a model that has not seen \
                 them; pass a --chat-template that shows them"
            );
        }
        let tokenizer_info = settings.tokenizer_info.then(|| {
            let template = given.as_ref().map(|(source, _)| source.as_str());
            TokenizerInfo::new(&files.tokenizer_config.raw, &tokenizer, &model.name, template)
        });
        reading.done();
        Ok(Self { tokenizer, eos, given, templates, harmony, template_source, tools, tokenizer_info })
    }

    /// What has to be the same for another server's ids to be this one's: whatever makes ids of messages, and messages of
    /// ids. Ids and log-probs of other weights may differ; that is for `weight_version` to say.
    pub(super) fn namespace(&self, settings: &Settings, files: &ModelFiles, name: &str) -> anyhow::Result<Namespace> {
        let parts = self.parts(settings, files, name)?;
        let parts = parts.iter().chain([&settings.continuity_store_secret]);
        Ok(Namespace::of(parts.map(String::as_bytes)))
    }

    /// What has to be the same for the ids of a stored response to be those of this server. A key for codes of others is no
    /// part of it, as it is written down. What requests ask for is kept as they said it, so it matters what is made of that.
    pub(super) fn fingerprint(
        &self,
        settings: &Settings,
        files: &ModelFiles,
        name: &str,
    ) -> anyhow::Result<TextFingerprint> {
        let parts = self.parts(settings, files, name)?;
        let efforts = format!("{:?}", settings.requests.reasoning_effort_map);
        Ok(TextFingerprint::of(parts.iter().chain([&efforts]).map(String::as_bytes)))
    }

    /// Whatever makes ids of messages, and messages of ids, on a server that serves the model by this name.
    fn parts(&self, settings: &Settings, files: &ModelFiles, name: &str) -> anyhow::Result<[String; 4]> {
        let tokenizer = self.tokenizer.to_json()?;
        let templates = model::template_texts(files, self.given.as_ref());
        let others = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            self.harmony.is_some(),
            settings.model.harmony,
            settings.model.content_format,
            self.eos,
            self.tools,
            settings.requests.default_chat_template_kwargs,
            templates,
            settings.images.processor,
        );
        let settings_of_tokenizer = format!("{:?}", files.tokenizer_config.raw);
        Ok([name.to_owned(), tokenizer, settings_of_tokenizer, others])
    }

    /// What an engine is told of the model, before it is loaded.
    pub(super) fn load_plan<'a>(
        &'a self,
        settings: &'a Settings,
        device: Device,
        (files, draft): (&'a ModelFiles, Option<&'a ModelFiles>),
        max_model_len: usize,
    ) -> LoadPlan<'a> {
        let (tokenizer, eos, images) = (&*self.tokenizer, &self.eos, &settings.images);
        LoadPlan { settings: &settings.engine, images, device, files, draft, tokenizer, eos, max_model_len }
    }
}

/// Says what ends a generation of a GGUF file's model: the file names one or a few ends, and others follow from its vocabulary.
fn log_ends(files: &ModelFiles, tokenizer: &Tokenizer, eos: &EosTokens) {
    if !matches!(files.source, ModelSource::Gguf { .. }) {
        return;
    }
    let named = |id: TokenId| format!("{} ({id})", tokenizer.token(id).as_deref().unwrap_or("no token"));
    let ends: Vec<String> = eos.primary.into_iter().chain(eos.others.iter().copied()).map(named).collect();
    tracing::info!("the ends of a generation: {}", if ends.is_empty() { "none".to_owned() } else { ends.join(", ") });
}

#[cfg(test)]
mod tests {
    use crate::{
        parser::{ReasoningParser, ToolParser},
        turn::ToolPolicy,
    };

    /// An address differs from process to process, and so would what several of them compare.
    #[test]
    fn how_answers_are_read_is_shown_without_addresses() {
        let reasoning = ReasoningParser::names().map(ReasoningParser::named);
        let reads = reasoning.map(|reasoning| ToolPolicy { reasoning, ..ToolPolicy::default() });
        let calls = ToolParser::names().map(ToolParser::named);
        let calls = calls.map(|parser| ToolPolicy { parser, ..ToolPolicy::default() });
        for policy in reads.chain(calls) {
            let shown = format!("{policy:?}");
            assert!(!shown.contains("0x"), "{shown}");
        }
    }
}
