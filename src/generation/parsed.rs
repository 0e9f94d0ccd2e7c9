//! Text to reasoning, content and tool calls; tokens travel along untouched.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};

use super::{Delta, Event, EventStream, Finish, TextOptions, marks::MarkIds};
use crate::{
    TokenId,
    parser::{OutputFormat, OutputParser, Piece, PromptReasoning, ReasoningFormat, ToolFormat},
    tokenizer::Tokenizer,
};

/// Reads `events`' text as `options` say, after the ids of the prompt.
pub(super) fn read(
    events: EventStream,
    options: &TextOptions,
    tokenizer: &Arc<Tokenizer>,
    prompt: &[TokenId],
) -> EventStream {
    if options.format.is_plain() {
        return events;
    }
    let mut reader = Reader::new(&options.format, tokenizer, prompt);
    let read = move |event| match event {
        Event::Delta(delta) => reader.read(delta).into_iter().map(Event::Delta).collect(),
        prompt @ Event::Prompt(_) => vec![prompt],
    };
    Box::pin(events.map_ok(read).map_ok(|events| stream::iter(events).map(Ok)).try_flatten())
}

struct Reader {
    parser: OutputParser,
    counter: Option<Counter>,
}

impl Reader {
    fn new(format: &OutputFormat, tokenizer: &Arc<Tokenizer>, prompt: &[TokenId]) -> Self {
        let marks = format.reasoning.and_then(ReasoningFormat::marks);
        let marks = marks.map(|marks| MarkIds::new(marks, tokenizer));
        let left = marks.map_or(PromptReasoning::Unmarked, |marks| marks.left_by(prompt, tokenizer));
        let calls = format.tools.as_ref().map_or(&[][..], ToolFormat::begins_call);
        let counter = format.reasoning.map(|reasoning| match marks {
            Some(marks) if marks.end.is_some() => Counter::ByIds(Thoughts {
                marks,
                calls: calls.iter().filter_map(|mark| tokenizer.id_of(mark)).chain(marks.call).collect(),
                tokenizer: Arc::clone(tokenizer),
                open: reasoning.begins_with_reasoning(left),
                may_begin: reasoning.may_begin_later(left),
                pending: None,
            }),
            _ => Counter::ByText { tokenizer: Arc::clone(tokenizer) },
        });
        let mut parser = OutputParser::new(format, left);
        parser.await_end(marks.is_some_and(|marks| marks.by_id));
        Self { parser, counter }
    }

    /// Reads what came. Usually that is one delta; a token whose text has a call before other text makes several, of which
    /// the first has the token, so that everything is said in the order in which the model said it.
    fn read(&mut self, mut delta: Delta) -> Vec<Delta> {
        let text = std::mem::take(&mut delta.text);
        if let Some(Counter::ByIds(thoughts)) = &self.counter
            && delta.tokens.iter().any(|token| thoughts.marks.closes_with(token.id))
        {
            self.parser.await_end(false);
        }
        let mut pieces = if text.is_empty() { Vec::new() } else { self.parser.push(&text) };
        let thinks = self.parser.is_reasoning();
        let mut unended = false;
        let finish = delta.finish.take();
        if let Some(finish) = &finish {
            if matches!(finish, Finish::Length | Finish::Repetition | Finish::Abort) {
                self.parser.cut_off();
            }
            let last = self.parser.finish();
            unended = last.iter().all(|piece| matches!(piece, Piece::Reasoning(_)));
            pieces.extend(last);
        }
        if let Some(counter) = &mut self.counter {
            let ids = delta.tokens.iter().map(|token| token.id);
            (delta.reasoning_tokens, delta.thoughts_end) = counter.count(ids, thinks);
            if unended {
                delta.reasoning_tokens += counter.count_unended();
            }
        }
        let mut deltas = vec![delta];
        for piece in pieces.into_iter().map(said) {
            match deltas.last_mut().filter(|last| last.is_followed_by(&piece)) {
                Some(last) => last.push(piece),
                None => deltas.push(piece),
            }
        }
        if let Some(last) = deltas.last_mut() {
            if finish.is_some() {
                last.dropped_calls = self.parser.take_dropped();
            }
            last.finish = finish;
        }
        deltas
    }
}

/// What a piece says.
fn said(piece: Piece) -> Delta {
    match piece {
        Piece::Reasoning(text) => Delta { reasoning: Some(text), ..Delta::default() },
        Piece::Content(text) => Delta { text, ..Delta::default() },
        Piece::Call(call) => Delta { tool_calls: vec![call], ..Delta::default() },
    }
}

/// Counts the tokens of reasoning.
enum Counter {
    /// The tokens between the marks are reasoning, but for special tokens.
    ByIds(Thoughts),
    /// The tokens after which the text is in reasoning are: no tokens of the vocabulary mark it.
    ByText { tokenizer: Arc<Tokenizer> },
}

