//! The marks around an answer that are ordinary text, such as `<answer>` and `</answer>`: they count only where the whole
//! answer stands in them.
//!
//! What deviates on purpose: what stands behind the second mark is content; vLLM loses it.

use crate::parser::{Piece, marker, unread::Unread};

/// The marks around an answer, with the white space that belongs to them.
#[derive(Debug)]
pub(super) struct Marks {
    /// Counts where nothing but white space stands in front of it.
    pub(super) open: &'static str,
    /// The first one counts, if the other was there. The longest spelling first.
    pub(super) close: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Before,
    /// Behind the first mark, and nothing else.
    Opened,
    Inside,
    Over,
}

/// Takes the marks off an answer.
#[derive(Debug)]
pub(super) struct Wrapper {
    marks: &'static Marks,
    place: Place,
    held: Unread,
    /// Bytes of it in front of the first mark that are certain to be white space.
    blank: usize,
}

impl Wrapper {
    pub(super) fn new(marks: &'static Marks) -> Self {
        Self { marks, place: Place::Before, held: Unread::default(), blank: 0 }
    }

    /// Takes the next piece of the answer, and appends what became certain.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        if self.place == Place::Before {
            self.open();
        }
        if self.place == Place::Opened && !self.held.is_empty() {
            self.place = Place::Inside;
            let line_break = self.held.starts_with('\n');
            self.held.skip(usize::from(line_break));
        }
        let Marks { close, .. } = self.marks;
        let text = match self.place {
            Place::Before => return,
            Place::Opened | Place::Over => self.held.take_all(),
            Place::Inside => match self.held.first(close) {
                Some((at, mark)) => {
                    self.place = Place::Over;
                    let inside = self.held.take(at);
                    self.held.skip(mark.len());
                    inside + &self.held.take_all()
                }
                None => self.held.take(self.held.len() - marker::begun(&self.held, close)),
            },
        };
        if !text.is_empty() {
            out.push(Piece::Content(text));
        }
    }

    /// Looks for the first mark.
    fn open(&mut self) {
        let Marks { open, .. } = self.marks;
        let text = self.held[self.blank..].trim_start_matches(marker::is_space);
        self.blank = self.held.len() - text.len();
        if text.starts_with(open) {
            self.held.skip(self.blank + open.len());
            self.place = Place::Opened;
        } else if !open.starts_with(text) {
            self.place = Place::Over;
        }
    }

    /// Takes the end of the answer, and appends what is left.
    pub(super) fn finish(&mut self, out: &mut Vec<Piece>) {
        let held = self.held.take_all();
        if !held.is_empty() {
            out.push(Piece::Content(held));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Marks = Marks { open: "<answer>", close: &["\n</answer>", "</answer>"] };

    fn read<'t>(pieces: impl IntoIterator<Item = &'t str>) -> String {
        let (mut wrapper, mut out) = (Wrapper::new(&ANSWER), Vec::new());
        for piece in pieces {
            wrapper.push(piece, &mut out);
        }
        wrapper.finish(&mut out);
        let texts = out.into_iter().map(|piece| match piece {
            Piece::Content(text) => text,
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn an_answer_loses_the_marks_around_it_and_no_others() {
        for (text, answer) in [
            ("<answer>\na\n</answer>", "a"),
            ("\n <answer>a</answer>\nb", "a\nb"),
            ("<answer>a\n", "a\n"),
            ("<answer>\n\na</answe", "\na</answe"),
            ("<answer>a</answer>b</answer>", "ab</answer>"),
            ("a <answer>b</answer>", "a <answer>b</answer>"),
            (" <answe", " <answe"),
            ("\n", "\n"),
            ("a</answer>", "a</answer>"),
        ] {
            assert_eq!(read([text]), answer, "{text:?}");
            assert_eq!(read(text.split_inclusive(|_: char| true)), answer, "{text:?}");
        }
    }
}
