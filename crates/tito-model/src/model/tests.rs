use std::sync::Arc;

use super::*;
use crate::gguf::fixture::Gguf;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-model");

/// A copy of the tiny model that a test may change.
fn tiny() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(TINY).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    dir
}

fn offline() -> HubOptions {
    HubOptions {
        offline: true,
        without_weights: false,
        cache_dir: PathBuf::from("no-such-cache"),
        token: None,
        endpoint: None,
        revision: None,
        progress: Arc::new(|_| ()),
    }
}

#[tokio::test]
async fn a_directory_without_weights_is_read() {
    let files = ModelFiles::resolve(TINY, &offline()).await.unwrap();
    assert_eq!(files.source, ModelSource::Directory { path: PathBuf::from(TINY) });
    assert_eq!(files.max_model_len(), Some(4096));
    let tokenizer = files.tokenizer().unwrap();
    assert_eq!(files.eos(&tokenizer).unwrap(), EosTokens { primary: Some(2), others: vec![0] });
    assert!(files.tokenizer_config.chat_templates.select(true).unwrap().contains("<tools>"));
    assert_eq!(files.config.vocab_size, Some(tokenizer.vocab_size()));
}

#[tokio::test]
async fn a_gguf_file_is_read_like_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.GGUF");
    Gguf::tiny().write(&path);
    let files = ModelFiles::resolve(path.to_str().unwrap(), &offline()).await.unwrap();
    assert_eq!(files.source, ModelSource::Gguf { path });
    assert_eq!(files.max_model_len(), Some(512));
    assert_eq!(files.config.model_type.as_deref(), Some("llama"));
    assert_eq!(files.tokenizer_config.chat_templates.select(false), Some(crate::gguf::fixture::CHAT_TEMPLATE));
    let tokenizer = files.tokenizer().unwrap();
    assert_eq!(files.eos(&tokenizer).unwrap(), EosTokens { primary: Some(2), others: vec![0] });
}

#[tokio::test]
async fn an_argument_that_is_nothing_is_explained() {
    let message =
        |model: &'static str| async move { ModelFiles::resolve(model, &offline()).await.unwrap_err().to_string() };
    assert!(message("no/such/path").await.starts_with("no such file or directory: no/such/path; pass a .gguf file"));
    assert!(message("models/missing.gguf").await.starts_with("no such file or directory"));
    let expected = "org/name is neither a directory here nor in the local Hugging Face cache, and HF_HUB_OFFLINE is set: unset it \
                    to download the model, or pass a directory";
    assert_eq!(message("org/name").await, expected);
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let expected = "Cargo.toml is neither a .gguf file nor a model directory; pass one of these, or a hub id";
    assert!(message(other).await.ends_with(expected));
}

#[test]
fn a_missing_file_is_named_with_the_next_step() {
    let dir = tiny();
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    let error = ModelFiles::open(dir.path()).unwrap().tokenizer().unwrap_err().to_string();
    assert!(error.contains("tokenizer.json does not exist; ") && error.contains("save_pretrained"), "{error}");
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    assert!(matches!(ModelFiles::open(dir.path()), Err(ModelError::Missing { .. })));
}

