//! The bits of a scan.

use super::{broken, header};
use crate::error::ImageError;

/// Bits up to the next marker, the highest of each byte first.
pub(super) struct Bits<'a> {
    rest: &'a [u8],
    /// The next `held` bits, from the highest on; zeros after them.
    buffer: u64,
    held: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest, buffer: 0, held: 0 }
    }

    /// What follows, from a place before the next marker on.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn fill(&mut self) {
        while self.held <= 56 {
            let Some((&byte, mut rest)) = self.rest.split_first() else { return };
            if byte == 0xff {
                let Some(place) = rest.iter().position(|&byte| byte != 0xff) else { return };
                if rest[place] != 0 {
                    return;
                }
                rest = &rest[place + 1..];
            }
            self.rest = rest;
            self.buffer |= u64::from(byte) << (56 - self.held);
            self.held += 8;
        }
    }

    /// The next 16 bits; zeros for those that are missing.
    pub(super) fn peek_16(&mut self) -> u32 {
        if self.held < 16 {
            self.fill();
        }
        (self.buffer >> 48) as u32
    }

    /// Passes over at most 16 bits.
    pub(super) fn skip(&mut self, count: u32) -> Result<(), ImageError> {
        if self.held < count {
            self.fill();
        }
        if self.held < count {
            // A marker comes too early, or there is none.
            let mut rest = self.rest;
            header::next_marker(&mut rest)?;
            return Err(broken("a scan is shorter than its image"));
        }
        self.buffer <<= count;
        self.held -= count;
        Ok(())
    }

    /// The number of the next `count` bits, at most 16.
    pub(super) fn take(&mut self, count: u32) -> Result<u32, ImageError> {
        if count == 0 {
            return Ok(0);
        }
        let number = self.peek_16() >> (16 - count);
        self.skip(count)?;
        Ok(number)
    }

    /// The signed number of the next `count` bits: those that begin with a zero are negative (T.81, figure F.12).
    pub(super) fn take_signed(&mut self, count: u32) -> Result<i32, ImageError> {
        let number = self.take(count)?.cast_signed();
        let negative = count > 0 && number < 1 << (count - 1);
        Ok(if negative { number - (1 << count) + 1 } else { number })
    }

    /// Goes on behind the restart marker that is the `count`th of the scan.
    pub(super) fn restart(&mut self, count: usize) -> Result<(), ImageError> {
        let mut rest = self.rest;
        let number = usize::from(header::next_marker(&mut rest)?).checked_sub(header::RESTART_0.into());
        if number != Some((count - 1) % 8) {
            return Err(broken("a restart marker is missing"));
        }
        *self = Self::new(rest);
        Ok(())
    }
}
