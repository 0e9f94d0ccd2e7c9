//! Ids and texts against a recording of transformers (`tests/reference/record_tokenizer_classes.py`).

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;
use crate::{TokenId, model::TokenizerFiles, tokenizer::Tokenizer};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tokenizer_classes");
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-model");

#[derive(Deserialize)]
struct Recording {
    texts: Vec<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    vocabulary: String,
    model_type: String,
    config: Value,
    changes: Map<String, Value>,
    /// By text: with special tokens, and without.
    ids: Vec<[Vec<TokenId>; 2]>,
    decoded: Vec<String>,
}

fn object(path: &Path) -> Map<String, Value> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn vocabulary(name: &str) -> Map<String, Value> {
    match name {
        "pieces" => object(&Path::new(GOLDEN).join("pieces.json")),
        _ => object(&Path::new(TINY).join("tokenizer.json")),
    }
}

fn tokenizer(vocabulary_of: &str, changes: &Map<String, Value>, config: &Value, model_type: &str) -> Tokenizer {
    let directory = tempfile::tempdir().unwrap();
    let mut tokenizer = vocabulary(vocabulary_of);
    tokenizer.extend(changes.clone());
    let write = |name: &str, value: &Value| fs::write(directory.path().join(name), value.to_string()).unwrap();
    write("tokenizer.json", &Value::Object(tokenizer));
    write("tokenizer_config.json", config);
    write("config.json", &json!({"model_type": model_type}));
    TokenizerFiles::open(directory.path()).unwrap().tokenizer().unwrap()
}

#[test]
fn the_ids_of_a_class_are_those_of_transformers() {
    let recording: Recording = serde_json::from_slice(&fs::read(Path::new(GOLDEN).join("ids.json")).unwrap()).unwrap();
    let mut differences = Vec::new();
    for case in &recording.cases {
        let tokenizer = tokenizer(&case.vocabulary, &case.changes, &case.config, &case.model_type);
        for ((text, ids), decoded) in recording.texts.iter().zip(&case.ids).zip(&case.decoded) {
            for (ids, special) in ids.iter().zip([true, false]) {
                let own = tokenizer.encode(text, special).unwrap();
                if own != *ids {
                    differences.push(format!("{}: {text:?} {special}: {own:?}, not {ids:?}", case.name));
                }
            }
            let own = tokenizer.decode(&ids[0], false).unwrap();
            if own != *decoded {
                differences.push(format!("{}: {text:?}: {own:?}, not {decoded:?}", case.name));
            }
        }
    }
    assert!(recording.cases.len() > 50);
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences[..differences.len().min(30)].join("\n")
    );
}

#[test]
fn a_class_for_another_kind_of_vocabulary_leaves_the_file_as_it_is() {
    let text = "hello <|im_start|> world";
    let plain = tokenizer("bytes", &Map::new(), &json!({}), "llama").encode(text, true).unwrap();
    for class in ["LlamaTokenizerFast", "GemmaTokenizer", "T5Tokenizer"] {
        let own = tokenizer("bytes", &Map::new(), &json!({"tokenizer_class": class}), "llama");
        assert_eq!(own.encode(text, true).unwrap(), plain, "{class}");
    }
}

#[test]
fn classes_are_found_as_transformers_finds_them() {
    let class = |named: Value, of_config: Value| {
        let [Value::Object(named), Value::Object(of_config)] = [named, of_config] else { unreachable!() };
        match class_of(&named, &of_config) {
            TokenizerClass::Built(class) => format!("{:?}", class.kind),
            TokenizerClass::Unknown(class) => class,
            TokenizerClass::AsFile => "file".to_owned(),
        }
    };
    let llama = || json!({"tokenizer_class": "LlamaTokenizerFast"});
    let of = |model_type: &str| json!({"model_type": model_type});
    for (model_type, expected) in
        [("llama", "Llama"), ("mistral", "file"), ("qwen2", "Qwen2"), ("gemma2", "Llama"), ("", "Llama")]
    {
        assert_eq!(class(llama(), of(model_type)), expected, "{model_type}");
    }
    assert_eq!(class(json!({}), json!({"model_type": "llama", "tokenizer_class": "GPT2Tokenizer"})), "Gpt2");
    assert_eq!(class(json!({}), of("cohere2")), "Cohere");
    assert_eq!(class(json!({}), json!({})), "file");
    assert_eq!(class(json!({"tokenizer_class": "T5Tokenizer"}), of("llama")), "T5Tokenizer");
    let own_code = json!({"tokenizer_class": "LlamaTokenizer", "auto_map": {"AutoTokenizer": ["a.B", null]}});
    assert_eq!(class(own_code, of("deepseek_v3")), "Llama");
}
