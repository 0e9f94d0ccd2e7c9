//! The tag of EXIF data that says how a camera was held, as Pillow's `Exif` and `ImageFileDirectory_v2` read it.

use std::collections::HashSet;

/// What stands before a TIFF directory.
pub(super) const PREFIX: &[u8] = b"Exif\0\0";

const ORIENTATION: u16 = 0x0112;

/// What the data say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// Pillow raises an error, which vLLM passes over.
    Unreadable,
    Missing,
    /// The number, or zero for a value that is no whole number.
    Number(u32),
}

/// The versions of Pillow, which do not read all data in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pillow {
    /// Drops all prefixes. Of several entries for a tag, the last counts.
    Twelve,
    /// Drops two prefixes. The first entry counts, and values are passed over once they are longer than all data.
    Thirteen,
}

/// The tag as this version of Pillow reads it.
pub(super) fn orientation(exif: &[u8], pillow: Pillow) -> Tag {
    let bytes = without_prefixes(exif, pillow);
    if bytes.is_empty() {
        return Tag::Missing;
    }
    let little = match bytes.get(..4) {
        Some(b"II*\0" | b"II\0*") => true,
        Some(b"MM\0*" | b"MM*\0" | b"MM\0+") => false,
        _ => return Tag::Unreadable,
    };
    let tiff = Tiff { bytes, little };
    let Some(directory) = tiff.u32_at(4) else { return Tag::Unreadable };
    let entry = tiff.orientation(directory as usize, pillow);
    entry.map_or(Tag::Missing, |(kind, value)| Tag::Number(tiff.number(kind, value)))
}

fn without_prefixes(mut exif: &[u8], pillow: Pillow) -> &[u8] {
    let most = match pillow {
        Pillow::Twelve => usize::MAX,
        Pillow::Thirteen => 2,
    };
    let mut dropped = 0;
    while let Some(rest) = exif.strip_prefix(PREFIX).filter(|_| dropped < most) {
        exif = rest;
        dropped += 1;
    }
    exif
}

/// Types of values.
const BYTE: u16 = 1;
const ASCII: u16 = 2;
const SHORT: u16 = 3;
const LONG: u16 = 4;
const RATIONAL: u16 = 5;
const SIGNED_BYTE: u16 = 6;
const UNDEFINED: u16 = 7;
const SIGNED_SHORT: u16 = 8;
const SIGNED_LONG: u16 = 9;
const SIGNED_RATIONAL: u16 = 10;
const FLOAT: u16 = 11;
const DOUBLE: u16 = 12;
const DIRECTORY: u16 = 13;
const LONG_8: u16 = 16;

/// The bytes of a value. None if Pillow does not know its type.
fn unit(kind: u16) -> Option<u64> {
    match kind {
        BYTE | ASCII | SIGNED_BYTE | UNDEFINED => Some(1),
        SHORT | SIGNED_SHORT => Some(2),
        LONG | SIGNED_LONG | FLOAT | DIRECTORY => Some(4),
        RATIONAL | SIGNED_RATIONAL | DOUBLE | LONG_8 => Some(8),
        _ => None,
    }
}

