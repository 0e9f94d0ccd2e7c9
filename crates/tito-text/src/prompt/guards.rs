//! What must precede the tail, so that the tail starts with the anchor's close: nothing of the template's own that
//! depends on what the anchor says may stand between the two.

use super::{
    marks::{MessagePart, calls, texts, with_part, without_arguments},
    splice_context::{RenderedAnchor, Splice, fresh_word},
};
use crate::json::Value;

impl Splice<'_> {
    /// Whether the template writes something else after the anchor's content, which is `after`, because of its calls.
    pub(super) fn shows_calls(&self, anchor: usize, after: &str) -> bool {
        let message = self.conversation.message(anchor);
        if calls(message).is_empty() {
            return false;
        }
        let word = fresh_word();
        let Some(mut silent) = with_part(message, MessagePart::Content, &word, &fresh_word()) else { return true };
        silent.shift_remove("tool_calls");
        let text = self.conversation.text_with(anchor, silent, None);
        !text.is_ok_and(|text| text.split_once(&word).is_some_and(|(_, silent)| silent == after))
    }

    /// Whether a call's name, or anything else in it but its arguments, reads like a seam.
    pub(super) fn spells_seam(&self, call: &Value) -> bool {
        let mut call = call.clone();
        if let Some(function) = call.as_object_mut().and_then(|call| call.get_mut("function")?.as_object_mut()) {
            function.shift_remove("arguments");
        }
        self.seams.find(&call.to_json_string()).next().is_some()
    }

    /// Whether what precedes the tail is the end of the anchor's content, so that nothing of the template's own that
    /// depends on the content is lost. A template may also leave out the content, thoughts in front of it, or parts.
    pub(super) fn ends_with_content(&self, anchor: usize, head: &str, before: &str) -> bool {
        let last_line = |text: &'_ str| text.trim_end().rsplit('\n').next().map(str::to_owned);
        let (head, start) = (head.trim_end(), last_line(before));
        let ends_with = |content: &str| {
            let content = content.trim_end();
            let last_word = content.rsplit(char::is_whitespace).next().unwrap_or_default();
            let shown = common_suffix(head, content);
            let mut places = (head.len() - shown..=head.len()).filter(|&place| head.is_char_boundary(place));
            let says_word = !last_word.is_empty() && head.ends_with(last_word);
            says_word || places.any(|place| last_line(&head[..place]) == start)
        };
        texts(self.conversation.message(anchor)).into_iter().any(ends_with)
    }

    /// What the template writes between the call and the close whatever the arguments are; the honest render must have
    /// it there too, so that nothing is lost that depends on them. The close starts at byte `start` after the word.
    pub(super) fn trailer<'t>(&self, anchor: usize, call: usize, shown: &'t RenderedAnchor, start: usize) -> &'t str {
        let empty = without_arguments(self.conversation.message(anchor), call, &shown.other);
        let empty = empty.and_then(|empty| self.conversation.text_with(anchor, empty, None).ok());
        // A template may fail without arguments; then nothing counts as fixed.
        let fixed = empty.map_or(0, |empty| common_suffix(&empty, &shown.after));
        let trailer = shown.after.get(shown.after.len() - fixed..start).unwrap_or_default();
        // What else the model wrote may stand after the call.
        trailer.rsplit(&shown.other).next().unwrap_or_default()
    }
}

/// How many bytes two texts end with in common, in whole characters.
fn common_suffix(left: &str, right: &str) -> usize {
    let same = left.chars().rev().zip(right.chars().rev()).take_while(|(left, right)| left == right);
    same.map(|(letter, _)| letter.len_utf8()).sum()
}
