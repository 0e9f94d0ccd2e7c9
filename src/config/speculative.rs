//! `--speculative-config`, as vLLM's `SpeculativeConfig` has it, for drafts from texts and from another model.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// Where drafts come from.
#[derive(Debug, Clone, PartialEq)]
pub enum SpeculativeConfig {
    /// Nowhere: there are none.
    Off,
    /// What followed the last tokens of a sequence where they were before in it.
    Ngram {
        /// The most tokens of a draft.
        num_speculative_tokens: usize,
        /// The most tokens that are looked up.
        prompt_lookup_max: usize,
        /// The fewest tokens that are looked up.
        prompt_lookup_min: usize,
    },
    /// What most often followed them, in it and in recent sequences.
    Suffix {
        /// The most tokens of a draft.
        num_speculative_tokens: usize,
        /// The most tokens of a draft and of what it follows from together.
        max_tree_depth: usize,
        /// The most recent sequences that are kept; 0 for none.
        max_cached_requests: usize,
        /// How many tokens a draft may have for each one that it follows from.
        max_spec_factor: f64,
        /// How probable a draft must be at the least, from 0 to 1.
        min_token_prob: f64,
    },
    /// What another model guesses.
    DraftModel(DraftModelConfig),
}

/// A model that drafts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftModelConfig {
    /// A directory, a GGUF file, or an id of the hub.
    pub model: String,
    /// Branch, tag or commit of the hub; `main` if unset.
    pub revision: Option<String>,
    /// How it has to be quantised.
    pub quantization: Option<String>,
    /// Beyond so many tokens of a sequence, it does not draft.
    pub max_model_len: Option<usize>,
    /// The most tokens of a draft.
    pub num_speculative_tokens: usize,
}

impl Default for SpeculativeConfig {
    /// Suffix decoding with vLLM's settings.
    fn default() -> Self {
        Self::Suffix {
            num_speculative_tokens: default_depth(),
            max_tree_depth: default_depth(),
            max_cached_requests: default_requests(),
            max_spec_factor: default_factor(),
            min_token_prob: default_probability(),
        }
    }
}

#[derive(Deserialize)]
struct Method {
    method: Option<String>,
    model: Option<Value>,
}

/// What is written for the method `ngram`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ngram {
    #[serde(rename = "method")]
    _method: String,
    num_speculative_tokens: Option<usize>,
    prompt_lookup_max: Option<usize>,
    prompt_lookup_min: Option<usize>,
}

/// What is written for the method `suffix`, with vLLM's defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuffixDecoding {
    #[serde(rename = "method")]
    _method: String,
    num_speculative_tokens: Option<usize>,
    #[serde(rename = "suffix_decoding_max_tree_depth", default = "default_depth")]
    max_tree_depth: usize,
    #[serde(rename = "suffix_decoding_max_cached_requests", default = "default_requests")]
    max_cached_requests: usize,
    #[serde(rename = "suffix_decoding_max_spec_factor", default = "default_factor")]
    max_spec_factor: f64,
    #[serde(rename = "suffix_decoding_min_token_prob", default = "default_probability")]
    min_token_prob: f64,
}

/// What is written for the method `draft_model`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftModel {
    #[serde(rename = "method")]
    _method: Option<String>,
    model: Option<String>,
    num_speculative_tokens: Option<usize>,
    revision: Option<String>,
    quantization: Option<String>,
    max_model_len: Option<usize>,
    draft_tensor_parallel_size: Option<usize>,
    /// There are no graphs, so that it is without effect.
    #[serde(rename = "enforce_eager")]
    _enforce_eager: Option<bool>,
    draft_sample_method: Option<String>,
    rejection_sample_method: Option<String>,
    parallel_drafting: Option<bool>,
    use_heterogeneous_vocab: Option<bool>,
}

fn default_depth() -> usize {
    24
}

fn default_requests() -> usize {
    10_000
}

fn default_factor() -> f64 {
    1.0
}

fn default_probability() -> f64 {
    0.1
}

/// Longer drafts are refused: no step has room for them.
const LONGEST: usize = 64;
/// What vLLM looks up unless it is told.
const LOOKUP: usize = 5;
/// What is written for the method `draft_model`, in words.
const DRAFT_MODEL: &str = "method, model, num_speculative_tokens, revision, quantization and max_model_len";
/// Deeper lookups are refused: they would take longer than a step saves.
const DEEPEST: usize = 256;

