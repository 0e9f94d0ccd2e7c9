//! Which numbers of a GGUF file are which tensor of a Hugging Face directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use candle_core::quantized::GgmlDType;

use super::{
    super::{GgufError, GgufFile, tensor_type::TensorType},
    order::Order,
};

/// A tensor of the directory, and where the file has its numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedTensor {
    /// Its name in the directory.
    pub(crate) name: String,
    /// Rows first.
    pub(crate) shape: Vec<usize>,
    /// Its tensors in the file: one, several, or none where settings say its numbers.
    pub(crate) sources: Vec<Source>,
    /// How it is put together from these.
    pub(crate) layout: Layout,
    /// What is done with its numbers then.
    pub(crate) change: Option<Change>,
}

impl NamedTensor {
    /// A tensor whose numbers are settings.
    pub(super) fn of_numbers(name: String, shape: &[usize], numbers: Vec<f32>) -> Self {
        Self { name, shape: shape.to_vec(), sources: Vec::new(), layout: Layout::Numbers(numbers), change: None }
    }
}

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its name in the file.
    pub(crate) name: String,
    /// Rows first.
    pub(crate) shape: Vec<usize>,
    /// The rows of it that count; `None` for all.
    pub(crate) rows: Option<Range<usize>>,
}

impl Source {
    /// All of a tensor.
    pub(super) fn whole(name: String, shape: Vec<usize>) -> Self {
        Self { name, shape, rows: None }
    }
}

/// How a tensor is put together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Layout {
    /// It is the one in the file.
    Whole,
    /// It is the one in the file, whose rows are in this order there. A vector's numbers are rows.
    Rows(Order),
    /// It is the one in the file, whose columns are in this order there.
    Columns(Order),
    /// It is this one of the file's, which has one after the other.
    Slice(usize),
    /// It is so many tables, each put together of the same parts of every source.
    Groups(Groups),
    /// It is none of the file's: settings say its numbers.
    Numbers(Vec<f32>),
}

/// Tables that are put together of parts, one from each source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    /// How many there are.
    pub(crate) count: usize,
    /// Each source, as it is put into a table.
    pub(crate) parts: Vec<TablePart>,
    /// Whether the rows of parts alternate, rather than follow part by part.
    pub(crate) alternate: bool,
    /// Whether the table is turned in the end.
    pub(crate) turned: bool,
}

/// A part of a table: some numbers of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TablePart {
    /// The length of its rows in the file.
    pub(crate) columns: usize,
    /// Whether it is turned first.
    pub(crate) turned: bool,
}

/// What is done with numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The file has one more.
    LessOne,
    /// The file has the exponential, negated.
    NegatedLogarithm,
}

impl Change {
    /// Makes numbers of the file to those of the directory.
    pub(crate) fn apply(self, numbers: &mut [f32]) {
        for number in numbers {
            *number = match self {
                Self::LessOne => *number - 1.0,
                Self::NegatedLogarithm => (-*number).ln(),
            };
        }
    }
}

/// Compares the tensors with those of the file: a missing, an unexpected or a misshapen one is an error. Those that
/// `unused` knows may be there.
pub(super) fn check(file: &GgufFile, tensors: &[NamedTensor], unused: impl Fn(&str) -> bool) -> Result<(), GgufError> {
    let known: BTreeSet<&str> = tensors.iter().flat_map(|tensor| &tensor.sources).map(|source| &*source.name).collect();
    // Sorted, so that a file is always refused for the same tensor.
    let by_name: BTreeMap<_, _> = file.content.tensors.iter().collect();
    if let Some(name) = by_name.keys().find(|name| !known.contains(name.as_str()) && !unused(name)) {
        let architecture = file.architecture()?;
        let reason = format!("it has a tensor `{name}`, which the architecture `{architecture}` does not have");
        return Err(GgufError::Unsupported(reason));
    }
    tensors.iter().flat_map(|tensor| tensor.sources.iter().map(move |source| (tensor, source))).try_for_each(
        |(tensor, source)| {
            check_source(file, tensor, source).map_err(|reason| GgufError::Tensor { name: source.name.clone(), reason })
        },
    )
}

fn check_source(file: &GgufFile, tensor: &NamedTensor, source: &Source) -> Result<(), String> {
    let info = file.content.tensors.get(&source.name).ok_or("the file does not have it")?;
    // Some converters leave out leading lengths of 1.
    if without_ones(&info.shape) != without_ones(&source.shape) {
        return Err(format!("its shape is {:?}, not {:?}", info.shape, source.shape));
    }
    // candle reads no numbers of this type, which is for products only.
    if info.dtype == TensorType::Ggml(GgmlDType::Q8_1) {
        return Err("its type Q8_1 is not for weights".to_owned());
    }
    let row = match (&tensor.layout, &source.shape[..]) {
        // A reordered vector is reordered number by number.
        (Layout::Rows(_), [_]) => 1,
        (_, shape) => shape.last().copied().unwrap_or(1),
    };
    let block = info.dtype.block_size();
    if !row.is_multiple_of(block) {
        return Err(format!("a row of {row} numbers is not made of blocks of {block}"));
    }
    Ok(())
}

fn without_ones(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|length| **length == 1).count();
    &shape[ones.min(shape.len().saturating_sub(1))..]
}
