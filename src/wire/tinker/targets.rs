//! `target_prompt_logprobs`: ids whose log-probs are wanted at positions of a prompt, as a tensor of one row for each token
//! of the prompt but the first; the answer is a tensor of the same shape and layout.

use serde::Deserialize;
use utoipa::ToSchema;

use super::protobuf::{DType, SparseCsr, Tensor};
use crate::{
    TokenId,
    sampling::Candidates,
    wire::{error::ApiError, fields::sampling::known_id},
};

const FIELD: &str = "target_prompt_logprobs";

/// A tensor of ids, dense or in compressed sparse rows (`types/_pydantic_types/tensor_data.py`).
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerTensor {
    /// The ids, row by row; -1 asks for nothing.
    pub data: Vec<i64>,
    /// Only `int64`.
    pub dtype: Option<String>,
    /// Rows, one for each token of the prompt but the first, and columns.
    pub shape: Option<Vec<i64>>,
    /// Where each row begins in `data`, and where the last one ends; with it only the cells in `data` are there.
    pub sparse_crow_indices: Option<Vec<i64>>,
    /// The column of each cell.
    pub sparse_col_indices: Option<Vec<i64>>,
}

/// What a request may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetLimits {
    pub(crate) prompt: usize,
    pub(crate) vocab_size: usize,
    /// The most ids of a position.
    pub(crate) most: Option<usize>,
}

/// Valid targets.
#[derive(Debug)]
pub(crate) struct Targets {
    rows: Vec<Vec<Option<TokenId>>>,
    /// The first row that names an id.
    first: usize,
    /// How many ids the longest row names.
    width: usize,
    shape: Vec<i64>,
    /// Begins of rows, and columns; `None` where all cells are there.
    sparse: Option<(Vec<i64>, Vec<i64>)>,
}

fn refuse<T>(what: &str) -> Result<T, ApiError> {
    Err(ApiError::invalid(FIELD, format!("`{FIELD}` {what}")))
}

impl Targets {
    /// Checks a tensor.
    pub(crate) fn new(tensor: &TinkerTensor, limits: TargetLimits) -> Result<Self, ApiError> {
        if tensor.dtype.as_deref().is_some_and(|dtype| dtype != "int64") {
            return refuse("must be a tensor of int64");
        }
        let count = limits.prompt.saturating_sub(1);
        let sizes = tensor.shape.as_deref().unwrap_or_default().iter().map(|size| usize::try_from(*size).ok());
        let sizes: Option<Vec<usize>> = sizes.collect();
        let Some(&[rows, columns]) = sizes.as_deref() else { return refuse("must have a shape of two sizes") };
        if rows != count {
            return refuse(&format!("must have {count} rows, one for each token of the prompt but the first"));
        }
        let cells = match (&tensor.sparse_crow_indices, &tensor.sparse_col_indices) {
            (None, None) => dense(&tensor.data, rows, columns),
            (Some(begins), Some(places)) => sparse(&tensor.data, begins, places, (rows, columns)),
            _ => return refuse("must have `sparse_crow_indices` and `sparse_col_indices`, or none of them"),
        };
        let Some(cells) = cells else { return refuse("has other cells than its shape and its indices say") };
        let rows = cells.into_iter().map(|row| row.iter().map(|id| target(*id, limits.vocab_size)).collect());
        let rows = rows.collect::<Result<Vec<Vec<_>>, ApiError>>()?;
        let named = |row: &Vec<Option<TokenId>>| row.iter().flatten().count();
        let Some(first) = rows.iter().position(|row| named(row) > 0) else { return refuse("names no id") };
        let width = rows.iter().map(named).max().unwrap_or(0);
        if let Some(most) = limits.most.filter(|most| width > *most) {
            return refuse(&format!("names {width} ids at a position, and {most} are allowed (--max-logprobs)"));
        }
        let sparse = tensor.sparse_crow_indices.clone().zip(tensor.sparse_col_indices.clone());
        Ok(Self { rows, first, width, shape: tensor.shape.clone().unwrap_or_default(), sparse })
    }

    /// The same for an engine: only ids that are named, from the first row that has one.
    pub(crate) fn candidates(&self) -> Candidates {
        let rows = self.rows[self.first..].iter().map(|row| row.iter().filter(|id| id.is_some()).copied());
        Candidates::of_rows(self.first, self.width, rows)
    }

    /// The tensor of the answer; `scores` are the log-probs of the candidates, as many for each row as the longest one has.
    /// Cells that ask for nothing are 0.
    pub(crate) fn scored(&self, scores: &[f32]) -> Result<Tensor, ApiError> {
        if scores.len() != (self.rows.len() - self.first) * self.width {
            return Err(ApiError::internal("the engine left out log-probs of targets"));
        }
        let before = std::iter::repeat_n(&[][..], self.first);
        let mut values = Vec::new();
        for (row, scores) in self.rows.iter().zip(before.chain(scores.chunks(self.width))) {
            let mut scores = scores.iter();
            let score = |id: &Option<TokenId>| id.and_then(|_| scores.next().copied()).unwrap_or(0.0);
            values.extend(row.iter().map(score).flat_map(f32::to_le_bytes));
        }
        let (dense, sparse_csr) = match &self.sparse {
            None => (Some(values), None),
            Some((begins, places)) => {
                let csr = SparseCsr { values, crow_indices: int64(begins), col_indices: int64(places) };
                (None, Some(csr))
            }
        };
        Ok(Tensor { dense, sparse_csr, dtype: DType::Float32.into(), shape: self.shape.clone() })
    }
}

