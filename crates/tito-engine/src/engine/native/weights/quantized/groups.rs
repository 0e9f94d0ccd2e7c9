//! Which group an input of a matrix belongs to: so many in a row, or what an index of the checkpoint says.

use safetensors::Dtype;

use super::{module::Module, numbers::words_of};
use crate::engine::native::weights::WeightsError;

/// The group of each input, `size` of them after the other.
pub(super) fn in_order(inputs: usize, size: usize) -> Vec<usize> {
    (0..inputs).map(|input| input / size.max(1)).collect()
}

/// The group of each input by an index; `None` where the checkpoint has none, or left it as it was made: all -1.
pub(super) fn of_index(
    module: &Module<'_>,
    leaf: &str,
    inputs: usize,
    groups: usize,
) -> Result<Option<Vec<usize>>, WeightsError> {
    let Some(index) = module.find(leaf) else { return Ok(None) };
    if *index.shape != [inputs] || index.dtype != Dtype::I32 {
        let (shape, dtype) = (index.shape, index.dtype);
        return Err(module.refusal(&format!("{leaf} is {shape:?} of {dtype:?}, and there are {inputs} inputs")));
    }
    let words = words_of(module, leaf)?;
    if words.iter().all(|word| *word == u32::MAX) {
        return Ok(None);
    }
    let index: Vec<usize> = words.into_iter().map(|word| word as usize).collect();
    match index.iter().find(|group| **group >= groups) {
        Some(group) => Err(module.refusal(&format!("{leaf} names group {group} of {groups}"))),
        None => Ok(Some(index)),
    }
}
