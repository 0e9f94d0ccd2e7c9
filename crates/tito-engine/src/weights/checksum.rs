//! Checksums that tell whether two parties hold the same weights.
//!
//! **Of a tensor**: BLAKE3 (32 bytes) over these, one after the other, without anything between them:
//!
//! 1. the length of the name in bytes of UTF-8, as 8 bytes, little-endian; then the name;
//! 2. the length of the type's name, likewise; then the type's name as safetensors files have it: `BF16`, `F16` or `F32`;
//! 3. the number of dimensions, as 8 bytes, little-endian; then each length, the outermost first, likewise;
//! 4. the numbers, little-endian and row-major, as safetensors files hold them.
//!
//! **Of a model**: BLAKE3 over the 32 bytes of each tensor's checksum, in the order of the tensors' names by their bytes of
//! UTF-8, without anything between them.
//!
//! A checksum is written as 64 hexadecimal digits in lower case. In Python, with the package `blake3`:
//!
//! ```python
//! def of_tensor(name, dtype, shape, data):
//!     number = lambda value: value.to_bytes(8, "little")
//!     text = lambda value: number(len(value.encode())) + value.encode()
//!     head = text(name) + text(dtype) + number(len(shape)) + b"".join(map(number, shape))
//!     return blake3(head + data).digest()
//!
//! def of_model(tensors):  # {name: (dtype, shape, data)}
//!     names = sorted(tensors, key=str.encode)
//!     return blake3(b"".join(of_tensor(name, *tensors[name]) for name in names)).hexdigest()
//! ```

use std::{collections::BTreeMap, fmt};

use super::{
    WeightDtype, WeightTensor,
    peft::{PeftAdapter, PeftKind, PeftModule},
};

/// A checksum of a tensor or of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum([u8; 32]);

impl Checksum {
    /// Of a tensor that is in memory.
    pub fn of_tensor(tensor: &WeightTensor) -> Self {
        let mut hasher = TensorHasher::new(&tensor.name, tensor.dtype, &tensor.shape);
        hasher.update(&tensor.bytes);
        hasher.finish()
    }

    /// Of an adapter: of all that decides what it adds, which its name is no part of.
    pub fn of_adapter(adapter: &PeftAdapter) -> Self {
        let mut hasher = blake3::Hasher::new();
        for PeftModule { name, kind, a, b, scale, base: _ } in &adapter.modules {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&[u8::from(*kind == PeftKind::Embedding)]);
            hasher.update(&scale.to_bits().to_le_bytes());
            for matrix in [a, b] {
                hasher.update(&Self::of_tensor(matrix).0);
            }
        }
        Self(hasher.finalize().into())
    }

    /// Of a model, from those of its tensors by name.
    pub fn of_model(tensors: &BTreeMap<String, Self>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for checksum in tensors.values() {
            hasher.update(&checksum.0);
        }
        Self(hasher.finalize().into())
    }
}

/// As 64 hexadecimal digits.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Computes the checksum of a tensor whose bytes come one part after the other.
#[derive(Debug)]
pub struct TensorHasher(blake3::Hasher);

impl TensorHasher {
    /// Nothing of the numbers has come yet.
    pub fn new(name: &str, dtype: WeightDtype, shape: &[usize]) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        for text in [name, dtype.name()] {
            hasher.number(text.len());
            hasher.update(text.as_bytes());
        }
        hasher.number(shape.len());
        for length in shape {
            hasher.number(*length);
        }
        hasher
    }

    fn number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_le_bytes());
    }

    /// Takes the next bytes of the numbers.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum, after the last byte.
    pub fn finish(&self) -> Checksum {
        Checksum(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize]) -> WeightTensor {
        WeightTensor {
            name: name.to_owned(),
            dtype: WeightDtype::F16,
            shape: shape.to_vec(),
            bytes: vec![1, 2, 3, 4, 5, 6, 7, 8].into(),
        }
    }

    #[test]
    fn everything_about_a_tensor_counts() {
        let base = tensor("ab", &[2, 2]);
        let others = [
            tensor("a", &[2, 2]),
            tensor("ab", &[4]),
            tensor("ab", &[1, 4]),
            WeightTensor { dtype: WeightDtype::Bf16, ..base.clone() },
            WeightTensor { bytes: vec![1, 2, 3, 4, 5, 6, 7, 9].into(), ..base.clone() },
        ];
        let checksums: std::collections::HashSet<_> = others.iter().chain([&base]).map(Checksum::of_tensor).collect();
        assert_eq!(checksums.len(), 6);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let whole = tensor("a", &[4]);
        let mut hasher = TensorHasher::new("a", WeightDtype::F16, &[4]);
        whole.bytes.chunks(3).for_each(|part| hasher.update(part));
        assert_eq!(hasher.finish(), Checksum::of_tensor(&whole));
        assert_eq!(hasher.finish().to_string().len(), 64);
    }

    #[test]
    fn an_adapters_is_of_all_that_it_adds() {
        let module = PeftModule {
            name: "a".to_owned(),
            kind: PeftKind::Linear,
            a: tensor("a", &[2, 2]),
            b: tensor("b", &[2, 2]),
            scale: 2.0,
            base: None,
        };
        let of = |modules: &[PeftModule]| Checksum::of_adapter(&PeftAdapter { modules: modules.to_vec() });
        let own = of(std::slice::from_ref(&module));
        // The weights that it was trained beside are those of the model.
        assert_eq!(own, of(&[PeftModule { base: Some(tensor("c", &[4])), ..module.clone() }]));
        let others = [
            PeftModule { name: "b".to_owned(), ..module.clone() },
            PeftModule { kind: PeftKind::Embedding, ..module.clone() },
            PeftModule { a: tensor("a", &[1, 4]), ..module.clone() },
            PeftModule { b: tensor("c", &[2, 2]), ..module.clone() },
            PeftModule { scale: 2.5, ..module.clone() },
        ];
        assert!(others.into_iter().all(|other| of(&[other]) != own));
        assert!(of(&[module.clone(), module]) != own && of(&[]) != own);
    }
}
