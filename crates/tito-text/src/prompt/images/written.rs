//! An image as a template writes it, where that is less than what the model reads.

/// What a template writes for an image, and what is to be encoded in its place. Newlines beside an image may be one token with
/// those of the text around it, so this is done before a text is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::prompt) struct WrittenImage {
    written: String,
    whole: String,
}

impl WrittenImage {
    /// All marks, with one placeholder, for the first one alone.
    pub(super) fn new(opens: &str, placeholder: &str, closes: &str) -> Self {
        Self { written: opens.to_owned(), whole: format!("\n\n{opens}{placeholder}{closes}\n\n") }
    }

    /// A text of a template with whole images.
    pub(in crate::prompt) fn whole_in(&self, text: String) -> String {
        if text.contains(&self.written) { text.replace(&self.written, &self.whole) } else { text }
    }
}
