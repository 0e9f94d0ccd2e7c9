//! The model's files, and what is read of them before an engine is.

use std::path::Path;

use anyhow::{Context, bail};

use super::{progress::Progress, settings::ModelSettings};
use crate::{
    config::ModelLength,
    gguf::MOST_POSITIONS,
    model::{HubOptions, ModelFiles, TokenizerFiles},
    prompt::{Templates, template::ChatTemplate},
    tokenizer::Tokenizer,
};

/// The model's files, with the tokenizer that was asked for.
pub(super) async fn files(model: &ModelSettings, progress: &Progress) -> anyhow::Result<ModelFiles> {
    files_by(model, model.hub(progress.downloads())).await
}

/// The same, though a hub is not asked for the weights.
pub(super) async fn files_without_weights(model: &ModelSettings, progress: &Progress) -> anyhow::Result<ModelFiles> {
    files_by(model, HubOptions { without_weights: true, ..model.hub(progress.downloads()) }).await
}

async fn files_by(model: &ModelSettings, hub: HubOptions) -> anyhow::Result<ModelFiles> {
    let files = ModelFiles::resolve(&model.name, &hub).await?;
    let Some(tokenizer) = model.tokenizer.as_deref().filter(|tokenizer| *tokenizer != model.name) else {
        return Ok(files);
    };
    let other = TokenizerFiles::resolve(tokenizer, &HubOptions { revision: None, without_weights: true, ..hub }).await;
    Ok(files.with_tokenizer_of(other.with_context(|| format!("--tokenizer {tokenizer} cannot be used"))?))
}

/// The tokenizer. Some models come with one to which more tokens were added than they have; apart from those, one that was
/// chosen must fit.
pub(super) fn tokenizer(model: &ModelSettings, files: &ModelFiles) -> anyhow::Result<Tokenizer> {
    let tokenizer = files.tokenizer().with_context(|| format!("the tokenizer of {} cannot be used", model.name))?;
    if model.tokenizer.is_some()
        && let Some(width) = files.config.vocab_size
        && tokenizer.trained_size() > width
    {
        bail!(
            "the tokenizer has {} ids, but the model has only {width}; pass a --tokenizer that belongs to the model",
            tokenizer.vocab_size()
        );
    }
    Ok(tokenizer)
}

/// The templates, and where they come from.
pub(super) fn templates(
    model: &ModelSettings,
    files: &ModelFiles,
    given: Option<&(String, String)>,
) -> anyhow::Result<(Templates, String)> {
    let special_tokens = &files.tokenizer_config.special_tokens;
    let compile = |source: &str, name: &str| {
        let template = ChatTemplate::new(source, special_tokens.clone());
        let template = template.with_context(|| format!("{name} cannot be used"))?;
        anyhow::Ok(template.with_content_format(model.content_format))
    };
    if let Some((source, name)) = given {
        return Ok((Templates { default: Some(compile(source, name)?), tool_use: None }, name.clone()));
    }
    let chosen = &files.tokenizer_config.chat_templates;
    let of_file = |name: &str| {
        let path = chosen.path(name).map(|path| path.display().to_string()).unwrap_or_default();
        let what = format!("the {name} chat template of {path}");
        chosen.get(name).map(|source| compile(source, &what)).transpose()
    };
    let (default, tool_use) = (of_file("default")?, of_file("tool_use")?);
    let name = if default.is_some() || tool_use.is_some() { "the model's" } else { "none" };
    Ok((Templates { default, tool_use }, name.to_owned()))
}

/// The text of the template that renders tools, and of the one that renders requests without any.
pub(super) fn template_texts<'t>(
    files: &'t ModelFiles,
    given: Option<&'t (String, String)>,
) -> (Option<&'t str>, Option<&'t str>) {
    let given = given.map(|(source, _)| source.as_str());
    let of_model = |with_tools| files.tokenizer_config.chat_templates.select(with_tools);
    (given.or(of_model(true)), given.or(of_model(false)).or(of_model(true)))
}

/// The template of the command line, and what to call it.
pub(super) fn given_template(model: &ModelSettings) -> anyhow::Result<Option<(String, String)>> {
    let Some(given) = &model.chat_template else { return Ok(None) };
    if Path::new(given).is_file() {
        let source = std::fs::read_to_string(given).with_context(|| format!("cannot read {given}"))?;
        return Ok(Some((source, given.clone())));
    }
    if given.contains(['{', '\n']) {
        return Ok(Some((given.clone(), "the template given by --chat-template".to_owned())));
    }
    bail!(
        "--chat-template {given} is neither a file nor a template; pass the path of a file, or the text of a template"
    );
}

/// The longest sequence, prompt and output together.
pub(super) fn max_model_len(model: &ModelSettings, files: &ModelFiles) -> anyhow::Result<usize> {
    match (model.max_model_len, files.max_model_len()) {
        (ModelLength::Tokens(asked), Some(longest)) if asked > longest => {
            bail!(
                "--max-model-len {asked} is more than the {longest} tokens that the model is made for; leave it out, or pass at most {longest}"
            );
        }
        (ModelLength::Tokens(asked), _) if asked > MOST_POSITIONS => {
            bail!("--max-model-len {asked} is more than the {MOST_POSITIONS} tokens that any model is made for");
        }
        (ModelLength::Tokens(asked), _) => Ok(asked),
        (ModelLength::Auto, Some(longest)) => Ok(longest),
        (ModelLength::Auto, None) => {
            bail!("the model's config.json does not say how long its context is; pass --max-model-len")
        }
    }
}
