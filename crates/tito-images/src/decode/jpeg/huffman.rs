//! Huffman codes.

use super::{bits::Bits, broken};
use crate::error::ImageError;

/// Bits of codes that are looked up at once.
pub(super) const SHORT: u32 = 11;

/// The codes of a table.
pub(super) struct Huffman {
    /// For the next `SHORT` bits, the length of the code that they begin with, and its symbol. Zero if it is longer.
    short: Vec<(u8, u8)>,
    /// For each length from 1 on: the first number that is no code of this length any more, and what is added to a code,
    /// modulo 2^32, to get an index of `symbols`.
    long: [(u32, u32); 16],
    symbols: Vec<u8>,
    /// Whether a code is all ones, which none may be.
    has_all_ones: bool,
}

impl Huffman {
    /// Of how many codes have each length, and of their symbols in order. None if there are more codes than a length has.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Option<Self> {
        if symbols.len() > 256 {
            return None;
        }
        let mut table = Self {
            short: vec![(0, 0); 1 << SHORT],
            long: [(0, 0); 16],
            symbols: symbols.to_vec(),
            has_all_ones: false,
        };
        let (mut code, mut index) = (0_u32, 0_u16);
        for (length, &count) in (1_u8..).zip(counts) {
            let long = &mut table.long[usize::from(length) - 1];
            long.1 = u32::from(index).wrapping_sub(code);
            for &symbol in &symbols[usize::from(index)..usize::from(index) + usize::from(count)] {
                if code >> length != 0 {
                    return None;
                }
                if let Some(rest) = SHORT.checked_sub(length.into()) {
                    let first = (code << rest) as usize;
                    table.short[first..first + (1 << rest)].fill((length, symbol));
                }
                code += 1;
                index += 1;
                table.has_all_ones |= code >> length != 0;
            }
            long.0 = code;
            code <<= 1;
        }
        Some(table)
    }

    /// Whether all symbols are at most `most`.
    pub(super) fn within(&self, most: u8) -> bool {
        self.symbols.iter().all(|&symbol| symbol <= most)
    }

    /// Whether a code is all ones. libjpeg refuses that once a scan uses the table.
    pub(super) fn has_all_ones(&self) -> bool {
        self.has_all_ones
    }

    /// The length of the code that these `SHORT` bits begin with, and its symbol. The length is zero if the code is longer.
    pub(super) fn short(&self, bits: u32) -> (u8, u8) {
        self.short[bits as usize]
    }

    /// The symbol of the next code.
    #[inline]
    pub(super) fn next(&self, bits: &mut Bits<'_>) -> Result<u8, ImageError> {
        let next = bits.peek_16();
        let (length, symbol) = self.short[(next >> (16 - SHORT)) as usize];
        if length > 0 {
            bits.skip(u32::from(length))?;
            return Ok(symbol);
        }
        self.next_long(bits, next)
    }

    #[inline(never)]
    fn next_long(&self, bits: &mut Bits<'_>, next: u32) -> Result<u8, ImageError> {
        for length in SHORT + 1..=16 {
            let code = next >> (16 - length);
            let (end, to_index) = self.long[length as usize - 1];
            if code < end {
                bits.skip(length)?;
                let symbol = self.symbols.get(code.wrapping_add(to_index) as usize);
                return symbol.copied().ok_or_else(|| broken("a Huffman code is wrong"));
            }
        }
        // What follows may be less than a code, because the file ends.
        bits.skip(16)?;
        Err(broken("a Huffman code is wrong"))
    }
}
