//! The families that are known: what each makes of its config.json.
//!
//! A family is a file here, which describes its layers in the words of [`shape`](super::shape). Most are a
//! [decoder](decoder::decoder) with some things changed. Every setting that changes the result is read or refused; none
//! is skipped. The definition of each family is transformers 5.23 (`modeling_*.py`), and tests compare with it
//! (`tests/reference`). CONTRIBUTING.md says how to add a family.

mod apertus;
mod arcee;
mod bamba;
mod cohere;
mod decoder;
mod deepseek;
mod ernie;
mod exaone;
mod falcon;
mod gemma;
mod gemma4;
mod gemma_images;
mod glm;
mod glm_images;
mod gpt_oss;
mod granite;
mod hunyuan;
mod indexed;
mod internvl;
mod kimi;
mod lfm;
mod llama;
mod llama4;
mod longrope;
mod mamba;
mod minimax;
mod mistral;
mod mistral4;
mod mistral_images;
mod mixtures;
mod nemotron;
mod olmo;
mod parts;
mod phi;
mod qwen;
mod qwen_hybrid;
mod qwen_images;
mod smollm;
mod windows;

use serde_json::{Map, Value};

use self::parts::Read;
use super::{
    settings::{ConfigError, Settings},
    shape::{Longest, ModelShape},
};
use crate::engine::native::weights::Quantization;

/// Architectures by the names that config.json has for them.
const FAMILIES: &[(&str, Read)] = &[
    ("ApertusForCausalLM", apertus::apertus),
    ("ArceeForCausalLM", arcee::arcee),
    ("BambaForCausalLM", bamba::bamba),
    ("Cohere2ForCausalLM", cohere::cohere2),
    ("CohereForCausalLM", cohere::cohere),
    ("DeepseekV2ForCausalLM", deepseek::v2),
    ("DeepseekV32ForCausalLM", indexed::deepseek_v32),
    ("DeepseekV3ForCausalLM", deepseek::v3),
    ("Ernie4_5ForCausalLM", ernie::dense),
    ("Ernie4_5_MoeForCausalLM", ernie::mixture),
    ("Exaone4ForCausalLM", exaone::exaone4),
    ("FalconH1ForCausalLM", falcon::falcon_h1),
    ("Gemma2ForCausalLM", gemma::gemma2),
    ("Gemma3ForCausalLM", gemma::gemma3),
    ("Gemma3ForConditionalGeneration", gemma_images::gemma3),
    ("Gemma4ForCausalLM", gemma4::gemma4),
    ("Gemma4ForConditionalGeneration", parts::gemma4),
    ("GemmaForCausalLM", gemma::gemma),
    ("Glm46VForConditionalGeneration", glm_images::either),
    ("Glm4ForCausalLM", glm::glm4),
    ("Glm4MoeForCausalLM", glm::mixture),
    ("Glm4MoeLiteForCausalLM", deepseek::glm4_moe_lite),
    ("Glm4vForConditionalGeneration", glm_images::dense),
    ("Glm4vMoeForConditionalGeneration", glm_images::mixture),
    ("GlmForCausalLM", glm::glm),
    ("GlmMoeDsaForCausalLM", indexed::glm_moe_dsa),
    ("GptOssForCausalLM", gpt_oss::gpt_oss),
    ("GraniteForCausalLM", granite::dense),
    ("GraniteMoeForCausalLM", granite::mixture),
    ("GraniteMoeHybridForCausalLM", bamba::granite),
    ("GraniteMoeSharedForCausalLM", granite::shared_mixture),
    ("HunYuanDenseV1ForCausalLM", hunyuan::dense),
    ("HunYuanMoEV1ForCausalLM", hunyuan::mixture),
    ("InternVLForConditionalGeneration", internvl::internvl),
    ("KimiLinearForCausalLM", kimi::kimi_linear),
    ("Lfm2ForCausalLM", lfm::lfm2),
    ("Lfm2MoeForCausalLM", lfm::lfm2_moe),
    ("Llama4ForCausalLM", llama4::llama4),
    ("Llama4ForConditionalGeneration", parts::llama4),
    ("LlamaForCausalLM", llama::llama),
    ("MiniMaxM2ForCausalLM", minimax::minimax_m2),
    ("Ministral3ForCausalLM", mistral::ministral3),
    ("MinistralForCausalLM", mistral::ministral),
    ("Mistral3ForConditionalGeneration", mistral_images::mistral3),
    ("Mistral4ForCausalLM", mistral4::mistral4),
    ("MistralForCausalLM", mistral::mistral),
    ("MixtralForCausalLM", mistral::mixtral),
    ("NemotronHForCausalLM", nemotron::nemotron_h),
    ("Olmo2ForCausalLM", olmo::olmo2),
    ("Olmo3ForCausalLM", olmo::olmo3),
    ("OlmoeForCausalLM", olmo::olmoe),
    ("Phi3ForCausalLM", phi::phi3),
    ("Qwen2ForCausalLM", qwen::qwen2),
    ("Qwen2MoeForCausalLM", qwen::qwen2_moe),
    ("Qwen2_5_VLForConditionalGeneration", qwen_images::qwen2_5),
    ("Qwen3ForCausalLM", qwen::qwen3),
    ("Qwen3MoeForCausalLM", qwen::qwen3_moe),
    ("Qwen3NextForCausalLM", qwen_hybrid::qwen3_next),
    ("Qwen3VLForConditionalGeneration", qwen_images::qwen3),
    ("Qwen3VLMoeForConditionalGeneration", qwen_images::qwen3_moe),
    ("Qwen3_5ForCausalLM", qwen_hybrid::qwen3_5),
    ("Qwen3_5ForConditionalGeneration", qwen_images::qwen3_5),
    ("Qwen3_5MoeForCausalLM", qwen_hybrid::qwen3_5_moe),
    ("Qwen3_5MoeForConditionalGeneration", qwen_images::qwen3_5_moe),
    ("SeedOssForCausalLM", llama::seed_oss),
    ("SmolLM3ForCausalLM", smollm::smollm3),
];

