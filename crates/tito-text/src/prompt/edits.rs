//! Whether known ids say what the messages say that they stand for.
//!
//! The message that the ids end with is compared in `answer_edits`, what the ids say beyond the others in `surplus`. Here it is
//! that the ids show the texts of the messages before it. A text that the template itself does not show is not looked for.

use super::{
    Edits, PromptError,
    answer_edits::SampledAnswer,
    comparison::{Comparison, Written, decode, encoded, in_order, shown_texts},
    surplus,
};
use crate::{TokenId, tokenizer::Tokenizer};

/// Compares known ids with the messages, as far as the prompt asks for it.
pub(super) fn find(comparison: &Comparison<'_>) -> Result<Edits, PromptError> {
    let Comparison { tokenizer, prompt, known, anchor, render, written, .. } = *comparison;
    let (before, sampled) = known.token_ids.split_at(known.token_ids.len() - known.sampled);
    let answer = comparison.answer.filter(|_| before.is_empty()).and_then(|start| sampled.get(start..));
    let message = prompt.checks.message && !says_message(comparison, before, answer.unwrap_or(sampled))?;
    let mut edits = Edits { message, ..Edits::default() };
    if prompt.checks.history {
        let shown = decode(tokenizer, if before.is_empty() { sampled } else { before }, false)?;
        let others = prompt.messages[..anchor].iter().filter(|message| !message.role.is_assistant());
        let texts: Vec<&str> = others.flat_map(shown_texts).collect();
        edits.history = in_order(render, &texts) && !shows(tokenizer, &shown, &texts)?;
        if let Some(written) = written {
            let surplus = surplus::find(comparison, written, &shown)?;
            edits.history |= surplus.history;
            // Whoever edits the first messages may have moved the template's own words.
            edits.context = surplus.context && !edits.history;
        }
    }
    Ok(edits)
}

/// Whether the ids say what the message says that they end with. Where nobody says how many of them were sampled, those of
/// the message are somewhere among all of them, or among those that the template shows to be its turn.
fn says_message(comparison: &Comparison<'_>, before: &[TokenId], sampled: &[TokenId]) -> Result<bool, PromptError> {
    let Comparison { tokenizer, prompt, anchor, render, written, .. } = *comparison;
    let message = &prompt.messages[anchor];
    match written {
        // Nothing was sampled, so that the prompt is that of the messages.
        Some(Written { prompt_ids, .. }) if !message.role.is_assistant() => {
            let text = decode(tokenizer, prompt_ids, false)?;
            Ok(text == render || text == encoded(tokenizer, render)?)
        }
        _ => SampledAnswer { comparison, before, sampled, message }.is_said(),
    }
}

/// Whether ids show the texts in order, or what encoding makes of them.
fn shows(tokenizer: &Tokenizer, shown: &str, texts: &[&str]) -> Result<bool, PromptError> {
    if in_order(shown, texts) {
        return Ok(true);
    }
    let encoded = texts.iter().map(|text| encoded(tokenizer, text)).collect::<Result<Vec<String>, PromptError>>()?;
    Ok(in_order(shown, &encoded.iter().map(String::as_str).collect::<Vec<_>>()))
}
