//! Patches: what has to be done to the bytes of a tensor.
//!
//! A patch is one frame of zstd. Unpacked, it is either as long as the tensor, to be combined with it by exclusive or; or
//! the number of bytes that change (32 bits, little-endian), their places (32 bits each) and what they become.

use std::io::{BufReader, Read};

use zstd::stream::read::Decoder;

use super::{digest::Hasher, payload::Section};
use crate::files;

/// The base-2 logarithm of the memory that a frame may need: as much as zstd itself grants where nothing is said.
const MOST_WINDOW_LOG: u32 = 27;
/// Bytes that are unpacked at a time.
const CHUNK: usize = 256 << 10;

/// What the unpacked bytes of a patch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// The old bytes, exclusive or the new ones.
    Xor,
    /// Places and new bytes.
    Overwrite,
}

impl Encoding {
    /// Makes the old bytes of a tensor the new ones, and takes their checksum. After an error, which is one sentence
    /// without a subject, the bytes are neither.
    pub(super) fn apply(self, packed: Section, bytes: &mut [u8], hasher: &mut Hasher) -> Result<(), String> {
        let mut unpacked = Unpacked::new(packed)?;
        match self {
            Self::Xor => apply_xor(&mut unpacked, bytes, hasher)?,
            Self::Overwrite => {
                overwrite(&mut unpacked, bytes)?;
                hasher.update(bytes);
            }
        }
        unpacked.finish()
    }
}

fn apply_xor(patch: &mut Unpacked, bytes: &mut [u8], hasher: &mut Hasher) -> Result<(), String> {
    for part in bytes.chunks_mut(CHUNK) {
        let chunk = patch.next(part.len())?;
        part.iter_mut().zip(chunk).for_each(|(byte, change)| *byte ^= change);
        hasher.update(part);
    }
    Ok(())
}

fn overwrite(patch: &mut Unpacked, bytes: &mut [u8]) -> Result<(), String> {
    let count = patch.next(4)?.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
    if count > bytes.len() {
        return Err(format!("changes {count} bytes of {}", bytes.len()));
    }
    let mut places: Vec<u32> = Vec::new();
    while places.len() < count {
        let chunk = patch.next((count - places.len()).min(CHUNK / 4) * 4)?.as_chunks().0;
        places.try_reserve(chunk.len()).map_err(|_| "needs more memory than there is".to_owned())?;
        places.extend(chunk.iter().map(|four| u32::from_le_bytes(*four)));
    }
    for places in places.chunks(CHUNK) {
        for (place, new) in places.iter().zip(patch.next(places.len())?) {
            let old = usize::try_from(*place).ok().and_then(|place| bytes.get_mut(place));
            *old.ok_or_else(|| format!("changes byte {place}, and there is none"))? = *new;
        }
    }
    Ok(())
}

/// A patch while it is unpacked, never more of it than is asked for.
struct Unpacked {
    decoder: Decoder<'static, BufReader<Section>>,
    chunk: Vec<u8>,
}

impl Unpacked {
    fn new(packed: Section) -> Result<Self, String> {
        let chunk = files::zeros(CHUNK).map_err(|_| "needs more memory than there is".to_owned())?;
        let mut decoder = Decoder::new(packed).map_err(wrong)?.single_frame();
        decoder.window_log_max(MOST_WINDOW_LOG).map_err(wrong)?;
        Ok(Self { decoder, chunk })
    }

    /// The next bytes, of which there are at most [`CHUNK`].
    fn next(&mut self, length: usize) -> Result<&[u8], String> {
        let chunk = &mut self.chunk[..length];
        self.decoder.read_exact(chunk).map_err(wrong)?;
        Ok(chunk)
    }

    /// Nothing may follow, neither in the frame nor after it.
    fn finish(mut self) -> Result<(), String> {
        if self.decoder.read(&mut self.chunk[..1]).map_err(wrong)? > 0 {
            return Err("goes on after the tensor's last byte".to_owned());
        }
        let packed = self.decoder.finish();
        match packed.buffer().len() as u64 + packed.get_ref().rest() {
            0 => Ok(()),
            more => Err(format!("has {more} bytes after its end")),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn wrong(error: std::io::Error) -> String {
    format!("cannot be unpacked: {error}")
}
