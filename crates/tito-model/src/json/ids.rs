//! Lists of token ids as they are written. They are most of a long request, and a general parser takes several times as long.

/// The longest id that is read at once, with the comma and the space after it.
const SHORT: usize = 6;
/// Integers of so many digits fit every type that reads them.
const MOST_DIGITS: usize = 18;
/// How many bytes of a list are judged together.
const WORD: usize = 8;
/// After a word that is not plain, so many bytes are read item by item before words are judged again.
const PAUSE: usize = 32;

/// Length and count of the list of plain integers that a text starts with.
pub(super) fn list_at_start(text: &[u8]) -> Option<(usize, usize)> {
    if text.first() != Some(&b'[') {
        return None;
    }
    let (mut at, mut count) = (1, 0);
    loop {
        let end = plain_words(text, at, |_, commas| {
            // A one for each of them, all of which are added up in the highest byte.
            count += ((commas >> 7).wrapping_mul(all(1)) >> (64 - 8)) as usize;
            true
        });
        // The item that goes on there was not counted.
        at = text[at..end].iter().rposition(|byte| *byte == b',').map_or(at, |comma| at + comma + 1);
        let next_words = at + PAUSE;
        while at < next_words {
            let item = Item::at(text, at)?;
            if item.begins_with_zero {
                return None;
            }
            count += 1;
            match text.get(item.after)? {
                b',' => at = item.after + 1,
                b']' => return Some((item.after + 1, count)),
                _ => return None,
            }
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
        // A number is read with the bytes before it.
        if at >= WORD {
            plain_words(list, at, |place, mut commas| {
                while commas != 0 {
                    let comma = place + commas.trailing_zeros() as usize / 8;
                    let Some(id) = number_before(list, at, comma) else { return false };
                    ids.push(id);
                    at = behind_comma(list, comma);
                    commas &= commas - 1;
                }
                true
            });
        }
        let next_words = at + PAUSE;
        while at < next_words {
            let item = Item::at(list, at)?;
            ids.push(u32::try_from(item.value).ok()?);
            match list.get(item.after) {
                None => return Some(ids),
                Some(b',') => at = behind_comma(list, item.after),
                Some(_) => return None,
            }
        }
    }
}

/// The place behind a comma, and behind a space after it.
fn behind_comma(list: &[u8], comma: usize) -> usize {
    comma + 1 + usize::from(list.get(comma + 1) == Some(&b' '))
}

/// An integer, with spaces around it.
struct Item {
    value: u64,
    /// Whether it begins with a zero that JSON has not.
    begins_with_zero: bool,
    /// The place after it, and after the spaces behind it.
    after: usize,
}

impl Item {
    /// The one at a place; `None` if none is there, or a longer one than any id.
    fn at(text: &[u8], at: usize) -> Option<Self> {
        let start = at + spaces(text.get(at..)?);
        let digits = text[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > MOST_DIGITS {
            return None;
        }
        let (number, after) = text[start..].split_at(digits);
        Some(Self {
            value: number.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')),
            begins_with_zero: digits > 1 && number[0] == b'0',
            after: start + digits + spaces(after),
        })
    }
}

/// Hands on words of a list from a place on, where an item begins: their places, and a bit in the highest place of each byte that
/// is a comma. Returns the place where it ends: before a word that is not plain, after one where it is told to, or with the text.
///
/// In plain words there are only integers of at most fourteen digits, as JSON has them, commas behind them, and at most one space
/// behind a comma. No word waits for where the item before it ends, so that the processor works on several.
fn plain_words(text: &[u8], first: usize, mut each: impl FnMut(usize, u64) -> bool) -> usize {
    let mut before = first.checked_sub(1).map(|place| Kinds::of_byte(text[place])).unwrap_or_default();
    let (words, _) = text[first.min(text.len())..].as_chunks::<WORD>();
    let mut at = first;
    for word in words {
        let kinds = Kinds::of(u64::from_le_bytes(*word));
        if !kinds.are_plain(&before) {
            break;
        }
        let goes_on = each(at, kinds.commas);
        at += WORD;
        if !goes_on {
            break;
        }
        before = kinds;
    }
    at
}

/// Which bytes of a word are what: a bit in the highest place of each.
#[derive(Default)]
struct Kinds {
    digits: u64,
    zeros: u64,
    commas: u64,
    spaces: u64,
}

impl Kinds {
    fn of(word: u64) -> Self {
        let values = word ^ all(b'0');
        Self {
            digits: digit_bytes(values),
            zeros: zero_bytes(values),
            commas: zero_bytes(word ^ all(b',')),
            spaces: zero_bytes(word ^ all(b' ')),
        }
    }

    /// Those of a word that ends with a byte.
    fn of_byte(byte: u8) -> Self {
        Self::of(u64::from(byte) << (64 - 8))
    }

    /// Whether a word is plain, which stands behind another one.
    fn are_plain(&self, before: &Self) -> bool {
        let behind = |bytes: usize, now: u64, before: u64| now << (8 * bytes) | before >> (64 - 8 * bytes);
        let behind_digit = behind(1, self.digits, before.digits);
        let behind_comma = behind(1, self.commas, before.commas);
        let behind_leading_zero = behind(1, self.zeros, before.zeros) & !behind(2, self.digits, before.digits);
        let fits = (self.digits & !behind_leading_zero) | (self.commas & behind_digit) | (self.spaces & behind_comma);
        fits == all(0x80) && self.digits != all(0x80)
    }
}

/// The number whose text is from `start` to `end`, and is digits only; `None` if there are more than eight, or too few bytes.
fn number_before(text: &[u8], start: usize, end: usize) -> Option<u32> {
    let word = u64::from_le_bytes(*text.get(..end)?.last_chunk()?);
    let others = 8 * WORD.checked_sub(end - start).filter(|others| *others < WORD)?;
    Some(number((word ^ all(b'0')) & (u64::MAX << others)))
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
        let others = digit_bytes(word ^ all(b'0')) ^ all(0x80);
        let digits = others.trailing_zeros() as usize / 8;
        if digits == 0 || digits > SHORT {
            return None;
        }
        let [comma, space, ..] = (word >> (8 * digits)).to_le_bytes();
        (comma == b',').then_some(Self { word, digits, length: digits + 1 + usize::from(space == b' ') })
    }

    pub(super) fn value(&self) -> u32 {
        number((self.word ^ all(b'0')) << (64 - 8 * self.digits))
    }
}

/// The number of eight digits, the first of which is the least byte. Pairs are joined, then fours, and all.
fn number(digits: u64) -> u32 {
    let twos = (digits * 10 + (digits >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (twos * 100 + (twos >> 16)) & 0x0000_FFFF_0000_FFFF;
    u32::try_from((fours * 10_000 + (fours >> 32)) & 0xFFFF_FFFF).unwrap_or(u32::MAX)
}

/// Every byte of a word the same.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Which bytes of a word are less than ten: a bit in the highest place of each.
fn digit_bytes(values: u64) -> u64 {
    !(((values & all(0x7F)) + all(0x7F - 9)) | values) & all(0x80)
}

/// Which bytes of a word are zero, likewise.
fn zero_bytes(word: u64) -> u64 {
    !(((word & all(0x7F)) + all(0x7F)) | word) & all(0x80)
}

fn spaces(text: &[u8]) -> usize {
    text.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

#[cfg(test)]
mod tests {
    use proptest::{
        prelude::RngCore,
        test_runner::{RngAlgorithm, TestRng},
    };

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

    /// The same without words.
    fn item_by_item(text: &[u8]) -> Option<(usize, usize)> {
        let (mut at, mut count) = (1, 0);
        text.first().filter(|first| **first == b'[')?;
        loop {
            let item = Item::at(text, at).filter(|item| !item.begins_with_zero)?;
            (at, count) = (item.after + 1, count + 1);
            match text.get(item.after)? {
                b',' => {}
                b']' => return Some((at, count)),
                _ => return None,
            }
        }
    }

    #[test]
    fn words_of_a_list_are_judged_as_its_items_are() {
        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut below = |most: u32| (random.next_u32() % most) as usize;
        let mut taken = 0;
        for round in 0..20_000 {
            let separator = [", ", ",", ", ", ",\n"][below(4)];
            let most = [10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000][below(8)];
            let ids: Vec<String> = (0..below(60)).map(|_| below(most).to_string()).collect();
            let mut text = format!("[{}]", ids.join(separator)).into_bytes();
            // Most of them are spoilt at a place.
            if round % 4 != 0 {
                let place = below(1 << 20) % text.len();
                match below(3) {
                    0 => text[place] = b"0123, ]-.\n\"["[below(12)],
                    1 => text.insert(place, b"0059, ],"[below(8)]),
                    _ => drop(text.remove(place)),
                }
            }
            let expected = item_by_item(&text);
            assert_eq!(list_at_start(&text), expected, "{}", String::from_utf8_lossy(&text));
            if let Some((length, count)) = expected {
                let read: Vec<serde_json::Number> = serde_json::from_slice(&text[..length]).unwrap();
                assert_eq!(read.len(), count);
                let ids: Option<Vec<u32>> = read.iter().map(|id| id.as_u64()?.try_into().ok()).collect();
                assert_eq!(read_ids(str::from_utf8(&text[..length]).unwrap()), ids);
                taken += 1;
            }
        }
        assert!(taken > 5_000, "{taken}");
    }
}
