//! A checkpoint with an adapter merged into it.
//!
//! Each number is `weight + scale * (b * a)`, summed in double precision and rounded once to the type of the checkpoint.
//! Everything else of the checkpoint is copied as it is.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use half::{bf16, f16};

use super::{PeftKind, PeftModule, is_same};
use crate::{
    files::NewDirectory,
    weights::{FileError, HeaderTensor, SafetensorsFile, WeightDtype, WeightTensor, transposed},
};

/// Why an adapter was not merged. Nothing is left at the destination.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A file of the checkpoint cannot be used.
    #[error(transparent)]
    Weights(#[from] FileError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Something is at the destination already.
    #[error("{} exists and is not an empty directory", .0.display())]
    Exists(PathBuf),
    /// A tensor is not what the adapter was compared with.
    #[error("{0}")]
    Tensor(String),
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> MergeError {
    move |source| MergeError::File { path: path.to_owned(), source }
}

/// Writes the checkpoint `base` to the new directory `out`, with `modules`, by the names of their tensors, merged into it. The
/// directory appears at once, complete. `progress` is called with the number of merged tensors, and with that of all.
pub fn merge(
    base: &Path,
    modules: &BTreeMap<String, &PeftModule>,
    out: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), MergeError> {
    let staging = NewDirectory::beside(out).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => MergeError::Exists(out.to_owned()),
        _ => failed(out)(source),
    })?;
    let mut merged = 0;
    let mut left: BTreeMap<&str, &PeftModule> = modules.iter().map(|(name, module)| (&**name, *module)).collect();
    for entry in fs::read_dir(base).map_err(failed(base))? {
        let path = entry.map_err(failed(base))?.path();
        let Some(name) = path.file_name().filter(|_| path.is_file()) else { continue };
        let copy = staging.path().join(name);
        fs::copy(&path, &copy).map_err(failed(&path))?;
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            let file = SafetensorsFile::open(path)?;
            for tensor in file.header().tensors() {
                if let Some(module) = left.remove(&*tensor.name) {
                    rewrite(&file, tensor, module, &copy)?;
                    merged += 1;
                    progress(merged, modules.len());
                }
            }
        }
    }
    if let Some(missing) = left.keys().next() {
        return Err(MergeError::Tensor(format!("the checkpoint lacks {missing}, which the adapter changes")));
    }
    staging.publish(out).map_err(failed(out))
}

/// What a module adds to its weights before it is scaled: the product of two matrices, row by row.
struct Factors {
    left: Vec<f32>,
    right: Vec<f32>,
    /// The columns of the left one, and the rows of the right one.
    rank: usize,
}

impl Factors {
    fn of(module: &PeftModule) -> Self {
        let rank = module.rank();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        module.a.dtype.widen(&module.a.bytes, &mut a);
        module.b.dtype.widen(&module.b.bytes, &mut b);
        match module.kind {
            PeftKind::Linear => Self { left: b, right: a, rank },
            // The weights of embeddings have a row for each token.
            PeftKind::Embedding => Self { left: transposed(&a, module.a.shape[1]), right: transposed(&b, rank), rank },
        }
    }
}

/// One row of a tensor.
fn row_of(tensor: &WeightTensor, row: usize) -> WeightTensor {
    let bytes = tensor.shape[1..].iter().product::<usize>() * tensor.dtype.size();
    WeightTensor { bytes: tensor.bytes.slice(row * bytes..(row + 1) * bytes), ..tensor.clone() }
}

/// Writes one tensor of a file's copy, row by row.
fn rewrite(file: &SafetensorsFile, tensor: &HeaderTensor, module: &PeftModule, copy: &Path) -> Result<(), MergeError> {
    let layout = tensor.layout().map_err(MergeError::Tensor)?;
    let Factors { left, right, rank } = Factors::of(module);
    let columns = right.len() / rank;
    if layout.shape != [left.len() / rank, columns] {
        let (name, shape) = (&tensor.name, &layout.shape);
        return Err(MergeError::Tensor(format!("{name} has the shape {shape:?}, which is not the adapter's")));
    }
    let from = File::open(file.path()).map_err(failed(file.path()))?;
    let to = File::options().write(true).open(copy).map_err(failed(copy))?;
    let mut bytes = vec![0; columns * layout.dtype.size()];
    let mut numbers = Vec::new();
    for (row, left) in left.chunks_exact(rank).enumerate() {
        let start = file.start(tensor) + (row * bytes.len()) as u64;
        from.read_exact_at(&mut bytes, start).map_err(failed(file.path()))?;
        if module.base.as_ref().is_some_and(|base| !is_same(&row_of(base, row), layout.dtype, &bytes)) {
            let name = &tensor.name;
            return Err(MergeError::Tensor(format!("the adapter has other numbers for {name} than the checkpoint")));
        }
        numbers.clear();
        layout.dtype.widen(&bytes, &mut numbers);
        let mut sums = vec![0.0_f64; columns];
        for (factor, right) in left.iter().zip(right.chunks_exact(columns)) {
            for (sum, number) in sums.iter_mut().zip(right) {
                *sum += f64::from(*factor) * f64::from(*number);
            }
        }
        for (sum, number) in sums.iter_mut().zip(&numbers) {
            *sum = f64::from(*number) + f64::from(module.scale) * *sum;
        }
        rounded(layout.dtype, &sums, &mut bytes);
        to.write_all_at(&bytes, start).map_err(failed(copy))?;
    }
    Ok(())
}

