//! What stands between two texts that both known ids and the template's render have: calls, messages without a text, and what the
//! template writes around them.
//!
//! Both sides are read by the same reader of calls and without thoughts, which templates leave out. The calls have to be those of
//! the messages. Of what is left, the ids may not have a piece that the render is without: a text that a message had, or a
//! result of a tool that a client has emptied since.

use super::{
    PromptError,
    answers::{read, same_calls},
    comparison::{Comparison, LONGEST_STOP_STRING, Written, dense, encoded},
};
use crate::{
    chat::{self, Message},
    parser::{OutputFormat, PromptReasoning, ToolCall},
};

/// The same part of a conversation, in the ids and in the render.
pub(super) struct Between<'a> {
    pub(super) comparison: &'a Comparison<'a>,
    pub(super) written: Written<'a>,
    /// The text of the ids.
    pub(super) ids: &'a str,
    pub(super) render: &'a str,
}

/// What is left of a text without thoughts, and its calls.
struct Rest {
    calls: Vec<ToolCall>,
    /// The texts between special tokens, without white space.
    pieces: Vec<String>,
}

impl Between<'_> {
    /// Whether the ids say something else of these messages than the messages; no where nobody can tell. Behind an answer, its end
    /// comes first, which may be a stop string.
    pub(super) fn differs(&self, messages: &[Message], is_after_answer: bool) -> Result<bool, PromptError> {
        let said: Vec<chat::ToolCall> =
            messages.iter().flat_map(|message| message.tool_calls.iter().flatten()).cloned().collect();
        let is_read = self.comparison.formats.tools.is_some();
        if messages.is_empty() || (!said.is_empty() && !is_read) {
            return Ok(false);
        }
        let first = self.written.seams.find(self.ids).next().filter(|_| is_after_answer && said.is_empty());
        let (ids, mut render) = (self.rest(&self.ids[first.map_or(0, |seam| seam.start)..]), self.rest(self.render));
        // Behind the last of the messages, a render may go on with those of the one that the ids end with.
        if render.calls.len() < said.len() || !same_calls(&render.calls[..said.len()], &said) {
            return Ok(false);
        }
        if !same_calls(&ids.calls, &said) {
            return Ok(true);
        }
        // An answer of which nothing is left may have begun with a stop string.
        let is_silent = |message: &Message| message.role.is_assistant() && !message.makes_calls();
        let most_left_out = if messages.iter().any(is_silent) { LONGEST_STOP_STRING } else { 0 };
        if ids.says_more(&render, most_left_out) {
            render = self.rest(&encoded(self.comparison.tokenizer, self.render)?);
        }
        Ok(ids.says_more(&render, most_left_out))
    }

    /// Whether the ids have a text, but for calls and marks of thoughts that stand within it.
    pub(super) fn says_beside_calls(&self, text: &str) -> bool {
        self.rest(self.ids).pieces.iter().any(|piece| piece.contains(&dense(text)))
    }

    /// Whether both have other words, but for dates that the template writes.
    pub(super) fn has_other_words(&self) -> bool {
        let [ids, render] = [self.ids, self.render].map(|text| self.pieces(text));
        let undated = |pieces: &[String]| pieces.iter().map(|piece| without_dates(piece)).collect::<Vec<_>>();
        ids != render && (!self.written.dated || undated(&ids) != undated(&render))
    }

    fn rest(&self, text: &str) -> Rest {
        let text = self.comparison.without_thoughts(text);
        let format = OutputFormat::new(None, self.comparison.call_format(), None);
        let reading = read(&text, &format, PromptReasoning::Unmarked, false);
        Rest { calls: reading.calls, pieces: self.pieces(&reading.content) }
    }

    /// The texts between special tokens, without white space.
    fn pieces(&self, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut start = 0;
        for seam in self.written.seams.find(text) {
            pieces.push(dense(&text[start..seam.start]));
            start = seam.end;
        }
        pieces.push(dense(&text[start..]));
        pieces.retain(|piece| piece.contains(char::is_alphanumeric));
        pieces
    }
}

impl Rest {
    /// Whether there is a piece that the render is without, longer by more than so many bytes than any that begins it.
    fn says_more(&self, render: &Self, most_left_out: usize) -> bool {
        let left = |piece: &str| {
            let begins = render.pieces.iter().filter(|begin| piece.starts_with(begin.as_str()));
            piece.len() - begins.map(String::len).max().unwrap_or_default()
        };
        self.pieces.iter().any(|piece| left(piece) > most_left_out)
    }
}

/// A text without digits and the names of months and weekdays, by which dates differ.
fn without_dates(text: &str) -> String {
    const NAMES: [&str; 19] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    ];
    let mut text: String = text.chars().filter(|character| !character.is_ascii_digit()).collect();
    for name in NAMES {
        // The long name first, then the short one.
        text = text.replace(name, "").replace(&name[..3], "");
    }
    text
}
