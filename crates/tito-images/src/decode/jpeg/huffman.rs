//! Huffman codes.

use super::{bits::Bits, broken};
use crate::error::ImageError;

/// Bits of codes that are looked up at once.
const SHORT: u32 = 9;

/// The codes of a table.
pub(super) struct Huffman {
    /// For the next `SHORT` bits, the length of the code that they begin with, and its symbol. Zero if it is longer.
    short: Vec<(u8, u8)>,
    /// For each length from 1 on: the first number that is no code of this length any more, and what makes a code an index
    /// of `symbols`.
    long: [(u32, i32); 16],
    symbols: Vec<u8>,
}

impl Huffman {
    /// Of how many codes have each length, and of their symbols in order. None if there are more codes than a length has.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Option<Self> {
        if symbols.len() > 256 {
            return None;
        }
        let mut table = Self { short: vec![(0, 0); 1 << SHORT], long: [(0, 0); 16], symbols: symbols.to_vec() };
        let (mut code, mut index) = (0_u32, 0_usize);
        for (length, &count) in (1..).zip(counts) {
            table.long[length as usize - 1].1 = index as i32 - code as i32;
            for &symbol in &symbols[index..index + usize::from(count)] {
                // As in libjpeg, a code may be all ones.
                if code >> length != 0 {
                    return None;
                }
                if length <= SHORT {
                    let first = (code << (SHORT - length)) as usize;
                    table.short[first..first + (1 << (SHORT - length))].fill((length as u8, symbol));
                }
                code += 1;
                index += 1;
            }
            table.long[length as usize - 1].0 = code;
            code <<= 1;
        }
        Some(table)
    }

    /// Whether all symbols are at most `most`.
    pub(super) fn within(&self, most: u8) -> bool {
        self.symbols.iter().all(|&symbol| symbol <= most)
    }

    /// The symbol of the next code.
    pub(super) fn next(&self, bits: &mut Bits<'_>) -> Result<u8, ImageError> {
        let next = bits.peek_16();
        let (length, symbol) = self.short[(next >> (16 - SHORT)) as usize];
        if length > 0 {
            bits.skip(u32::from(length))?;
            return Ok(symbol);
        }
        for length in SHORT + 1..=16 {
            let code = next >> (16 - length);
            let (end, to_index) = self.long[length as usize - 1];
            if code < end {
                bits.skip(length)?;
                let symbol = usize::try_from(code as i32 + to_index).ok().and_then(|index| self.symbols.get(index));
                return symbol.copied().ok_or_else(|| broken("a Huffman code is wrong"));
            }
        }
        // What follows may be less than a code, because the file ends.
        bits.skip(16)?;
        Err(broken("a Huffman code is wrong"))
    }
}
