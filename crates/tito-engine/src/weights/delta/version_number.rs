//! Numbers of versions, as trainers write them.

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::weights::header::NOT_A_VERSION;

/// A number, or its digits in a string: one trainer writes the former, the other the latter.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(u64),
        Digits(String),
    }
    match Number::deserialize(deserializer)? {
        Number::Number(number) => Ok(number),
        Number::Digits(digits) => digits.parse().map_err(|_| D::Error::custom(NOT_A_VERSION)),
    }
}
