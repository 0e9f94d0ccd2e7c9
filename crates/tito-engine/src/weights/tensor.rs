//! One tensor: its name, its layout and its bytes.

use std::fmt;

use bytes::Bytes;
use half::{bf16, f16};

/// Bytes that are compared at a time, a multiple of every number's size.
const COMPARED: usize = 64;
/// Where more than one number in so many changes, a tensor is replaced as a whole.
const LEAST_UNCHANGED: usize = 8;

/// The type of a tensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightDtype {
    /// Brain floating point, 16 bits.
    Bf16,
    /// IEEE half precision, 16 bits.
    F16,
    /// IEEE single precision, 32 bits.
    F32,
}

impl WeightDtype {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// What safetensors files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
        }
    }

    /// Appends the numbers that these bytes are, exactly.
    pub fn widen(self, bytes: &[u8], out: &mut Vec<f32>) {
        let halves = || bytes.as_chunks::<2>().0.iter();
        match self {
            Self::Bf16 => out.extend(halves().map(|two| bf16::from_le_bytes(*two).to_f32())),
            Self::F16 => out.extend(halves().map(|two| f16::from_le_bytes(*two).to_f32())),
            Self::F32 => out.extend(bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four))),
        }
    }

    /// Writes numbers in this type, each rounded to the nearest that there is, the even one of two.
    pub fn narrow(self, numbers: &[f32], out: &mut [u8]) {
        let halves = out.as_chunks_mut::<2>().0;
        match self {
            Self::Bf16 => {
                halves.iter_mut().zip(numbers).for_each(|(two, number)| *two = bf16::from_f32(*number).to_le_bytes());
            }
            Self::F16 => {
                halves.iter_mut().zip(numbers).for_each(|(two, number)| *two = f16::from_f32(*number).to_le_bytes());
            }
            Self::F32 => {
                let wholes = out.as_chunks_mut::<4>().0;
                wholes.iter_mut().zip(numbers).for_each(|(four, number)| *four = number.to_le_bytes());
            }
        }
    }

    /// The type that safetensors files call so; `None` for the types that no engine reads.
    pub(super) fn of_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::BF16 => Some(Self::Bf16),
            safetensors::Dtype::F16 => Some(Self::F16),
            safetensors::Dtype::F32 => Some(Self::F32),
            _ => None,
        }
    }
}

/// How the bytes of a tensor are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The type of its numbers.
    pub dtype: WeightDtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
}

impl Layout {
    /// Bytes of all its numbers; `None` where that is more than this machine can address.
    pub fn bytes(&self) -> Option<usize> {
        let numbers = self.shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
        numbers?.checked_mul(self.dtype.size())
    }
}

/// One tensor of a model.
#[derive(Clone, PartialEq, Eq)]
pub struct WeightTensor {
    /// The name that the Hugging Face checkpoint has for it.
    pub name: String,
    /// The type of its numbers.
    pub dtype: WeightDtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
    /// Its numbers, little-endian and row-major; as many as the shape says.
    pub bytes: Bytes,
}

impl WeightTensor {
    /// The same tensor with its numbers in another type; `None` where one of them is not a number of that type.
    pub fn in_type(&self, dtype: WeightDtype) -> Option<Self> {
        if dtype == self.dtype {
            return Some(self.clone());
        }
        let (mut numbers, mut again) = (Vec::new(), Vec::new());
        self.dtype.widen(&self.bytes, &mut numbers);
        let mut bytes = vec![0; numbers.len() * dtype.size()];
        dtype.narrow(&numbers, &mut bytes);
        dtype.widen(&bytes, &mut again);
        let same = |(one, other): (&f32, &f32)| one.to_bits() == other.to_bits();
        numbers.iter().zip(&again).all(same).then(|| Self { dtype, bytes: bytes.into(), ..self.clone() })
    }

