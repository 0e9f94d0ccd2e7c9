//! The model that drafts, if one does: its files, whether they fit the model, and what it costs.

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value};

use super::{
    load_plan::LoadPlan,
    memory::megabytes,
    native_weights,
    progress::Progress,
    quantization,
    settings::{EngineSettings, Settings},
};
use crate::{
    config::GgufWeights,
    engine::native::{
        DraftModelSettings, Drafting, Dtype, ModelDrafts, ModelParts, NativeSettings, Speculation, WeightsSource,
        blocks_are_quick, share_read, supports,
    },
    model::{HubOptions, ModelFiles},
    tokenizer::Tokenizer,
};

/// What is to be loaded to draft.
pub(super) struct FoundDraft {
    config: Map<String, Value>,
    source: WeightsSource,
    /// The longest sequence of which it computes tokens.
    max_model_len: usize,
}

/// The files of the model that drafts, if one does.
pub(super) async fn files(settings: &Settings, progress: &Progress) -> anyhow::Result<Option<ModelFiles>> {
    files_by(settings, settings.model.hub(progress.downloads())).await
}

/// The same, though a hub is not asked for the weights.
pub(super) async fn files_without_weights(
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<Option<ModelFiles>> {
    files_by(settings, HubOptions { without_weights: true, ..settings.model.hub(progress.downloads()) }).await
}

async fn files_by(settings: &Settings, hub: HubOptions) -> anyhow::Result<Option<ModelFiles>> {
    let Some(config) = &settings.engine.draft_model else { return Ok(None) };
    let hub = HubOptions { revision: config.revision.clone(), ..hub };
    let files = ModelFiles::resolve(&config.model, &hub).await;
    files.map(Some).with_context(|| unusable(&config.model))
}

fn unusable(name: &str) -> String {
    format!("the draft model {name} cannot be used")
}

/// What is to be loaded to draft; fails with one sentence if it does not fit the model.
pub(super) fn find(load_plan: LoadPlan<'_>) -> anyhow::Result<Option<FoundDraft>> {
    let LoadPlan { settings, draft, tokenizer, max_model_len, .. } = load_plan;
    let Some((asked, files)) = settings.draft_model.as_ref().zip(draft) else { return Ok(None) };
    let find = || -> anyhow::Result<FoundDraft> {
        quantization::check(asked.quantization.as_deref(), files)?;
        let (config, source) =
            native_weights::source(files, settings.gguf_weights)?.map_err(|reason| anyhow!(reason))?;
        supports(&config, ModelParts::All).map_err(|reason| anyhow!(reason))?;
        check_tokens(tokenizer, &files.tokenizer()?)?;
        let lengths = [Some(max_model_len), asked.max_model_len, files.max_model_len()];
        let max_model_len = lengths.into_iter().flatten().min().unwrap_or(max_model_len);
        Ok(FoundDraft { config, source, max_model_len })
    };
    find().map(Some).with_context(|| unusable(&asked.model))
}

/// Refuses other tokens than the model's: nothing that it drafts would be right.
fn check_tokens(of_model: &Tokenizer, of_draft: &Tokenizer) -> anyhow::Result<()> {
    let most = of_model.vocab_size().max(of_draft.vocab_size());
    let most = u32::try_from(most).context("a tokenizer has more ids than there are")?;
    for id in 0..most {
        let [model, draft] = [of_model, of_draft].map(|tokenizer| tokenizer.token(id));
        if model != draft {
            let said =
                |token: Option<String>| token.map_or_else(|| "no token".to_owned(), |token| format!("{token:?}"));
            bail!(
                "its tokenizer is not the model's: the id {id} is {} there, and {} in the model",
                said(draft),
                said(model)
            );
        }
    }
    Ok(())
}

/// The settings of a model with one that drafts.
pub(super) fn added(
    found: FoundDraft,
    asked: &EngineSettings,
    settings: NativeSettings,
) -> anyhow::Result<NativeSettings> {
    let FoundDraft { config, source, max_model_len } = found;
    let dtype = asked.native_dtype(&config);
    let source = native_weights::as_wanted(asked, source, (&config, ModelParts::All), dtype)?;
    let source = in_blocks(source, asked, dtype, &settings);
    let draft = DraftModelSettings { source, config, dtype, max_model_len };
    Ok(NativeSettings { draft_model: Some(Box::new(draft)), ..settings })
}

/// A GGUF file whose weights stay in their blocks, unless that makes drafts dearer or is not wanted: a model that drafts is of
/// use only as far as it is cheap.
fn in_blocks(source: WeightsSource, asked: &EngineSettings, dtype: Dtype, settings: &NativeSettings) -> WeightsSource {
    let are_quick = || dtype == Dtype::Bf16 && blocks_are_quick(settings.kernels, &settings.unusable_kernels);
    match source {
        WeightsSource::Gguf { path, keep_blocks: false } if asked.gguf_weights == GgufWeights::Auto && are_quick() => {
            WeightsSource::Gguf { path, keep_blocks: true }
        }
        other => other,
    }
}

/// The bytes of weights that a token is computed with.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn read(bytes: u64, config: &Map<String, Value>, parts: ModelParts) -> anyhow::Result<f64> {
    Ok(bytes as f64 * share_read(config, parts).map_err(anyhow::Error::msg)?)
}

/// What is said of the weights of a model that drafts: what they take, and how much of that a token reads beside what it reads
/// of the model's, where that is known before they are here.
pub(super) fn weights_text(draft: &DraftModelSettings, settings: &NativeSettings) -> anyhow::Result<String> {
    let blocks = if draft.stays_quantized() { " in blocks or codes" } else { "" };
    let bytes = (native_weights::draft_bytes(draft)?, native_weights::weight_bytes(settings)?);
    let (Some(of_draft), Some(of_model)) = bytes else { return Ok("an unknown amount of weights".to_owned()) };
    let of_all = read(of_model, &settings.config, settings.parts())?;
    let share = read(of_draft, &draft.config, ModelParts::All)? / of_all.max(1.0);
    let (of_draft, of_model) = (megabytes(of_draft), megabytes(of_model));
    Ok(format!(
        "{of_draft} of weights{blocks}, beside the model's {of_model}; a token reads {share:.2} of what it reads of the model's"
    ))
}

/// A line about the model that drafts, if one does.
pub(super) fn said(settings: &NativeSettings) -> anyhow::Result<Option<String>> {
    let (Some(draft), Drafting::Required(Speculation::Model(drafts))) = (&settings.draft_model, settings.drafting)
    else {
        return Ok(None);
    };
    let (path, longest, weights) = (draft.path().display(), draft.max_model_len, weights_text(draft, settings)?);
    let most = drafts.num_speculative_tokens;
    Ok(Some(format!(
        "drafts of at most {most} tokens by {path}, up to {longest} tokens of a sequence: {weights}, and keys and values share the same memory"
    )))
}

/// A line about what drafts of another model cost, once that was measured.
pub(super) fn cost_text(cost: f64) -> String {
    if !cost.is_finite() {
        return "nothing is drafted: there is no room for keys and values of the draft model, see --kv-cache-memory"
            .to_owned();
    }
    let end = if ModelDrafts::can_be_worth(cost) { "" } else { ", which is too much: nothing is drafted" };
    format!("a row of the draft model takes {cost:.2} of the time of one of the model's{end}")
}
