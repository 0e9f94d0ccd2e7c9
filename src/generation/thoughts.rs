//! Which bytes of a text are thoughts, in which no stop string begins.
//!
//! Thoughts end where their end mark stands. Whether a call in them is a part of them is known only at the end of the text:
//! if they never end, it is a call. So stop strings count from the mark of a call on, where calls are read.
//!
//! Owns a reader of its own, over the same text as the reader of the answer, since stop strings cut the text before that
//! one sees it. Refuses to look for stop strings.

use std::{ops::Range, sync::Arc};

use crate::{
    TokenId,
    generation::marks::MarkIds,
    parser::{OutputFormat, OutputParser, Piece, PromptReasoning, ReasoningFormat, ReasoningMarks},
    tokenizer::Tokenizer,
};

/// With what marks end, so that thoughts begin and end only after one of them.
const LAST_OF_MARKS: [char; 3] = ['>', ']', ':'];

/// The longest mark that ends a message of channels; less of a text may be the start of one.
const LONGEST_END: usize = "<|return|>".len();

/// Tells thoughts from the rest of a text, of which the caller holds the end.
pub(super) struct Thoughts {
    reader: OutputParser,
    tokenizer: Arc<Tokenizer>,
    marks: Option<(ReasoningMarks, MarkIds)>,
    /// Where thoughts are in the text that is held, in order.
    spans: Vec<Range<usize>>,
    /// Whether the message of channels that is being read is thoughts, once that is known: the reader calls what is
    /// written for tools reasoning, too.
    message: Option<bool>,
    /// The length of that message before it is known.
    unknown: usize,
    /// Whether the rest of the text is no thoughts.
    over: bool,
    /// Where a call begins in these thoughts, if it does.
    call: CallMark,
}

/// Finds the mark that begins a call.
#[derive(Default)]
struct CallMark {
    marks: &'static [&'static str],
    /// The end of the thoughts so far, in which a mark may have begun.
    tail: String,
    found: bool,
}

impl CallMark {
    /// Takes a piece of thoughts; returns how many bytes before its end the first mark begins that it completes.
    fn push(&mut self, piece: &str) -> Option<usize> {
        let longest = self.marks.iter().map(|mark| mark.len()).max()?;
        self.tail.push_str(piece);
        let back = self.marks.iter().filter_map(|mark| self.tail.find(mark)).min().map(|at| self.tail.len() - at);
        self.found = back.is_some();
        self.tail.drain(..self.tail.floor_char_boundary((self.tail.len() + 1).saturating_sub(longest)));
        back
    }

    /// Forgets the thoughts, which have ended.
    fn clear(&mut self) {
        self.tail.clear();
        self.found = false;
    }
}

