//! Segments, and the tables in them.

use super::{broken, huffman::Huffman};
use crate::error::ImageError;

pub(super) const BASELINE: u8 = 0xc0;
pub(super) const EXTENDED: u8 = 0xc1;
pub(super) const PROGRESSIVE: u8 = 0xc2;
pub(super) const HUFFMAN: u8 = 0xc4;
pub(super) const RESTART_0: u8 = 0xd0;
const START_OF_IMAGE: u8 = 0xd8;
pub(super) const END_OF_IMAGE: u8 = 0xd9;
pub(super) const START_OF_SCAN: u8 = 0xda;
pub(super) const QUANTISATION: u8 = 0xdb;
pub(super) const RESTART_INTERVAL: u8 = 0xdd;
pub(super) const APP0: u8 = 0xe0;
pub(super) const APP1: u8 = 0xe1;
pub(super) const APP14: u8 = 0xee;
const LAST_APP: u8 = 0xef;
const COMMENT: u8 = 0xfe;

/// Where the coefficients of a block stand, row by row, in the order in which a file has them.
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// The segments of a file one after the other.
pub(super) struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    /// Of a file whose first two bytes say that it is one.
    pub(super) fn after_start(encoded: &'a [u8]) -> Self {
        Self { rest: encoded.get(2..).unwrap_or_default() }
    }

    /// The marker of the next segment and what it holds. Bytes between segments are passed over.
    pub(super) fn next(&mut self) -> Result<(u8, &'a [u8]), ImageError> {
        loop {
            let marker = next_marker(&mut self.rest)?;
            match marker {
                END_OF_IMAGE => return Ok((marker, &[])),
                // Restarts and TEM hold nothing.
                RESTART_0..START_OF_IMAGE | 0x01 => {}
                START_OF_IMAGE => return Err(broken("it has two beginnings")),
                0xc0..=0xcf | START_OF_SCAN..=RESTART_INTERVAL | APP0..=LAST_APP | COMMENT => {
                    return Ok((marker, self.content()?));
                }
                // A scan may stand behind it. libjpeg gives up here, too.
                _ => return Err(broken("it has an unknown marker")),
            }
        }
    }

    fn content(&mut self) -> Result<&'a [u8], ImageError> {
        let length = self.rest.first_chunk().ok_or(ImageError::Truncated)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let segment = self.rest.split_at_checked(length).ok_or(ImageError::Truncated)?;
        self.rest = segment.1;
        segment.0.get(2..).ok_or_else(|| broken("a segment is shorter than its length"))
    }

    /// What follows the segment.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Goes on there.
    pub(super) fn go_on(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }
}

/// The next marker; `bytes` is what follows it.
pub(super) fn next_marker(bytes: &mut &[u8]) -> Result<u8, ImageError> {
    loop {
        let start = bytes.iter().position(|&byte| byte == 0xff).ok_or(ImageError::Truncated)?;
        let after = &bytes[start..];
        let place = after.iter().position(|&byte| byte != 0xff).ok_or(ImageError::Truncated)?;
        *bytes = &after[place + 1..];
        if after[place] != 0 {
            return Ok(after[place]);
        }
    }
}

/// What scans are read with. Later tables replace earlier ones.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) quantisation: [Option<[u16; 64]>; 4],
    pub(super) dc: [Option<Huffman>; 4],
    pub(super) ac: [Option<Huffman>; 4],
    /// MCUs between two restarts; none if zero.
    pub(super) restart_interval: usize,
}

impl Tables {
    pub(super) fn read_quantisation(&mut self, mut content: &[u8]) -> Result<(), ImageError> {
        let wrong = || broken("a quantisation table is wrong");
        while let Some((&head, rest)) = content.split_first() {
            let width = 1 + usize::from(head >> 4);
            let slot = self.quantisation.get_mut(usize::from(head & 15)).ok_or_else(wrong)?;
            let (numbers, rest) = rest.split_at_checked(64 * width).filter(|_| width <= 2).ok_or_else(wrong)?;
            let mut table = [0; 64];
            for (number, &place) in numbers.chunks_exact(width).zip(&ZIGZAG) {
                table[usize::from(place)] = number.iter().fold(0, |number, &byte| number << 8 | u16::from(byte));
            }
            *slot = Some(table);
            content = rest;
        }
        Ok(())
    }

    pub(super) fn read_huffman(&mut self, mut content: &[u8]) -> Result<(), ImageError> {
        let wrong = || broken("a Huffman table is wrong");
        while let Some((&head, rest)) = content.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(wrong)?;
            let symbols = counts.iter().map(|&count| usize::from(count)).sum();
            let (symbols, rest) = rest.split_at_checked(symbols).ok_or_else(wrong)?;
            let tables = match head >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(wrong()),
            };
            let slot = tables.get_mut(usize::from(head & 15)).ok_or_else(wrong)?;
            *slot = Some(Huffman::new(counts, symbols).ok_or_else(wrong)?);
            content = rest;
        }
        Ok(())
    }

    pub(super) fn read_restart_interval(&mut self, content: &[u8]) -> Result<(), ImageError> {
        let &[high, low] = content else { return Err(broken("a restart interval is wrong")) };
        self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
        Ok(())
    }
}
