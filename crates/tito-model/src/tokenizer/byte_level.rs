//! The alphabet of byte-level BPE: one printable character for each byte.

/// One more than the largest code point of the alphabet.
const LIMIT: usize = 0x144;

/// Marks a code point below [`LIMIT`] that stands for no byte.
const NONE: u16 = u16::MAX;

/// The byte that each code point stands for.
static BYTES: [u16; LIMIT] = bytes_by_code_point();

/// Printable bytes stand for themselves; the others follow from U+0100 on, in order.
const fn bytes_by_code_point() -> [u16; LIMIT] {
    let mut table = [NONE; LIMIT];
    let mut byte: u16 = 0;
    let mut next = 0x100;
    while byte < 0x100 {
        if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            table[byte as usize] = byte;
        } else {
            table[next] = byte;
            next += 1;
        }
        byte += 1;
    }
    table
}

/// Returns the byte that a character of the alphabet stands for.
fn byte(character: char) -> Option<u8> {
    BYTES.get(character as usize).and_then(|&byte| u8::try_from(byte).ok())
}

/// Returns the bytes that a vocabulary entry stands for, `None` if a character is not of the alphabet.
pub(super) fn bytes(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen: Vec<u8> = (0..=char::MAX as u32).filter_map(char::from_u32).filter_map(byte).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=u8::MAX).collect::<Vec<_>>());
    }

    #[test]
    fn spaces_and_newlines_have_their_well_known_characters() {
        assert_eq!(bytes("Ġhi"), Some(b" hi".to_vec()));
        assert_eq!(bytes("ĊĀ"), Some(b"\n\0".to_vec()));
        assert_eq!(bytes("a b"), None);
        assert_eq!(bytes("日"), None);
    }
}
