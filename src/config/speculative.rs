//! `--speculative-config`, as vLLM's `SpeculativeConfig` has it, for drafts from texts.

use serde::{Deserialize, de::DeserializeOwned};

/// Where drafts come from.
#[derive(Debug, Clone, Copy, PartialEq)]
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
/// Deeper lookups are refused: they would take longer than a step saves.
const DEEPEST: usize = 256;

/// Reads the value of the flag.
pub(super) fn parse(text: &str) -> Result<SpeculativeConfig, String> {
    if text.trim() == "null" {
        return Ok(SpeculativeConfig::Off);
    }
    let Method { method } = read(text, "method and the settings of that method")?;
    match method.as_deref() {
        Some("ngram") => ngram(&read(text, "method, num_speculative_tokens, prompt_lookup_max and prompt_lookup_min")?),
        Some("suffix") => suffix(&read(text, "method, num_speculative_tokens and suffix_decoding_*")?),
        Some(method) => Err(format!("the method {method} is not supported; ngram and suffix are")),
        None => Err("method is missing; it is ngram or suffix".to_owned()),
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
        assert_eq!(parse(r#"{"method":"suffix"}"#), Ok(defaults));
        assert_eq!(SpeculativeConfig::default(), defaults);
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