/// Adds what reads images to the shape of a text, as the rest of config.json describes it.
type AddImages = fn(&Settings<'_>, ModelShape) -> Result<ModelShape, ConfigError>;

/// Architectures that read images: the text of each is read by [`FAMILIES`].
const SEEING: &[(&str, AddImages)] = &[
    ("Gemma3ForConditionalGeneration", gemma_images::with_images),
    ("Glm46VForConditionalGeneration", glm_images::with_images),
    ("Glm4vForConditionalGeneration", glm_images::with_images),
    ("Glm4vMoeForConditionalGeneration", glm_images::mixture_with_images),
    ("InternVLForConditionalGeneration", internvl::with_images),
    ("Mistral3ForConditionalGeneration", mistral_images::with_images),
    ("Qwen2_5_VLForConditionalGeneration", qwen_images::qwen2_5_with_images),
    ("Qwen3VLForConditionalGeneration", qwen_images::qwen3_with_images),
    ("Qwen3VLMoeForConditionalGeneration", qwen_images::qwen3_with_images),
    ("Qwen3_5ForConditionalGeneration", qwen_images::qwen3_5_with_images),
    ("Qwen3_5MoeForConditionalGeneration", qwen_images::qwen3_5_with_images),
];

/// Architectures that have a `logit_scale`.
const SCALED_LOGITS: [&str; 2] = ["Cohere2ForCausalLM", "CohereForCausalLM"];

impl ModelShape {
    /// Reads the content of config.json.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let name = architecture(config)?;
        let text = Self::read_named(name, config)?;
        match SEEING.iter().find(|(seeing, _)| *seeing == name) {
            Some((_, with_images)) => with_images(&Settings(config), text),
            None => Ok(text),
        }
    }

    /// Reads what config.json says of the text, which may be all that is computed of a model. What reads images is not judged.
    pub(crate) fn read_text(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        Self::read_named(architecture(config)?, config).map(Self::of_text_alone)
    }

    fn read_named(name: &str, config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let known = FAMILIES.iter().find(|(known, _)| *known == name);
        let (_, read) = known.ok_or_else(|| ConfigError::Architecture(name.to_owned()))?;
        let text = config.get("text_config").and_then(Value::as_object);
        for part in std::iter::once(config).chain(text) {
            refuse_what_no_family_computes(part)?;
            if !SCALED_LOGITS.contains(&name) {
                refuse_other_factor(part, "logit_scale")?;
            }
            if !GEMMA_4.contains(&name) {
                refuse_other_than(false, part, "use_bidirectional_attention")?;
                refuse_layers_of_their_own(part)?;
            }
        }
        let mut shape = read(&Settings(config))?;
        shape.longest = shape.longest.or(of_one_chunk(config)?);
        Ok(shape)
    }

    /// Refuses sequences that are longer than what is computed as the model's own code does.
    pub(crate) fn check_length(&self, max_model_len: usize) -> Result<(), ConfigError> {
        match self.longest {
            Some(Longest { tokens, key, reason }) if max_model_len > tokens => Err(ConfigError::setting(
                key,
                format!(
                    "{reason}: --max-model-len {tokens} is the longest that is computed, and {max_model_len} is asked for"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// The one architecture that config.json names.
fn architecture(config: &Map<String, Value>) -> Result<&str, ConfigError> {
    match config.get("architectures").and_then(Value::as_array).map(Vec::as_slice) {
        Some([Value::String(name)]) => Ok(name),
        _ => Err(ConfigError::setting("architectures", "does not name exactly one architecture")),
    }
}

/// Architectures where tokens of pictures may attend to later ones, which changes nothing for text, and whose layers may
/// have heads of their own.
const GEMMA_4: [&str; 2] = ["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"];

/// Refuses settings of single layers, which transformers knows for every family.
fn refuse_layers_of_their_own(config: &Map<String, Value>) -> Result<(), ConfigError> {
    const KEY: &str = "per_layer_config";
    let says_nothing = |own: &Value| own.is_null() || own.as_object().is_some_and(Map::is_empty);
    match config.get(KEY).filter(|own| !says_nothing(own)) {
        Some(_) => Err(ConfigError::setting(KEY, "is not supported")),
        None => Ok(()),
    }
}

/// Refuses a setting other than this.
fn refuse_other_than(expected: bool, config: &Map<String, Value>, key: &str) -> Result<(), ConfigError> {
    match config.get(key).filter(|value| !value.is_null() && value.as_bool() != Some(expected)) {
        Some(_) => Err(ConfigError::setting(key, "is not supported")),
        None => Ok(()),
    }
}

/// Refuses a factor other than 1.
fn refuse_other_factor(config: &Map<String, Value>, key: &str) -> Result<(), ConfigError> {
    match config.get(key).filter(|factor| !factor.is_null() && factor.as_f64() != Some(1.0)) {
        Some(_) => Err(ConfigError::setting(key, "is not supported")),
        None => Ok(()),
    }
}

/// Settings that some checkpoints have and that no family here computes.
fn refuse_what_no_family_computes(config: &Map<String, Value>) -> Result<(), ConfigError> {
    Quantization::read(config).map_err(|reason| ConfigError::setting("quantization_config", reason))?;
    refuse_other_than(true, config, "is_causal")
}

/// The longest sequences that attention in two kinds of chunks (Qwen2.5-1M) sees as one: up to there it is plain attention.
fn of_one_chunk(config: &Map<String, Value>) -> Result<Option<Longest>, ConfigError> {
    const KEY: &str = "dual_chunk_attention_config";
    let Some(chunks) = config.get(KEY).filter(|chunks| !chunks.is_null()) else { return Ok(None) };
    let size = |name: &str| chunks.get(name).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    match size("chunk_size").zip(size("local_size")) {
        Some((chunk, local)) if local < chunk => {
            let reason = "has attention in chunks for longer sequences, which is not computed here";
            Ok(Some(Longest { tokens: chunk - local, key: KEY, reason }))
        }
        _ => Err(ConfigError::setting(KEY, "has no `chunk_size` that is over its `local_size`")),
    }
}

/// The architectures that are known.
#[cfg(test)]
pub(super) fn architectures() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// Those that read images.
#[cfg(test)]
pub(super) fn seeing() -> impl Iterator<Item = &'static str> {
    SEEING.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests;