struct Tiff<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Tiff<'_> {
    /// The first bytes at a place as a number.
    fn number_at<const N: usize>(&self, place: usize) -> Option<u64> {
        let bytes = self.bytes.get(place..)?.first_chunk::<N>()?;
        let add = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
        Some(if self.little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
    }

    #[expect(clippy::cast_possible_truncation, reason = "it has two bytes")]
    fn u16_at(&self, place: usize) -> Option<u16> {
        self.number_at::<2>(place).map(|number| number as u16)
    }

    #[expect(clippy::cast_possible_truncation, reason = "it has four bytes")]
    fn u32_at(&self, place: usize) -> Option<u32> {
        self.number_at::<4>(place).map(|number| number as u32)
    }

    /// The type of the tag in this directory, and where its value stands. A value that cannot be read ends a directory.
    fn orientation(&self, directory: usize, pillow: Pillow) -> Option<(u16, usize)> {
        let entries = self.u16_at(directory)?;
        let (mut known, mut long, mut found) = (HashSet::new(), 0, None);
        for place in (0..usize::from(entries)).map(|index| directory + 2 + 12 * index) {
            let Some(entry) = self.bytes.get(place..place + 12).and_then(|_| self.entry(place)) else { break };
            let (tag, kind, size) = entry;
            if pillow == Pillow::Thirteen && known.contains(&tag) {
                continue;
            }
            // Types that are not known, and values of no bytes, are passed over.
            let Some(size) = size.filter(|&size| size > 0) else { continue };
            let mut value = place + 8;
            if size > 4 {
                long += size;
                if pillow == Pillow::Thirteen && long > self.bytes.len() as u64 {
                    continue;
                }
                value = self.u32_at(value)? as usize;
                if value as u64 + size > self.bytes.len() as u64 {
                    break;
                }
            }
            known.insert(tag);
            if tag == ORIENTATION {
                found = Some((kind, value));
            }
        }
        found
    }

    /// The tag, the type and the bytes of the value.
    fn entry(&self, place: usize) -> Option<(u16, u16, Option<u64>)> {
        let kind = self.u16_at(place + 2)?;
        let count = u64::from(self.u32_at(place + 4)?);
        Some((self.u16_at(place)?, kind, unit(kind).map(|unit| unit * count)))
    }

    /// The first number of a value, which must be whole. Pillow compares it with those that turn an image, whatever its type
    /// is; bytes and texts are none of them.
    fn number(&self, kind: u16, place: usize) -> u32 {
        let number = match kind {
            SHORT => self.number_at::<2>(place),
            LONG | DIRECTORY => self.number_at::<4>(place),
            LONG_8 => self.number_at::<8>(place),
            SIGNED_BYTE => self.number_at::<1>(place).filter(|&number| number < 1 << 7),
            SIGNED_SHORT => self.number_at::<2>(place).filter(|&number| number < 1 << 15),
            SIGNED_LONG => self.number_at::<4>(place).filter(|&number| number < 1 << 31),
            RATIONAL => self.quotient(place, i64::from),
            SIGNED_RATIONAL => self.quotient(place, |number| i64::from(number.cast_signed())),
            FLOAT => self.u32_at(place).and_then(|bits| whole(f32::from_bits(bits).into())),
            DOUBLE => self.number_at::<8>(place).and_then(|bits| whole(f64::from_bits(bits))),
            _ => None,
        };
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    }

    fn quotient(&self, place: usize, signed: fn(u32) -> i64) -> Option<u64> {
        let (above, below) = (signed(self.u32_at(place)?), signed(self.u32_at(place + 4)?));
        let is_whole = above.checked_rem(below) == Some(0);
        is_whole.then(|| u64::try_from(above / below).ok()).flatten()
    }
}

