//! An answer as JSON, written in one piece.

use std::io::{self, Write};

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{
    Serializer,
    ser::{CompactFormatter, Formatter},
};

use crate::wire::error::ApiError;

/// What `axum::Json` answers. The buffer of that one takes three times as long for tens of thousands of ids.
pub(crate) struct JsonAnswer<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for JsonAnswer<T> {
    fn into_response(self) -> Response {
        // Most answers fit, so that nothing has to be moved while they are written.
        let mut text = Vec::with_capacity(2048);
        match self.0.serialize(&mut Serializer::with_formatter(&mut text, IdsInFewInstructions)) {
            Ok(()) => ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response(),
            Err(error) => ApiError::internal(error).into_response(),
        }
    }
}

/// Writes what `serde_json::to_vec` writes. An id of up to six digits is a text whose length is known where it is written, so that it is
/// stored, and not copied by a call.
struct IdsInFewInstructions;

impl Formatter for IdsInFewInstructions {
    #[inline]
    fn write_u32<W: ?Sized + Write>(&mut self, writer: &mut W, value: u32) -> io::Result<()> {
        match value {
            0..10 => writer.write_all(&digits::<1>(value)),
            10..100 => writer.write_all(&digits::<2>(value)),
            100..1_000 => writer.write_all(&digits::<3>(value)),
            1_000..10_000 => writer.write_all(&digits::<4>(value)),
            10_000..100_000 => writer.write_all(&digits::<5>(value)),
            100_000..1_000_000 => writer.write_all(&digits::<6>(value)),
            _ => CompactFormatter.write_u32(writer, value),
        }
    }
}

/// The last `LENGTH` decimal digits.
#[inline]
fn digits<const LENGTH: usize>(mut value: u32) -> [u8; LENGTH] {
    let mut digits = [b'0'; LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit += (value % 10) as u8;
        value /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn written(value: &impl Serialize) -> Vec<u8> {
        let mut text = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut text, IdsInFewInstructions)).unwrap();
        text
    }

    #[test]
    fn numbers_of_every_length_are_written_as_by_serde_json() {
        let powers = (0..10).map(|digits| 10_u32.pow(digits));
        let around: Vec<u32> =
            powers.flat_map(|power| [power - 1, power, power + 1]).chain([u32::MAX - 1, u32::MAX]).collect();
        assert_eq!(written(&around), serde_json::to_vec(&around).unwrap());
        let all: Vec<u32> = (0..1_100_000).collect();
        assert_eq!(written(&all), serde_json::to_vec(&all).unwrap());
    }

    #[test]
    fn everything_else_is_written_as_by_serde_json() {
        let value = json!({ "": [[], {}, null, true, "\u{1}é\"\\"], "numbers": [-1, 1e300, 0.1, f32::MIN_POSITIVE, u64::MAX, i64::MIN] });
        assert_eq!(written(&value), serde_json::to_vec(&value).unwrap());
        assert_eq!(written(&f32::NAN), b"null");
    }

    proptest! {
        #[test]
        fn any_number_is_written_as_by_serde_json(value in any::<u32>(), text in any::<String>()) {
            let value = (value, text, Some(value % 1000), f64::from(value) / 7.0);
            prop_assert_eq!(written(&value), serde_json::to_vec(&value).unwrap());
        }
    }
}
