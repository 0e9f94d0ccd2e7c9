//! Calls in tags with the names as attributes: `<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>` (vLLM
//! `parser/minimax_m2.py`, and readers of other families in `tool_parsers`).
//!
//! A format says what the tags are, and may have marks around all calls and around each. Names may stand in either kind of
//! quotes or in none.

use std::fmt;

use super::{
    call_format::CallReader,
    forcing::{Demand, TextIs},
    machine::{self, Act, Arguments, Callee, Draft, Grammar, Reading, ToolCallState},
    one_by_one::Spelling,
    parameters,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::marker,
    structured::{Format, Tag},
};

/// What ends a name.
const NAME_END: [&str; 3] = ["\">", "'>", ">"];

/// The marks of a format.
pub(super) struct Marks {
    /// Around all calls of a turn.
    pub(super) section: Option<[&'static str; 2]>,
    /// Whether a call that stands elsewhere is text.
    pub(super) needs_section: bool,
    /// Whether `{"name", "arguments"}` may stand in a section instead.
    pub(super) takes_json: bool,
    /// Around each call.
    pub(super) call: Option<[&'static str; 2]>,
    /// What begins a call, its name following.
    pub(super) invoke: [&'static str; 3],
    pub(super) invoke_end: &'static str,
    /// What begins an argument, its name following.
    pub(super) parameter: &'static str,
    pub(super) parameter_end: &'static str,
    /// The name of an argument's tag.
    pub(super) word: &'static str,
}

/// What a mark does.
#[derive(Clone, Copy)]
enum Role {
    Section,
    SectionEnd,
    Call,
    CallEnd,
    Invoke,
    InvokeEnd,
    NameEnd,
    Parameter,
    ParameterEnd,
}

impl Marks {
    /// Tags called `invoke` and `parameter`, in these marks around all calls.
    pub(super) const fn of_invokes(section: [&'static str; 2]) -> Self {
        Self {
            section: Some(section),
            needs_section: false,
            takes_json: false,
            call: None,
            invoke: ["<invoke name=\"", "<invoke name='", "<invoke name="],
            invoke_end: "</invoke>",
            parameter: "<parameter name=",
            parameter_end: "</parameter>",
            word: "parameter",
        }
    }

    /// What the reader acts on within a value.
    pub(super) fn in_values(&self) -> Vec<&'static str> {
        let ends = [self.section, self.call].into_iter().flatten().map(|[_, end]| end);
        ends.chain([self.invoke_end, self.parameter, self.parameter_end]).collect()
    }

    fn role(&self, mark: &str) -> Option<Role> {
        let roles = [
            (self.section.map(|ends| ends[0]), Role::Section),
            (self.section.map(|ends| ends[1]), Role::SectionEnd),
            (self.call.map(|ends| ends[0]), Role::Call),
            (self.call.map(|ends| ends[1]), Role::CallEnd),
            (Some(self.invoke_end), Role::InvokeEnd),
            (Some(self.parameter), Role::Parameter),
            (Some(self.parameter_end), Role::ParameterEnd),
        ];
        let named = roles.into_iter().find(|(known, _)| *known == Some(mark)).map(|(_, role)| role);
        let invokes = || self.invoke.contains(&mark).then_some(Role::Invoke);
        named.or_else(invokes).or_else(|| NAME_END.contains(&mark).then_some(Role::NameEnd))
    }
}

/// One format.
pub(super) trait Invokes: Send + fmt::Debug + 'static {
    const MARKS: Marks;
    /// All that may be special tokens.
    const TOKENS: &'static [&'static str];
    /// Whether white space around a value is none of it.
    const TRIMS_VALUES: bool = false;

    /// Whether a function may be called so; by default those of the request may.
    fn allows(name: &str, tools: &Signatures) -> bool {
        tools.allow(name)
    }

    /// Where a value ends, with the text after its end mark, that says so itself.
    fn literal_end(_value: &str) -> Option<(usize, &str)> {
        None
    }

    /// Adds an argument, which stands as `written`.
    fn add(arguments: &mut Arguments, key: &str, text: &str, written: &str, _callee: &Callee<'_>) {
        let text = if Self::TRIMS_VALUES { marker::trim(text) } else { text };
        arguments.insert(key, Value::from(text), written);
    }
}

/// Calls in the tags of [`Marks::of_invokes`], with a line for each mark and names in double quotes.
pub(super) fn on_lines<I: Invokes>(demand: &Demand<'_>, section: [&'static str; 2]) -> Format {
    let [calls, calls_end] = section;
    let marks = Marks::of_invokes(section).in_values();
    let spelling = Spelling::new("<parameter name=\"", "\">", "</parameter>\n", &marks);
    let spelling = if I::TRIMS_VALUES { spelling.of_text(TextIs::Trimmed) } else { spelling };
    let begin = |name: &str| format!("<invoke name=\"{name}\">\n");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), "</invoke>\n"));
    demand.section(&format!("{calls}\n"), tags, "", calls_end)
}

pub(super) fn reader<I: Invokes>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(Reader::<I>(std::marker::PhantomData), tools)
}

#[derive(Debug)]
struct Reader<I>(std::marker::PhantomData<I>);

