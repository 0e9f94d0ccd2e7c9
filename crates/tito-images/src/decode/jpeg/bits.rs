//! The bits of a scan.

use super::{broken, header};
use crate::error::ImageError;

/// Bits up to the next marker, the highest of each byte first.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    rest: &'a [u8],
    /// The next `held` bits, from the highest on. Those after them are zeros, or bits of the byte that comes next.
    buffer: u64,
    /// At most 63.
    held: u32,
}

/// As many bits are held after [`Bits::filled`], unless the scan ends.
const FULL: u32 = 56;

/// A code and the number after it are no longer.
const SYMBOL: u32 = 32;

impl<'a> Bits<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest, buffer: 0, held: 0 }
    }

    /// What follows, from a place before the next marker on.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// With at least [`FULL`] bits, where the scan has them.
    #[inline]
    fn filled(self) -> Self {
        let Self { rest, buffer, held } = self;
        if let Some(bytes) = rest.first_chunk() {
            let word = u64::from_be_bytes(*bytes);
            if !has_all_ones(word) {
                let taken = (63 - held) / 8;
                return Self { rest: &rest[taken as usize..], buffer: buffer | word >> held, held: held | FULL };
            }
        }
        let (rest, buffer, held) = filled_by_bytes(rest, buffer, held);
        Self { rest, buffer, held }
    }

    /// With enough bits for a code and the number after it, where the scan has them.
    #[inline]
    pub(super) fn with_a_symbol(self) -> Self {
        if self.held < SYMBOL { self.filled() } else { self }
    }

    /// The next bits, from the highest on, of which only those count that are [`held`](Self::held).
    #[inline]
    pub(super) fn buffer(&self) -> u64 {
        self.buffer
    }

    /// How many of the next bits are at hand.
    #[inline]
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// The signed number in the last `size` of the next `length` bits. There is one at least, and so many are held.
    #[inline]
    pub(super) fn number(&self, length: u32, size: u32) -> i32 {
        let number = (self.buffer << (length - size)) >> 32;
        signed(number as u32 >> (32 - size), size)
    }

    /// Behind `count` bits, of which so many are held.
    #[inline]
    pub(super) fn behind(self, count: u32) -> Self {
        Self { buffer: self.buffer << count, held: self.held - count, ..self }
    }

    /// The next 16 bits; zeros for those that are missing.
    #[inline]
    pub(super) fn peek_16(&mut self) -> u32 {
        if self.held < 16 {
            *self = self.filled();
        }
        (self.buffer >> 48) as u32
    }

    /// Passes over at most 16 bits.
    #[inline]
    pub(super) fn skip(&mut self, count: u32) -> Result<(), ImageError> {
        if self.held < count {
            *self = self.filled();
            if self.held < count {
                return Err(self.too_short());
            }
        }
        *self = self.behind(count);
        Ok(())
    }

    /// A marker comes too early, or there is none.
    #[cold]
    fn too_short(self) -> ImageError {
        let mut rest = self.rest;
        header::next_marker(&mut rest).err().unwrap_or_else(|| broken("a scan is shorter than its image"))
    }

    /// The number of the next `count` bits, at most 16.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Result<u32, ImageError> {
        if count == 0 {
            return Ok(0);
        }
        let number = self.peek_16() >> (16 - count);
        self.skip(count)?;
        Ok(number)
    }

    /// The signed number of the next `count` bits.
    #[inline]
    pub(super) fn take_signed(&mut self, count: u32) -> Result<i32, ImageError> {
        Ok(signed(self.take(count)?, count))
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

/// What `number`, written in `count` bits, stands for: those that begin with a zero are negative (T.81, figure F.12).
#[inline]
pub(super) fn signed(number: u32, count: u32) -> i32 {
    let number = number.cast_signed();
    let negative = number < (1 << count) >> 1;
    if negative { number - (1 << count) + 1 } else { number }
}

/// Whether a byte of `word` is 0xff.
#[inline]
fn has_all_ones(word: u64) -> bool {
    const LOWEST: u64 = u64::MAX / 0xff;
    (!word).wrapping_sub(LOWEST) & word & (LOWEST << 7) != 0
}

/// The fields of [`Bits::filled`], which stay in registers in this way.
#[inline(never)]
fn filled_by_bytes(mut rest: &[u8], mut buffer: u64, mut held: u32) -> (&[u8], u64, u32) {
    while held < FULL {
        let Some((&byte, mut after)) = rest.split_first() else { break };
        if byte == 0xff {
            let Some(place) = after.iter().position(|&byte| byte != 0xff) else { break };
            if after[place] != 0 {
                break;
            }
            after = &after[place + 1..];
        }
        rest = after;
        buffer |= u64::from(byte) << (FULL - held);
        held += 8;
    }
    (rest, buffer, held)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Bits;

    /// The bits up to the first marker, one by one.
    fn one_by_one(mut bytes: &[u8]) -> Vec<u32> {
        let mut bits = Vec::new();
        while let Some((&byte, mut rest)) = bytes.split_first() {
            if byte == 0xff {
                let Some(place) = rest.iter().position(|&byte| byte != 0xff).filter(|&place| rest[place] == 0) else {
                    break;
                };
                rest = &rest[place + 1..];
            }
            bits.extend((0..8).rev().map(|place| u32::from(byte >> place & 1)));
            bytes = rest;
        }
        bits
    }

    proptest! {
        #[test]
        fn bits_are_read_in_their_order_up_to_a_marker(
            bytes in prop::collection::vec(prop_oneof![20 => any::<u8>(), 2 => Just(0xff), 2 => Just(0)], 0..200),
            counts in prop::collection::vec(0_u32..=16, 300),
        ) {
            let expected = one_by_one(&bytes);
            let (mut bits, mut place) = (Bits::new(&bytes), 0);
            for (index, count) in counts.into_iter().enumerate() {
                if index % 3 == 0 {
                    bits = bits.with_a_symbol();
                }
                let next = expected.get(place..place + count as usize);
                let number = next.map(|bits| bits.iter().fold(0, |number, bit| number << 1 | bit));
                prop_assert_eq!(bits.take(count).ok(), number);
                if number.is_none() {
                    break;
                }
                place += count as usize;
            }
        }
    }
}
