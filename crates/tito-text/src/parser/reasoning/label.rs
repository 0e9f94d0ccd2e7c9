//! The label that reasoning begins with, such as the name of Gemma's channel: a part of the mark in front of it.

use crate::parser::marker;

/// Takes a label off the start of reasoning.
#[derive(Debug)]
pub(super) struct Label {
    label: &'static str,
    /// What may be the start of the label.
    held: String,
}

impl Label {
    pub(super) fn new(label: &'static str) -> Self {
        Self { label, held: String::new() }
    }

    /// What follows the label, or all of it where it is none; `None` where that is not known yet.
    pub(super) fn push(&mut self, text: &str) -> Option<String> {
        self.held.push_str(text);
        if self.held.len() < self.label.len() && self.label.starts_with(&self.held) {
            return None;
        }
        let held = std::mem::take(&mut self.held);
        Some(held.strip_prefix(self.label).map_or(held.clone(), str::to_owned))
    }

    /// What is left at the end of the reasoning: nothing where but white space is missing of the label.
    pub(super) fn finish(self) -> String {
        if self.held == marker::trim_end(self.label) { String::new() } else { self.held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_taken_off_and_what_nearly_is_one_is_kept() {
        let read = |pieces: &[&str]| {
            let mut label = Label::new("thought\n");
            match pieces.iter().find_map(|piece| label.push(piece)) {
                Some(text) => text,
                None => label.finish(),
            }
        };
        assert_eq!(read(&["thou", "ght", "\nso"]), "so");
        assert_eq!(read(&["thought\n"]), "");
        assert_eq!(read(&["thought"]), "");
        assert_eq!(read(&["though"]), "though");
        assert_eq!(read(&["thought", "s"]), "thoughts");
    }
}
