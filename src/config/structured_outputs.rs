//! `--structured-outputs-config`, as vLLM's `StructuredOutputsConfig` has it.

use serde::Deserialize;

/// How structured outputs are written, whatever requests say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "vLLM's own shape")]
pub struct StructuredOutputsConfig {
    /// Any backend gives valid outputs; which of them is not vLLM's promise either.
    backend: Option<Backend>,
    /// No white space in JSON but one blank after `,` and `:`.
    pub disable_any_whitespace: bool,
    /// Objects in JSON have the properties that their schema names, and no others.
    pub disable_additional_properties: bool,
    /// There is nothing to fall back to.
    #[serde(rename = "disable_fallback")]
    _disable_fallback: bool,
    reasoning_parser: Option<String>,
    reasoning_parser_plugin: Option<String>,
    enable_in_reasoning: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Backend {
    Auto,
    Guidance,
    Outlines,
    Xgrammar,
}

/// Reads the value of the flag.
pub(super) fn parse(text: &str) -> Result<StructuredOutputsConfig, String> {
    if matches!(text, "" | "None" | "null") {
        return Ok(StructuredOutputsConfig::default());
    }
    let config: StructuredOutputsConfig = serde_json::from_str(text)
        .map_err(|error| format!("expected vLLM's StructuredOutputsConfig as JSON: {error}"))?;
    let named = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    if named(&config.reasoning_parser) || named(&config.reasoning_parser_plugin) {
        return Err("the reasoning parser is named by --reasoning-parser".to_owned());
    }
    if config.enable_in_reasoning {
        return Err("enable_in_reasoning is not supported: tito does not constrain what a model thinks".to_owned());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_answers_is_honoured_or_refused() {
        for neutral in ["", "None", "{}", r#"{"backend": "xgrammar"}"#, r#"{"reasoning_parser":"","backend":null}"#] {
            let read = parse(neutral).unwrap();
            assert!(!read.disable_any_whitespace && !read.disable_additional_properties, "{neutral}");
        }
        let read = parse(r#"{"disable_any_whitespace": true, "disable_additional_properties": true}"#).unwrap();
        assert!(read.disable_any_whitespace && read.disable_additional_properties);
        for (refused, reason) in [
            (r#"{"backend":"sausage"}"#, "sausage"),
            (r#"{"mood":1}"#, "mood"),
            (r#"{"reasoning_parser":"qwen3"}"#, "--reasoning-parser"),
            (r#"{"enable_in_reasoning":true}"#, "thinks"),
        ] {
            assert!(parse(refused).unwrap_err().contains(reason), "{refused}");
        }
    }
}
