//! Text to content and calls, piece by piece, whatever the pieces are.

use super::{ToolCall, ToolParser};

/// Reads the text of one generation.
///
/// Content is what stands before the first marker, unless it is only white space. It is given out as it comes; what may
/// be the start of a marker is held back, and everything from the marker on until [`ToolCallStream::finish`].
#[derive(Debug)]
pub struct ToolCallStream {
    parser: ToolParser,
    /// What was not given out.
    held: String,
    /// Bytes of `held` before which no marker starts. As long as nothing was given out, they are white space.
    searched: usize,
    /// Where in `held` the first marker stands.
    marker: Option<usize>,
    /// Whether content was given out.
    spoken: bool,
}

impl ToolCallStream {
    /// A stream of no text yet.
    pub fn new(parser: ToolParser) -> Self {
        Self { parser, held: String::new(), searched: 0, marker: None, spoken: false }
    }

    /// Takes the next piece, and returns the content that became certain.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        if self.marker.is_some() {
            return String::new();
        }
        let marker = self.parser.marker();
        self.marker = self.held[self.searched..].find(marker).map(|at| self.searched + at);
        let end = self.marker.unwrap_or_else(|| self.held.len() - begun(&self.held[self.searched..], marker));
        self.spoken |= !self.held[self.searched..end].chars().all(is_space);
        if !self.spoken {
            self.searched = end;
            return String::new();
        }
        self.searched = 0;
        self.marker = self.marker.map(|_| 0);
        let rest = self.held.split_off(end);
        std::mem::replace(&mut self.held, rest)
    }

    /// What is left once the text has ended: all calls, or else content.
    ///
    /// Where a single call cannot be read there is none, and the whole text is content.
    pub fn finish(&mut self) -> (String, Vec<ToolCall>) {
        let held = std::mem::take(&mut self.held);
        let calls = self.marker.and_then(|marker| self.parser.calls(&held[marker..]));
        match calls {
            Some(calls) => (String::new(), calls),
            None => (held, Vec::new()),
        }
    }
}

/// Bytes at the end of `text` that may be the start of `marker`.
fn begun(text: &str, marker: &str) -> usize {
    let longest = text.len().min(marker.len() - 1);
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&marker.as_bytes()[..length])).unwrap_or(0)
}

/// What Python's `str.isspace` says.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Content, and names and arguments of the calls, however the text came.
    type Read = (String, Vec<(String, String)>);

    fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Read {
        let mut stream = ToolCallStream::new(ToolParser::Hermes);
        let mut content: String = pieces.into_iter().map(|piece| stream.push(piece)).collect();
        let (rest, calls) = stream.finish();
        content.push_str(&rest);
        (content, calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    /// vLLM's rules for a whole text, written down a second time.
    fn expected(text: &str) -> Read {
        let called = text.find("<tool_call>").and_then(|at| {
            let content = if text[..at].chars().all(is_space) { "" } else { &text[..at] };
            Some((content.to_owned(), ToolParser::Hermes.calls(&text[at..])?))
        });
        let Some((content, calls)) = called else { return (text.to_owned(), Vec::new()) };
        (content, calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    const CALL: &str = r#"<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>"#;

    #[test]
    fn content_is_what_stands_before_the_first_call_to_the_letter() {
        let call = vec![("f".to_owned(), r#"{"a": 1}"#.to_owned())];
        for (before, content) in [("", ""), (" \n\t\u{1f}\u{a0}", ""), ("so\n", "so\n"), (" a < b \n", " a < b \n")] {
            assert_eq!(read([format!("{before}{CALL} and more").as_str()]), (content.to_owned(), call.clone()));
        }
    }

    #[test]
    fn a_text_without_calls_or_with_a_bad_one_is_content_to_the_letter() {
        for text in
            ["", " \n", "so", "a <tool_cal", "</tool_call>", "  <tool_call>{", " x <tool_call>\n{}</tool_call> y"]
        {
            assert_eq!(read([text]), (text.to_owned(), Vec::new()), "{text:?}");
        }
        let spoiled = format!("\n{CALL}<tool_call>");
        assert_eq!(read([spoiled.as_str()]), (spoiled.clone(), Vec::new()));
    }

    #[test]
    fn content_is_given_out_as_soon_as_it_is_certain() {
        let mut stream = ToolCallStream::new(ToolParser::Hermes);
        let given = ["\n", "a", " ", "b<", "tool", "s> <", "<tool_call", ">{", "}"].map(|piece| stream.push(piece));
        assert_eq!(given, ["", "\na", " ", "b", "", "<tools> ", "<", "", ""]);
        assert_eq!(stream.finish(), ("<tool_call>{}".to_owned(), Vec::new()));
    }

    fn texts() -> impl Strategy<Value = String> {
        let parts = [
            CALL,
            "<tool_call>",
            "</tool_call>",
            "<tool_call",
            "<",
            "{",
            "}",
            r#"{"name": "g", "arguments": {"é": "😀"}}"#,
            "\n",
            " ",
            "\u{1c}",
            "so",
            "é😀",
            "<<tool",
            "_call>",
        ];
        prop::collection::vec(proptest::sample::select(parts.to_vec()), 0..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_048, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_pieces_of_a_text_give_what_the_whole_gives(text in texts(), cuts in prop::collection::vec(any::<bool>(), 128)) {
            let mut pieces = Vec::new();
            let mut start = 0;
            for (number, (at, _)) in text.char_indices().enumerate() {
                if cuts[number % cuts.len()] {
                    pieces.push(&text[start..at]);
                    start = at;
                }
            }
            pieces.push(&text[start..]);
            prop_assert_eq!(read(pieces), expected(&text), "{:?}", text);
            prop_assert_eq!(read([text.as_str()]), expected(&text), "{:?}", text);
        }
    }
}
