//! `--speculative-config`, as vLLM's `SpeculativeConfig` has it, for drafts from a sequence's own text.

use serde::Deserialize;

/// Drafts by prompt lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeculativeConfig {
    /// The most tokens of a draft.
    pub num_speculative_tokens: usize,
    /// The most tokens that are looked up.
    pub prompt_lookup_max: usize,
    /// The fewest tokens that are looked up.
    pub prompt_lookup_min: usize,
}

/// What is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    method: Option<String>,
    num_speculative_tokens: Option<usize>,
    prompt_lookup_max: Option<usize>,
    prompt_lookup_min: Option<usize>,
}

/// Longer drafts are refused: no step has room for them.
const LONGEST: usize = 64;
/// What vLLM looks up unless it is told.
const LOOKUP: usize = 5;

/// Reads the value of the flag.
pub(super) fn parse(text: &str) -> Result<SpeculativeConfig, String> {
    let written: Written = serde_json::from_str(text).map_err(|error| {
        format!(
            "expected a JSON object with method, num_speculative_tokens, prompt_lookup_max and prompt_lookup_min: {error}"
        )
    })?;
    match written.method.as_deref() {
        Some("ngram") => {}
        Some(method) => return Err(format!("the method {method} is not supported; ngram is")),
        None => return Err("method is missing; the only one is ngram".to_owned()),
    }
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
    if num_speculative_tokens > LONGEST {
        return Err(format!("num_speculative_tokens={num_speculative_tokens} must be <= {LONGEST}"));
    }
    if prompt_lookup_min > prompt_lookup_max {
        return Err(format!("prompt_lookup_min={prompt_lookup_min} must be <= prompt_lookup_max={prompt_lookup_max}"));
    }
    Ok(SpeculativeConfig { num_speculative_tokens, prompt_lookup_max, prompt_lookup_min })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_as_vllm_reads_them() {
        let lookups = |rest: &str| {
            let read = parse(&format!(r#"{{"method":"ngram","num_speculative_tokens":3{rest}}}"#)).unwrap();
            assert_eq!(read.num_speculative_tokens, 3);
            (read.prompt_lookup_min, read.prompt_lookup_max)
        };
        assert_eq!(lookups(""), (5, 5));
        assert_eq!(lookups(r#","prompt_lookup_max":4"#), (4, 4));
        assert_eq!(lookups(r#","prompt_lookup_min":2"#), (2, 2));
        assert_eq!(lookups(r#","prompt_lookup_max":4,"prompt_lookup_min":2"#), (2, 4));
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
        ] {
            assert!(parse(refused).unwrap_err().contains(reason), "{refused}");
        }
    }
}
