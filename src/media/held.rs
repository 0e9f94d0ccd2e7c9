//! The memory of images that requests wait or run with, which a client could otherwise fill.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::MediaError;
use crate::images::{ImageIdentity, PreparedImage};

/// Counts the bytes of all images that requests hold; the same image counts once.
#[derive(Debug)]
pub(super) struct HeldImages {
    most: u64,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    bytes: u64,
    /// How many requests hold each image.
    of: HashMap<ImageIdentity, usize>,
}

/// The images of a request, which are held until it is dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<HeldImages>,
    images: Vec<(ImageIdentity, u64)>,
    /// What else is held.
    bytes: u64,
}

impl HeldImages {
    /// Holds at most so many bytes.
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, holders: Mutex::default() })
    }

    /// Holds images, or none of them if there is no room.
    pub(super) fn hold<'i>(
        self: &Arc<Self>,
        images: impl IntoIterator<Item = &'i PreparedImage>,
    ) -> Result<Hold, MediaError> {
        let mut hold = Hold { held: Arc::clone(self), images: Vec::new(), bytes: 0 };
        for image in images {
            let (identity, bytes) = (image.identity(), image.bytes() as u64);
            let mut holders = self.holders.lock();
            let is_new = !holders.of.contains_key(&identity);
            if is_new && holders.bytes.saturating_add(bytes) > self.most {
                // What is held so far is let go when `hold` is dropped, which locks again.
                drop(holders);
                return Err(MediaError::ImagesHeld { most: self.most });
            }
            if is_new {
                holders.bytes += bytes;
            }
            *holders.of.entry(identity).or_default() += 1;
            drop(holders);
            hold.images.push((identity, bytes));
        }
        Ok(hold)
    }

    /// Holds memory for what is made of images.
    pub(super) fn hold_bytes(self: &Arc<Self>, bytes: u64) -> Result<Hold, MediaError> {
        if bytes > self.most {
            return Err(MediaError::TensorsTooLarge { bytes, most: self.most });
        }
        let mut holders = self.holders.lock();
        if holders.bytes.saturating_add(bytes) > self.most {
            return Err(MediaError::ImagesHeld { most: self.most });
        }
        holders.bytes += bytes;
        Ok(Hold { held: Arc::clone(self), images: Vec::new(), bytes })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holders = self.held.holders.lock();
        holders.bytes -= self.bytes;
        for (identity, bytes) in &self.images {
            let left = holders.of.get_mut(identity).map(|count| {
                *count -= 1;
                *count
            });
            if left == Some(0) {
                holders.of.remove(identity);
                holders.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{Grid, Layout, Normalisation, PatchShape};

    /// An image of 12 bytes.
    fn image(number: u8) -> PreparedImage {
        let shape = PatchShape { side: 2, merge: 1, frames: 1, layout: Layout::Plain };
        let normalisation = Normalisation { mean: [0.5; 3], std: [0.5; 3] };
        let grid = Grid { rows: 1, columns: 1 };
        PreparedImage::new(ImageIdentity::of(&[number], &[]), grid, shape, normalisation, Arc::from([number; 12]))
    }

    #[test]
    fn an_image_counts_once_and_until_nobody_holds_it() {
        let held = HeldImages::new(24);
        let first = held.hold(&[image(1), image(2)]).unwrap();
        let again = held.hold(&[image(1), image(1)]).unwrap();
        assert!(matches!(held.hold(&[image(3)]), Err(MediaError::ImagesHeld { most: 24 })));
        drop(first);
        // Nothing is held by a request that was refused.
        assert!(held.hold(&[image(3), image(4)]).is_err());
        let other = held.hold(&[image(3)]).unwrap();
        drop((again, other));
        let holders = held.holders.lock();
        assert_eq!((holders.bytes, holders.of.len()), (0, 0));
        drop(holders);
        assert!(held.hold(&[image(5), image(6)]).is_ok());
    }

    #[test]
    fn memory_for_tensors_is_part_of_the_same_bound() {
        let held = HeldImages::new(24);
        assert!(matches!(held.hold_bytes(25), Err(MediaError::TensorsTooLarge { bytes: 25, most: 24 })));
        let image_and_tensors = (held.hold(&[image(1)]).unwrap(), held.hold_bytes(12).unwrap());
        assert!(matches!(held.hold_bytes(1), Err(MediaError::ImagesHeld { most: 24 })));
        assert!(held.hold(&[image(2)]).is_err());
        drop(image_and_tensors);
        assert!(held.hold_bytes(24).is_ok());
    }
}