/// The number from 1 to 8 that this is.
#[expect(clippy::float_cmp, reason = "as Python compares them")]
fn whole(number: f64) -> Option<u64> {
    (1..=8_u32).find(|&whole| f64::from(whole) == number).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::{Pillow, Tag, orientation};

    /// EXIF data of one directory with these entries, of a tag, a type, a count and a value, and what stands behind it.
    fn exif(entries: &[(u16, u16, u32, [u8; 4])], behind: &[u8]) -> Vec<u8> {
        let mut exif = b"II*\0\x08\0\0\0".to_vec();
        exif.extend(u16::try_from(entries.len()).unwrap().to_le_bytes());
        for (tag, kind, count, value) in entries {
            exif.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
            exif.extend(count.to_le_bytes());
            exif.extend(value);
        }
        [&exif[..], &[0; 4], behind].concat()
    }

    fn versions(exif: &[u8]) -> [Tag; 2] {
        [Pillow::Twelve, Pillow::Thirteen].map(|pillow| orientation(exif, pillow))
    }

    #[track_caller]
    fn both(exif: &[u8]) -> Tag {
        let [older, tag] = versions(exif);
        assert_eq!(older, tag);
        tag
    }

    const SIX: [u8; 4] = [6, 0, 0, 0];
    /// Where what stands behind one entry begins.
    const BEHIND: [u8; 4] = [26, 0, 0, 0];

    /// What Pillow 12.3 and 13.0 make of each was looked up by running them.
    #[test]
    fn a_value_of_any_type_may_be_a_number() {
        let double = |number: f64| number.to_le_bytes().to_vec();
        let pair = |above: u32, below: u32| [above.to_le_bytes(), below.to_le_bytes()].concat();
        for (kind, count, value, behind, number) in [
            (3, 1, SIX, vec![], 6),
            (3, 2, SIX, vec![], 6),
            (3, 4, BEHIND, pair(6 | 3 << 16, 1), 6),
            (1, 1, SIX, vec![], 0),
            (2, 2, *b"6\0\0\0", vec![], 0),
            (7, 1, SIX, vec![], 0),
            (4, 1, SIX, vec![], 6),
            (4, 1, [6, 0, 1, 0], vec![], 0x1_0006),
            (13, 1, SIX, vec![], 6),
            (5, 1, BEHIND, pair(12, 2), 6),
            (5, 1, BEHIND, pair(13, 2), 0),
            (5, 1, BEHIND, pair(6, 0), 0),
            (10, 1, BEHIND, pair(0u32.wrapping_sub(12), 0u32.wrapping_sub(2)), 6),
            (10, 1, BEHIND, pair(0u32.wrapping_sub(12), 2), 0),
            (6, 1, SIX, vec![], 6),
            (6, 1, [250; 4], vec![], 0),
            (8, 1, SIX, vec![], 6),
            (8, 1, [250, 255, 0, 0], vec![], 0),
            (9, 1, SIX, vec![], 6),
            (9, 1, [250, 255, 255, 255], vec![], 0),
            (11, 1, 6_f32.to_le_bytes(), vec![], 6),
            (11, 1, 6.5_f32.to_le_bytes(), vec![], 0),
            (12, 1, BEHIND, double(6.0), 6),
            (12, 1, BEHIND, double(f64::NAN), 0),
            (16, 1, BEHIND, 6_u64.to_le_bytes().to_vec(), 6),
        ] {
            let tag = both(&exif(&[(274, kind, count, value)], &behind));
            assert_eq!(tag, Tag::Number(number), "{kind}, {count}, {value:?}");
        }
        for (kind, count) in [(3, 0), (0, 1), (14, 1), (17, 1), (18, 1), (129, 1)] {
            assert_eq!(both(&exif(&[(274, kind, count, SIX)], &[])), Tag::Missing, "{kind}, {count}");
        }
    }

    #[test]
    fn a_value_behind_the_end_ends_the_directory() {
        let six = (274, 3, 1, SIX);
        let far = (270, 2, 5, [60, 0, 0, 0]);
        assert_eq!(both(&exif(&[far, six], &[])), Tag::Missing);
        assert_eq!(both(&exif(&[six, far], &[])), Tag::Number(6));
        // A value that is longer than all data is passed over since Pillow 13.
        let long = (270, 2, 100, [0; 4]);
        assert_eq!(versions(&exif(&[long, six], &[])), [Tag::Missing, Tag::Number(6)]);
    }

    #[test]
    fn of_several_entries_versions_take_different_ones() {
        let (six, three) = ((274, 3, 1, SIX), (274, 3, 1, [3, 0, 0, 0]));
        assert_eq!(versions(&exif(&[three, six], &[])), [Tag::Number(6), Tag::Number(3)]);
        assert_eq!(both(&exif(&[six, six], &[])), Tag::Number(6));
        assert_eq!(both(&exif(&[(274, 77, 1, SIX), three], &[])), Tag::Number(3));
    }

    #[test]
    fn headers_in_the_wrong_order_are_read_too() {
        let mut little = exif(&[(274, 3, 1, SIX)], &[]);
        for (header, tag) in [
            (b"II*\0", Tag::Number(6)),
            (b"II\0*", Tag::Number(6)),
            (b"II+\0", Tag::Unreadable),
            (b"II*\x01", Tag::Unreadable),
            (b"IM*\0", Tag::Unreadable),
        ] {
            little[..4].copy_from_slice(header);
            assert_eq!(both(&little), tag, "{header:?}");
        }
        let big = b"\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
        for header in [b"MM\0*", b"MM*\0", b"MM\0+"] {
            assert_eq!(both(&[&header[..], big].concat()), Tag::Number(6), "{header:?}");
        }
    }

    #[test]
    fn two_prefixes_are_dropped_and_more_by_older_versions() {
        let six = exif(&[(274, 3, 1, SIX)], &[]);
        let with = |prefixes: usize| [b"Exif\0\0".repeat(prefixes), six.clone()].concat();
        for prefixes in 0..3 {
            assert_eq!(both(&with(prefixes)), Tag::Number(6));
        }
        assert_eq!(versions(&with(3)), [Tag::Number(6), Tag::Unreadable]);
        assert_eq!(both(b"Exif\0\0"), Tag::Missing);
    }

    #[test]
    fn data_that_end_too_early_say_nothing() {
        let whole = exif(&[(274, 3, 1, SIX)], &[]);
        assert_eq!(both(&[]), Tag::Missing);
        for length in 1..22 {
            let tag = if length < 8 { Tag::Unreadable } else { Tag::Missing };
            assert_eq!(both(&whole[..length]), tag, "{length}");
        }
        assert_eq!(both(&whole[..22]), Tag::Number(6));
        assert_eq!(both(b"MM\0*\xff\xff\xff\xff"), Tag::Missing);
    }
}
