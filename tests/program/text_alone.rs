//! `--language-model-only`: the text of models that read images, whatever reads them.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{
    program::{failure, run},
    quantized::{NATIVE, model, sampled, serve},
};

/// A file of safetensors with these names of tensors in the place of its own, and one more tensor of a type that no engine reads.
fn renamed(file: &[u8], rename: impl Fn(&str) -> String) -> Vec<u8> {
    let length = usize::try_from(u64::from_le_bytes(*file.first_chunk().unwrap())).unwrap();
    let (header, data) = file[8..].split_at(length);
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let of_tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let mut renamed: Map<String, Value> = of_tensors.map(|(name, tensor)| (rename(&name), tensor)).collect();
    let strange = json!({ "dtype": "U8", "shape": [3], "data_offsets": [data.len(), data.len() + 3] });
    renamed.insert("vision_tower.strange.weight".to_owned(), strange);
    let header = Value::from(renamed).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data, &[1, 2, 3]].concat()
}

/// A model whose text is that of another one, with something that reads images as no model here does.
fn strange(text: &Path) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(text).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
    }
    let config: Value = serde_json::from_slice(&fs::read(text.join("config.json")).unwrap()).unwrap();
    let config = json!({
        "architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl", "text_config": config,
        "vision_config": { "model_type": "strange", "hidden_size": "many" }, "image_token_id": u64::MAX,
        "torch_dtype": config["torch_dtype"], "dtype": config["dtype"],
    });
    fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    let file = fs::read(text.join("model.safetensors")).unwrap();
    let weights = renamed(&file, |name| format!("language_model.{name}"));
    fs::write(directory.path().join("model.safetensors"), weights).unwrap();
    directory
}

#[test]
fn text_is_served_beside_what_nothing_here_reads_images_with() {
    let text = model("fp8_blocks", true);
    let strange = strange(text.path());
    let start = ["serve", strange.path().to_str().unwrap(), "--host", "127.0.0.1"];
    let refusal = failure(&[&start[..], &NATIVE].concat());
    assert!(refusal.contains("`image_token_index`") || refusal.contains("`image_token_id`"), "{refusal}");
    assert!(refusal.ends_with("with --language-model-only, its text is served"), "{refusal}");

    let expected = serve(text.path(), &[]);
    let server = serve(strange.path(), &["--language-model-only"]);
    assert_eq!(sampled(&server), sampled(&expected));
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } });
    let asked = json!({ "messages": [{ "role": "user", "content": [image] }], "max_tokens": 1 });
    let refused = server.post("/v1/chat/completions", &asked);
    assert_eq!(refused["error"]["code"], 400, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("image"), "{refused}");
    for server in [server, expected] {
        server.stop("-TERM");
    }
    let doctor = ["doctor", strange.path().to_str().unwrap(), "--engine", "native", "--language-model-only"];
    let said = run(&doctor);
    assert_eq!(said.code, Some(0), "{}", said.err);
}
