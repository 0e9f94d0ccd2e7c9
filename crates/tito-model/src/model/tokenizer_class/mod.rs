//! Which class of transformers 5 a tokenizer has, and with it vLLM: `tokenizer_config.json` names it, or the kind of model
//! has one. Most classes take tokenizer.json as it is; some take only its vocabulary.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::tokenizer::{BuiltClass, BuiltKind};

/// What is made of a tokenizer.json.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum TokenizerClass {
    /// What it says.
    #[default]
    AsFile,
    /// A tokenizer of its vocabulary, whose other parts are those of the class.
    Built(BuiltClass),
    /// Something that only transformers knows.
    Unknown(String),
}

/// The class that takes tokenizer.json as it is.
const AS_FILE: &str = "TokenizersBackend";

/// Kinds of models whose own class counts, whatever the files name.
const OWN_CLASS: [&str; 6] =
    ["hyperclovax_vision_v2", "qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp"];

/// The other classes of transformers 5.16 to 5.20 that make more of a tokenizer than its file says, each without its last
/// word `Tokenizer`.
const OTHERS: [&str; 95] = [
    "Albert",
    "Bart",
    "Barthez",
    "Bartpho",
    "Bert",
    "BertGeneration",
    "BertJapanese",
    "Bertweet",
    "BigBird",
    "BioGpt",
    "Blenderbot",
    "BlenderbotSmall",
    "ByT5",
    "CLIP",
    "CTRL",
    "Camembert",
    "Canine",
    "Character",
    "Clvp",
    "CodeGen",
    "CodeLlama",
    "ConvBert",
    "Cpm",
    "CpmAnt",
    "DPRContextEncoder",
    "DPRQuestionEncoder",
    "DPRReader",
    "Deberta",
    "DebertaV2",
    "Dia",
    "DistilBert",
    "Esm",
    "Esmc",
    "FNet",
    "FSMT",
    "FastSpeech2Conformer",
    "Flaubert",
    "Funnel",
    "GPTNeoXJapanese",
    "GPTSw3",
    "Herbert",
    "LED",
    "Lasr",
    "LayoutLMv2",
    "LayoutLMv3",
    "LayoutXLM",
    "Luke",
    "Lxmert",
    "M2M100",
    "MBart",
    "MBart50",
    "MLuke",
    "MPNet",
    "Marian",
    "MarkupLM",
    "Mgpstr",
    "MobileBert",
    "Mvp",
    "MyT5",
    "Nllb",
    "Nougat",
    "OpenAIGPT",
    "PLBart",
    "Parakeet",
    "Pegasus",
    "Perceiver",
    "Phobert",
    "Pop2Piano",
    "ProphetNet",
    "Rag",
    "Reformer",
    "RemBert",
    "RoCBert",
    "RoFormer",
    "Roberta",
    "SeamlessM4T",
    "Siglip",
    "Siglip2",
    "Speech2Text",
    "SpeechT5",
    "Splinter",
    "SqueezeBert",
    "T5",
    "Tapas",
    "Tipsv2",
    "Udop",
    "VideoPrism",
    "Vits",
    "Wav2Vec2CTC",
    "Wav2Vec2PhonemeCTC",
    "Whisper",
    "XGLM",
    "XLM",
    "XLMRoberta",
    "XLNet",
];

/// Finds the class as `AutoTokenizer` does. `config` is config.json, where there is one.
pub(super) fn class_of(tokenizer_config: &Map<String, Value>, config: &Map<String, Value>) -> TokenizerClass {
    let name = |files: &Map<String, Value>| {
        let name = files.get("tokenizer_class").and_then(Value::as_str).filter(|name| !name.is_empty());
        name.map(|name| name.strip_suffix("Fast").unwrap_or(name).to_owned())
    };
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let of_model = class_of_model(model_type);
    // Code beside the weights is not run; then the name alone counts.
    let of_model_wins =
        !has_own_code(tokenizer_config) && (of_model == Some(AS_FILE) || OWN_CLASS.contains(&model_type));
    let class = match (name(tokenizer_config).or_else(|| name(config)), of_model) {
        (Some(_), Some(of_model)) if of_model_wins => of_model.to_owned(),
        (Some(named), _) => named,
        (None, of_model) => of_model.unwrap_or(AS_FILE).to_owned(),
    };
    match kind(&class) {
        Some(kind) => TokenizerClass::Built(built(kind, tokenizer_config)),
        None if is_other(&class) => TokenizerClass::Unknown(class),
        None => TokenizerClass::AsFile,
    }
}

/// Whether the directory has Python code for its tokenizer.
fn has_own_code(tokenizer_config: &Map<String, Value>) -> bool {
    match tokenizer_config.get("auto_map") {
        Some(Value::Object(map)) => map.get("AutoTokenizer").is_some_and(|code| !code.is_null()),
        other => other.is_some_and(Value::is_array),
    }
}

