//! What the compiler would take too long for without counting it: refused by size before it is begun.
//!
//! The compiler counts most of its own work and gives up by itself. Two keywords escape its count: a `multipleOf` becomes
//! a state for each remainder, and properties are looked at once for each of the others: for each property, the compiler
//! hashes the list of all that follow it. Those that may be left out have a state of their own for each of these, too.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::error::StructuredError;

/// The most remainders of all `multipleOf` of a schema together. 10,000 of them take some 70 ms to compile, and 9 MB
/// for each sequence.
const MOST_REMAINDERS: u64 = 2_000;
/// Squares of the numbers of optional properties, over all objects of a schema together: 2,000 in one object, at some
/// 0.5 s.
const MOST_PAIRS: u64 = 4_000_000;
/// Squares of the numbers of all named properties, likewise: 8,000 in one object, at some 0.7 s.
const MOST_NAMED_PAIRS: u64 = 64_000_000;

/// Refuses a schema that takes too long.
pub(super) fn check(schema: &Value) -> Result<(), StructuredError> {
    let mut cost = Cost::default();
    cost.add(schema);
    if cost.remainders > MOST_REMAINDERS {
        return Err(StructuredError::grammar(format_args!(
            "the numbers of `multipleOf` have {} remainders together, more than the {MOST_REMAINDERS} that are compiled \
             (factors of 2 and 5 do not count)",
            cost.remainders
        )));
    }
    if cost.pairs > MOST_PAIRS {
        return Err(StructuredError::grammar(
            "the schema has too many properties that may be left out (2000 of one object are compiled at most); make \
             them required, or split the object",
        ));
    }
    if cost.named_pairs > MOST_NAMED_PAIRS {
        return Err(StructuredError::grammar(
            "the schema names too many properties (8000 of one object are compiled at most); split the object",
        ));
    }
    Ok(())
}

#[derive(Default)]
struct Cost {
    remainders: u64,
    pairs: u64,
    named_pairs: u64,
}

impl Cost {
    /// Counts keywords wherever they stand: a schema within an `enum`, say, is rare enough.
    fn add(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(entries) => {
                if let Some(factor) = entries.get("multipleOf").and_then(Value::as_number) {
                    self.remainders = self.remainders.saturating_add(remainders(&factor.to_string()));
                }
                let (named, optional) = properties(entries);
                self.named_pairs = self.named_pairs.saturating_add(named.saturating_mul(named));
                self.pairs = self.pairs.saturating_add(optional.saturating_mul(optional));
                entries.values().for_each(|value| self.add(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// How many properties are named, and how many of these may be left out.
fn properties(entries: &Map<String, Value>) -> (u64, u64) {
    let required = entries.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
    let described = entries.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let optional = described.filter(|name| !required.contains(name.as_str())).count();
    // What is required has a place, described or not.
    ((optional + required.len()) as u64, optional as u64)
}

/// How many states tell the multiples of a number. Factors of 2 and 5 divide a power of ten and need no states of their
/// own, and so neither does the place of the decimal point.
fn remainders(number: &str) -> u64 {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let Ok(mut number) = digits.parse::<u64>() else { return u64::MAX };
    // Beyond the numbers that are written out, only very small ones are read.
    if exponent.parse::<i32>().map_or(true, |exponent| exponent > 0) {
        return u64::MAX;
    }
    for factor in [2, 5] {
        while number > 0 && number.is_multiple_of(factor) {
            number /= factor;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_escapes_the_compilers_count_is_counted() {
        let multiple = |number: Value| check(&json!({"properties": {"a": {"type": "number", "multipleOf": number}}}));
        for number in [json!(1), json!(0.01), json!(1_000_000), json!(1_999), json!(0.5)] {
            assert_eq!(multiple(number.clone()), Ok(()), "{number}");
        }
        assert!(multiple(json!(999_983)).unwrap_err().message.contains("`multipleOf`"));
        let several: Vec<Value> = (0..30).map(|index| json!({"multipleOf": 101 + 2 * index})).collect();
        assert!(check(&json!({ "anyOf": several })).unwrap_err().message.contains("together"));
        let object = |count: usize, required: usize| {
            let names: Vec<String> = (0..count).map(|index| format!("p{index}")).collect();
            let properties: Map<String, Value> = names.iter().map(|name| (name.clone(), json!({}))).collect();
            check(&json!({"properties": properties, "required": names[..required]}))
        };
        assert_eq!((object(2_000, 0), object(8_000, 7_000), object(8_000, 8_000)), (Ok(()), Ok(()), Ok(())));
        assert!(object(2_001, 0).unwrap_err().message.contains("may be left out"));
        let unknown: Vec<String> = (0..2_000).map(|index| format!("q{index}")).collect();
        let names: Map<String, Value> = (0..2_001).map(|index| (format!("p{index}"), json!({}))).collect();
        let said = check(&json!({"properties": names, "required": unknown})).unwrap_err().message;
        assert!(said.contains("may be left out"), "{said}");
        assert!(object(8_001, 8_001).unwrap_err().message.contains("(8000 of one object"));
        let names: Map<String, Value> = (0..5_000).map(|index| (format!("p{index}"), json!({}))).collect();
        let required: Vec<&String> = names.keys().collect();
        let one = json!({"properties": names, "required": required});
        assert!(check(&json!({"anyOf": [one, one, one]})).unwrap_err().message.contains("too many properties"));
    }
}
