//! Numbers that Python writes and JSON has no name for, for readers of files who know JSON.

use serde::de::DeserializeOwned;

use super::Document;

/// Reads a file that Python may have written. `NaN` and infinities are read as transformers writes them from its fifth
/// release on, `{"__float__": "Infinity"}`: whoever knows a number there that is not finite takes it, and whoever does not
/// refuses what is no number. Everything else is as [`serde_json`] reads it, and so are errors.
pub fn read_python<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match with_words_for_not_finite(text) {
        Some(named) => serde_json::from_str(&named),
        None => Err(error),
    }
}

/// The text with other words for numbers that are not finite; none if there are none, or it cannot be read.
fn with_words_for_not_finite(text: &str) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let places = document.not_finite();
    let (mut named, mut end) = (String::with_capacity(text.len()), 0);
    for place in places {
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| text[*place..].starts_with(word))?;
        named.extend([&text[end..*place], "{\"__float__\": \"", word, "\"}"]);
        end = place + word.len();
    }
    named.push_str(&text[end..]);
    (!places.is_empty()).then_some(named)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn numbers_without_a_name_are_read_as_transformers_names_them() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "Infinity é", "e": 1}"#;
        let float = |name: &str| json!({"__float__": name});
        let expected = json!({"a": [0.0, float("Infinity")], "b": float("-Infinity"), "c": float("NaN"), "d": "Infinity é", "e": 1});
        assert_eq!(read_python::<Value>(text).unwrap(), expected);
        assert_eq!(read_python::<Value>(&expected.to_string()).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_with_other_texts_is_what_json_says() {
        for text in ["{", "{\"a\": Infin}", "[1,]", "Infinity,"] {
            let error = serde_json::from_str::<Value>(text).unwrap_err().to_string();
            assert_eq!(read_python::<Value>(text).unwrap_err().to_string(), error, "{text}");
        }
    }
}
