//! How a turn ended, against how it ends now.
//!
//! Owns which ends are compared: those that the model came to are sampled again, a stop string is looked for in the text of
//! the ids. Refuses to take an end for the same that nobody can see again, and says why.

use std::sync::Arc;

use crate::{
    TokenId,
    generation::Finish,
    tokenizer::{Tokenizer, TokenizerError},
    trajectory::{Ended, Generation},
    turn::ended,
};

/// What became of the end of a turn whose tokens are all equal.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// It is the same.
    Same,
    /// It is another one; the text says which.
    Other(String),
    /// It cannot be compared; the text says why.
    Unproven(String),
}

/// Whether the model, with the limits of its request, came to this end: whoever samples the turn again sees it.
pub(super) fn is_of_model(finish: Ended) -> bool {
    matches!(finish, Ended::Eos | Ended::StopToken | Ended::Length)
}

/// What ends a text.
#[derive(Clone, Copy)]
struct Stops<'s> {
    strings: &'s [String],
    /// How many tokens come before the text in which they count.
    min_tokens: usize,
}

/// Compares the end of a turn; `again` is the one that the engine came to after its last token, `None` where it goes on.
pub(super) fn compared(
    tokenizer: &Arc<Tokenizer>,
    prompt: &[TokenId],
    sampled: &[TokenId],
    generation: &Generation,
    again: Option<&Finish>,
) -> End {
    let unproven = |why: &str| End::Unproven(format!("{why}, so its end is not compared"));
    match generation.finish {
        Ended::Eos | Ended::StopToken | Ended::Length => match again.map(ended) {
            Some(end) if end == generation.finish => End::Same,
            Some(end) => End::Other(format!("it is {} now", end_name(end))),
            None => End::Other("it goes on now".to_owned()),
        },
        Ended::StopString => {
            let used = generation.sampling.as_ref();
            match used.and_then(|used| Some(Stops { strings: used.stop.as_ref()?, min_tokens: used.min_tokens })) {
                Some(stops) => stopped(tokenizer, prompt, sampled, stops),
                None => unproven("its stop strings were not kept (--capture-texts false)"),
            }
        }
        Ended::Repetition => unproven("what counts as a repetition was not kept"),
        Ended::Abort => unproven("the server ended it (abort)"),
        Ended::Disconnect => unproven("its client left (disconnect)"),
        Ended::Error => unproven("the engine failed (error)"),
    }
}

