//! One generation's text to reasoning, content and calls: the readers one after another.

use super::{
    Piece, PromptReasoning, SpecialTokens,
    reasoning::{AnswerForm, CallInReasoning, PieceSink, ReasoningFormat, ReasoningReader},
    tools::{self, CallReader, ToolFormat, ToolParser},
    unread::Spaced,
};

/// What is read out of a text, and how.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputFormat {
    /// How the model writes what it thinks.
    pub reasoning: Option<ReasoningFormat>,
    /// How the model writes calls, where calls are wanted.
    pub tools: Option<ToolFormat>,
    /// Whether it writes channels, which hold all of this.
    pub channels: bool,
}

impl OutputFormat {
    /// What is read out of an answer. A server whose parser of calls reads channels does so whether or not the request
    /// has tools.
    pub fn new(reasoning: Option<ReasoningFormat>, tools: Option<ToolFormat>, parser: Option<ToolParser>) -> Self {
        let channels =
            reasoning.is_some_and(ReasoningFormat::is_channels) || parser.is_some_and(ToolParser::is_channels);
        Self { reasoning, tools, channels }
    }

    /// The same for an answer that is held to something. What has channels is told by them; JSON of a form has none, though it
    /// may spell their marks.
    #[must_use]
    pub fn with_form(self, form: AnswerForm) -> Self {
        let is_json = form.to_the_letter && form.call == CallInReasoning::Text;
        if self.channels && self.tools.is_none() && is_json {
            return Self::default();
        }
        Self { reasoning: self.reasoning.map(|reasoning| reasoning.with_form(form)), ..self }
    }

    /// Whether the text is content, whatever it says.
    pub fn is_plain(&self) -> bool {
        self.reasoning.is_none() && self.tools.is_none() && !self.channels
    }

    /// Which special tokens have a text, since marks may be such.
    pub fn special_tokens(&self) -> SpecialTokens {
        if self.channels {
            return SpecialTokens::All;
        }
        let tools = self.tools.as_ref().map(|tools| tools.parser);
        match (self.reasoning.and_then(ReasoningFormat::only_marks), tools) {
            (Some(marks), None) => SpecialTokens::Only(marks),
            (Some(mut marks), Some(tools))
                if tools.special_tokens() == SpecialTokens::AsAsked || !tools.marks().is_empty() =>
            {
                marks.extend(tools.marks());
                SpecialTokens::Only(marks)
            }
            (_, Some(tools)) => tools.special_tokens(),
            (None, None) => SpecialTokens::AsAsked,
        }
    }

    /// Whether an answer that says nothing and calls nothing has null for content.
    pub fn silence_is_null(&self) -> bool {
        self.channels
            || self.reasoning.is_some_and(ReasoningFormat::silence_is_null)
            || self.tools.as_ref().is_some_and(|tools| tools.parser.silence_is_null())
    }
}

/// Reads the text of one generation. What was pushed in pieces gives what the whole text gives.
#[derive(Debug)]
pub struct OutputParser {
    reasoning: Option<Box<dyn ReasoningReader>>,
    tools: Option<Box<dyn CallReader>>,
    spacing: Spacing,
    first_only: bool,
    /// The names of calls after the only one that is kept.
    dropped: Vec<String>,
    /// The calls that thoughts without an end are searched for.
    format: Option<ToolFormat>,
}

impl OutputParser {
    /// A reader that has seen no text yet; `prompt` says where the prompt leaves the reasoning.
    pub fn new(format: &OutputFormat, prompt: PromptReasoning) -> Self {
        let tools = format.tools.as_ref();
        let first_only = tools.is_some_and(|tools| tools.first_only);
        if format.channels {
            let channels = Some(tools::channels(tools.is_some()));
            let (spacing, dropped) = (Spacing::none(), Vec::new());
            return Self { reasoning: None, tools: channels, spacing, first_only, dropped, format: None };
        }
        let begins_call = tools.map_or(&[][..], ToolFormat::begins_call);
        Self {
            reasoning: format.reasoning.and_then(|reasoning| reasoning.reader(prompt, begins_call)),
            tools: tools.map(ToolFormat::reader),
            spacing: Spacing::new(tools.is_some_and(|tools| tools.parser.trims())),
            first_only,
            dropped: Vec::new(),
            format: format.tools.clone(),
        }
    }

