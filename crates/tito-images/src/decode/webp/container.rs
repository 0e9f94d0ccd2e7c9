//! The RIFF container of a WebP file, as libwebp's demuxer reads it, which Pillow uses. It is stricter than the decoder is:
//! chunks must fill the RIFF, and what stands behind it does not count.

use std::borrow::Cow;

use super::{super::orientation::Metadata, KIND};
use crate::error::ImageError;

/// The flags in the first byte of `VP8X`.
const ANIMATED: u8 = 0x02;
const HAS_XMP: u8 = 0x04;
const HAS_EXIF: u8 = 0x08;
const HAS_ALPHA: u8 = 0x10;

/// The flag of a frame that replaces what is below it.
const NO_BLENDING: u8 = 0x02;

/// Where a frame's flags stand in the content of `ANMF`.
const FRAME_FLAGS: usize = 15;

/// Where the flags of `VP8X` stand in a file, whose first chunk it must be.
const FLAGS: usize = 20;

/// What may make a picture. It stands together, and only once.
const PICTURES: [&[&[u8; 4]]; 3] = [&[b"VP8 "], &[b"ALPH", b"VP8 "], &[b"VP8L"]];

/// A file that begins with RIFF and WEBP, without what stands behind its declared end.
#[derive(Clone, Copy)]
pub(super) struct Container<'a>(&'a [u8]);

/// A chunk.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a> {
    pub(super) name: &'a [u8; 4],
    pub(super) content: &'a [u8],
    /// Where the content begins, counted from the beginning of the chunks that were read.
    start: usize,
    /// Where the next chunk begins, which may be behind the end of the file.
    end: usize,
}

impl<'a> Container<'a> {
    pub(super) fn read(encoded: &'a [u8]) -> Result<Self, ImageError> {
        let length = encoded.get(4..).and_then(<[u8]>::first_chunk).ok_or(ImageError::Truncated)?;
        let end = (u32::from_le_bytes(*length) as usize).saturating_add(8);
        let container = Self(encoded.get(..end).ok_or(ImageError::Truncated)?);
        container.check_chunks()?;
        Ok(container)
    }

    /// All chunks.
    pub(super) fn chunks(self) -> impl Iterator<Item = Chunk<'a>> {
        chunks(self.0.get(12..).unwrap_or_default())
    }

    /// EXIF and XMP data, where `VP8X` announces them.
    pub(super) fn metadata(self) -> Metadata {
        let announced = |flag, name| {
            let chunk = self.chunks().find(|chunk| self.flags() & flag != 0 && chunk.name == name)?;
            Some(chunk.content.to_vec())
        };
        Metadata { exif: announced(HAS_EXIF, b"EXIF"), xmp: announced(HAS_XMP, b"XMP ") }
    }

    /// The file for the decoder, which goes wrong with what is put right here. It blends the first frame of an animation with
    /// nothing, and so makes each channel one less. And it asks `VP8X` whether a still image has alpha, where libwebp asks
    /// the picture.
    pub(super) fn for_decoder(self) -> Cow<'a, [u8]> {
        let mut file = Cow::Borrowed(self.0);
        if self.flags() & ANIMATED != 0 {
            let frame = self.chunks().find(|chunk| chunk.name == b"ANMF");
            if let Some(flags) = frame.and_then(|frame| file.to_mut().get_mut(12 + frame.start + FRAME_FLAGS)) {
                *flags |= NO_BLENDING;
            }
        } else if self.is_extended() && self.has_alpha() != (self.flags() & HAS_ALPHA != 0) {
            file.to_mut()[FLAGS] ^= HAS_ALPHA;
        }
        file
    }

    /// Whether the picture of a still image has alpha, in libwebp's view.
    fn has_alpha(self) -> bool {
        self.chunks().any(|chunk| match chunk.name {
            b"ALPH" => self.flags() & HAS_ALPHA != 0,
            // The bit behind the sizes, of 14 bits each, which stand after a byte of signature.
            b"VP8L" => chunk.content.get(4).is_some_and(|byte| byte & 0x10 != 0),
            _ => false,
        })
    }

    fn is_extended(self) -> bool {
        self.chunks().next().is_some_and(|chunk| chunk.name == b"VP8X")
    }

    /// The flags of `VP8X`; none if it is missing.
    fn flags(self) -> u8 {
        self.0.get(FLAGS).copied().filter(|_| self.is_extended()).unwrap_or_default()
    }

    /// Refuses what libwebp refuses, though the decoder may not.
    fn check_chunks(self) -> Result<(), ImageError> {
        let mut all = self.chunks().collect::<Vec<_>>();
        if !self.is_extended() {
            // What follows the picture of a plain file is not looked at.
            all.truncate(1);
        }
        let length = self.0.len().saturating_sub(12);
        let end = all.last().map_or(0, |chunk| chunk.end);
        if end > length {
            return Err(ImageError::Truncated);
        }
        if self.is_extended() && end < length {
            return Err(ImageError::broken(KIND, "its chunks do not fill it"));
        }
        self.check_pictures(&all)
    }

    fn check_pictures(self, chunks: &[Chunk<'a>]) -> Result<(), ImageError> {
        let wrong = |what| Err(ImageError::broken(KIND, what));
        if self.flags() & ANIMATED == 0 {
            return if is_one_picture(chunks) {
                Ok(())
            } else {
                wrong("its picture is in pieces, or it has two of them")
            };
        }
        let place = |name| chunks.iter().position(|chunk| chunk.name == name);
        if chunks.iter().any(|chunk| is_picture(*chunk.name)) {
            return wrong("it is an animation and has a picture beside it");
        }
        let Some(frame) = place(b"ANMF").filter(|&frame| place(b"ANIM").is_some_and(|anim| anim < frame)) else {
            return wrong("it is said to be an animation and has none");
        };
        let parts = frame_chunks(&chunks[frame]).collect::<Vec<_>>();
        if parts.first().is_some_and(|part| is_picture(*part.name)) && is_one_picture(&parts) {
            return Ok(());
        }
        wrong("the picture of its first frame is in pieces, or it has two of them")
    }
}

/// The chunks in `ANMF`.
pub(super) fn frame_chunks<'a>(frame: &Chunk<'a>) -> impl Iterator<Item = Chunk<'a>> + use<'a> {
    chunks(frame.content.get(16..).unwrap_or_default())
}

fn chunks(bytes: &[u8]) -> impl Iterator<Item = Chunk<'_>> {
    let mut place = 0;
    std::iter::from_fn(move || {
        let (name, after) = bytes.get(place..)?.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let start = place + 8;
        place = start.saturating_add(length).saturating_add(length % 2);
        Some(Chunk { name, content: &after[..length.min(after.len())], start, end: place })
    })
}

fn is_picture(name: [u8; 4]) -> bool {
    PICTURES.iter().any(|picture| picture.contains(&&name))
}

/// Whether what makes a picture among these chunks stands together and makes one.
fn is_one_picture(chunks: &[Chunk<'_>]) -> bool {
    let names = chunks.iter().map(|chunk| chunk.name).collect::<Vec<_>>();
    let first = names.iter().position(|name| is_picture(**name)).unwrap_or_default();
    let last = names.iter().rposition(|name| is_picture(**name)).unwrap_or_default();
    names.get(first..=last).is_some_and(|names| PICTURES.contains(&names))
}