/// Reads the value of the flag.
pub(super) fn parse(text: &str) -> Result<SpeculativeConfig, String> {
    if text.trim() == "null" {
        return Ok(SpeculativeConfig::Off);
    }
    let Method { method, model } = read(text, "method and the settings of that method")?;
    match method.as_deref() {
        // vLLM takes a model for one that drafts, unless its config.json says otherwise.
        Some("draft_model") => draft_model(read(text, DRAFT_MODEL)?),
        None if model.is_some_and(|model| !model.is_null()) => draft_model(read(text, DRAFT_MODEL)?),
        Some("ngram") => ngram(&read(text, "method, num_speculative_tokens, prompt_lookup_max and prompt_lookup_min")?),
        Some("suffix") => suffix(&read(text, "method, num_speculative_tokens and suffix_decoding_*")?),
        Some(method) => Err(format!("the method {method} is not supported; ngram, suffix and draft_model are")),
        None => Err("method is missing; it is ngram, suffix or draft_model".to_owned()),
    }
}

fn read<T: DeserializeOwned>(text: &str, fields: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object with {fields}: {error}"))
}

fn ngram(written: &Ngram) -> Result<SpeculativeConfig, String> {
    let num_speculative_tokens =
        written.num_speculative_tokens.ok_or("num_speculative_tokens is missing; it is the most tokens of a draft")?;
    let (prompt_lookup_min, prompt_lookup_max) = match (written.prompt_lookup_min, written.prompt_lookup_max) {
        (Some(min), Some(max)) => (min, max),
        (Some(one), None) | (None, Some(one)) => (one, one),
        (None, None) => (LOOKUP, LOOKUP),
    };
    if num_speculative_tokens == 0 || prompt_lookup_min == 0 || prompt_lookup_max == 0 {
        return Err("num_speculative_tokens, prompt_lookup_min and prompt_lookup_max are at least 1".to_owned());
    }
    check_longest(num_speculative_tokens)?;
    if prompt_lookup_min > prompt_lookup_max {
        return Err(format!("prompt_lookup_min={prompt_lookup_min} must be <= prompt_lookup_max={prompt_lookup_max}"));
    }
    Ok(SpeculativeConfig::Ngram { num_speculative_tokens, prompt_lookup_max, prompt_lookup_min })
}

fn suffix(written: &SuffixDecoding) -> Result<SpeculativeConfig, String> {
    let &SuffixDecoding { max_tree_depth, max_cached_requests, max_spec_factor, min_token_prob, .. } = written;
    let num_speculative_tokens = written.num_speculative_tokens.unwrap_or(max_tree_depth.min(LONGEST));
    if num_speculative_tokens == 0 || max_tree_depth == 0 {
        return Err("num_speculative_tokens and suffix_decoding_max_tree_depth are at least 1".to_owned());
    }
    check_longest(num_speculative_tokens)?;
    if max_tree_depth > DEEPEST {
        return Err(format!("suffix_decoding_max_tree_depth={max_tree_depth} must be <= {DEEPEST}"));
    }
    if max_spec_factor < 0.0 {
        return Err(format!("suffix_decoding_max_spec_factor={max_spec_factor} must be >= 0"));
    }
    if !(0.0..=1.0).contains(&min_token_prob) {
        return Err(format!("suffix_decoding_min_token_prob={min_token_prob} must be in [0, 1]"));
    }
    Ok(SpeculativeConfig::Suffix {
        num_speculative_tokens,
        max_tree_depth,
        max_cached_requests,
        max_spec_factor,
        min_token_prob,
    })
}

