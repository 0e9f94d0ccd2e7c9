//! Calls whose arguments are pairs of a key and a value, each between marks of its own:
//! `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>` (vLLM `parser/glm47_moe.py`, and readers of other families in
//! `tool_parsers`, which read it one by one).
//!
//! A format says what the marks are, and may have others: around all calls, between the name and the first key, and around
//! the type of a value. A checkpoint may spell them otherwise.

use std::{fmt, marker::PhantomData};

use super::{
    call_format::CallReader,
    machine::{self, Act, Arguments, Callee, Draft, Grammar, Reading, ToolCallState, Typed},
    parameters,
    schema::Signatures,
};
use crate::{chat::FunctionTool, json::Value, parser::marker};

/// A beginning and an end.
type Ends = [&'static str; 2];

/// The marks of a format.
#[derive(Debug)]
pub(super) struct Marks {
    /// Around all calls of a turn; a call that stands elsewhere is text.
    pub(super) section: Option<Ends>,
    pub(super) call: Ends,
    /// After the name.
    pub(super) separator: Option<&'static str>,
    pub(super) key: Ends,
    /// Around the type of a value, which may stand in front of it.
    pub(super) kind: Option<Ends>,
    pub(super) value: Ends,
}

/// What a mark does.
#[derive(Clone, Copy)]
enum Role {
    Section,
    SectionEnd,
    Call,
    CallEnd,
    Separator,
    Key,
    Value,
    ValueEnd,
}

impl Marks {
    /// The same marks, which stand in `usual`, as `tokens` spell them in the same order.
    fn spelled(self, usual: &[&str], tokens: &'static [&'static str]) -> Self {
        let spell = |mark: &'static str| {
            let at = usual.iter().position(|known| *known == mark);
            at.and_then(|at| tokens.get(at)).copied().unwrap_or(mark)
        };
        let Self { section, call, separator, key, kind, value } = self;
        Self {
            section: section.map(|ends| ends.map(spell)),
            call: call.map(spell),
            separator: separator.map(spell),
            key: key.map(spell),
            kind: kind.map(|ends| ends.map(spell)),
            value: value.map(spell),
        }
    }

    fn role(&self, mark: &str) -> Option<Role> {
        let of_section = |end: usize| self.section.map(|ends| ends[end]);
        let roles = [
            (of_section(0), Role::Section),
            (of_section(1), Role::SectionEnd),
            (Some(self.call[0]), Role::Call),
            (Some(self.call[1]), Role::CallEnd),
            (self.separator, Role::Separator),
            (Some(self.key[0]), Role::Key),
            (Some(self.value[0]), Role::Value),
            (Some(self.value[1]), Role::ValueEnd),
        ];
        roles.into_iter().find(|(known, _)| *known == Some(mark)).map(|(_, role)| role)
    }
}

/// One format.
pub(super) trait Pairs: Send + fmt::Debug + 'static {
    const MARKS: Marks;
    /// All that may be special tokens.
    const TOKENS: &'static [&'static str];
    /// Whether `{"name", "arguments"}` may stand between the marks of a call instead.
    const TAKES_JSON: bool = false;
    /// Whether white space between calls is markup, also where nothing stands around all of them.
    const DROPS_SPACE: bool = false;

    /// Whether a function may be called so; by default those of the request may.
    fn allows(name: &str, tools: &Signatures) -> bool {
        tools.allow(name)
    }

    /// A value of which the model may have said the type.
    fn value(_call: &Callee<'_>, _key: &str, _kind: Option<&str>, text: &str) -> Value {
        Value::from(text)
    }
}

pub(super) fn reader<P: Pairs>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    reader_of_tokens::<P>(P::TOKENS, tools)
}

/// The reader of a checkpoint that spells the format's tokens so.
pub(super) fn reader_of_tokens<P: Pairs>(
    tokens: &'static [&'static str],
    tools: &[FunctionTool],
) -> Box<dyn CallReader> {
    let marks = P::MARKS.spelled(P::TOKENS, tokens);
    machine::reader(Reader::<P> { marks, tokens, format: PhantomData }, tools)
}

/// Whether it looks like a name: no white space and no mark in it.
pub(super) fn is_name(name: &str) -> bool {
    !name.contains(|c: char| c == '<' || marker::is_space(c))
}

#[derive(Debug)]
struct Reader<P> {
    marks: Marks,
    tokens: &'static [&'static str],
    format: PhantomData<P>,
}

