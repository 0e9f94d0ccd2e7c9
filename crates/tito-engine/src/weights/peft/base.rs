//! Weights of the base model that an adapter has with it, compared with those of a model.

use crate::weights::{WeightDtype, WeightTensor};

/// How many numbers are compared at a time.
const AT_ONCE: usize = 1 << 16;

/// Whether `saved` has the numbers of a tensor whose little-endian `bytes` are of the type `dtype`. Where the types differ,
/// numbers are the same if rounding one to the type of the other makes them so.
pub fn is_same(saved: &WeightTensor, dtype: WeightDtype, bytes: &[u8]) -> bool {
    let pieces = |bytes, dtype: WeightDtype| <[u8]>::chunks(bytes, AT_ONCE * dtype.size());
    saved.bytes.len() / saved.dtype.size() == bytes.len() / dtype.size()
        && pieces(&saved.bytes, saved.dtype)
            .zip(pieces(bytes, dtype))
            .all(|(saved_bytes, bytes)| are_same((saved.dtype, saved_bytes), (dtype, bytes)))
}

fn are_same((saved_dtype, saved): (WeightDtype, &[u8]), (dtype, bytes): (WeightDtype, &[u8])) -> bool {
    saved_dtype == dtype && saved == bytes
        || rounded(saved_dtype, saved, dtype) == bytes
        || rounded(dtype, bytes, saved_dtype) == saved
}

/// Numbers in another type.
fn rounded(from: WeightDtype, bytes: &[u8], to: WeightDtype) -> Vec<u8> {
    let mut numbers = Vec::new();
    from.widen(bytes, &mut numbers);
    let mut rounded = vec![0; numbers.len() * to.size()];
    to.narrow(&numbers, &mut rounded);
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: WeightDtype, numbers: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; numbers.len() * dtype.size()];
        dtype.narrow(numbers, &mut bytes);
        bytes
    }

    fn saved(dtype: WeightDtype, numbers: &[f32]) -> WeightTensor {
        WeightTensor { name: String::new(), dtype, shape: vec![numbers.len()], bytes: bytes(dtype, numbers).into() }
    }

    #[test]
    fn numbers_are_the_same_up_to_the_rounding_of_one_of_both_types() {
        let mut numbers = vec![1.0 + 2.0_f32.powi(-20); AT_ONCE + 3];
        let model = |dtype| bytes(dtype, &vec![1.0 + 2.0_f32.powi(-20); AT_ONCE + 3]);
        for own in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::F16] {
            for other in [WeightDtype::F32, WeightDtype::Bf16] {
                assert!(is_same(&saved(own, &numbers), other, &model(other)), "{own:?} and {other:?}");
            }
        }
        assert!(!is_same(&saved(WeightDtype::F32, &numbers[1..]), WeightDtype::F32, &model(WeightDtype::F32)));
        numbers[AT_ONCE + 1] = 1.5;
        for (own, other) in [(WeightDtype::F32, WeightDtype::F32), (WeightDtype::Bf16, WeightDtype::F32)] {
            assert!(!is_same(&saved(own, &numbers), other, &model(other)), "{own:?} and {other:?}");
        }
        numbers[AT_ONCE + 1] = 1.0;
        assert!(!is_same(&saved(WeightDtype::F32, &numbers), WeightDtype::F32, &model(WeightDtype::F32)));
        assert!(is_same(&saved(WeightDtype::F32, &numbers), WeightDtype::Bf16, &model(WeightDtype::Bf16)));
    }
}