fn int64(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn target(id: i64, vocab_size: usize) -> Result<Option<TokenId>, ApiError> {
    if id == -1 {
        return Ok(None);
    }
    match known_id(id, vocab_size) {
        Some(id) => Ok(Some(id)),
        None => refuse(&format!("has the id {id}, which is out of vocabulary")),
    }
}

/// The cells of each row; `None` if there are more or fewer than the shape says.
fn dense(data: &[i64], rows: usize, columns: usize) -> Option<Vec<&[i64]>> {
    let is_whole = columns > 0 && rows.checked_mul(columns) == Some(data.len());
    is_whole.then(|| data.chunks(columns).collect())
}

/// The cells of each row; `None` if the indices are not those of rows in order, or of columns that there are.
fn sparse<'d>(
    data: &'d [i64],
    begins: &[i64],
    places: &[i64],
    (rows, columns): (usize, usize),
) -> Option<Vec<&'d [i64]>> {
    let begins: Vec<usize> = begins.iter().map(|begin| usize::try_from(*begin).ok()).collect::<Option<_>>()?;
    let is_column = |place: &i64| usize::try_from(*place).is_ok_and(|place| place < columns);
    let is_whole = begins.len() == rows + 1
        && begins.first() == Some(&0)
        && begins.last() == Some(&data.len())
        && places.len() == data.len()
        && places.iter().all(is_column);
    if !is_whole {
        return None;
    }
    begins.windows(2).map(|pair| data.get(pair[0]..pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    const LIMITS: TargetLimits = TargetLimits { prompt: 4, vocab_size: 10, most: Some(2) };

    fn tensor(data: &[i64], columns: i64) -> TinkerTensor {
        TinkerTensor {
            data: data.to_vec(),
            dtype: Some("int64".to_owned()),
            shape: Some(vec![3, columns]),
            sparse_crow_indices: None,
            sparse_col_indices: None,
        }
    }

    fn csr(data: &[i64], begins: &[i64], places: &[i64]) -> TinkerTensor {
        let (begins, places) = (Some(begins.to_vec()), Some(places.to_vec()));
        TinkerTensor { sparse_crow_indices: begins, sparse_col_indices: places, ..tensor(data, 9) }
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn dense_cells_are_scored_where_they_name_an_id() {
        let targets = Targets::new(&tensor(&[-1, -1, -1, 3, -1, 4, 5, -1, -1], 3), LIMITS).unwrap();
        let candidates = targets.candidates();
        assert_eq!((candidates.first(), candidates.width(), candidates.at(1)), (1, 2, &[3, 4][..]));
        assert_eq!(candidates.at(2)[0], 5);
        let scored = targets.scored(&[-3.0, -4.0, -5.0, f32::NEG_INFINITY]).unwrap();
        let expected = [0.0, 0.0, 0.0, -3.0, 0.0, -4.0, -5.0, 0.0, 0.0];
        assert_eq!((scored.dense.as_deref(), &scored.shape), (Some(&floats(&expected)[..]), &vec![3, 3]));
        assert!(targets.scored(&[-3.0]).is_err());
        assert!(Tensor::decode(&scored.encode_to_vec()[..]).unwrap() == scored);
    }

    #[test]
    fn sparse_cells_are_given_back_with_their_places() {
        let targets = Targets::new(&csr(&[7, -1, 8], &[0, 1, 1, 3], &[8, 2, 4]), LIMITS).unwrap();
        let candidates = targets.candidates();
        assert_eq!((candidates.first(), candidates.width(), candidates.at(2)), (0, 1, &[8][..]));
        let scored = targets.scored(&[-7.0, f32::NEG_INFINITY, -8.0]).unwrap();
        let csr = scored.sparse_csr.unwrap();
        assert_eq!(csr.values, floats(&[-7.0, 0.0, -8.0]));
        assert_eq!((csr.crow_indices, csr.col_indices), (int64(&[0, 1, 1, 3]), int64(&[8, 2, 4])));
        assert_eq!((scored.dense, scored.shape), (None, vec![3, 9]));
    }

    #[test]
    fn what_is_no_tensor_of_the_prompt_is_refused() {
        let floating = TinkerTensor { dtype: Some("float32".to_owned()), ..tensor(&[1, 2, 3], 1) };
        let flat = TinkerTensor { shape: Some(vec![3]), ..tensor(&[1, 2, 3], 1) };
        let long = TinkerTensor { shape: Some(vec![4, 1]), ..tensor(&[1, 2, 3, 4], 1) };
        let half = TinkerTensor { sparse_col_indices: None, ..csr(&[1], &[0, 1, 1, 1], &[0]) };
        for (tensor, says) in [
            (floating, "tensor of int64"),
            (flat, "two sizes"),
            (TinkerTensor { shape: None, ..tensor(&[1, 2, 3], 1) }, "two sizes"),
            (TinkerTensor { shape: Some(vec![3, -1]), ..tensor(&[1, 2, 3], 1) }, "two sizes"),
            (long, "must have 3 rows"),
            (half, "or none of them"),
            (tensor(&[1, 2], 1), "other cells"),
            (tensor(&[], 0), "other cells"),
            (csr(&[1], &[0, 2, 1, 1], &[0]), "other cells"),
            (csr(&[1], &[0, 1, 1, 1], &[9]), "other cells"),
            (csr(&[1], &[0, 1, 1], &[0]), "other cells"),
            (tensor(&[-1, -1, -1], 1), "names no id"),
            (tensor(&[1, 10, 3], 1), "the id 10, which is out of vocabulary"),
            (tensor(&[1, -2, 3], 1), "the id -2, which is out of vocabulary"),
            (tensor(&[1, 2, 3, -1, -1, -1, -1, -1, -1], 3), "names 3 ids at a position, and 2 are allowed"),
        ] {
            let refused = Targets::new(&tensor, LIMITS).unwrap_err().message();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
