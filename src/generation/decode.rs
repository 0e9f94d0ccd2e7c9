//! Ids to text as it becomes certain, and the strings that end it.
//!
//! Follows vLLM 0.33, `v1/engine/detokenizer.py`: a stop string is looked for where a token may have completed it,
//! text that may turn out to be its start is held back, and an incomplete character at the end is not spoken.
//!
//! Deliberate deviation: where tokens stand for a byte each, broken bytes behind a character of their run are U+FFFD, and
//! what follows keeps its space. vLLM drops such bytes, and begins a text anew.
//!
//! Deliberate deviation: where thoughts are read, no stop string begins in them, up to the mark of a call. vLLM ends the
//! answer within its thoughts, so that it has none.

use std::sync::Arc;

use super::thoughts::Thoughts;
use crate::{
    TokenId,
    parser::{OutputFormat, ReasoningFormat, SpecialTokens, ToolFormat},
    tokenizer::{IncrementalDecoder, Tokenizer, TokenizerError},
};

/// How sampled tokens become text.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct TextOptions {
    /// Strings that end the generation; none is empty.
    pub stop: Vec<String>,
    /// Whether the stop string or stop token stays in the text.
    pub include_stop_str_in_output: bool,
    /// Whether special tokens are left out of the text, unless `format` needs them.
    pub skip_special_tokens: bool,
    /// Where special tokens are in the text and follow each other, leave in what the tokenizer decodes between them.
    pub spaces_between_special_tokens: bool,
    /// How reasoning and tool calls are read out of the text.
    pub format: OutputFormat,
    /// How thoughts and calls are told that `format` leaves in the text: stop strings do not count in thoughts either.
    pub unread: OutputFormat,
    /// Whether nobody sees the text, so that special tokens have one as `unread` needs it.
    pub unseen: bool,
}

impl TextOptions {
    /// How thoughts are told from the answer, where they are.
    pub fn reasoning(&self) -> Option<ReasoningFormat> {
        self.format.reasoning.or(self.unread.reasoning)
    }

    /// How calls are told from the answer, where they are.
    fn tools(&self) -> Option<&ToolFormat> {
        self.format.tools.as_ref().or(self.unread.tools.as_ref())
    }

    /// Which special tokens have a text.
    fn special_tokens(&self) -> SpecialTokens {
        if self.unseen && self.format.is_plain() { self.unread.special_tokens() } else { self.format.special_tokens() }
    }
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            stop: Vec::new(),
            include_stop_str_in_output: false,
            skip_special_tokens: true,
            spaces_between_special_tokens: true,
            format: OutputFormat::default(),
            unread: OutputFormat::default(),
            unseen: false,
        }
    }
}

/// What one token added.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) text: String,
    /// The stop string that the token completed.
    pub(super) stop: Option<String>,
}

/// The special tokens that marks are made of: each may be one token, or several.
fn special_tokens_of(marks: &[&str], tokenizer: &Tokenizer) -> Vec<TokenId> {
    let is_part = |content: &str| !content.is_empty() && marks.iter().any(|mark| mark.contains(content));
    let special = tokenizer.added_tokens().iter().filter(|token| tokenizer.is_special(token.id));
    special.filter(|token| is_part(&token.content)).map(|token| token.id).collect()
}

/// Decodes one generation.
pub(super) struct TextDecoder {
    tokenizer: Arc<Tokenizer>,
    decoder: IncrementalDecoder,
    options: Arc<TextOptions>,
    min_tokens: usize,
    pushed: usize,
    /// Decoded but not yet given out, because a stop string may start in it.
    held: String,
    /// How many bytes of `held` stood there before stop strings counted (`min_tokens`): none ends in them.
    unchecked: usize,
    /// Where in `held` the model thinks, where stop strings have to know that.
    thoughts: Option<Thoughts>,
    longest_stop: usize,
    /// The special tokens that have a text; `None` where the decoder decides for all of them.
    shown: Option<Vec<TokenId>>,
    /// The token before was an added one.
    after_added: bool,
}