    /// Says whether the token that ends the reasoning is still to come: until then, a text that only spells it is no mark.
    pub fn await_end(&mut self, awaits: bool) {
        if let Some(reasoning) = &mut self.reasoning {
            reasoning.await_end(awaits);
        }
    }

    /// Takes the next piece of text, and returns what became certain.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut calls = Calls { tools: self.tools.as_deref_mut(), read: Vec::new() };
        match &mut self.reasoning {
            Some(reasoning) => reasoning.push(text, &mut calls),
            None => calls.put(Piece::Content(text.to_owned())),
        }
        let read = calls.read;
        self.spaced(read)
    }

    /// Takes note that the text was cut off: its end, which is taken next, is not the model's own. A call without an end
    /// may have got more arguments then, and its JSON stays open.
    pub fn cut_off(&mut self) {
        if let Some(tools) = &mut self.tools {
            tools.cut_off();
        }
    }

    /// Takes the end of the text, and returns what is left.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut calls = Calls { tools: self.tools.as_deref_mut(), read: Vec::new() };
        if let Some(reasoning) = &mut self.reasoning {
            let format = self.format.as_ref();
            reasoning.finish(&|text| format.is_none_or(|format| calls_in(format, text)), &mut calls);
        }
        let mut read = calls.read;
        if let Some(tools) = &mut self.tools {
            tools.finish(&mut read);
        }
        let mut out = self.spaced(read);
        self.spacing.finish(&mut out);
        out
    }

    /// Takes the names of the calls that were read and are not kept, because only one is wanted.
    pub fn take_dropped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dropped)
    }

    /// Whether the text so far ends in reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.reasoning.as_ref().is_some_and(|reasoning| reasoning.is_reasoning())
            || self.tools.as_ref().is_some_and(|tools| tools.is_reasoning())
    }

    /// The pieces with the white space that is left around calls, where calls are read.
    fn spaced(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        if self.tools.is_none() {
            return pieces;
        }
        let mut out = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Content(text) => self.spacing.content(&text, &mut out),
                Piece::Call(call) if self.first_only && self.spacing.called => self.dropped.push(call.name),
                Piece::Call(call) => {
                    self.spacing.call();
                    out.push(Piece::Call(call));
                }
                Piece::Reasoning(text) => out.push(Piece::Reasoning(text)),
            }
        }
        out
    }
}

/// Reads the calls out of what is no reasoning.
struct Calls<'p> {
    tools: Option<&'p mut (dyn CallReader + 'static)>,
    read: Vec<Piece>,
}

impl PieceSink for Calls<'_> {
    fn put(&mut self, piece: Piece) {
        match (&mut self.tools, piece) {
            (Some(tools), Piece::Content(text)) => tools.push(&text, &mut self.read),
            (_, piece) => self.read.push(piece),
        }
    }

    fn is_in_call(&self) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.is_in_call())
    }
}

/// Whether there is a call in a text, which thoughts without an end go over to. Bare JSON has no marker where it could begin there:
/// any text would be taken for the arguments of a forced call.
fn calls_in(format: &ToolFormat, text: &str) -> bool {
    if format.is_bare_json() {
        return false;
    }
    let (mut reader, mut pieces) = (format.reader(), Vec::new());
    reader.push(text, &mut pieces);
    reader.finish(&mut pieces);
    pieces.iter().any(|piece| matches!(piece, Piece::Call(_)))
}

/// The white space around content, of which calls take some away.
///
/// Content that is only white space is none where there are calls. Formats that trim lose that after content too. What
/// stands in front of it would be lost in vLLM's JSON answers and is not in its streams; it stays.
#[derive(Debug)]
struct Spacing {
    trims: bool,
    held: Spaced,
    spoken: bool,
    called: bool,
}

impl Spacing {
    fn new(trims: bool) -> Self {
        Self { trims, held: Spaced::default(), spoken: false, called: false }
    }

    /// The rules of formats in which white space counts as any text does.
    fn none() -> Self {
        Self { spoken: true, ..Self::new(false) }
    }

    fn content(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        let waits = self.trims || (self.held.is_blank() && !self.spoken);
        let text = if waits { self.held.take_spoken() } else { self.held.take_all() };
        if !text.is_empty() {
            self.spoken = true;
            out.push(Piece::Content(text));
        }
    }

    fn call(&mut self) {
        self.called = true;
        if self.trims || !self.spoken {
            self.held.clear();
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        let held = self.held.take_all();
        if !held.is_empty() && !self.called {
            out.push(Piece::Content(held));
        }
    }
}
