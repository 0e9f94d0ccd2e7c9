//! The images of prompts: where they stand, what identifies them, and their files.
//!
//! A turn keeps the images that its prompt adds to those of the turn before. A file is a record of its own, which all turns
//! share that have the image, and which leaves with the last of them. A file that comes again after it has left gets another
//! key: a record that is still to be deleted is never one that a new turn needs.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

/// An image of a prompt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ImageUsed {
    /// A hash of its file and of the settings of the processor, in 64 hexadecimal digits.
    pub identity: Arc<str>,
    /// The position of its first placeholder in the whole prompt.
    pub offset: usize,
    /// How many placeholders it has.
    pub length: usize,
    /// Rows of patches.
    pub rows: usize,
    /// Columns of patches.
    pub columns: usize,
    /// The length of its file in bytes; `None` where the file is not kept.
    pub file_bytes: Option<u64>,
    /// The file, where it is to be kept. A record that is read does not have it here: [`Trajectories::image_file`](super::Trajectories::image_file) reads it.
    #[serde(skip)]
    pub file: Option<Arc<[u8]>>,
}

impl ImageUsed {
    /// The position behind its last placeholder.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.length)
    }

    /// Whether it is the same image at the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.identity, self.offset, self.length) == (&other.identity, other.offset, other.length)
    }
}

/// Says why images cannot be those that a prompt adds, whose ids begin and end at these positions.
pub(super) fn check(images: &[ImageUsed], start: usize, end: usize) -> Result<(), &'static str> {
    let mut from = start;
    for image in images {
        let is_hash = image.identity.len() == 64 && image.identity.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_hash || image.length == 0 || image.offset < from || image.end() > end {
            return Err("has an image that is none of its prompt");
        }
        from = image.end();
    }
    Ok(())
}

/// What a record of a file takes besides its bytes, in quarters of what [`most_stored`](super::weight::most_stored) counts for
/// each record.
const RECORD: u64 = 250;

/// The most bytes of files that turns with these images need.
pub(super) fn file_bytes(images: &[ImageUsed]) -> u64 {
    images.iter().filter_map(|image| image.file_bytes).map(|bytes| bytes.saturating_add(RECORD)).sum()
}

/// The files of images that turns have.
#[derive(Debug, Default)]
pub(super) struct KeptImages(HashMap<Arc<str>, KeptImage>);

#[derive(Debug)]
struct KeptImage {
    key: String,
    turns: usize,
    is_written: bool,
}

/// The images of one turn.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Those whose files it keeps, each once.
    pub(super) images: Box<[Arc<str>]>,
    /// The files that are to be written with it, by the keys of their records.
    pub(super) new: Vec<(String, Arc<[u8]>)>,
}

/// What the key of a record of a file begins with.
pub(super) const PREFIX: &str = "image ";

fn key_of(number: u64, identity: &str) -> String {
    format!("{PREFIX}{number:016x} {identity}")
}

/// The number and the identity that a key says.
pub(super) fn parts_of(key: &str) -> Option<(u64, &str)> {
    let (number, identity) = key.strip_prefix(PREFIX)?.split_once(' ')?;
    Some((u64::from_str_radix(number, 16).ok()?, identity))
}

impl KeptImages {
    /// Knows a file that an earlier process wrote; returns false if there is another one of the image.
    pub(super) fn know(&mut self, identity: &str, key: &str) -> bool {
        if self.0.contains_key(identity) {
            return false;
        }
        let kept = KeptImage { key: key.to_owned(), turns: 0, is_written: true };
        self.0.insert(identity.into(), kept);
        true
    }

    /// Holds the files of a turn that is to be written, or was. `number` is for the records of new ones.
    pub(super) fn hold(&mut self, images: &[ImageUsed], mut number: impl FnMut() -> u64) -> Holding {
        let mut holding = Holding::default();
        let mut held: Vec<Arc<str>> = Vec::new();
        for image in images {
            if held.contains(&image.identity) {
                continue;
            }
            if !self.0.contains_key(&image.identity) {
                if image.file.is_none() {
                    continue;
                }
                let kept = KeptImage { key: key_of(number(), &image.identity), turns: 0, is_written: false };
                self.0.insert(Arc::clone(&image.identity), kept);
            }
            let Some(kept) = self.0.get_mut(&image.identity) else { continue };
            // Another turn may be writing it, and may fail.
            match (&image.file, kept.is_written) {
                (Some(file), false) => holding.new.push((kept.key.clone(), Arc::clone(file))),
                (None, false) => continue,
                (_, true) => {}
            }
            kept.turns += 1;
            held.push(Arc::clone(&image.identity));
        }
        holding.images = held.into();
        holding
    }

    /// Marks the files of a turn as written.
    pub(super) fn written(&mut self, images: &[Arc<str>]) {
        for identity in images {
            if let Some(kept) = self.0.get_mut(identity) {
                kept.is_written = true;
            }
        }
    }

    /// Lets go of the files of a turn; adds the keys of those that no turn has any more to `gone`.
    pub(super) fn release(&mut self, images: &[Arc<str>], gone: &mut Vec<String>) {
        for identity in images {
            let Some(kept) = self.0.get_mut(identity) else { continue };
            kept.turns -= 1;
            if kept.turns == 0
                && let Some(kept) = self.0.remove(identity)
            {
                gone.push(kept.key);
            }
        }
    }

    /// Forgets the files that no turn has; adds their keys to `gone`.
    pub(super) fn forget_unused(&mut self, gone: &mut Vec<String>) {
        gone.extend(self.0.extract_if(|_, kept| kept.turns == 0).map(|(_, kept)| kept.key));
    }

    /// The key of an image's file.
    pub(super) fn key(&self, identity: &str) -> Option<&str> {
        self.0.get(identity).map(|kept| kept.key.as_str())
    }
}
