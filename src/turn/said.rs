//! What a client said, without the files of images: each of them is kept once, and not in every turn that names it.

use std::{collections::HashMap, ops::Range, sync::Arc};

use serde_json::value::RawValue;

use crate::{
    images::ImageIdentity,
    json::{Document, Items, Node, NodeKind},
    trajectory::Said,
};

/// Stands in front of an identity in the place of a file.
const NAME: &str = "tito-image:";
/// The keys under which dialects have the file of an image, in base64 or in a `data:` URL.
const KEYS: [&str; 3] = ["url", "image_url", "data"];

/// The files that a request has in base64, by their hashes.
#[derive(Debug, Default)]
pub(super) struct SentFiles(HashMap<blake3::Hash, ImageIdentity>);

impl SentFiles {
    /// Knows the image of a URL, if the URL is its file.
    pub(super) fn add(&mut self, url: blake3::Hash, identity: ImageIdentity) {
        self.0.insert(url, identity);
    }

    /// The hash of the file that a URL has in base64; `None` for other URLs.
    pub(super) fn hash(url: &str) -> Option<blake3::Hash> {
        let scheme = url.get(..5)?;
        let (_, file) = url.split_once(',')?;
        scheme.eq_ignore_ascii_case("data:").then(|| blake3::hash(file.as_bytes()))
    }

    /// What was said, with `tito-image:` and the identity in the place of each file that was read as an image.
    pub(super) fn taken_from(&self, mut said: Said) -> Said {
        if !self.0.is_empty() {
            for item in &mut said.items {
                self.take(item);
            }
        }
        said
    }

    fn take(&self, item: &mut Arc<RawValue>) {
        let text = item.get();
        let mut found = Vec::new();
        if let Ok(document) = Document::parse(text) {
            self.find(text, &document.root, &mut found);
        }
        if found.is_empty() {
            return;
        }
        found.sort_unstable_by_key(|(range, _)| range.start);
        let (mut written, mut from) = (String::new(), 0);
        for (range, identity) in found {
            written.push_str(&text[from..range.start]);
            written.push_str(&[r#"""#, NAME, &identity.to_string(), r#"""#].concat());
            from = range.end;
        }
        written.push_str(&text[from..]);
        if let Ok(written) = RawValue::from_string(written) {
            *item = written.into();
        }
    }

    /// Finds the strings that are files of images, by their places in the text.
    fn find(&self, text: &str, node: &Node<'_>, found: &mut Vec<(Range<usize>, ImageIdentity)>) {
        match &node.kind {
            NodeKind::Object(entries) => {
                for (key, value) in entries {
                    match &value.kind {
                        NodeKind::String(string) if KEYS.contains(&key.as_str()) => {
                            found.extend(self.place(text, value.text, string));
                        }
                        _ => self.find(text, value, found),
                    }
                }
            }
            NodeKind::List(Items::Nodes(nodes)) => {
                for node in nodes {
                    self.find(text, node, found);
                }
            }
            _ => {}
        }
    }

    fn place(&self, text: &str, written: &str, string: &str) -> Option<(Range<usize>, ImageIdentity)> {
        let hash = Self::hash(string).unwrap_or_else(|| blake3::hash(string.as_bytes()));
        let identity = *self.0.get(&hash)?;
        // A node points into its document.
        let start = written.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        let range = start..start + written.len();
        (text.get(range.clone()) == Some(written)).then_some((range, identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_read_is_named_and_all_else_stays_to_the_letter() {
        let identity = ImageIdentity::of(b"file", b"");
        let mut sent = SentFiles::default();
        sent.add(SentFiles::hash("data:image/png;base64,QUJD").unwrap(), identity);
        let item = r#"{"content" : [{"image_url": {"url": "data:image\/png;base64,QUJD", "detail":"low"}}, {"image_url":"DATA:;base64,QUJD"},
            {"source": {"type": "base64", "data" :"QUJD"}}, {"text": "data:image/png;base64,QUJD"}, {"url": "data:image/png;base64,QUJE"}]}"#;
        let said = Said { items: vec![RawValue::from_string(item.to_owned()).unwrap().into()], ..Said::default() };
        let named = format!("\"tito-image:{identity}\"");
        let expected = item
            .replacen(r#""data:image\/png;base64,QUJD""#, &named, 1)
            .replace(r#""DATA:;base64,QUJD""#, &named)
            .replace(r#""QUJD""#, &named);
        assert_eq!(sent.taken_from(said).items[0].get(), expected);
    }
}
