//! What a normaliser does to single characters: whether a text can be normalised in parts, and how much shorter it gets.

use tokenizers::NormalizerWrapper;

use super::pattern::{Left, is_settled};

/// The most bytes of a text that become one byte of any of its Unicode normal forms: `𝛊̈́` has eight, and `ΐ` two.
const MOST_COMPOSED: usize = 4;

/// A normaliser all of whose steps are known.
#[derive(Debug, Default)]
pub(super) struct Normal {
    steps: Vec<Step>,
    /// Whether every text is preceded by what a space becomes.
    pub(super) writes_a_space: bool,
}

#[derive(Debug)]
enum Step {
    /// To the composed form.
    Composed,
    /// To another form of Unicode.
    OtherForm,
    /// One character becomes others.
    Replaced(char, String),
}

impl Normal {
    /// `None` where one of the steps is not known.
    pub(super) fn new(normalizer: Option<&NormalizerWrapper>) -> Option<Self> {
        let mut found = Found::default();
        if let Some(normalizer) = normalizer {
            found.add(normalizer)?;
        }
        let writes_a_space = match (found.prepended.as_deref(), found.steps.as_slice()) {
            (None | Some(""), _) => false,
            (Some(text), [Step::Replaced(' ', content)]) if content == text => true,
            (Some(_), _) => return None,
        };
        Some(Self { steps: found.steps, writes_a_space })
    }

    /// Two neighbouring characters of a text as the next step sees them; `None` where one may change because of the
    /// other.
    pub(super) fn around(&self, left: char, right: char) -> Option<(Left, char)> {
        let (mut left, mut right) = (Left::of(left), right);
        for step in &self.steps {
            (left, right) = match step {
                Step::Composed if is_composed(right) => match left {
                    Left::Is(c) if is_composed(c) => (left, right),
                    left if left.is_visible() => (Left::Visible, right),
                    _ => return None,
                },
                Step::OtherForm if right.is_ascii() && matches!(left, Left::Is(c) if c.is_ascii()) => (left, right),
                Step::Composed | Step::OtherForm => return None,
                Step::Replaced(from, to) => {
                    let left = match left {
                        Left::Is(c) if c == *from => Left::of(to.chars().next_back()?),
                        Left::Visible if !from.is_whitespace() => return None,
                        left => left,
                    };
                    (left, if right == *from { to.chars().next()? } else { right })
                }
            };
        }
        let writes =
            !self.writes_a_space || matches!(self.steps.first(), Some(Step::Replaced(_, to)) if to.starts_with(right));
        writes.then_some((left, right))
    }

    /// What a character becomes, where that is one character whatever surrounds it.
    pub(super) fn exactly(&self, c: char) -> Option<char> {
        self.steps.iter().try_fold(c, |c, step| match step {
            Step::Composed | Step::OtherForm => c.is_ascii().then_some(c),
            Step::Replaced(from, to) if c == *from => {
                let mut characters = to.chars();
                characters.next().filter(|_| characters.next().is_none())
            }
            Step::Replaced(..) => Some(c),
        })
    }

    /// Whether no text has `part` in it any more.
    pub(super) fn removes(&self, part: &str) -> bool {
        match self.steps.last() {
            Some(Step::Replaced(from, to)) => part.contains(*from) && !to.contains(*from),
            _ => false,
        }
    }

    /// Most bytes of a text that become one byte.
    pub(super) fn shrinks_by(&self) -> usize {
        let by = |step: &Step| match step {
            Step::Composed | Step::OtherForm => MOST_COMPOSED,
            Step::Replaced(from, to) => from.len_utf8().div_ceil(to.len()),
        };
        self.steps.iter().map(by).product()
    }
}

#[derive(Default)]
struct Found {
    steps: Vec<Step>,
    prepended: Option<String>,
}

impl Found {
    fn add(&mut self, normalizer: &NormalizerWrapper) -> Option<()> {
        match normalizer {
            NormalizerWrapper::Sequence(sequence) => {
                for part in sequence.as_ref() {
                    self.add(part)?;
                }
            }
            NormalizerWrapper::NFC(_) => self.steps.push(Step::Composed),
            NormalizerWrapper::NFD(_) | NormalizerWrapper::NFKC(_) | NormalizerWrapper::NFKD(_) => {
                self.steps.push(Step::OtherForm);
            }
            NormalizerWrapper::Replace(replace) => {
                // The library keeps what is replaced to itself, and writes it down.
                let written = serde_json::to_value(replace).ok()?;
                let mut from = written.pointer("/pattern/String")?.as_str()?.chars();
                let (from, None) = (from.next()?, from.next()) else { return None };
                if replace.content.is_empty() {
                    return None;
                }
                self.steps.push(Step::Replaced(from, replace.content.clone()));
            }
            NormalizerWrapper::Prepend(prepend) if self.prepended.is_none() => {
                self.prepended = Some(prepend.prepend.clone());
            }
            _ => return None,
        }
        Some(())
    }
}

/// Whether the composed form has a character as it is, whatever precedes it.
fn is_composed(c: char) -> bool {
    // These two spaces become other characters in every normal form.
    is_settled(c) && !matches!(c, '\u{2000}' | '\u{2001}')
}