impl Thoughts {
    /// Tells the thoughts of the text after `prompt`; `None` where it can have none. `begins_call` are the marks of the
    /// calls that are read.
    pub(super) fn new(
        format: ReasoningFormat,
        begins_call: &'static [&'static str],
        tokenizer: &Arc<Tokenizer>,
        prompt: &[TokenId],
    ) -> Option<Self> {
        let marks = format.marks().map(|marks| (marks, MarkIds::new(marks, tokenizer)));
        let left = marks.map_or(PromptReasoning::Unmarked, |(_, ids)| ids.left_by(prompt, tokenizer));
        let thinks = format.begins_with_reasoning(left) || format.may_begin_later(left);
        let format = OutputFormat::new(Some(format), None, None);
        if !thinks || (marks.is_none() && !format.channels) {
            return None;
        }
        let mut reader = OutputParser::new(&format, left);
        reader.await_end(marks.is_some_and(|(_, ids)| ids.by_id));
        Some(Self {
            reader,
            tokenizer: Arc::clone(tokenizer),
            marks,
            spans: Vec::new(),
            message: None,
            unknown: 0,
            over: false,
            call: CallMark { marks: begins_call, ..CallMark::default() },
        })
    }

    /// How many bytes of the text are to be held: thoughts may turn out to have ended with the first of them.
    pub(super) fn unsettled(&self) -> usize {
        match self.marks {
            _ if self.over => 0,
            Some(_) => 0,
            None => LONGEST_END - 1,
        }
    }

    /// Takes `text`, which token `id` adds to the `held` bytes before it.
    pub(super) fn push(&mut self, id: TokenId, held: usize, text: &str) {
        if self.over {
            return;
        }
        if self.marks.is_some_and(|(_, ids)| ids.closes_with(id)) {
            self.reader.await_end(false);
        }
        let mark = if text.is_empty() { self.unspoken_mark(id) } else { None };
        if let Some(mark) = mark {
            // Nobody sees this text, but it begins thoughts, or ends them.
            self.read(held..held, mark);
            return;
        }
        let mut from = held;
        for piece in text.split_inclusive(LAST_OF_MARKS) {
            let to = from + piece.len();
            self.read(from..to, piece);
            from = to;
        }
    }

    /// The mark that a token is which has no text.
    fn unspoken_mark(&self, id: TokenId) -> Option<&'static str> {
        let (marks, ids) = self.marks?;
        let all = [(ids.start, marks.start), (ids.end, marks.end)];
        let found = all.into_iter().find(|(of, _)| *of == Some(id) && self.tokenizer.is_special(id));
        found.map(|(_, mark)| mark)
    }

    /// Takes a piece of text that has at most one mark, at its end, and the place at which it is held.
    fn read(&mut self, place: Range<usize>, piece: &str) {
        let thought = self.reader.is_reasoning();
        let pieces = self.reader.push(piece);
        if thought && !self.call.found {
            self.extend(place.clone());
            if let Some(back) = self.call.push(piece) {
                self.cut(place.end.saturating_sub(back));
            }
            if !self.may_be_thoughts(&pieces, piece) {
                self.cut(place.end.saturating_sub(self.unknown.max(piece.len())));
                self.unknown = 0;
            }
        }
        let thinks = self.reader.is_reasoning();
        if !thinks {
            (self.message, self.unknown) = (None, 0);
            self.call.clear();
        }
        if let Some((marks, _)) = self.marks.filter(|_| thought && !thinks) {
            self.over = !marks.reopens;
        }
    }

    /// Whether a piece of text may be thoughts that was read as reasoning.
    fn may_be_thoughts(&mut self, pieces: &[Piece], piece: &str) -> bool {
        if self.marks.is_some() {
            return true;
        }
        if self.message.is_none() {
            self.unknown += piece.len();
            let thinks = pieces.iter().any(|piece| matches!(piece, Piece::Reasoning(_)));
            // What may be the start of a mark says nothing yet.
            let says_nothing = self.unknown < LONGEST_END && (self.unknown > piece.len() || piece.starts_with('<'));
            self.message = (thinks || !says_nothing).then_some(thinks);
        }
        self.message.unwrap_or(true)
    }

    fn extend(&mut self, place: Range<usize>) {
        match self.spans.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => self.spans.push(place),
        }
    }

    /// Takes all from `end` on out of the thoughts.
    fn cut(&mut self, end: usize) {
        self.spans.retain_mut(|span| {
            span.end = span.end.min(end);
            span.start < span.end
        });
    }

    /// The end of the thoughts in which the held byte `at` is; `None` where it is in none.
    pub(super) fn around(&self, at: usize) -> Option<usize> {
        self.spans.iter().find(|span| span.contains(&at)).map(|span| span.end)
    }

    /// The first `given` bytes are held no more.
    pub(super) fn give_out(&mut self, given: usize) {
        self.spans.retain_mut(|span| {
            *span = span.start.saturating_sub(given)..span.end.saturating_sub(given);
            span.start < span.end
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{generation::decode::tests::spaced, parser::ReasoningParser};

    /// Marks, what nearly is one, and what stands between them.
    const PARTS: [&str; 26] = [
        "<think>",
        "</think>",
        "<think",
        "</",
        "<",
        ">",
        "so",
        "\n",
        "é",
        "<tool_call>",
        "<minimax:tool_call>",
        "<|tool_calls_section_begin|>",
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "[THINK]",
        "[/THINK]",
        "<|channel>",
        "thought\n",
        "<channel|>",
        "<mm:think>",
        "</mm:think>",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|open|>think<|sep|>",
    ];

    fn format(name: &str) -> ReasoningFormat {
        let variables = std::iter::once(("thinking".to_owned(), true.into())).collect();
        ReasoningParser::named(name).unwrap().format(&variables)
    }

    /// The thoughts of a text that comes in pieces.
    fn spans<'t>(name: &str, pieces: impl IntoIterator<Item = &'t str>) -> Vec<Range<usize>> {
        spans_before(name, &[], pieces)
    }

    /// The same where calls begin with these marks.
    fn spans_before<'t>(
        name: &str,
        begins_call: &'static [&'static str],
        pieces: impl IntoIterator<Item = &'t str>,
    ) -> Vec<Range<usize>> {
        let Some(mut thoughts) = Thoughts::new(format(name), begins_call, &spaced(), &[]) else { return Vec::new() };
        let mut held = 0;
        for piece in pieces {
            thoughts.push(0, held, piece);
            held += piece.len();
        }
        thoughts.spans
    }

    /// What of a text is no thoughts, each part without the marks that the reader takes out of content.
    fn text_outside(text: &str, spans: &[Range<usize>], marks: &[&str]) -> String {
        let starts = std::iter::once(0).chain(spans.iter().map(|span| span.end));
        let ends = spans.iter().map(|span| span.start).chain([text.len()]);
        let parts = starts
            .zip(ends)
            .map(|(start, end)| marks.iter().fold(text[start..end].to_owned(), |part, mark| part.replace(mark, "")));
        parts.collect()
    }

    fn content(name: &str, text: &str) -> String {
        let mut reader =
            OutputParser::new(&OutputFormat::new(Some(format(name)), None, None), PromptReasoning::Unmarked);
        let mut pieces = reader.push(text);
        pieces.extend(reader.finish());
        let said = pieces.into_iter().filter_map(|piece| match piece {
            Piece::Content(text) => Some(text),
            _ => None,
        });
        said.collect()
    }

    #[test]
    fn every_mark_ends_with_a_character_after_which_it_is_looked_for() {
        for name in ReasoningParser::names() {
            for mark in ReasoningParser::named(name).unwrap().spellings() {
                assert!(mark.ends_with(LAST_OF_MARKS), "{name}: {mark}");
            }
        }
    }

    #[test]
    fn thoughts_that_nothing_announces_are_found_too() {
        for (name, text, thoughts) in [
            ("gemma4", "<|channel>thought\nhm<channel|>so", "thought\nhm<channel|>"),
            ("mistral", "[THINK]hm[/THINK]so", "hm[/THINK]"),
            ("granite", "Here's my thought process: hm Here's my response: so", " hm Here's my response:"),
        ] {
            let found = spans(name, text.split_inclusive(|_: char| true));
            assert_eq!(found.iter().map(|span| &text[span.clone()]).collect::<Vec<_>>(), [thoughts], "{name}");
        }
    }

    #[test]
    fn thoughts_count_up_to_the_mark_of_a_call() {
        for (text, thoughts) in [
            ("<think>é so <tool_call>{} x", &["é so "][..]),
            ("<think>a <tool_cal <tool_call>x</think>b", &["a <tool_cal "]),
            ("<think>a<tool_cal</think>b", &["a<tool_cal</think>"]),
        ] {
            for found in [
                spans_before("qwen3", &["<tool_call>"], [text]),
                spans_before("qwen3", &["<tool_call>"], text.split_inclusive(|_: char| true)),
            ] {
                let found: Vec<_> = found.iter().map(|span| text[span.clone()].trim_start_matches("<think>")).collect();
                assert_eq!(found, thoughts, "{text}");
            }
        }
    }

    #[test]
    fn in_channels_thoughts_are_told_from_calls() {
        let thought = "<|channel|>analysis<|message|>hm<|end|>";
        let call = "<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{\"a\": 1}<|call|>";
        let text = format!("{thought}{call}");
        let found = spans("openai_gptoss", text.split_inclusive(|_: char| true));
        assert_eq!(found.iter().map(|span| &text[span.clone()]).collect::<Vec<_>>(), ["hm<|end|>"]);
    }

    proptest! {
        #[test]
        fn thoughts_are_what_is_not_content_however_the_text_is_cut(
            parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..12),
        ) {
            // Of thoughts that never end, a call in them may be the end; that is known only then.
            let parts: Vec<_> = parts.into_iter().chain(["</think>"]).collect();
            let text = parts.concat();
            for name in ReasoningParser::names() {
                let found = spans(name, [text.as_str()]);
                prop_assert_eq!(&found, &spans(name, parts.iter().copied()), "{} {:?}", name, text);
                prop_assert_eq!(&found, &spans(name, text.split_inclusive(|_: char| true)), "{} {:?}", name, text);
                let removed: &[&str] = match name {
                    "deepseek_r1" | "deepseek_v3" | "ernie45" | "holo2" | "hy_v3" | "hy_v4" | "olmo3" | "poolside_v1" | "step3"
                    | "step5" => &[],
                    "glm45" | "glm47" | "ling3" | "deepseek_v4" | "deepseek_v41" => &["<think>", "</think>"],
                    "gemma4" => &["<|channel>", "<channel|>"],
                    "mistral" => &["[THINK]", "[/THINK]"],
                    "minimax_m3" => &["<mm:think>", "</mm:think>"],
                    "cohere_command3" | "cohere_command4" => &["<|START_THINKING|>", "<|END_THINKING|>"],
                    "kimi_k3" => &["<|open|>think<|sep|>"],
                    "seed_oss" => &["</seed:think>"],
                    // Where nothing, or only the first mark, is taken out of the content.
                    "openai_gptoss" | "minimax_m2_append_think" | "granite" | "hunyuan_a13b" => continue,
                    _ => &["</think>"],
                };
                prop_assert_eq!(text_outside(&text, &found, removed), content(name, &text), "{} {:?}", name, text);
            }
        }
    }
}