#[test]
fn ends_of_config_json_count_only_without_a_generation_config() {
    let dir = tiny();
    std::fs::write(dir.path().join("config.json"), r#"{"eos_token_id": [9, 2]}"#).unwrap();
    let ends = || {
        let files = ModelFiles::open(dir.path()).unwrap();
        files.eos(&files.tokenizer().unwrap()).unwrap().others
    };
    assert_eq!(ends(), [0]);
    std::fs::remove_file(dir.path().join("generation_config.json")).unwrap();
    assert_eq!(ends(), [9]);
}

#[test]
fn template_files_take_precedence() {
    let dir = tiny();
    std::fs::write(dir.path().join("chat_template.jinja"), "file").unwrap();
    let files = ModelFiles::open(dir.path()).unwrap();
    assert_eq!(files.tokenizer_config.chat_templates.select(false), Some("file"));
}

/// As `resolve_chat_template` of vLLM and `get_processor_dict` of transformers have it.
#[test]
fn the_template_of_a_processor_is_that_of_conversations_without_tools() {
    let dir = tiny();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let templates = || {
        let templates = ModelFiles::open(dir.path()).unwrap().tokenizer_config.chat_templates;
        [false, true].map(|with_tools| templates.select(with_tools).map(str::to_owned))
    };
    let both = |without: &str, with: &str| [without, with].map(|text| Some(text.to_owned()));
    write("tokenizer_config.json", r#"{"chat_template": "T"}"#);
    write("chat_template.json", r#"{"chat_template": "J"}"#);
    // A model of text has no processor.
    assert_eq!(templates(), both("T", "T"));
    write("preprocessor_config.json", "{}");
    assert_eq!(templates(), both("J", "T"));
    write("processor_config.json", r#"{"chat_template": null}"#);
    assert_eq!(templates(), both("J", "T"));
    write("processor_config.json", r#"{"chat_template": "P"}"#);
    assert_eq!(templates(), both("P", "T"));
    write("chat_template.jinja", "F");
    assert_eq!(templates(), both("P", "F"));
    write("processor_config.json", "{}");
    assert_eq!(templates(), both("J", "F"));
    std::fs::remove_file(dir.path().join("chat_template.json")).unwrap();
    assert_eq!(templates(), both("F", "F"));
    std::fs::remove_file(dir.path().join("chat_template.jinja")).unwrap();
    write(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "default", "template": "T"}, {"name": "tool_use", "template": "U"}]}"#,
    );
    write("processor_config.json", r#"{"chat_template": "P"}"#);
    assert_eq!(templates(), both("P", "U"));
    // Where the tokenizer has none, it is the template of all.
    write("tokenizer_config.json", "{}");
    assert_eq!(templates(), both("P", "P"));
}

#[test]
fn settings_of_images_are_those_that_transformers_takes_first() {
    let dir = tiny();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let merge = || ModelFiles::open(dir.path()).map(|files| files.image_processor.map(|own| own["merge_size"].clone()));
    assert_eq!(merge().unwrap(), None);
    write("preprocessor_config.json", r#"{"merge_size": 1}"#);
    assert_eq!(merge().unwrap(), Some(1.into()));
    write("processor_config.json", r#"{"image_processor": {"merge_size": 2}}"#);
    assert_eq!(merge().unwrap(), Some(2.into()));
    for without in [r#"{"image_processor": null}"#, "{}"] {
        write("processor_config.json", without);
        assert_eq!(merge().unwrap(), Some(1.into()));
    }
    write("processor_config.json", r#"{"image_processor": [1]}"#);
    assert!(merge().unwrap_err().to_string().contains("image_processor"));
}

#[test]
fn an_end_that_is_not_in_the_vocabulary_is_an_error() {
    let dir = tiny();
    let listing = r#"{"eos_token": "<|im_end|>", "added_tokens_decoder": {"9999": {"content": "<|far|>"}}}"#;
    std::fs::write(dir.path().join("tokenizer_config.json"), listing).unwrap();
    let files = ModelFiles::open(dir.path()).unwrap();
    assert!(matches!(files.tokenizer(), Err(ModelError::Tokenizer(_))));

    std::fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token": "<|far|>"}"#).unwrap();
    let files = ModelFiles::open(dir.path()).unwrap();
    let bare = Tokenizer::from_file(dir.path().join("tokenizer.json")).unwrap();
    assert!(matches!(files.eos(&bare), Err(ModelError::UnknownSpecialToken { .. })));
}

#[test]
fn an_end_beyond_the_vocabulary_is_refused_with_its_file_and_field() {
    let refusal = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let dir = tiny();
        let path = dir.path().join(name);
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        std::fs::write(&path, json.to_string()).unwrap();
        let opened = ModelFiles::open(dir.path());
        let error = opened.and_then(|files| files.eos(&files.tokenizer()?).map(drop)).unwrap_err().to_string();
        error.replace(dir.path().to_str().unwrap(), "")
    };
    let said = "eos_token_id names the token 326, and the model's vocabulary has 326";
    for name in ["config.json", "generation_config.json"] {
        let error = refusal(name, &|json| json["eos_token_id"] = serde_json::json!([2, 326]));
        assert_eq!(error, format!("invalid /{name}: {said}"));
    }
    let dir = tiny();
    std::fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id": 326}"#).unwrap();
    std::fs::write(dir.path().join("config.json"), "{}").unwrap();
    let files = ModelFiles::open(dir.path()).unwrap();
    let error = files.eos(&files.tokenizer().unwrap()).unwrap_err().to_string();
    assert!(error.ends_with(&format!("generation_config.json: {said}")), "{error}");
    let mut other = ModelFiles::open(Path::new(TINY)).unwrap();
    assert!(other.set_generation(dir.path()).unwrap_err().to_string().ends_with(said));

    // The tokenizer may have more tokens than the model, but no generation could end with one of those.
    let error = refusal("config.json", &|json| {
        json["vocab_size"] = 2.into();
        json["eos_token_id"] = 0.into();
    });
    assert!(error.contains("/generation_config.json: eos_token_id names the token"), "{error}");
    let dir = tiny();
    std::fs::write(dir.path().join("config.json"), r#"{"vocab_size": 2}"#).unwrap();
    std::fs::remove_file(dir.path().join("generation_config.json")).unwrap();
    let files = ModelFiles::open(dir.path()).unwrap();
    let error = files.eos(&files.tokenizer().unwrap()).unwrap_err().to_string();
    assert!(error.ends_with("tokenizer_config.json: eos_token names the token 2, and the model's vocabulary has 2"));
}

#[test]
fn numbers_that_json_cannot_write_are_read_or_refused_by_their_key() {
    let dir = tiny();
    let path = dir.path().join("config.json");
    std::fs::write(&path, r#"{"vocab_size": 512, "time_step_limit": [0.0, Infinity]}"#).unwrap();
    let files = ModelFiles::open(dir.path()).unwrap();
    assert_eq!(files.config.raw["time_step_limit"][1]["__float__"], "Infinity");
    std::fs::write(&path, r#"{"vocab_size": NaN}"#).unwrap();
    let error = ModelFiles::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("config.json: vocab_size"), "{error}");
}

#[test]
fn a_damaged_file_is_named() {
    let dir = tiny();
    std::fs::write(dir.path().join("generation_config.json"), "{").unwrap();
    let error = ModelFiles::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("generation_config.json"), "{error}");
}
