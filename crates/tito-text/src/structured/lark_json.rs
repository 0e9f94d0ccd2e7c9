//! JSON within a Lark grammar of a request (`%json {…}`): checked as any other schema, and its white space comes to an end.
//! Everything else of the grammar stays as it is, and so does what the schema says of objects.

use serde_json::{Map, Value, json};

use super::{
    error::StructuredError,
    json_schema::{MOST_WHITESPACE, check},
};

/// What introduces a schema.
const KEYWORD: &str = "%json";

/// The grammar with bounds in its schemas.
pub(super) fn bounded(grammar: &str) -> Result<String, StructuredError> {
    let mut written = String::with_capacity(grammar.len());
    let mut rest = grammar;
    while let Some(at) = rest.find(['"', '/', '#', '%']) {
        written.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((schema, length)) = schema(rest) {
            written.push_str(KEYWORD);
            written.push(' ');
            written.push_str(&with_bounds(schema)?.to_string());
            rest = &rest[length..];
            continue;
        }
        let length = match rest.as_bytes()[0] {
            b'#' => line(rest),
            b'/' if rest.starts_with("//") => line(rest),
            quote @ (b'"' | b'/') => quoted(rest, quote),
            _ => 1,
        };
        written.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    written.push_str(rest);
    Ok(written)
}

/// Bytes up to the end of the line.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Bytes of a text or a regular expression; it ends with its line, whether or not it is closed.
fn quoted(text: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'\n' => return at,
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            byte if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The schema at the beginning of a text, with the bytes that it takes; what cannot be read is the compiler's to refuse.
fn schema(text: &str) -> Option<(Value, usize)> {
    let text = text.strip_prefix(KEYWORD)?;
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let schema = values.next()?.ok()?;
    Some((schema, KEYWORD.len() + values.byte_offset()))
}

fn with_bounds(mut schema: Value) -> Result<Value, StructuredError> {
    check(&schema)?;
    let Value::Object(entries) = &mut schema else { return Ok(schema) };
    let guidance = entries.entry("x-guidance").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(guidance) = guidance
        && !guidance.contains_key("whitespace_pattern")
        && guidance.get("whitespace_flexible") != Some(&Value::Bool(false))
    {
        let whitespace = format!(r"[\x20\x0A\x0D\x09]{{1,{MOST_WHITESPACE}}}");
        guidance.insert("whitespace_pattern".to_owned(), json!(whitespace));
    }
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemas_change() {
        for same in ["start: \"%json {}\" /%json {}/ // %json {}", "# %json {}\nstart: \"\\\"%json {}\"", "start: a %b"]
        {
            assert_eq!(bounded(same).as_deref(), Ok(same));
        }
        let written = bounded(
            "start: \"a\" %json {\"type\": \"null\"} b\nb: %json{\"x-guidance\": \
                               {\"whitespace_pattern\": \" *\"}} /c/",
        )
        .unwrap();
        let pattern = r#"{"whitespace_pattern":"[\\x20\\x0A\\x0D\\x09]{1,32}"}"#;
        let expected = format!(
            "start: \"a\" %json {{\"type\":\"null\",\"x-guidance\":{pattern}}} b\nb: %json \
             {{\"x-guidance\":{{\"whitespace_pattern\":\" *\"}}}} /c/"
        );
        assert_eq!(written, expected);
        assert!(bounded("start: %json {\"$ref\": \"#\"}").unwrap_err().message.contains("leads back"));
    }
}
