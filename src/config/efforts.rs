//! `--reasoning-effort-map`, as vLLM 0.33 has it.

use std::collections::BTreeMap;

/// The efforts that requests can ask for.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// What templates are told, by what requests ask for.
pub(super) type Efforts = BTreeMap<String, String>;

/// Reads the value of the flag.
pub(super) fn parse(text: &str) -> Result<Efforts, String> {
    if matches!(text, "" | "None" | "null") {
        return Ok(Efforts::new());
    }
    let efforts: Efforts = serde_json::from_str(text)
        .map_err(|error| format!("expected a JSON object that maps efforts to strings: {error}"))?;
    match efforts.keys().find(|effort| !EFFORTS.contains(&effort.as_str())) {
        Some(unknown) => {
            Err(format!("no request can ask for the effort {unknown:?}; there are {}", EFFORTS.join(", ")))
        }
        None => Ok(efforts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_that_no_request_has_are_refused() {
        let efforts = parse(r#"{"medium": "low", "xhigh": "max"}"#).unwrap();
        assert_eq!((efforts["medium"].as_str(), efforts["xhigh"].as_str()), ("low", "max"));
        assert!(parse("None").unwrap().is_empty());
        for (wrong, reason) in [(r#"{"loud": "low"}"#, "loud"), (r#"{"low": 1}"#, "strings"), ("[]", "JSON object")] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
