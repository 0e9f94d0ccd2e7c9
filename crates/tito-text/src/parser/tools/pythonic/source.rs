//! The tokens of Python inside of brackets: white space and comments between them, names, and lists with commas.

/// How deep Python's tokenizer lets brackets nest.
const MAX_BRACKETS: usize = 200;

/// Words that are no names.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Whether a word is a name.
pub(super) fn is_name(word: &str) -> bool {
    let begins = |c: char| c.is_alphabetic() || c == '_';
    word.starts_with(begins) && word.chars().all(|c| c.is_alphanumeric() || c == '_') && !KEYWORDS.contains(&word)
}

/// A text and how much of it was read.
#[derive(Debug)]
pub(super) struct Source<'t> {
    text: &'t str,
    at: usize,
    /// Brackets that are open.
    brackets: usize,
    /// Whether keys may be words that are no names, and strings may have several lines. There are no comments then.
    lenient: bool,
}

impl<'t> Source<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, brackets: 0, lenient: false }
    }

    /// A text in which keys may be words of Python's own, and strings may have several lines, and which has no comments:
    /// they would be lost.
    pub(super) fn lenient(text: &'t str) -> Self {
        Self { lenient: true, ..Self::new(text) }
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Goes on by that many bytes.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Skips white space and comments, then takes the character if it comes.
    pub(super) fn take(&mut self, c: char) -> bool {
        self.skip_space();
        let comes = self.rest().starts_with(c);
        self.at += if comes { c.len_utf8() } else { 0 };
        comes
    }

    /// The character that comes after white space.
    pub(super) fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    /// A name, which no keyword is.
    pub(super) fn name(&mut self) -> Option<&'t str> {
        self.skip_space();
        let name = self.word().filter(|word| is_name(word))?;
        self.at += name.len();
        Some(name)
    }

    fn any_word(&mut self) -> Option<&'t str> {
        self.skip_space();
        let word = self.word()?;
        self.at += word.len();
        Some(word)
    }

    /// A word that may be a keyword, left where it is.
    pub(super) fn word(&self) -> Option<&'t str> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        rest.starts_with(|c: char| c.is_alphabetic() || c == '_').then(|| &rest[..end])
    }

    /// `KEY=`, or nothing.
    pub(super) fn keyword(&mut self) -> Option<&'t str> {
        let before = self.at;
        let key = if self.lenient { self.any_word() } else { self.name() };
        let equals = self.take('=') && !self.rest().starts_with('=');
        if key.is_none() || !equals {
            self.at = before;
            return None;
        }
        key
    }

    /// Items with commas between them, up to the closing bracket; whether the last one had a comma. The opening bracket
    /// was taken.
    pub(super) fn items(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<bool> {
        self.brackets += 1;
        if self.brackets > MAX_BRACKETS {
            return None;
        }
        let mut comma = false;
        while !self.take(close) {
            item(self)?;
            comma = self.take(',');
            if !comma && self.peek() != Some(close) {
                return None;
            }
        }
        self.brackets -= 1;
        Some(comma)
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest().trim_start_matches([' ', '\t', '\u{c}', '\n', '\r']);
            let next = match rest.strip_prefix('#').filter(|_| !self.lenient) {
                Some(comment) => comment.split_once('\n').map_or("", |(_, next)| next),
                None => rest.strip_prefix("\\\n").unwrap_or(rest),
            };
            self.at = self.text.len() - next.len();
            if next.len() == rest.len() {
                return;
            }
        }
    }
}
