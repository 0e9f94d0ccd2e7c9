//! What a start makes of a model whose prompts Harmony renders.

use std::fs;

use serde_json::{Value, json};

use crate::{
    cli::model_copy,
    program::{Server, serve_arguments, tito},
};

const MARKS: [&str; 5] = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"];

#[test]
fn answers_of_gpt_oss_are_read_as_harmony_without_flags() {
    let directory = model_copy();
    let change = |file: &str, change: &dyn Fn(&mut Value)| {
        let path = directory.path().join(file);
        let mut value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
    };
    change("config.json", &|config| {
        config["model_type"] = json!("gpt_oss");
        config["vocab_size"] = json!(400);
    });
    change("tokenizer.json", &|tokenizer| {
        let added = tokenizer["added_tokens"].as_array_mut().unwrap();
        let mut id = added.last().unwrap()["id"].as_u64().unwrap();
        for mark in MARKS {
            let mut token = added[0].clone();
            id += 1;
            (token["id"], token["content"]) = (json!(id), json!(mark));
            added.push(token);
        }
    });
    let server = Server::spawn(&mut tito(&serve_arguments(directory.path().to_str().unwrap(), &[])));
    assert!(server.said.contains("answers are read as Harmony"), "{}", server.said);
    let answer = server.get("/v1/models");
    let models: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let card = &models["data"][0];
    assert_eq!([&card["tool_call_parser"], &card["reasoning_parser"]], ["openai", "openai_gptoss"]);
}