impl TextDecoder {
    pub(super) fn new(
        tokenizer: &Arc<Tokenizer>,
        prompt_token_ids: &[TokenId],
        options: Arc<TextOptions>,
        min_tokens: usize,
    ) -> Result<Self, TokenizerError> {
        let known = prompt_token_ids.iter().rposition(|&id| !tokenizer.contains(id)).map_or(0, |last| last + 1);
        // Marks of reasoning and calls may be special tokens, which then stay in the text, as in vLLM.
        let (skips, shown) = match options.special_tokens() {
            SpecialTokens::AsAsked => (options.skip_special_tokens, None),
            SpecialTokens::All => (false, None),
            SpecialTokens::Only(marks) => (false, Some(special_tokens_of(&marks, tokenizer))),
        };
        let decoder = tokenizer.incremental_after(&prompt_token_ids[known..], skips)?;
        let longest_stop = options.stop.iter().map(String::len).max().unwrap_or(0);
        let reasoning = options.reasoning().filter(|_| longest_stop > 0);
        let begins_call = options.tools().map_or(&[][..], ToolFormat::begins_call);
        let thoughts = reasoning.and_then(|format| Thoughts::new(format, begins_call, tokenizer, prompt_token_ids));
        Ok(Self {
            tokenizer: Arc::clone(tokenizer),
            decoder,
            options,
            min_tokens,
            pushed: 0,
            held: String::new(),
            unchecked: 0,
            thoughts,
            longest_stop,
            shown,
            after_added: false,
        })
    }

    /// Decodes the next token; `is_stop_token` says that it ends the generation by itself.
    pub(super) fn push(&mut self, id: TokenId, is_stop_token: bool) -> Result<Decoded, TokenizerError> {
        self.pushed += 1;
        if is_stop_token && !self.options.include_stop_str_in_output {
            return Ok(Decoded { text: String::new(), stop: None });
        }
        // A model may be wider than its tokenizer; such an id has no text.
        let has_text = self.tokenizer.contains(id) && !self.hides(id);
        let text = if has_text { self.text_of(id)? } else { String::new() };
        if let Some(thoughts) = &mut self.thoughts {
            thoughts.push(id, self.held.len(), &text);
        }
        self.held.push_str(&text);
        if self.pushed <= self.min_tokens {
            self.unchecked = self.held.len();
        } else if !is_stop_token && let Some((stop, text)) = self.take_stopped() {
            return Ok(Decoded { text, stop: Some(stop) });
        }
        Ok(Decoded { text: self.take_certain(), stop: None })
    }

    /// Whether `id` is a special token that is not shown.
    fn hides(&self, id: TokenId) -> bool {
        self.shown.as_ref().is_some_and(|shown| self.tokenizer.is_special(id) && !shown.contains(&id))
    }

    /// The text that a token adds. With no spaces between special tokens, an added token after another one is its own
    /// content, whatever the tokenizer's decoder puts in front of it.
    fn text_of(&mut self, id: TokenId) -> Result<String, TokenizerError> {
        let text = self.decoder.push(id)?;
        if self.options.skip_special_tokens || self.options.spaces_between_special_tokens {
            return Ok(text);
        }
        let added = self.tokenizer.added_tokens();
        let found = added.binary_search_by_key(&id, |token| token.id).ok().map(|place| &added[place]);
        let after_added = std::mem::replace(&mut self.after_added, found.is_some());
        Ok(found.filter(|_| after_added).map_or(text, |token| token.content.clone()))
    }

    /// What was held back, once the generation has ended.
    pub(super) fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The stop string that is complete first, of several the first of the list, and the text that it leaves.
    fn take_stopped(&mut self) -> Option<(String, String)> {
        let found = self.options.stop.iter().filter_map(|stop| Some((stop, self.start_of(stop)?)));
        let (stop, start) = found.min_by_key(|(stop, start)| start + stop.len())?;
        let stop = stop.clone();
        let end = if self.options.include_stop_str_in_output { start + stop.len() } else { start };
        self.held.truncate(end);
        Some((stop, self.take_held()))
    }

    /// Where a stop string stands. One that ends in unchecked text does not count, as in vLLM, nor does one that starts in
    /// thoughts.
    fn start_of(&self, stop: &str) -> Option<usize> {
        let mut from = (self.unchecked + 1).saturating_sub(stop.len());
        while !self.held.is_char_boundary(from) {
            from += 1;
        }
        loop {
            let start = from + self.held.get(from..)?.find(stop)?;
            match self.thoughts.as_ref().and_then(|thoughts| thoughts.around(start)) {
                Some(end) => from = end,
                None => return Some(start),
            }
        }
    }

