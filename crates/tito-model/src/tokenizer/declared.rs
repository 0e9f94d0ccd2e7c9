//! The parts of a tokenizer.json that the library takes on trust, read before it sees them.

use serde::Deserialize;
use serde_json::Value;

use super::{AddedToken, TokenizerError};

/// What a file declares that has to be compared with what the library makes of it, or that the library would believe.
#[derive(Deserialize)]
pub(super) struct Declared {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
}

/// The table of a `SentencePiece` model, in Base64: its length in bytes, the table itself, and texts.
const TABLE: &str = "precompiled_charsmap";

impl Declared {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let declared: Self = serde_json::from_slice(bytes).map_err(|e| TokenizerError::Invalid(e.to_string()))?;
        check_tables(&declared.normalizer)?;
        Ok(declared)
    }
}

/// The library makes room for a table of the length that the file says.
fn check_tables(normalizer: &Value) -> Result<(), TokenizerError> {
    match normalizer {
        Value::Array(values) => values.iter().try_for_each(check_tables),
        Value::Object(object) => object.iter().try_for_each(|(key, value)| match value {
            Value::String(table) if key == TABLE && stated_length(table) > table.len() / 4 * 3 => {
                Err(TokenizerError::Invalid(format!("`{TABLE}` ends before the table that it begins with")))
            }
            value => check_tables(value),
        }),
        _ => Ok(()),
    }
}

/// The first four bytes, the least significant one first; 0 where they are not there.
fn stated_length(table: &str) -> usize {
    let six_bits = |character: u8| match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Option<Vec<u8>> = table.bytes().take(6).map(six_bits).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 6) else { return 0 };
    // Six digits are 36 bits, of which the first 32 count.
    let bits = digits.iter().fold(0_u64, |bits, digit| bits << 6 | u64::from(*digit)) >> 4;
    bits.to_le_bytes()[..4].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_a_table_are_its_length() {
        // In Base64, 04 03 02 01 and two more bytes.
        assert_eq!(stated_length("BAMCAQAA"), 0x0102_0304);
        assert_eq!(stated_length("////////"), u32::MAX as usize);
        assert_eq!((stated_length(""), stated_length("BAMC!QAA")), (0, 0));
    }

    #[test]
    fn a_table_that_says_more_than_there_is_is_refused_before_the_library_makes_room() {
        let table = r#"{"type": "Precompiled", "precompiled_charsmap": "/////wAA"}"#;
        for normalizer in [table.to_owned(), format!(r#"{{"type": "Sequence", "normalizers": [{table}]}}"#)] {
            let error = Declared::read(format!(r#"{{"normalizer": {normalizer}}}"#).as_bytes()).err().unwrap();
            assert!(error.to_string().contains("ends before the table"), "{error}");
        }
    }
}
