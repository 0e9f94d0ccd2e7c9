//! What a text must begin with before vLLM reads it as Python: its `TOOL_CALL_REGEX`, character by character.
//!
//! The expression wants a list of calls with keys, and lets a value be anything. It is run as the automaton that it
//! describes, in all of its states at once. A call is either one that a comma must follow, or one that may end the list.

/// In front of the list.
const BEGIN: u32 = 1;
/// In front of the first name.
const FIRST: u32 = 1 << 1;
/// After a comma between calls.
const NEXT: u32 = 1 << 2;
/// After a call that may end the list.
const LAST: u32 = 1 << 3;
/// After a call that a comma must follow.
const COMMA: u32 = 1 << 4;
/// The text begins as it must.
const OPEN: u32 = 1 << 5;

/// In a name.
const NAME: u32 = 1;
/// After the parenthesis.
const ARGUMENTS: u32 = 1 << 1;
/// After a comma between arguments.
const ARGUMENT: u32 = 1 << 2;
/// In a key.
const KEY: u32 = 1 << 3;
/// In a value.
const VALUE: u32 = 1 << 4;
/// After white space in a value.
const SPACE: u32 = 1 << 5;

/// Where the states of a call begin that a comma must follow, and those of one that may end the list.
const FOLLOWED: u32 = 8;
const ENDING: u32 = 16;

/// The automaton.
#[derive(Debug)]
pub(super) struct Gate(u32);

impl Gate {
    pub(super) fn new() -> Self {
        Self(BEGIN)
    }

    pub(super) fn push(&mut self, text: &str) {
        for c in text.chars() {
            if self.is_open() || self.is_shut() {
                return;
            }
            self.0 = after(self.0, c);
        }
    }

    /// Whether the text begins as it must.
    pub(super) fn is_open(&self) -> bool {
        self.0 & OPEN != 0
    }

    /// Whether it never will.
    pub(super) fn is_shut(&self) -> bool {
        self.0 == 0
    }
}

fn after(states: u32, c: char) -> u32 {
    let name = |either: u32| if states & either != 0 && c.is_ascii_alphabetic() { NAME } else { 0 };
    let within = |call: u32| (states >> call) & 0xff;
    let (followed, followed_ends) = after_in_call(within(FOLLOWED), c, false);
    let (ending, ending_ends) = after_in_call(within(ENDING), c, true);
    let mut next = (followed | name(FIRST | NEXT)) << FOLLOWED | (ending | name(FIRST | NEXT | LAST)) << ENDING;
    let mut go = |from: u32, goes: bool, to: u32| next |= if states & from != 0 && goes { to } else { 0 };
    go(BEGIN, c == '[', FIRST);
    go(NEXT, c.is_whitespace(), NEXT);
    go(COMMA, c == ',', NEXT);
    go(LAST, c.is_whitespace(), LAST);
    go(LAST, c == ']', OPEN);
    go(u32::MAX, followed_ends, COMMA);
    go(u32::MAX, ending_ends, LAST);
    next
}

/// The states of a call after a character, and whether that may have ended the call.
fn after_in_call(states: u32, c: char, ending: bool) -> (u32, bool) {
    let is = |state: u32| states & state != 0;
    let word = c.is_alphanumeric() || c == '_';
    let mut next = 0;
    let mut go = |goes: bool, to: u32| next |= if goes { to } else { 0 };
    go(is(NAME) && word, NAME);
    go(is(NAME) && c == '(', ARGUMENTS);
    go(is(ARGUMENT) && c.is_whitespace(), ARGUMENT);
    go(is(ARGUMENTS | ARGUMENT) && c.is_ascii_alphabetic(), KEY);
    go(is(KEY) && word, KEY);
    go(is(KEY) && c == '=', VALUE);
    go(is(VALUE), VALUE);
    go(is(VALUE) && c == ',', ARGUMENT);
    go(is(VALUE) && c.is_whitespace() && !ending, SPACE);
    let ends = is(ARGUMENTS | ARGUMENT | SPACE) || (is(VALUE) && ending);
    (next, ends && c == ')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_passes_if_it_begins_like_a_list_of_calls_with_keys() {
        for (text, open) in [
            ("[f()]", true),
            ("[f()] and more", true),
            ("[f1_é(a=1)]", true),
            ("[f(a=1), g(b=2)]", true),
            ("[f(a=1), g()]", true),
            ("[f(), g() ]", true),
            ("[f()g()]", true),
            ("[f(a=1,)]", true),
            ("[f(a=1, 2)]", true),
            ("[f(a=1), a.b(c=2)]", true),
            ("[f(a=\n1\n)\n]", true),
            ("[f(a=", false),
            ("[]", false),
            ("f()", false),
            (" [f()]", false),
            ("[ f()]", false),
            ("[a.b()]", false),
            ("[_f()]", false),
            ("[f ()]", false),
            ("[f( )]", false),
            ("[f(1)]", false),
            ("[f(a =1)]", false),
            ("[f(), ]", false),
            ("[f(a=1),]", false),
        ] {
            let mut gate = Gate::new();
            gate.push(text);
            assert_eq!(gate.is_open(), open, "{text}");
        }
    }

    #[test]
    fn a_text_that_never_will_pass_is_known_at_once() {
        for (text, shut) in
            [("H", true), ("[N", false), ("[No", false), ("[No ", true), ("[f(x)", true), ("[f(x=) y", false)]
        {
            let mut gate = Gate::new();
            gate.push(text);
            assert_eq!(gate.is_shut(), shut, "{text}");
        }
    }
}
