//! Lists of token ids as they are written. They are most of a long request, and a general parser takes several times as long.

/// The longest id that is read at once, with the comma and the space after it.
const SHORT: usize = 6;
/// Integers of so many digits fit every type that reads them.
const MOST_DIGITS: usize = 18;

/// Length and count of the list of plain integers that a text starts with.
pub(super) fn list_at_start(text: &[u8]) -> Option<(usize, usize)> {
    if text.first() != Some(&b'[') {
        return None;
    }
    let (mut at, mut count) = (1, 0);
    loop {
        while let Some(Short { word, digits, length }) = Short::at(text, at) {
            if digits > 1 && word.to_le_bytes()[0] == b'0' {
                return None;
            }
            at += length;
            count += 1;
        }
        at += spaces(&text[at..]);
        let digits = digits(&text[at..]);
        if digits == 0 || digits > MOST_DIGITS || (digits > 1 && text[at] == b'0') {
            return None;
        }
        at += digits;
        count += 1;
        at += spaces(&text[at..]);
        match text.get(at)? {
            b',' => at += 1,
            b']' => return Some((at + 1, count)),
            _ => return None,
        }
    }
}

/// Reads valid JSON that is a list of integers from 0 up to 2^32, without signs and fractions; `None` for any other.
pub fn read_ids(json: &str) -> Option<Vec<u32>> {
    let list = json.trim_ascii().strip_prefix('[')?.strip_suffix(']')?.trim_ascii().as_bytes();
    if list.is_empty() {
        return Some(Vec::new());
    }
    // Most ids have four digits or more, and a comma.
    let mut ids = Vec::with_capacity(list.len() / 5 + 1);
    let mut at = 0;
    loop {
        while let Some(short) = Short::at(list, at) {
            ids.push(short.value());
            at += short.length;
        }
        at += spaces(&list[at..]);
        let digits = digits(&list[at..]);
        if digits == 0 || digits > MOST_DIGITS {
            return None;
        }
        let value = list[at..at + digits].iter().fold(0, |value: u64, digit| value * 10 + u64::from(digit - b'0'));
        ids.push(u32::try_from(value).ok()?);
        at += digits;
        at += spaces(&list[at..]);
        match list.get(at) {
            None => return Some(ids),
            Some(b',') => at += 1,
            Some(_) => return None,
        }
    }
}

/// An integer of few digits and what separates it from the next one: all of it is looked at together, since a loop over digits
/// is as slow as the guesses of the processor where it ends.
pub(super) struct Short {
    /// Eight bytes of the text, the first of which is the least one.
    word: u64,
    pub(super) digits: usize,
    /// With a comma and a space, if there is one.
    pub(super) length: usize,
}

impl Short {
    /// The one at a place, where there is one with a comma after it.
    pub(super) fn at(text: &[u8], at: usize) -> Option<Self> {
        let word = u64::from_le_bytes(*text.get(at..)?.first_chunk()?);
        let digits = digits_of(word);
        if digits == 0 || digits > SHORT {
            return None;
        }
        let [comma, space, ..] = (word >> (8 * digits)).to_le_bytes();
        (comma == b',').then_some(Self { word, digits, length: digits + 1 + usize::from(space == b' ') })
    }

    pub(super) fn value(&self) -> u32 {
        // The digits move to the end of the word, where zeros precede them; then pairs are joined, fours, and all.
        let ones = (self.word ^ all(b'0')) << (64 - 8 * self.digits);
        let twos = (ones * 10 + (ones >> 8)) & 0x00FF_00FF_00FF_00FF;
        let fours = (twos * 100 + (twos >> 16)) & 0x0000_FFFF_0000_FFFF;
        u32::try_from((fours * 10_000 + (fours >> 32)) & 0xFFFF_FFFF).unwrap_or(u32::MAX)
    }
}

/// Every byte of a word the same.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// How many digits the bytes of a word start with.
fn digits_of(word: u64) -> usize {
    let values = word ^ all(b'0');
    let above_nine = (((values & all(0x7F)) + all(0x7F - 9)) | values) & all(0x80);
    above_nine.trailing_zeros() as usize / 8
}

/// How many digits a text starts with.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn spaces(text: &[u8]) -> usize {
    text.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_serde_reads_them() {
        let most = u32::MAX.to_string();
        let ids = ["0", "7", "10", "999", "4095", "99999", "123456", "1234567", "12345678", "123456789", &most];
        for first in ids {
            for second in ids {
                for separator in [",", ", ", " , ", ",\n  ", ",  "] {
                    for text in [format!("[{first}]"), format!("[ {first}{separator}{second}{separator}{first} ]")] {
                        let expected: Vec<u32> = serde_json::from_str(&text).unwrap();
                        assert_eq!(read_ids(&text), Some(expected.clone()), "{text}");
                        assert_eq!(list_at_start(text.as_bytes()), Some((text.len(), expected.len())), "{text}");
                        let followed = format!("{text}, 5]");
                        assert_eq!(list_at_start(followed.as_bytes()), Some((text.len(), expected.len())), "{text}");
                    }
                }
            }
        }
        assert_eq!(read_ids(" [] "), Some(Vec::new()));
    }

    #[test]
    fn other_lists_are_not_read() {
        let bad = [
            "[-1]",
            "[1, -1, 2]",
            "[1.0]",
            "[1, 2e3, 4]",
            "[\"1\"]",
            "[null]",
            "[1, [2], 3]",
            "{}",
            "1",
            "[4294967296]",
        ];
        for text in bad {
            assert_eq!(read_ids(text), None, "{text}");
        }
        for text in
            ["[01]", "[1, 02, 3]", "[00000001, 1]", "[1,]", "[1, ]", "[1 2]", "[1", "[1, 2", "[", "[]", "[,1]", ""]
        {
            assert_eq!(list_at_start(text.as_bytes()), None, "{text}");
        }
    }
}