impl<I: Invokes> Grammar for Reader<I> {
    const MARKERS: &'static [&'static str] = I::TOKENS;
    const ARGUMENTS_BEGIN: Option<char> = Some('<');

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        let after = if I::MARKS.section.is_some() { ToolCallState::Between } else { ToolCallState::Content };
        Some(match (state, I::MARKS.role(marker)?) {
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, Role::Section) => {
                // What stands there without a name may be a call.
                if I::MARKS.takes_json {
                    (ToolCallState::Arguments, Act::Open)
                } else {
                    (ToolCallState::Preamble, Act::Drop)
                }
            }
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, Role::SectionEnd) => {
                (ToolCallState::Content, Act::Drop)
            }
            (ToolCallState::Preamble | ToolCallState::Between, Role::Call) => (ToolCallState::Preamble, Act::Drop),
            (ToolCallState::Preamble | ToolCallState::Between, Role::CallEnd) => (ToolCallState::Between, Act::Drop),
            (ToolCallState::Content, Role::Invoke) if !I::MARKS.needs_section => (ToolCallState::Name, Act::Open),
            (ToolCallState::Preamble | ToolCallState::Between, Role::Invoke) => (ToolCallState::Name, Act::Open),
            (ToolCallState::Name, Role::NameEnd) => (ToolCallState::Arguments, Act::Drop),
            (
                ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value,
                Role::InvokeEnd | Role::CallEnd,
            ) => (after, Act::Close),
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, Role::SectionEnd) => {
                (ToolCallState::Content, Act::Close)
            }
            // Within a value it is text.
            (ToolCallState::Name | ToolCallState::Arguments, Role::Invoke) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Arguments | ToolCallState::Value, Role::Parameter) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Value, Role::ParameterEnd) => (ToolCallState::Arguments, Act::Keep),
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let callee = Callee { name: marker::trim(&draft.name), tools };
        machine::read_call(&draft, tools, |name| I::allows(name, tools), |body| arguments::<I>(body, &callee))
    }
}

/// The values of `<parameter name="KEY">VALUE</parameter>`. Where the end is missing, the next parameter ends a value, or
/// the end of the call.
fn arguments<I: Invokes>(body: &str, callee: &Callee<'_>) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = body;
    while let Some((start, after)) = parameters::first(rest, opening::<I>) {
        arguments.unread.push_str(marker::trim(&rest[..start]));
        let Some((key, value)) = parameter_name(after) else {
            // What is no name is text, but at the end of the text it may have become one.
            let next = starts(after).find(|at| opening::<I>(&after[*at..]).is_some());
            let Some(next) = next else {
                let key = after.trim_start();
                let quote = key.chars().next().filter(|quote| matches!(quote, '"' | '\''));
                let key = quote.map_or(key, |quote| key[1..].split(quote).next().unwrap_or_default());
                let key = marker::trim(key);
                arguments.begun = Some((key.to_owned(), rest[start..].to_owned()));
                return arguments;
            };
            arguments.unread.push_str(&rest[start..rest.len() - after.len() + next]);
            rest = &after[next..];
            continue;
        };
        let has = |other: &str| other == marker::trim(key) || arguments.values.contains_key(other);
        let opens = |text| opening::<I>(text).is_some();
        let end =
            I::literal_end(value).or_else(|| parameters::value_end(value, value_end::<I>, opens, begun_key::<I>, has));
        let (end, next) = end.unwrap_or_else(|| {
            arguments.open = true;
            (value.len(), "")
        });
        let written = &rest[start..rest.len() - next.len()];
        match marker::trim(key) {
            "" => arguments.unread.push_str(written),
            key => I::add(&mut arguments, key, &value[..end], written, callee),
        }
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// The name of a parameter, and the text from its value on.
fn parameter_name(text: &str) -> Option<(&str, &str)> {
    ["\"", "'", ""].iter().find_map(|quote| {
        let (key, rest) = key(text.trim_start(), quote)?;
        Some((key, rest.trim_start().strip_prefix('>')?))
    })
}

fn starts(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices('<').map(|(at, _)| at)
}

/// The text after `<parameter name=`.
fn opening<I: Invokes>(text: &str) -> Option<&str> {
    let rest = parameters::tag(text, &[I::MARKS.word])?;
    let named = rest.trim_start();
    let spaced = named.len() < rest.len();
    named.strip_prefix("name").filter(|_| spaced)?.trim_start().strip_prefix('=')
}

/// The text after `</parameter>`.
fn value_end<I: Invokes>(text: &str) -> Option<&str> {
    parameters::tag(text, &["/", I::MARKS.word, ">"])
}

/// The key of a parameter at the start of `text`, which may be cut off.
fn begun_key<I: Invokes>(text: &str) -> Option<&str> {
    let after = opening::<I>(text)?;
    let head = after.split('<').next().unwrap_or(after);
    let key = parameter_name(head).map(|(key, _)| marker::trim(key));
    key.or((head.len() == after.len()).then_some(head))
}

/// A key in the given quotes, and what comes after it.
fn key<'t>(text: &'t str, quote: &str) -> Option<(&'t str, &'t str)> {
    if !quote.is_empty() {
        return text.strip_prefix(quote)?.split_once(quote);
    }
    let end = text.find(|c: char| c == '>' || c.is_whitespace())?;
    (end > 0).then(|| text.split_at(end))
}
