//! What a tokenizer puts around a text.

use crate::TokenId;

/// The ids that the tokenizer puts around a text.
#[derive(Debug, Default)]
pub(super) struct Around {
    pub(super) before: Vec<TokenId>,
    pub(super) after: Vec<TokenId>,
}

impl Around {
    /// The ids around a text; `None` where the tokenizer does not simply put ids before and after it.
    pub(super) fn new(inner: &tokenizers::Tokenizer) -> Option<Self> {
        const TEXT: &str = "a";
        let Some(processor) = inner.get_post_processor() else { return Some(Self::default()) };
        let written = serde_json::to_value(processor).ok()?;
        if !shows_a_text_once(&written) {
            return None;
        }
        let ids = |around| inner.encode_fast(TEXT, around).ok().map(|encoding| encoding.get_ids().to_vec());
        let (plain, full) = (ids(false)?, ids(true)?);
        let before = full.windows(plain.len().max(1)).position(|window| window == plain)?;
        Some(Self { before: full[..before].to_vec(), after: full[before + plain.len()..].to_vec() })
    }
}

/// Whether a post-processor's template has the text in it exactly once.
fn shows_a_text_once(processor: &serde_json::Value) -> bool {
    if let Some(parts) = processor.get("processors").and_then(serde_json::Value::as_array) {
        return parts.iter().all(shows_a_text_once);
    }
    let Some(template) = processor.get("single").and_then(serde_json::Value::as_array) else { return true };
    template.iter().filter(|part| part.get("Sequence").is_some()).count() == 1
}
