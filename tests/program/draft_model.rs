//! `--speculative-config` with a model that drafts: the answers are those without it, or it is refused with the reason.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    doctor::{doctor, error, line, whole_model},
    program::{Run, failure},
    quantized::{NATIVE, sampled, serve},
};

/// The flag, with a model of this path and more fields.
fn flag(draft: &Path, more: &Value) -> [String; 2] {
    let mut config = json!({"method": "draft_model", "model": draft, "num_speculative_tokens": 4});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ["--speculative-config".to_owned(), config.to_string()]
}

fn doctor_with(model: &Path, draft: &Path, more: &Value) -> Run {
    let [name, value] = flag(draft, more);
    doctor(model.to_str().unwrap(), &["--kv-cache-memory", "1M", &name, &value])
}

#[test]
fn answers_are_those_without_drafts_and_the_server_says_what_drafts() {
    let (model, draft) = (whole_model(), whole_model());
    let plain = serve(model.path(), &[]);
    let [name, value] = flag(draft.path(), &json!({"draft_tensor_parallel_size": 1, "max_model_len": 100}));
    let server = serve(model.path(), &[&name, &value, "--admin-on-main-port", "--insecure-admin"]);
    assert_eq!(sampled(&server), sampled(&plain));
    assert!(server.get("/metrics").contains("vllm:spec_decode_num_drafts_total"));
    let path = draft.path().to_str().unwrap();
    let update = |more: Value| {
        let mut body = json!({"model_path": path});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/update_weights_from_disk", &body)
    };
    let updated = update(json!({"selector": "draft"}));
    assert_eq!(updated["message"], "Succeeded to update the weights of the draft model.", "{updated}");
    assert_eq!(sampled(&server), sampled(&plain));
    for server in [server, plain] {
        server.stop("-TERM");
    }
    let run = doctor_with(model.path(), draft.path(), &json!({}));
    let said = line(&run, "draft model");
    let weights =
        "1 MB of weights, beside the model's 1 MB; a token reads 1.00 of what it reads of the model's; room for ";
    assert!(said.starts_with(path) && said.contains(weights), "{said}");
}

#[test]
fn a_draft_model_that_does_not_fit_is_refused_with_the_reason() {
    let model = whole_model();
    let changed = |file: &str, from: &str, to: &str| {
        let draft = whole_model();
        let path = draft.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
        draft
    };
    let refused = |draft: &Path, reason: &str| {
        let run = doctor_with(model.path(), draft, &json!({}));
        let named = format!("the draft model {} cannot be used", draft.display());
        assert!(error(&run).contains(&named) && error(&run).contains(reason), "{}", run.err);
    };
    refused(changed("config.json", "LlamaForCausalLM", "BertForMaskedLM").path(), "BertForMaskedLM");
    let tokenizer = fs::read_to_string(model.path().join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_str(&tokenizer).unwrap();
    let token = tokenizer["added_tokens"][0]["content"].as_str().unwrap().to_owned();
    let quoted = format!("{token:?}");
    refused(changed("tokenizer.json", &quoted, "\"another\"").path(), "its tokenizer is not the model's: the id");
    refused(Path::new("/nowhere"), "/nowhere");
    let draft = whole_model();
    let run = doctor_with(model.path(), draft.path(), &json!({"quantization": "fp8"}));
    assert!(error(&run).contains("fp8 does not fit the model"), "{}", run.err);
    let [name, value] = flag(draft.path(), &json!({}));
    let serve = ["serve", model.path().to_str().unwrap(), "--host", "127.0.0.1"];
    let scripted = failure(&[&serve[..], &NATIVE, &["--engine", "scripted", &name, &value]].concat());
    assert!(scripted.contains("--speculative-config works only with the native engine"), "{scripted}");
}