fn draft_model(written: DraftModel) -> Result<SpeculativeConfig, String> {
    let DraftModel { model, num_speculative_tokens, revision, quantization, max_model_len, .. } = written;
    let model = model.filter(|model| !model.is_empty()).ok_or("model is missing; it names the model that drafts")?;
    let num_speculative_tokens =
        num_speculative_tokens.ok_or("num_speculative_tokens is missing; it is the most tokens of a draft")?;
    if num_speculative_tokens == 0 || max_model_len == Some(0) {
        return Err("num_speculative_tokens and max_model_len are at least 1".to_owned());
    }
    check_longest(num_speculative_tokens)?;
    let asked = [
        (written.draft_tensor_parallel_size.is_some_and(|size| size != 1), "draft_tensor_parallel_size must be 1"),
        (written.parallel_drafting == Some(true), "parallel_drafting is not supported: tokens are drafted one by one"),
        (
            written.use_heterogeneous_vocab == Some(true),
            "use_heterogeneous_vocab is not supported: both models must have the same tokens",
        ),
        (
            written.draft_sample_method.is_some_and(|method| method != "probabilistic"),
            "draft_sample_method must be probabilistic: drafts are drawn with the random numbers of their request, which \
             agrees with what is sampled most often, and are the best tokens where the request samples these",
        ),
        (
            written.rejection_sample_method.is_some_and(|method| method != "standard"),
            "rejection_sample_method must be standard: a draft is kept only where it is what would have been sampled",
        ),
    ];
    if let Some((_, reason)) = asked.into_iter().find(|(is_refused, _)| *is_refused) {
        return Err(reason.to_owned());
    }
    Ok(SpeculativeConfig::DraftModel(DraftModelConfig {
        model,
        revision,
        quantization,
        max_model_len,
        num_speculative_tokens,
    }))
}