/// An end as records and answers name it.
pub(super) fn end_name(end: Ended) -> String {
    serde_json::to_value(end).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether the last token completes one of the stop strings, and none before it does.
fn stopped(tokenizer: &Arc<Tokenizer>, prompt: &[TokenId], sampled: &[TokenId], stops: Stops<'_>) -> End {
    let unproven = |why: &str| End::Unproven(format!("{why}, so its end is not compared"));
    // Whether special tokens were in the text is not kept, nor which of it was thoughts, in which stop strings do not count.
    let texts = [true, false].map(|skips| completed(tokenizer, prompt, sampled, stops, skips));
    let found = match texts {
        [Ok(without), Ok(with)] => [without, with],
        [Err(error), _] | [_, Err(error)] => return unproven(&format!("its ids cannot be decoded: {error}")),
    };
    let last = sampled.len().checked_sub(1);
    let is_added = |id: &TokenId| tokenizer.added_tokens().binary_search_by_key(id, |token| token.id).is_ok();
    let ends_with = |found: &Vec<usize>| last.is_some() && found.last().copied() == last;
    match &found {
        _ if found.iter().any(|found| found.len() == 1 && ends_with(found)) => End::Same,
        _ if found.iter().any(ends_with) => unproven(
            "a stop string stands in its text before its end too, and which of the text was thoughts was not kept",
        ),
        _ if sampled.iter().any(is_added) => {
            unproven("none of its stop strings is at its end, and which special tokens were in its text was not kept")
        }
        [found, _] => End::Other(match found.first() {
            Some(index) => format!("token {index} completes a stop string now"),
            None => "no token completes a stop string now".to_owned(),
        }),
    }
}

/// The tokens that complete a stop string, counted from 0, as a generation looks for it: from token `min_tokens` on, and
/// never in text that was there before.
fn completed(
    tokenizer: &Arc<Tokenizer>,
    prompt: &[TokenId],
    sampled: &[TokenId],
    Stops { strings, min_tokens }: Stops<'_>,
    skips_special_tokens: bool,
) -> Result<Vec<usize>, TokenizerError> {
    // A model may be wider than its tokenizer; such an id has no text.
    let known = prompt.iter().rposition(|&id| !tokenizer.contains(id)).map_or(0, |last| last + 1);
    let mut decoder = tokenizer.incremental_after(&prompt[known..], skips_special_tokens)?;
    let (mut text, mut unchecked) = (String::new(), 0);
    let mut completing = Vec::new();
    for (index, id) in sampled.iter().enumerate().filter(|(_, id)| tokenizer.contains(**id)) {
        let before = text.len();
        text.push_str(&decoder.push(*id)?);
        // A stop string that reaches into the new text begins less than its length before it.
        let begins = |stop: &String| text.floor_char_boundary((before + 1).saturating_sub(stop.len())).max(unchecked);
        if index < min_tokens {
            unchecked = text.len();
        } else if strings.iter().any(|stop| text[begins(stop)..].contains(stop.as_str())) {
            completing.push(index);
        }
    }
    Ok(completing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a turn that stop strings ended comes out; special tokens are written as in the vocabulary of the tiny model.
    fn end(prompt: &str, sampled: &str, stops: &[&str], min_tokens: usize) -> End {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");
        let tokenizer = Arc::new(Tokenizer::from_file(path).unwrap());
        let [prompt, sampled] = [prompt, sampled].map(|text| tokenizer.encode(text, false).unwrap());
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        stopped(&tokenizer, &prompt, &sampled, Stops { strings: &stops, min_tokens })
    }

    #[test]
    fn the_last_token_completes_a_stop_string() {
        assert_eq!(end("So", "q w x z", &["w x z"], 0), End::Same);
        assert_eq!(end("So", "q w x z", &["none", "z"], 0), End::Same);
        let goes_on = End::Other("no token completes a stop string now".to_owned());
        assert_eq!(end("So", "q w x z", &["none"], 0), goes_on);
        assert_eq!(end("So", "q w x z", &[], 0), goes_on);
        // What the prompt says does not count, nor what is said in the first tokens.
        assert_eq!(end("q w", "x z", &["w x z"], 0), goes_on);
        assert_eq!(end("So", "qqqq", &["qqqq"], 1), goes_on);
        assert_eq!(end("So", "qqqq", &["qqq"], 1), End::Same);
        assert_eq!(end("So", "qqz", &["qq"], 0), End::Other("token 1 completes a stop string now".to_owned()));
        // It may have stood in thoughts before, where it does not count.
        let End::Unproven(why) = end("So", "qqqq", &["qq"], 0) else { panic!("its thoughts are not known") };
        assert!(why.contains("which of the text was thoughts"), "{why}");
        // A character of several tokens is there with its last one.
        assert_eq!(end("So", "q\u{10348}", &["\u{10348}"], 0), End::Same);
    }

    #[test]
    fn special_tokens_may_have_been_in_the_text_or_not() {
        assert_eq!(end("So", "q<|im_start|>z", &["<|im_start|>z"], 0), End::Same);
        assert_eq!(end("So", "q<|im_start|>z", &["qz"], 0), End::Same);
        let End::Unproven(why) = end("So", "q<|im_start|>z", &["none"], 0) else { panic!("its text is not known") };
        assert!(why.contains("which special tokens were in its text was not kept"), "{why}");
    }
}
