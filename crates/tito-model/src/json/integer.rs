//! Integers of any size, kept exactly: machine words where they fit, decimal text beyond.

use std::fmt;

/// An integer of any size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Integer(Repr);

// `Big` holds canonical decimal text that does not fit `Small`, so derived equality is numeric equality.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    Small(i128),
    Big(Box<str>),
}

impl Integer {
    /// Reads a JSON integer literal; none if the text is not one.
    pub fn from_decimal(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let well_formed = !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        if !well_formed {
            return None;
        }
        let repr = text.parse().map_or_else(|_| Repr::Big(text.into()), Repr::Small);
        Some(Self(repr))
    }

    /// Returns the number, if it fits 128 bits.
    pub fn to_i128(&self) -> Option<i128> {
        match self.0 {
            Repr::Small(value) => Some(value),
            Repr::Big(_) => None,
        }
    }
}

impl From<i64> for Integer {
    fn from(value: i64) -> Self {
        Self(Repr::Small(value.into()))
    }
}

impl From<i128> for Integer {
    fn from(value: i128) -> Self {
        Self(Repr::Small(value))
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(value) => value.fmt(f),
            Repr::Big(digits) => f.write_str(digits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Integer;

    #[test]
    fn the_edge_of_128_bits_is_crossed_without_loss() {
        for text in [
            "170141183460469231731687303715884105727",
            "170141183460469231731687303715884105728",
            "-170141183460469231731687303715884105729",
        ] {
            assert_eq!(Integer::from_decimal(text).unwrap().to_string(), text);
        }
        assert_eq!(Integer::from_decimal("170141183460469231731687303715884105728").unwrap().to_i128(), None);
    }

    #[test]
    fn only_json_integer_literals_are_read() {
        for text in ["", "-", "+1", "01", "1.0", " 1", "1_0", "\u{661}"] {
            assert_eq!(Integer::from_decimal(text), None, "{text}");
        }
        assert_eq!(Integer::from_decimal("-0"), Some(Integer::from(0_i64)));
    }
}