fn check_longest(num_speculative_tokens: usize) -> Result<(), String> {
    if num_speculative_tokens > LONGEST {
        return Err(format!("num_speculative_tokens={num_speculative_tokens} must be <= {LONGEST}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_as_vllm_reads_them() {
        let lookups = |rest: &str| {
            let read = parse(&format!(r#"{{"method":"ngram","num_speculative_tokens":3{rest}}}"#)).unwrap();
            let SpeculativeConfig::Ngram { num_speculative_tokens: 3, prompt_lookup_max, prompt_lookup_min } = read
            else {
                panic!("{read:?}")
            };
            (prompt_lookup_min, prompt_lookup_max)
        };
        assert_eq!(lookups(""), (5, 5));
        assert_eq!(lookups(r#","prompt_lookup_max":4"#), (4, 4));
        assert_eq!(lookups(r#","prompt_lookup_min":2"#), (2, 2));
        assert_eq!(lookups(r#","prompt_lookup_max":4,"prompt_lookup_min":2"#), (2, 4));
    }

    #[test]
    fn settings_of_suffix_decoding_have_the_defaults_of_vllm() {
        let defaults = SpeculativeConfig::Suffix {
            num_speculative_tokens: 24,
            max_tree_depth: 24,
            max_cached_requests: 10_000,
            max_spec_factor: 1.0,
            min_token_prob: 0.1,
        };
        assert_eq!(SpeculativeConfig::default(), defaults);
        assert_eq!(parse(r#"{"method":"suffix"}"#), Ok(defaults));
        assert_eq!(parse("null"), Ok(SpeculativeConfig::Off));
        let said = r#"{"method":"suffix","num_speculative_tokens":7,"suffix_decoding_max_tree_depth":100,
            "suffix_decoding_max_cached_requests":0,"suffix_decoding_max_spec_factor":2,"suffix_decoding_min_token_prob":0}"#;
        let expected = SpeculativeConfig::Suffix {
            num_speculative_tokens: 7,
            max_tree_depth: 100,
            max_cached_requests: 0,
            max_spec_factor: 2.0,
            min_token_prob: 0.0,
        };
        assert_eq!(parse(said), Ok(expected));
        let deep = parse(r#"{"method":"suffix","suffix_decoding_max_tree_depth":100}"#);
        assert!(matches!(deep, Ok(SpeculativeConfig::Suffix { num_speculative_tokens: 64, .. })), "{deep:?}");
    }

    #[test]
    fn a_draft_model_is_read_as_vllm_reads_it() {
        let expected = DraftModelConfig {
            model: "draft".to_owned(),
            revision: None,
            quantization: None,
            max_model_len: None,
            num_speculative_tokens: 4,
        };
        for written in [
            r#"{"method":"draft_model","model":"draft","num_speculative_tokens":4}"#,
            r#"{"model":"draft","num_speculative_tokens":4,"draft_tensor_parallel_size":1,"enforce_eager":true,
                "draft_sample_method":"probabilistic","rejection_sample_method":"standard","parallel_drafting":false,
                "use_heterogeneous_vocab":false,"quantization":null}"#,
        ] {
            assert_eq!(parse(written), Ok(SpeculativeConfig::DraftModel(expected.clone())));
        }
        let more = r#"{"method":"draft_model","model":"draft","num_speculative_tokens":4,"revision":"r",
            "quantization":"fp8","max_model_len":99}"#;
        let expected = DraftModelConfig {
            revision: Some("r".to_owned()),
            quantization: Some("fp8".to_owned()),
            max_model_len: Some(99),
            ..expected
        };
        assert_eq!(parse(more), Ok(SpeculativeConfig::DraftModel(expected)));
        for (more, reason) in [
            ("", "num_speculative_tokens is missing"),
            (r#","num_speculative_tokens":0"#, "at least 1"),
            (r#","num_speculative_tokens":65"#, "must be <= 64"),
            (r#","num_speculative_tokens":4,"max_model_len":0"#, "at least 1"),
            (r#","num_speculative_tokens":4,"draft_tensor_parallel_size":2"#, "must be 1"),
            (r#","num_speculative_tokens":4,"parallel_drafting":true"#, "parallel_drafting"),
            (r#","num_speculative_tokens":4,"use_heterogeneous_vocab":true"#, "use_heterogeneous_vocab"),
            (r#","num_speculative_tokens":4,"draft_sample_method":"greedy""#, "must be probabilistic"),
            (r#","num_speculative_tokens":4,"rejection_sample_method":"block""#, "must be standard"),
            (r#","num_speculative_tokens":4,"prompt_lookup_max":3"#, "prompt_lookup_max"),
        ] {
            let refused = format!(r#"{{"method":"draft_model","model":"draft"{more}}}"#);
            assert!(parse(&refused).unwrap_err().contains(reason), "{refused}");
        }
        let nameless = parse(r#"{"method":"draft_model","num_speculative_tokens":4}"#);
        assert!(nameless.unwrap_err().contains("model is missing"));
    }

    #[test]
    fn what_is_not_served_is_refused() {
        for (refused, reason) in [
            ("ngram", "JSON object"),
            ("{}", "method is missing"),
            (r#"{"method":"eagle3","num_speculative_tokens":3}"#, "eagle3"),
            (r#"{"method":"ngram"}"#, "num_speculative_tokens is missing"),
            (r#"{"method":"ngram","num_speculative_tokens":0}"#, "at least 1"),
            (r#"{"method":"ngram","num_speculative_tokens":-1}"#, "-1"),
            (r#"{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_min":0}"#, "at least 1"),
            (
                r#"{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_min":4,"prompt_lookup_max":2}"#,
                "must be <=",
            ),
            (r#"{"method":"ngram","num_speculative_tokens":3,"model":"draft"}"#, "model"),
            (r#"{"method":"ngram","num_speculative_tokens":3,"suffix_decoding_max_tree_depth":9}"#, "max_tree_depth"),
            (r#"{"method":"suffix","prompt_lookup_max":4}"#, "prompt_lookup_max"),
            (r#"{"method":"suffix","method":"suffix"}"#, "duplicate field"),
            (r#"{"method":"suffix","num_speculative_tokens":0}"#, "at least 1"),
            (r#"{"method":"suffix","num_speculative_tokens":65}"#, "must be <= 64"),
            (r#"{"method":"suffix","suffix_decoding_max_tree_depth":0}"#, "at least 1"),
            (r#"{"method":"suffix","suffix_decoding_max_tree_depth":257}"#, "must be <= 256"),
            (r#"{"method":"suffix","suffix_decoding_max_cached_requests":-1}"#, "-1"),
            (r#"{"method":"suffix","suffix_decoding_max_cached_requests":null}"#, "null"),
            (r#"{"method":"suffix","suffix_decoding_max_spec_factor":-0.5}"#, "must be >= 0"),
            (r#"{"method":"suffix","suffix_decoding_max_spec_factor":1e999}"#, "out of range"),
            (r#"{"method":"suffix","suffix_decoding_min_token_prob":1.5}"#, "must be in [0, 1]"),
        ] {
            assert!(parse(refused).unwrap_err().contains(reason), "{refused}");
        }
    }
}
