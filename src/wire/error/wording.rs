//! The sentences of errors, which name fields by their paths, and how paths are spelt.

use crate::json::{Path, Segment};

/// A sentence for a client: words, which are shown as they are, and fields, which may have other names elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sentence(Vec<SentencePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum SentencePart {
    Words(String),
    Field(Path),
}

impl Sentence {
    /// Adds a field to the sentence.
    #[must_use]
    pub fn field(mut self, path: impl Into<Path>) -> Self {
        self.0.push(SentencePart::Field(path.into()));
        self
    }

    /// Adds words to the sentence.
    #[must_use]
    pub fn words(mut self, words: impl Into<String>) -> Self {
        self.0.push(SentencePart::Words(words.into()));
        self
    }

    /// Returns the same sentence with other paths to its fields.
    #[must_use]
    pub fn elsewhere(self, elsewhere: impl Fn(Path) -> Path) -> Self {
        let part = |part| match part {
            SentencePart::Field(path) => SentencePart::Field(elsewhere(path)),
            words @ SentencePart::Words(_) => words,
        };
        Self(self.0.into_iter().map(part).collect())
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        let part = |part: &SentencePart| match part {
            SentencePart::Words(words) => words.clone(),
            SentencePart::Field(path) => spelt(path),
        };
        self.0.iter().map(part).collect()
    }
}

impl From<String> for Sentence {
    fn from(words: String) -> Self {
        Self::default().words(words)
    }
}

impl From<&str> for Sentence {
    fn from(words: &str) -> Self {
        Self::default().words(words)
    }
}

/// Returns the name of a field. NeMo Gym takes every 400 that contains `max_tokens` for an overflow of the context and
/// turns it into an empty answer, so in the server's own words only an overflow may contain that name.
fn name(field: &'static str) -> &'static str {
    if field == "max_tokens" { "max_completion_tokens" } else { field }
}

/// Spells a field as sentences do: `messages[3].content`.
pub(crate) fn spelt(path: &Path) -> String {
    let named = |segment: &Segment| match segment {
        Segment::Name(own) => Segment::Name(name(own)),
        segment => segment.clone(),
    };
    path.segments().iter().map(named).collect::<Path>().to_string()
}

/// Spells a place as pydantic's errors do, without the steps that name its own machinery: `body.messages.3.content`.
pub(crate) fn place(path: &Path) -> String {
    let steps = path.segments().iter().filter_map(|segment| match segment {
        Segment::Index(index) => Some(index.to_string()),
        Segment::Key(key) => (!is_machinery(key)).then(|| key.clone()),
        Segment::Name(own) => (!is_machinery(own)).then(|| name(own).to_owned()),
    });
    steps.collect::<Vec<_>>().join(".")
}

/// Whether vLLM takes a name for one of pydantic's own words, as it also does with some fields (`function.arguments`
/// becomes `function`).
fn is_machinery(name: &str) -> bool {
    const WORDS: [&str; 28] = [
        "function-wrap",
        "function-after",
        "function-before",
        "function-plain",
        "json-or-python",
        "lax-or-strict",
        "chain",
        "default",
        "nullable",
        "tagged-union",
        "union",
        "call",
        "arguments",
        "is-instance",
        "is-subclass",
        "callable",
        "str",
        "int",
        "float",
        "bool",
        "bytes",
        "bytearray",
        "list",
        "tuple",
        "dict",
        "set",
        "frozenset",
        "complex",
    ];
    name.contains(['[', ']', '(', ')', '{', '}'])
        || WORDS.iter().chain(&["none", "nonetype"]).any(|word| name.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_words_keep_clear_of_those_of_an_overflow() {
        let user = Path::from("logit_bias").then("max_tokens".to_owned());
        assert_eq!(spelt(&user), "logit_bias.max_tokens");
        assert_eq!(place(&Path::from("body").then("max_tokens")), "body.max_completion_tokens");
        let sentence = Sentence::from("a tool `max_tokens`, and ").field("max_tokens").words("=7");
        assert_eq!(sentence.text(), "a tool `max_tokens`, and max_completion_tokens=7");
    }

    #[test]
    fn a_field_has_another_name_elsewhere_and_words_stay() {
        let sentence = Sentence::from("`messages[3]`: ").field(Path::from("messages").then(3).then("content"));
        let elsewhere = sentence.elsewhere(|_| Path::from("input").then(5));
        assert_eq!(elsewhere.text(), "`messages[3]`: input[5]");
    }

    #[test]
    fn machinery_is_no_part_of_a_place() {
        let path = Path::from("body").then("tool_calls").then(0).then("function").then("arguments");
        assert_eq!(place(&path), "body.tool_calls.0.function");
    }
}
