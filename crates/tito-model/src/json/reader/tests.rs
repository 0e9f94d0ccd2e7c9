use std::{collections::BTreeMap, fmt::Debug};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::value::RawValue;

use super::{super::Value, *};
use crate::json::{Document, Rewrite};

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "printed")]
struct Request {
    ids: Option<Vec<u32>>,
    raw: Option<Box<RawValue>>,
    value: Option<Value>,
    side: Option<Side>,
    pair: Option<(u8, u8)>,
    ignored: Option<IgnoredAny>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "printed")]
struct Rest {
    temperature: Option<f64>,
    stop: Option<Stop>,
    bias: Option<BTreeMap<String, f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "printed")]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "printed")]
enum Side {
    Left,
    Right(u8),
}

fn read<T: DeserializeOwned>(text: &str, rewrites: &[(&str, &str)]) -> Result<T, Error> {
    let document = Document::parse(text).unwrap();
    let place = |part: &str| {
        let start = text.find(part).unwrap();
        Node { text: &text[start..start + part.len()], kind: NodeKind::Null }
    };
    let rewrites =
        rewrites.iter().map(|(part, instead)| Rewrite::new(text, &place(part), (*instead).to_owned())).collect();
    T::deserialize(Reader::new(&document.root, &Rewrites::new(text, rewrites)))
}

/// Compares what becomes of a text with what `serde_json` makes of it, errors included.
fn compare<T: DeserializeOwned + Debug>(text: &str) {
    let shown = |result: Result<T, Error>| match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error: {}", error.to_string().split(" at line ").next().unwrap_or_default()),
    };
    assert_eq!(shown(read(text, &[])), shown(serde_json::from_str(text)), "{text}");
}

#[test]
fn every_value_is_read_as_serde_json_reads_it() {
    let numbers = "0 -0 7 -7 18446744073709551615 18446744073709551616 -9223372036854775809 1.0 -0.0 1e3 1e999 2.5e-3";
    let others =
        r#"null true "" "a\n\u00e9" [] [1,2,3] [1,-2] [[1],[2,3]] [1,2,3,4] ["a"] {} {"a":1} {"a":{"b":[null]}}"#;
    let enums = r#""left" "right" {"left":null} {"right":5} {"right":500} {"left":1,"right":2}"#;
    for text in numbers.split(' ').chain(others.split(' ')).chain(enums.split(' ')) {
        compare::<serde_json::Value>(text);
        compare::<Value>(text);
        compare::<Box<RawValue>>(text);
        compare::<Option<Box<RawValue>>>(text);
        compare::<Vec<Box<RawValue>>>(text);
        compare::<Vec<Value>>(text);
        compare::<Option<Vec<u32>>>(text);
        compare::<Vec<Option<i64>>>(text);
        compare::<f64>(text);
        compare::<bool>(text);
        compare::<u8>(text);
        compare::<String>(text);
        compare::<(u8, u8)>(text);
        compare::<Side>(text);
        compare::<Stop>(text);
        compare::<Vec<Stop>>(text);
        compare::<BTreeMap<String, Value>>(text);
        compare::<()>(text);
        for field in ["ids", "raw", "value", "side", "pair", "ignored", "temperature", "stop", "bias", "more"] {
            compare::<Request>(&format!(r#"{{"{field}": {text} , "other": 0.1}}"#));
        }
    }
    compare::<Request>(r#"{"ids":[1, 2 ,3],"raw":{"a": [1]},"value":{"b":1.50},"stop":["x"],"bias":{"5":1}}"#);
}

#[test]
fn nesting_ends_where_it_ends_for_serde_json() {
    for depth in [126, 127, 128, 200] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let text = format!("{}0{}", open.repeat(depth), close.repeat(depth));
            compare::<serde_json::Value>(&text);
            compare::<Value>(&text);
            compare::<Box<RawValue>>(&text);
            compare::<IgnoredAny>(&text);
        }
    }
}

#[test]
fn what_is_rewritten_is_read_as_rewritten() {
    let text = r#"{"ids": ["5", 6], "raw": {"a": "7", "b": 8}, "value": ["9", 1], "temperature": "0.5"}"#;
    let rewrites = [("\"5\"", "5"), ("\"7\"", "7"), ("\"9\"", "9"), ("\"0.5\"", "0.5")];
    let request: Request = read(text, &rewrites).unwrap();
    assert_eq!(request.ids, Some(vec![5, 6]));
    assert_eq!(request.raw.unwrap().get(), r#"{"a": 7, "b": 8}"#);
    assert_eq!(request.value, Some(Value::from(vec![9, 1])));
    assert_eq!(request.rest.temperature, Some(0.5));
    let nulls: Request = read(r#"{"ids": [1], "raw": 5, "value": {}}"#, &[("[1]", "null"), ("{}", "null")]).unwrap();
    assert_eq!((nulls.ids, nulls.value), (None, None));
    assert_eq!(read::<Vec<i64>>("[1,22,3]", &[("22", "-4")]).unwrap(), [1, -4, 3]);
}

#[test]
fn what_no_client_sent_is_not_read() {
    let mut document = Document::parse(r#"{"a": 1}"#).unwrap();
    let NodeKind::Object(entries) = &mut document.root.kind else { unreachable!() };
    entries.insert("b".to_owned(), Node { text: "", kind: NodeKind::Bool(true) });
    let read = BTreeMap::<String, Value>::deserialize(Reader::new(&document.root, &Rewrites::default()));
    assert_eq!(read.unwrap().into_keys().collect::<Vec<_>>(), ["a"]);
}