impl<P: Pairs> Grammar for Reader<P> {
    const MARKERS: &'static [&'static str] = P::TOKENS;
    const ARGUMENTS_BEGIN: Option<char> = Some('<');

    fn markers(&self) -> &'static [&'static str] {
        self.tokens
    }

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        let sections = self.marks.section.is_some();
        let after = if sections || P::DROPS_SPACE { ToolCallState::Between } else { ToolCallState::Content };
        Some(match (state, self.marks.role(marker)?) {
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, Role::Section) => {
                (ToolCallState::Preamble, Act::Drop)
            }
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, Role::SectionEnd) => {
                (ToolCallState::Content, Act::Drop)
            }
            (ToolCallState::Content, Role::Call) if !sections => (ToolCallState::Name, Act::Open),
            (ToolCallState::Preamble | ToolCallState::Between, Role::Call) => (ToolCallState::Name, Act::Open),
            // Within a value it is text.
            (ToolCallState::Name | ToolCallState::Arguments, Role::Call) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Name, Role::Separator) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Arguments, Role::Value) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Name, Role::Key) | (ToolCallState::Value, Role::ValueEnd | Role::Key) => {
                (ToolCallState::Arguments, Act::Keep)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, Role::CallEnd) => {
                (after, Act::Close)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, Role::SectionEnd) => {
                (ToolCallState::Content, Act::Close)
            }
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let name = marker::trim(&draft.name);
        if P::TAKES_JSON && name.starts_with('{') && draft.arguments.is_empty() {
            let reading = machine::whole_call(name, tools);
            return if reading.call.as_ref().is_some_and(|call| P::allows(&call.name, tools)) {
                reading
            } else {
                Reading::default()
            };
        }
        let callee = Callee { name, tools };
        machine::read_call(
            &draft,
            tools,
            |name| P::allows(name, tools),
            |body| arguments::<P>(body, &self.marks, &callee),
        )
    }
}

/// The values after their keys. Where the end is missing, the next key ends a value, or the end of the call.
fn arguments<P: Pairs>(body: &str, marks: &Marks, callee: &Callee<'_>) -> Arguments {
    let Marks { key: [key_begin, _], value: [_, value_end], .. } = *marks;
    let typed = if marks.kind.is_some() { Typed::Fitted } else { Typed::No };
    let mut arguments = Arguments { typed, ..Arguments::default() };
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(key_begin) {
        arguments.unread.push_str(marker::trim(before));
        let Some(Key { name, kind, value }) = key(after, marks) else {
            begun(after, marks, &rest[before.len()..], &mut arguments);
            return arguments;
        };
        let name = marker::trim(name);
        let has = |other: &str| other == name || arguments.values.contains_key(other);
        let opens = |text: &str| text.starts_with(key_begin);
        let key = |text| in_value(text, marks);
        let end = parameters::value_end(value, |text| text.strip_prefix(value_end), opens, key, has);
        let (end, next) = end.unwrap_or_else(|| {
            arguments.open = true;
            (value.len(), "")
        });
        let written = &rest[before.len()..rest.len() - next.len()];
        arguments.insert(name, P::value(callee, name, kind, &value[..end]), written);
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// Takes note of a key without a value, `after` its mark: the end of the text may have cut the value off.
fn begun(after: &str, marks: &Marks, written: &str, arguments: &mut Arguments) {
    let Marks { key: [_, key_end], value: [value_begin, _], kind, .. } = *marks;
    let cut = after.len() - marker::begun(after, &[key_end]);
    let (key, rest) = after.split_once(key_end).unwrap_or((&after[..cut], ""));
    let rest = rest.trim_start();
    if value_begin.starts_with(rest) || kind.is_some_and(|kind| may_be_typed(rest, kind, value_begin)) {
        arguments.begun = Some((marker::trim(key).to_owned(), written.to_owned()));
    } else {
        arguments.unread.push_str(written);
    }
}

/// Whether a text may become a type with a value after it.
fn may_be_typed(text: &str, [begin, end]: Ends, value_begin: &str) -> bool {
    let Some(kind) = text.strip_prefix(begin) else { return begin.starts_with(text) };
    let (kind, after) = kind.split_once(end).unwrap_or((kind, ""));
    kind.is_ascii() && value_begin.starts_with(after.trim_start())
}

/// A key, the type that the model says, and the text from the value on.
struct Key<'t> {
    name: &'t str,
    kind: Option<&'t str>,
    value: &'t str,
}

/// The key, which ends where a value begins after it.
fn key<'t>(text: &'t str, marks: &Marks) -> Option<Key<'t>> {
    let Marks { key: [_, key_end], value: [value_begin, _], kind, .. } = *marks;
    text.match_indices(key_end).find_map(|(at, _)| {
        let after = text[at + key_end.len()..].trim_start();
        let (kind, after) = kind.and_then(|kind| typed(after, kind)).unzip();
        let value = after.unwrap_or(&text[at + key_end.len()..]).trim_start().strip_prefix(value_begin)?;
        Some(Key { name: &text[..at], kind, value })
    })
}

/// The key at the start of `text` that a value follows, or which is cut off.
fn in_value<'t>(text: &'t str, marks: &Marks) -> Option<&'t str> {
    let Marks { key: [key_begin, _], value: [_, value_end], .. } = *marks;
    let after = text.strip_prefix(key_begin)?;
    let head = after.split(key_begin).next().unwrap_or(after);
    let head = head.split(value_end).next().unwrap_or(head);
    let key = key(head, marks).map(|key| marker::trim(key.name));
    key.or((head.len() == after.len()).then_some(head))
}

/// A type at the start of `text`, and what follows it. A text that is no type is none.
fn typed(text: &str, [begin, end]: Ends) -> Option<(&str, &str)> {
    let (kind, after) = text.strip_prefix(begin)?.split_once(end)?;
    kind.is_ascii().then_some((marker::trim(kind), after))
}