/// The class that transformers has for a kind of models, as far as these are models for text.
fn class_of_model(model_type: &str) -> Option<&'static str> {
    Some(match model_type {
        "audioflamingo3" | "colqwen2" | "cosmos3_omni" | "fun_asr_nano" | "hunyuan_vl" | "internvl" | "lighton_ocr"
        | "ovis2" | "qianfan_ocr" | "qwen2" | "qwen2_5_omni" | "qwen2_5_vl" | "qwen2_audio" | "qwen2_moe"
        | "qwen2_vl" | "qwen3" | "qwen3_asr" | "qwen3_moe" | "qwen3_next" | "qwen3_omni_moe" | "qwen3_vl"
        | "qwen3_vl_moe" | "vibevoice" => "Qwen2Tokenizer",
        "qwen3_5" | "qwen3_5_moe" | "qwen3_5_moe_text" | "qwen3_5_text" | "qwen4_exp" => "Qwen3_5Tokenizer",
        "diffusion_gemma" | "gemma" | "gemma2" | "gemma3" | "gemma3_text" | "gemma3n" | "gemma3n_text"
        | "recurrent_gemma" | "shieldgemma2" | "zaya" => "GemmaTokenizer",
        "aya_vision" | "cohere" | "cohere2" => "CohereTokenizer",
        "codegen"
        | "dbrx"
        | "emu3"
        | "gpt2"
        | "gpt_neo"
        | "gptj"
        | "hyperclovax_vision_v2"
        | "jais2"
        | "opt"
        | "phi"
        | "starcoder2" => "GPT2Tokenizer",
        "falcon_mamba" | "gpt_neox" | "mamba" | "mamba2" | "mpt" | "olmo" | "olmoe" | "rwkv" | "xlstm" => {
            "GPTNeoXTokenizer"
        }
        "code_llama" => "CodeLlamaTokenizer",
        "arctic" | "aria" | "chameleon" | "chatlm" | "deepseek_ocr" | "deepseek_ocr2" | "deepseek_v2"
        | "deepseek_v3" | "deepseek_v32" | "deepseek_v4" | "deepseek_vl" | "deepseek_vl_hybrid" | "deepseek_vl_v2"
        | "ernie4_5" | "ernie4_5_moe" | "flex_olmo" | "fuyu" | "glm" | "glm4" | "glm4_moe" | "glm4_moe_lite"
        | "glm4v" | "glm4v_moe" | "got_ocr2" | "gpt_bigcode" | "granite" | "granitemoe" | "granitemoehybrid"
        | "granitemoeshared" | "h2ovl_chat" | "hyperclovax" | "hyperclovax_vlm" | "internlm2" | "jamba" | "janus"
        | "kimi_k25" | "kimi_linear" | "llava" | "llava_next" | "mimo_v2_flash" | "minicpm3" | "minicpmv"
        | "minicpmv4_6" | "minicpmv4_7" | "minimax_m2" | "ministral" | "ministral3" | "mistral" | "mistral3"
        | "mixtral" | "molmo" | "molmo2" | "nemotron" | "nvfp4" | "olmo2" | "olmo3" | "olmo_hybrid" | "opencua"
        | "paddleocr_vl" | "persimmon" | "phi3" | "phi3_v" | "phimoe" | "pixtral" | "smolvlm" | "stablelm"
        | "step3_vl" | "step3p5" | "vipllava" | "voxtral" | "voxtral_realtime" => AS_FILE,
        _ => return None,
    })
}

fn kind(class: &str) -> Option<BuiltKind> {
    Some(match class {
        "LlamaTokenizer" => BuiltKind::Llama,
        "GemmaTokenizer" => BuiltKind::Gemma,
        "CohereTokenizer" => BuiltKind::Cohere,
        "GPT2Tokenizer" => BuiltKind::Gpt2,
        "GPTNeoXTokenizer" => BuiltKind::GptNeoX,
        "Qwen2Tokenizer" => BuiltKind::Qwen2,
        "Qwen3_5Tokenizer" => BuiltKind::Qwen35,
        _ => return None,
    })
}

fn is_other(class: &str) -> bool {
    class.strip_suffix("Tokenizer").is_some_and(|class| OTHERS.contains(&class))
}

fn built(kind: BuiltKind, config: &Map<String, Value>) -> BuiltClass {
    let add_prefix_space = match config.get("add_prefix_space") {
        None | Some(Value::Null) => kind == BuiltKind::Llama,
        Some(value) => is_true(value),
    };
    let unk_token = config.get("unk_token").map(|token| token.get("content").unwrap_or(token));
    let listed = config.get("added_tokens_decoder").and_then(Value::as_object).map(|tokens| {
        let contents = tokens.values().filter_map(|token| token.get("content").unwrap_or(token).as_str());
        contents.map(ToOwned::to_owned).collect::<HashSet<_>>()
    });
    BuiltClass {
        kind,
        add_prefix_space,
        legacy: config.get("legacy").is_some_and(is_true),
        unk_token: unk_token.and_then(Value::as_str).unwrap_or("<unk>").to_owned(),
        listed,
    }
}

/// As Python takes a value for a condition.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
    }
}

#[cfg(test)]
mod tests;
