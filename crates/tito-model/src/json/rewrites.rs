//! Values that a reader sees otherwise than a client wrote them: each has a place in a document, and a text of its own.

use std::{borrow::Cow, ops::Range};

use super::Node;

/// One value, and what is read in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    place: Range<usize>,
    text: String,
}

/// The rewrites of one document.
#[derive(Debug, Clone, Default)]
pub struct Rewrites<'a> {
    text: &'a str,
    /// In the order of their places, which do not overlap.
    rewrites: Vec<Rewrite>,
}

impl Rewrite {
    /// `text`, which is `null`, `true`, `false` or a number, in the place that `node` has in a document's text.
    pub fn new(document: &str, node: &Node<'_>, text: String) -> Self {
        let start = offset(document, node);
        Self { place: start..start + node.text.len(), text }
    }
}

/// Where a node stands in its document's text.
fn offset(document: &str, node: &Node<'_>) -> usize {
    (node.text.as_ptr() as usize).wrapping_sub(document.as_ptr() as usize)
}

impl<'a> Rewrites<'a> {
    /// Those of the document with this text.
    pub fn new(text: &'a str, mut rewrites: Vec<Rewrite>) -> Self {
        rewrites.sort_by_key(|rewrite| rewrite.place.start);
        Self { text, rewrites }
    }

    /// Whether every value is read as it was written.
    pub fn is_empty(&self) -> bool {
        self.rewrites.is_empty()
    }

    /// Whether what stands at a place of the text is read otherwise.
    pub fn covers(&self, at: usize) -> bool {
        let after = self.rewrites.partition_point(|rewrite| rewrite.place.start <= at);
        after.checked_sub(1).is_some_and(|index| self.rewrites[index].place.end > at)
    }

    /// What is read in the place of a node.
    pub fn replacement(&self, node: &Node<'_>) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        let start = offset(self.text, node);
        let index = self.rewrites.binary_search_by_key(&start, |rewrite| rewrite.place.start).ok()?;
        Some(&self.rewrites[index]).filter(|rewrite| rewrite.place.len() == node.text.len()).map(|found| &*found.text)
    }

    /// The text of a node, what is rewritten in it spliced in.
    pub fn spliced<'n>(&self, node: &Node<'n>) -> Cow<'n, str> {
        let start = offset(self.text, node);
        let end = start.wrapping_add(node.text.len());
        let first = self.rewrites.partition_point(|rewrite| rewrite.place.start < start);
        let inner = self.rewrites[first..].iter().take_while(|rewrite| rewrite.place.end <= end);
        let (mut out, mut at) = (String::new(), start);
        for rewrite in inner {
            out.push_str(&self.text[at..rewrite.place.start]);
            out.push_str(&rewrite.text);
            at = rewrite.place.end;
        }
        if at == start && out.is_empty() {
            return Cow::Borrowed(node.text);
        }
        out.push_str(&self.text[at..end]);
        Cow::Owned(out)
    }
}
