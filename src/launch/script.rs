//! The answers that the scripted engine plays, from a file.

use std::path::Path;

use anyhow::{Context, bail};

use crate::{TokenId, json::Value, tokenizer::Tokenizer};

/// Reads one answer a line: a JSON string, to which the end-of-sequence token is added, or a list of ids as they are.
pub(super) fn read(path: &Path, tokenizer: &Tokenizer, eos: Option<TokenId>) -> anyhow::Result<Vec<Vec<TokenId>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the script {}", path.display()))?;
    if text.is_empty() {
        bail!("the script {} has no lines", path.display());
    }
    let numbered = text.lines().enumerate();
    let answers = numbered.map(|(index, line)| {
        answer(line, tokenizer, eos).with_context(|| format!("line {} of the script {}", index + 1, path.display()))
    });
    answers.collect()
}

fn answer(line: &str, tokenizer: &Tokenizer, eos: Option<TokenId>) -> anyhow::Result<Vec<TokenId>> {
    match Value::parse(line)? {
        Value::String(text) => {
            let Some(eos) = eos else {
                bail!("the model has no end-of-sequence token, which a text would end with; write token ids instead")
            };
            let mut ids = tokenizer.encode(&text, false)?;
            ids.push(eos);
            Ok(ids)
        }
        Value::Array(ids) => ids.iter().map(|id| token_id(id, tokenizer)).collect(),
        _ => bail!("expected a JSON string or a list of token ids"),
    }
}

fn token_id(id: &Value, tokenizer: &Tokenizer) -> anyhow::Result<TokenId> {
    let known = id.as_i64().and_then(|id| TokenId::try_from(id).ok()).filter(|&id| tokenizer.contains(id));
    known.with_context(|| format!("{} is no token id of the model", id.to_json_string()))
}