/// Thoughts by the ids of their marks.
struct Thoughts {
    marks: MarkIds,
    /// The marks that begin calls: those of the format of calls, and that which ends thoughts as well.
    calls: Vec<TokenId>,
    tokenizer: Arc<Tokenizer>,
    /// Whether the last token was in thoughts.
    open: bool,
    /// Whether thoughts may begin.
    may_begin: bool,
    /// The tokens since a mark within thoughts that begins a call: they are thoughts if these end.
    pending: Option<usize>,
}

impl Counter {
    /// How many of the tokens are thoughts, and after how many of them a mark ended these.
    fn count(&mut self, ids: impl Iterator<Item = TokenId>, text_is_open: bool) -> (usize, Option<usize>) {
        match self {
            Self::ByIds(thoughts) => {
                let (mut count, mut end) = (0, None);
                for (index, id) in ids.enumerate() {
                    let were_open = thoughts.open;
                    count += thoughts.count(id);
                    if were_open && !thoughts.open {
                        // The mark of a call belongs to what follows.
                        end = Some(index + usize::from(Some(id) == thoughts.marks.end));
                    }
                }
                (count, end)
            }
            Self::ByText { tokenizer } => (ids.filter(|&id| text_is_open && !tokenizer.is_special(id)).count(), None),
        }
    }

    /// The tokens of thoughts that mention a call and that nothing ended.
    fn count_unended(&mut self) -> usize {
        match self {
            Self::ByIds(thoughts) => thoughts.pending.take().unwrap_or_default(),
            Self::ByText { .. } => 0,
        }
    }
}

impl Thoughts {
    /// How many tokens more are known to be thoughts, after this one.
    fn count(&mut self, id: TokenId) -> usize {
        let starts = Some(id) == self.marks.start;
        let counts = usize::from(!starts && !self.tokenizer.is_special(id));
        if self.open && self.marks.closes_with(id) {
            self.open = false;
            self.may_begin = self.marks.reopens;
            return self.pending.take().unwrap_or_default();
        }
        self.open |= starts && self.may_begin;
        if !self.open {
            return 0;
        }
        if self.pending.is_none() && self.calls.contains(&id) {
            self.pending = Some(0);
        }
        match &mut self.pending {
            Some(pending) => {
                *pending += counts;
                0
            }
            None => counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::SampledToken, generation::decode::tests::spaced, parser::ToolParser};

    #[test]
    fn a_token_with_text_on_both_sides_of_a_call_is_read_in_that_order() {
        let text = "<|channel|>commentary<|message|>one<|end|><|start|>assistant<|channel|>commentary to=functions.f\
                    <|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>two";
        let parser = ToolParser::named("openai").unwrap();
        let tools = ToolFormat { parser, tools: Arc::new([]), forced: None, first_only: false, held: false };
        let format = OutputFormat::new(None, Some(tools), Some(parser));
        let token = SampledToken { id: 3, logprob: 0.0, rank: 1, top_logprobs: Vec::new(), sampling_mask: None };
        let finish = Some(Finish::Eos);
        let delta = Delta { tokens: vec![token], text: text.to_owned(), finish: finish.clone(), ..Delta::default() };
        let deltas = Reader::new(&format, &spaced(), &[]).read(delta);
        let said =
            |delta: &Delta| (delta.tokens.len(), delta.text.clone(), delta.tool_calls.len(), delta.finish.clone());
        let said: Vec<_> = deltas.iter().map(said).collect();
        assert_eq!(said, [(1, "one".to_owned(), 1, None), (0, "\ntwo".to_owned(), 0, finish)]);
    }

    #[test]
    fn a_call_without_an_end_is_whole_only_where_the_model_ended_the_text() {
        let parser = ToolParser::named("qwen3_coder").unwrap();
        let tools = ToolFormat { parser, tools: Arc::new([]), forced: None, first_only: false, held: false };
        let format = OutputFormat::new(None, Some(tools), Some(parser));
        for (finish, arguments) in [
            (Finish::Eos, r#"{"a": "1"}"#),
            (Finish::StopToken(3), r#"{"a": "1"}"#),
            (Finish::Length, r#"{"a": "1""#),
            (Finish::Repetition, r#"{"a": "1""#),
            (Finish::Abort, r#"{"a": "1""#),
        ] {
            let text = "<tool_call><function=f><parameter=a>1</parameter>".to_owned();
            let delta = Delta { text, finish: Some(finish.clone()), ..Delta::default() };
            let deltas = Reader::new(&format, &spaced(), &[]).read(delta);
            let calls: Vec<_> = deltas.iter().flat_map(|delta| &delta.tool_calls).collect();
            assert!(matches!(calls[..], [call] if call.arguments == arguments), "{finish:?} {calls:?}");
        }
    }
}