    /// Gives out all but the last bytes, in which a stop string may have begun.
    fn take_certain(&mut self) -> String {
        let unsettled = self.thoughts.as_ref().map_or(0, Thoughts::unsettled);
        let mut keep = self.longest_stop.saturating_sub(1).max(unsettled).min(self.held.len());
        while !self.held.is_char_boundary(self.held.len() - keep) {
            keep += 1;
        }
        let rest = self.held.split_off(self.held.len() - keep);
        let certain = std::mem::replace(&mut self.held, rest);
        self.unchecked = self.unchecked.saturating_sub(certain.len());
        if let Some(thoughts) = &mut self.thoughts {
            thoughts.give_out(certain.len());
        }
        certain
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A decoder that puts a space before every word, and two special tokens, 1 and 2.
    pub(in crate::generation) fn spaced() -> Arc<Tokenizer> {
        let special = |id: u32, content: &str| {
            json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true })
        };
        let definition = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "added_tokens": [special(1, "<s>"), special(2, "</s>")], "post_processor": null,
            "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": false },
            "model": { "type": "WordLevel", "vocab": { "<unk>": 0, "<s>": 1, "</s>": 2, "hello": 3 },
                       "unk_token": "<unk>" },
        });
        Arc::new(Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap())
    }

    fn decoded(skip_special_tokens: bool, spaces_between_special_tokens: bool) -> String {
        let options = TextOptions { skip_special_tokens, spaces_between_special_tokens, ..TextOptions::default() };
        let mut decoder = TextDecoder::new(&spaced(), &[3], Arc::new(options), 0).unwrap();
        let texts = [1, 2, 1, 3, 2].map(|id| decoder.push(id, false).unwrap().text);
        texts.concat()
    }

    #[test]
    fn spaces_between_special_tokens_are_left_out_where_the_request_says_so_and_only_there() {
        assert_eq!(decoded(false, true), " <s> </s> <s> hello </s>");
        assert_eq!(decoded(false, false), " <s></s><s> hello </s>");
        assert_eq!(decoded(true, false), " hello");
    }

    #[test]
    fn special_tokens_that_are_a_part_of_a_mark_are_shown_and_no_others() {
        let tokenizer = spaced();
        assert_eq!(special_tokens_of(&["<s> name=", "x"], &tokenizer), [1]);
        assert_eq!(special_tokens_of(&["</s>", "<s>"], &tokenizer), [1, 2]);
        assert_eq!(special_tokens_of(&["<", "hello"], &tokenizer), [0; 0]);
    }

    /// The text of tokens after which a generation ends, and the stop string that ended it.
    fn stopped(pieces: &[&str], stop: &[&str], min_tokens: usize, include: bool) -> (String, Option<String>) {
        let vocab: serde_json::Map<_, _> =
            pieces.iter().zip(0..).map(|(piece, id)| ((*piece).into(), json!(id))).collect();
        let definition = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "added_tokens": [], "post_processor": null, "decoder": { "type": "Fuse" },
            "model": { "type": "WordLevel", "vocab": vocab, "unk_token": pieces[0] },
        });
        let tokenizer = Arc::new(Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap());
        let options = TextOptions {
            stop: stop.iter().map(|&stop| stop.to_owned()).collect(),
            include_stop_str_in_output: include,
            ..TextOptions::default()
        };
        let mut decoder = TextDecoder::new(&tokenizer, &[], Arc::new(options), min_tokens).unwrap();
        let mut all = String::new();
        for id in (0..).take(pieces.len()) {
            let Decoded { text, stop } = decoder.push(id, false).unwrap();
            all.push_str(&text);
            if stop.is_some() {
                return (all, stop);
            }
        }
        (all + &decoder.take_held(), None)
    }

    #[test]
    fn a_stop_string_may_begin_before_it_may_end() {
        let stopped = |min_tokens| stopped(&["w", "or", "ld"], &["wor"], min_tokens, false);
        assert_eq!(stopped(1), (String::new(), Some("wor".to_owned())));
        assert_eq!(stopped(2), ("world".to_owned(), None));
        let wide = self::stopped(&["\u{e9}", "\u{e9}x"], &["\u{e9}\u{e9}"], 1, false);
        assert_eq!(wide, (String::new(), Some("\u{e9}\u{e9}".to_owned())));
    }

    #[test]
    fn of_several_stop_strings_in_a_token_the_one_that_is_complete_first_ends_the_answer() {
        for (stop, include, text, by) in [
            (["b", "a"], false, "x", "a"),
            (["b", "a"], true, "xa", "a"),
            (["ab", "b"], false, "x", "ab"),
            (["b", "ab"], false, "xa", "b"),
        ] {
            assert_eq!(stopped(&["x", "ab"], &stop, 0, include), (text.to_owned(), Some(by.to_owned())), "{stop:?}");
        }
    }

    /// A decoder with byte fallback: ids 0 to 255 stand for a byte each, then come an end token and pieces.
    fn of_bytes() -> Arc<Tokenizer> {
        let mut tokens: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
        tokens.extend(["</s>", "\u{2581}a", "b", "\u{e9}"].map(str::to_owned));
        let vocab: serde_json::Map<_, _> = tokens.into_iter().zip(0..).map(|(token, id)| (token, json!(id))).collect();
        let definition = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "added_tokens": [{ "id": 256, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                               "normalized": false, "special": true }],
            "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": [
                { "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " },
                { "type": "ByteFallback" }, { "type": "Fuse" }] },
            "model": { "type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true },
        });
        Arc::new(Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap())
    }

    /// The pieces that ids give after `prompt`, up to a stop string or an end token, and the stop string.
    fn pieces_of(prompt: &[TokenId], ids: &[TokenId], stop: &[String]) -> (Vec<String>, Option<String>) {
        let options = TextOptions { stop: stop.to_vec(), ..TextOptions::default() };
        let mut decoder = TextDecoder::new(&of_bytes(), prompt, Arc::new(options), 0).unwrap();
        let mut pieces = Vec::new();
        for &id in ids {
            let Decoded { text, stop } = decoder.push(id, id == 256).unwrap();
            pieces.push(text);
            if stop.is_some() {
                return (pieces, stop);
            }
        }
        pieces.push(decoder.take_held());
        (pieces, None)
    }

    #[test]
    fn characters_of_byte_tokens_are_told_when_they_are_whole_and_stop_strings_in_them_count() {
        let pieces = |ids: &[TokenId], stop: &[&str]| {
            let stop: Vec<_> = stop.iter().map(|&stop| stop.to_owned()).collect();
            let (pieces, stop) = pieces_of(&[258], ids, &stop);
            (pieces.join("|"), stop)
        };
        let smile = [0xf0, 0x9f, 0x98, 0x80];
        let then = |rest: &[TokenId]| [&smile, rest].concat();
        assert_eq!(pieces(&then(&[256]), &[]), ("|||\u{1f600}||".to_owned(), None));
        assert_eq!(pieces(&[0x41; 3], &[]), ("A|A|A|".to_owned(), None));
        assert_eq!(pieces(&[258, 0x0a, 0x0a], &["\n"]), ("b|".to_owned(), Some("\n".to_owned())));
        assert_eq!(pieces(&then(&[258]), &["\u{1f600}"]), ("|||".to_owned(), Some("\u{1f600}".to_owned())));
        assert_eq!(pieces(&[0x41, 0xc3, 256], &[]), ("A|||".to_owned(), None));
        assert_eq!(pieces(&[0x41, 0xc3, 0x41, 257], &[]), ("A|||\u{fffd}\u{fffd} a|".to_owned(), None));
    }

    proptest! {
        #[test]
        fn pieces_of_byte_tokens_join_to_the_text_and_stop_where_it_has_the_stop_string(
            ids in prop::collection::vec(
                prop_oneof![Just(0x0a), Just(0x41), Just(0xc3), Just(0xa9), Just(0xff), 257..260_u32], 0..12),
            stop in prop::collection::vec(prop::sample::select(&["\n", "A", "\u{e9}", "bA", "\u{e9}\u{e9}\n"][..]), 0..2),
        ) {
            let tokenizer = of_bytes();
            let stop: Vec<String> = stop.into_iter().map(str::to_owned).collect();
            let (pieces, by) = pieces_of(&[258], &ids, &stop);
            let text = |count: usize| {
                let text = tokenizer.decode_as_streamed(&ids[..count], true).unwrap();
                text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned()
            };
            let ended = (0..=ids.len()).find(|&count| stop.iter().any(|stop| text(count).contains(stop)));
            let whole = text(ended.unwrap_or(ids.len()));
            let end = stop.iter().filter_map(|stop| Some((whole.find(stop)?, stop))).min_by_key(|(at, stop)| at + stop.len());
            prop_assert_eq!(by.as_ref(), end.map(|(_, stop)| stop));
            prop_assert_eq!(pieces.concat(), &whole[..end.map_or(whole.len(), |(at, _)| at)]);
            prop_assert_eq!(pieces.len(), ended.unwrap_or(ids.len() + 1));
        }
    }
}