    /// What has to be changed in a tensor with the name, type and shape of this one so that it becomes this one; `None`
    /// where so much has that it is better replaced as a whole, or where places do not fit into 32 bits.
    ///
    /// # Panics
    /// If the other tensor has another number of bytes.
    pub fn changes_since(&self, old: &[u8]) -> Option<TensorChanges> {
        assert_eq!(self.bytes.len(), old.len(), "tensors of one type and one shape");
        let size = self.dtype.size();
        u32::try_from(old.len() / size).ok()?;
        let most = old.len() / size / LEAST_UNCHANGED;
        let (mut places, mut numbers) = (Vec::new(), Vec::new());
        for (first, (new, old)) in (0..).step_by(COMPARED).zip(self.bytes.chunks(COMPARED).zip(old.chunks(COMPARED))) {
            // Of a length that the compiler knows, they are compared without a call.
            let arrays = new.first_chunk::<COMPARED>().zip(old.first_chunk::<COMPARED>());
            if arrays.is_some_and(|(new, old)| new == old) {
                continue;
            }
            for (place, (new, old)) in (first / size..).zip(new.chunks_exact(size).zip(old.chunks_exact(size))) {
                if new != old {
                    places.push(u32::try_from(place).ok()?);
                    numbers.extend_from_slice(new);
                }
            }
            if places.len() > most {
                return None;
            }
        }
        Some(TensorChanges { name: self.name.clone(), dtype: self.dtype, shape: self.shape.clone(), places, numbers })
    }
}

/// Some numbers of a tensor, whose others stay as they are.
#[derive(Clone, PartialEq, Eq)]
pub struct TensorChanges {
    /// The name of the tensor.
    pub name: String,
    /// The type of its numbers.
    pub dtype: WeightDtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
    /// Which numbers change, counted row-major; ascending.
    pub places: Vec<u32>,
    /// What each of them becomes, little-endian.
    pub numbers: Vec<u8>,
}

impl TensorChanges {
    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places) + self.numbers.len()
    }
}

/// As of [`WeightTensor`].
impl fmt::Debug for TensorChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape, places, numbers } = self;
        let mut shown = f.debug_struct("TensorChanges");
        shown.field("name", name).field("dtype", dtype).field("shape", shape);
        shown.field("places", &places.len()).field("numbers", &numbers.len()).finish()
    }
}

/// The numbers themselves would fill a log.
impl fmt::Debug for WeightTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightTensor")
            .field("name", &self.name)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: WeightDtype, numbers: &[f32]) -> WeightTensor {
        let mut bytes = vec![0; numbers.len() * dtype.size()];
        dtype.narrow(numbers, &mut bytes);
        WeightTensor { name: "a".to_owned(), dtype, shape: vec![numbers.len()], bytes: bytes.into() }
    }

    #[test]
    fn numbers_go_to_another_type_and_back_or_not_at_all() {
        let types = [WeightDtype::Bf16, WeightDtype::F16, WeightDtype::F32];
        for (from, to) in types.into_iter().flat_map(|from| types.map(|to| (from, to))) {
            let held = tensor(from, &[0.0, -0.0, 1.5, -2.0, f32::INFINITY]);
            let there = held.in_type(to).unwrap();
            assert_eq!((there.dtype, there.bytes.len()), (to, 5 * to.size()));
            assert_eq!(there.in_type(from).unwrap(), held);
        }
        let third = tensor(WeightDtype::F32, &[1.0 / 3.0]);
        assert_eq!(third.in_type(WeightDtype::Bf16), None);
        assert_eq!(third.in_type(WeightDtype::F16), None);
        assert_eq!(tensor(WeightDtype::Bf16, &[1e30]).in_type(WeightDtype::F16), None);
        // A signalling NaN would become a quiet one.
        let signalling = WeightTensor { bytes: vec![0x81, 0x7f].into(), ..tensor(WeightDtype::Bf16, &[0.0]) };
        assert_eq!(signalling.in_type(WeightDtype::Bf16), Some(signalling.clone()));
    }

    #[test]
    fn what_changed_is_found_wherever_it_is() {
        for (dtype, count) in [(WeightDtype::Bf16, 1_001), (WeightDtype::F32, 77), (WeightDtype::F16, 8)] {
            let old = tensor(dtype, &vec![1.0; count]);
            let last = u32::try_from(count - 1).unwrap();
            for places in [vec![], vec![0], vec![last], vec![3, last]] {
                if places.len() > count / LEAST_UNCHANGED {
                    continue;
                }
                let mut numbers = vec![1.0; count];
                for place in &places {
                    numbers[*place as usize] = 2.0;
                }
                let changes = tensor(dtype, &numbers).changes_since(&old.bytes).unwrap();
                assert_eq!(changes.places, places);
                assert_eq!(changes.numbers, tensor(dtype, &vec![2.0; places.len()]).bytes);
            }
            assert_eq!(tensor(dtype, &vec![2.0; count]).changes_since(&old.bytes), None);
        }
    }
}
