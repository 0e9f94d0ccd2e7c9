//! Weights that are replaced while the model is loaded: what was overwritten is kept, and put back where an update
//! fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{
    Model, Parameters,
    tensors::{Checked, Destination, Target, expected},
};
use crate::engine::{
    TensorInfo, Visit, WeightDtype,
    native::{
        backend::{Backend, NoRoom},
        weights::WeightsError,
    },
};

/// How many numbers of a tensor are read at a time.
const READ_NUMBERS: usize = 1 << 20;

/// What an update overwrote, matrix by matrix.
pub(crate) struct Undo<B: Backend> {
    saved: BTreeMap<Destination, Saved<B>>,
}

enum Saved<B: Backend> {
    Matrix(B::Saved),
    Vector(Vec<f32>),
}

impl<B: Backend> Default for Undo<B> {
    fn default() -> Self {
        Self { saved: BTreeMap::new() }
    }
}

impl<B: Backend> Model<B> {
    /// Every tensor, in the order of the layers, as it is held.
    pub(crate) fn tensors(&self) -> Vec<TensorInfo> {
        let info = |tensor: super::tensors::Tensor| TensorInfo {
            dtype: if tensor.place.is_vector() { WeightDtype::F32 } else { self.backend.dtype() },
            name: tensor.name,
            shape: tensor.shape,
        };
        expected(&self.shape).into_iter().map(info).collect()
    }

    /// Tensors that are to be written before anything can be computed.
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// The bytes of what these weights would overwrite and what is not kept yet.
    pub(crate) fn undo_bytes(&mut self, checked: &Checked<'_>, undo: &Undo<B>) -> u64 {
        let Some(parameters) = &mut self.parameters else { return 0 };
        let wholes: BTreeSet<Destination> = checked.places().map(Destination::whole).collect();
        let unkept = wholes.into_iter().filter(|whole| !undo.saved.contains_key(whole));
        unkept.map(|whole| parameters.bytes(&self.backend, whole)).sum()
    }

    /// Overwrites weights; `undo` keeps what they were, unless there is none. After an error nobody knows what the
    /// weights are.
    pub(crate) fn replace(
        &mut self,
        checked: Checked<'_>,
        mut undo: Option<&mut Undo<B>>,
    ) -> Result<u64, WeightsError> {
        if let Some(undo) = &mut undo {
            for whole in checked.places().map(Destination::whole) {
                self.keep(whole, undo)?;
            }
        }
        let names: Vec<String> = checked.names().map(str::to_owned).collect();
        let bytes = self.bytes(&names);
        self.write(checked, &mut |_, _| ())?;
        for name in names {
            self.lacking.remove(&name);
        }
        Ok(bytes)
    }

    /// What tensors of these names take, as they are held.
    fn bytes(&self, names: &[String]) -> u64 {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let wanted = self.tensors().into_iter().filter(|tensor| names.contains(tensor.name.as_str()));
        wanted.map(|tensor| (tensor.shape.iter().product::<usize>() * tensor.dtype.size()) as u64).sum()
    }

    fn keep(&mut self, whole: Destination, undo: &mut Undo<B>) -> Result<(), NoRoom> {
        if undo.saved.contains_key(&whole) {
            return Ok(());
        }
        let Some(parameters) = &mut self.parameters else { return Ok(()) };
        let saved = match parameters.target(whole).expect("a model has a place for every tensor of its shape") {
            Target::Rows(matrix, _) => Saved::Matrix(self.backend.save(matrix)?),
            Target::Numbers(vector, _) => Saved::Vector(self.backend.read_vector(vector)),
        };
        undo.saved.insert(whole, saved);
        Ok(())
    }

    /// Puts back what an update overwrote.
    pub(crate) fn undo(&mut self, undo: Undo<B>) -> Result<(), NoRoom> {
        let Some(parameters) = &mut self.parameters else { return Ok(()) };
        for (whole, saved) in undo.saved {
            match (parameters.target(whole), saved) {
                (Some(Target::Rows(matrix, _)), Saved::Matrix(saved)) => self.backend.put_back(matrix, saved)?,
                (Some(Target::Numbers(vector, _)), Saved::Vector(numbers)) => {
                    self.backend.write_vector(vector, 0, &numbers)?;
                }
                _ => unreachable!("a place keeps what it holds"),
            }
        }
        Ok(())
    }

    /// Takes note that nobody knows what the weights are.
    pub(crate) fn lose_weights(&mut self) {
        self.lacking = expected(&self.shape).into_iter().map(|tensor| tensor.name).collect();
    }

    /// Gives the memory of the weights back.
    pub(crate) fn discard_weights(&mut self) {
        self.parameters = None;
        self.lose_weights();
    }

    /// Whether there is memory for weights.
    pub(crate) fn has_room_for_weights(&self) -> bool {
        self.parameters.is_some()
    }

    /// Takes memory for weights again.
    pub(crate) fn restore_weights(&mut self) -> Result<(), NoRoom> {
        if self.parameters.is_none() {
            self.parameters = Some(Parameters::zeros(&self.backend, &self.shape)?);
        }
        Ok(())
    }

    /// Gives the memory of keys and values back, and says how many blocks there were.
    pub(crate) fn discard_cache(&mut self) {
        self.caches.clear();
    }

    /// Takes memory for as many blocks as before.
    pub(crate) fn restore_cache(&mut self) -> Result<(), NoRoom> {
        if self.caches.is_empty() { self.allocate_cache(self.blocks) } else { Ok(()) }
    }

    /// Reads tensors of these names, in the order of the layers.
    pub(crate) fn read_tensors(&mut self, names: &[String], visit: &mut Visit) -> Result<(), NoRoom> {
        let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let infos = self.tensors();
        for (tensor, info) in expected(&self.shape).into_iter().zip(infos) {
            if wanted.contains(tensor.name.as_str()) {
                let bytes = self.read_tensor(tensor.place, &info)?;
                visit(&info, &bytes);
            }
        }
        Ok(())
    }

    fn read_tensor(&mut self, place: Destination, info: &TensorInfo) -> Result<Vec<u8>, NoRoom> {
        let (rows, columns) = crate::engine::native::weights::as_rows(&info.shape);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(rows * columns * info.dtype.size()).map_err(|_| NoRoom)?;
        let Some(parameters) = &mut self.parameters else { return Ok(bytes) };
        match parameters.target(place).expect("a model has a place for every tensor of its shape") {
            Target::Numbers(vector, first) => {
                append(info.dtype, &self.backend.read_vector(vector)[first..first + columns], &mut bytes);
            }
            Target::Rows(matrix, first) => {
                let step = (READ_NUMBERS / columns.max(1)).max(1);
                for start in (0..rows).step_by(step) {
                    let range: Range<usize> = first + start..first + rows.min(start + step);
                    append(info.dtype, &self.backend.read_rows(matrix, range)?, &mut bytes);
                }
            }
        }
        Ok(bytes)
    }
}

/// Narrows numbers to the type in which they are held, which loses nothing.
fn append(dtype: WeightDtype, numbers: &[f32], bytes: &mut Vec<u8>) {
    match dtype {
        WeightDtype::Bf16 => {
            bytes.extend(numbers.iter().flat_map(|number| half::bf16::from_f32(*number).to_le_bytes()));
        }
        WeightDtype::F16 => bytes.extend(numbers.iter().flat_map(|number| half::f16::from_f32(*number).to_le_bytes())),
        WeightDtype::F32 => bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
    }
}
