//! Ten ways of damaging a file.

use serde_json::json;

/// The addresses of a process that reads damaged files, in KiB: a length that is believed ends it.
pub(crate) const ADDRESSES: usize = 2_500_000;
/// Numbers that lengths are replaced with.
const LENGTHS: [u64; 8] = [0, 1 << 20, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 60, i64::MAX.cast_unsigned(), u64::MAX];
/// What numbers in texts are replaced with.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1000000000000000",
    "18446744073709551615",
    "1152921504606846976",
    "4294967295",
    "1e400",
    "0.5",
    "null",
    "\"7\"",
];

/// A fixed stream of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    /// A part of a file of this length: mostly of its beginning, where headers are.
    fn place(&mut self, length: usize) -> usize {
        let end = if self.below(4) == 0 { length } else { length.min(6000) };
        self.below(end)
    }
}

/// Damages a file in one of ten ways.
pub(crate) fn damaged(sound: &[u8], number: usize, is_text: bool) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    random.next();
    let mut file = sound.to_vec();
    let at = random.place(file.len());
    let some = random.below(40).min(file.len() - at);
    match number % 10 {
        0 => file[at] ^= 1 << random.below(8),
        1 => (0..16).for_each(|_| {
            let at = random.place(sound.len());
            file[at] ^= 1 << random.below(8);
        }),
        2 => file.truncate(at),
        3 => drop(file.drain(at..at + some)),
        4 => drop(file.splice(at..at, (0..=some).map(|_| random.byte()))),
        5 => file[at..at + some].fill(0),
        6 if is_text => replace_value(&mut file, &mut random),
        6 => file[at..at + some].fill(0xff),
        7 if is_text => replace_number(&mut file, at, NUMBERS[random.below(NUMBERS.len())]),
        7 => replace_length(&mut file, at, LENGTHS[random.below(LENGTHS.len())]),
        8 => {
            let from = random.place(file.len() - some);
            file.copy_within(from..from + some, at);
        }
        _ if is_text => {
            drop(file.splice(at..at, ["[", "{\"a\":", "\"", "1"][random.below(4)].repeat(20_000).into_bytes()));
        }
        _ => file[at..].iter_mut().take(4096).for_each(|byte| *byte = random.byte()),
    }
    file
}

/// Any value of a JSON file, by one that does not belong there.
fn replace_value(file: &mut Vec<u8>, random: &mut Random) {
    let mut json: serde_json::Value = serde_json::from_slice(file).unwrap();
    let mut value = &mut json;
    loop {
        let count = match &value {
            serde_json::Value::Array(values) => values.len(),
            serde_json::Value::Object(values) => values.len(),
            _ => 0,
        };
        if count == 0 || random.below(4) == 0 {
            break;
        }
        let index = random.below(count);
        value = match value {
            serde_json::Value::Array(values) => &mut values[index],
            serde_json::Value::Object(values) => values.values_mut().nth(index).unwrap(),
            _ => unreachable!("it has values"),
        };
    }
    let others = [json!([]), json!({}), json!(""), json!(true), json!(null), json!([[0]]), json!("\u{1f642}\n")];
    let number = serde_json::from_str(NUMBERS[random.below(6)]).unwrap();
    *value = others.into_iter().nth(random.below(14)).unwrap_or(number);
    *file = serde_json::to_vec(&json).unwrap();
}

/// The next number from a place on.
fn replace_number(file: &mut Vec<u8>, at: usize, by: &str) {
    let Some(start) = file[at..].iter().position(u8::is_ascii_digit).map(|digit| at + digit) else { return };
    let digits = file[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    file.splice(start..start + digits, by.bytes());
}

/// The next eight bytes from a place on that may be a length.
fn replace_length(file: &mut [u8], at: usize, by: u64) {
    let is_length = |bytes: &[u8]| (1..10_000).contains(&u64::from_le_bytes(bytes.try_into().unwrap()));
    if let Some(next) = file[at..].windows(8).position(is_length) {
        file[at + next..][..8].copy_from_slice(&by.to_le_bytes());
    }
}