/// A number in single precision whose last bit says whether anything was lost, so that rounding it to half of the bits
/// gives what rounding the number itself would. The conversions of `half` pass over the lower half of a double.
#[expect(clippy::cast_possible_truncation, reason = "what is lost is said by the last bit")]
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let wide = f64::from(nearest);
    if !nearest.is_finite() || wide.to_bits() == number.to_bits() {
        return nearest;
    }
    let towards_zero = if wide.abs() > number.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(towards_zero | 1)
}

/// Writes numbers in a type, each rounded once.
#[expect(clippy::cast_possible_truncation, reason = "the one rounding of a number")]
fn rounded(dtype: WeightDtype, numbers: &[f64], out: &mut [u8]) {
    match dtype {
        WeightDtype::Bf16 => {
            let out = out.as_chunks_mut::<2>().0;
            out.iter_mut().zip(numbers).for_each(|(two, number)| *two = bf16::from_f32(to_odd(*number)).to_le_bytes());
        }
        WeightDtype::F16 => {
            let out = out.as_chunks_mut::<2>().0;
            out.iter_mut().zip(numbers).for_each(|(two, number)| *two = f16::from_f32(to_odd(*number)).to_le_bytes());
        }
        WeightDtype::F32 => {
            let out = out.as_chunks_mut::<4>().0;
            out.iter_mut().zip(numbers).for_each(|(four, number)| *four = (*number as f32).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: WeightDtype, shape: [usize; 2], numbers: &[f32]) -> WeightTensor {
        let mut bytes = vec![0; numbers.len() * dtype.size()];
        dtype.narrow(numbers, &mut bytes);
        WeightTensor { name: String::new(), dtype, shape: shape.to_vec(), bytes: bytes.into() }
    }

    fn write(path: &Path, dtype: safetensors::Dtype, bytes: &[u8]) {
        let view = |shape: Vec<usize>, bytes| safetensors::tensor::TensorView::new(dtype, shape, bytes).unwrap();
        let size = bytes.len() / 4;
        let views = [("other", view(vec![1], &bytes[..size])), ("m.weight", view(vec![2, 2], bytes))];
        fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }

    #[test]
    fn numbers_are_summed_exactly_and_rounded_once() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().join("base");
        fs::create_dir(&base).unwrap();
        fs::write(base.join("config.json"), "{}").unwrap();
        // In bfloat16, 1 + 2^-8 lies between two numbers, and the sum is a little over it: rounded twice it would be 1.
        let weight = tensor(WeightDtype::Bf16, [2, 2], &[1.0, 2.0, -3.0, 0.0]);
        write(&base.join("model.safetensors"), safetensors::Dtype::BF16, &weight.bytes);
        let a = tensor(WeightDtype::F32, [2, 2], &[2.0_f32.powi(-8), 0.5, 2.0_f32.powi(-40), 0.0]);
        let b = tensor(WeightDtype::F32, [2, 2], &[1.0, 1.0, 0.0, 0.0]);
        let module = PeftModule { name: "m".to_owned(), kind: PeftKind::Linear, a, b, scale: 1.0, base: None };
        let modules = [("m.weight".to_owned(), &module)].into();
        let out = root.path().join("out");
        let mut done = Vec::new();
        merge(&base, &modules, &out, &mut |merged, all| done.push((merged, all))).unwrap();
        assert_eq!(done, [(1, 1)]);
        assert_eq!(fs::read_to_string(out.join("config.json")).unwrap(), "{}");
        let bytes = fs::read(out.join("model.safetensors")).unwrap();
        let merged = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut numbers = Vec::new();
        WeightDtype::Bf16.widen(merged.tensor("m.weight").unwrap().data(), &mut numbers);
        assert_eq!(numbers, [1.0 + 2.0_f32.powi(-7), 2.5, -3.0, 0.0]);
        assert_eq!(merged.tensor("other").unwrap().data(), &weight.bytes[..2]);
        // The same tensor as embeddings, whose matrices are those of the transposed one.
        let a = tensor(WeightDtype::F32, [1, 2], &[1.0, 2.0]);
        let b = tensor(WeightDtype::F32, [2, 1], &[0.5, 0.25]);
        let kind = PeftKind::Embedding;
        let table = PeftModule { name: "m".to_owned(), kind, a, b, scale: 4.0, base: Some(weight.clone()) };
        let embedded = root.path().join("embedded");
        merge(&base, &[("m.weight".to_owned(), &table)].into(), &embedded, &mut |_, _| ()).unwrap();
        let bytes = fs::read(embedded.join("model.safetensors")).unwrap();
        numbers.clear();
        let merged = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        WeightDtype::Bf16.widen(merged.tensor("m.weight").unwrap().data(), &mut numbers);
        assert_eq!(numbers, [3.0, 3.0, 1.0, 2.0]);
        let of_another = PeftModule { base: Some(tensor(WeightDtype::Bf16, [2, 2], &[1.0, 2.0, -3.0, 0.5])), ..table };
        let other =
            merge(&base, &[("m.weight".to_owned(), &of_another)].into(), &root.path().join("x"), &mut |_, _| ());
        assert_eq!(other.unwrap_err().to_string(), "the adapter has other numbers for m.weight than the checkpoint");
        fs::remove_dir_all(embedded).unwrap();
        // Whatever is there already is left alone.
        assert!(matches!(merge(&base, &modules, &out, &mut |_, _| ()), Err(MergeError::Exists(_))));
        let modules = [("n.weight".to_owned(), &module)].into();
        let refused = merge(&base, &modules, &root.path().join("none"), &mut |_, _| ()).unwrap_err();
        assert_eq!(refused.to_string(), "the checkpoint lacks n.weight, which the adapter changes");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "nothing is left behind");
    }
}
