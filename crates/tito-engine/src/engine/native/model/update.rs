//! Weights that are replaced while the model is loaded: what was overwritten is kept, and put back where an update
//! fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use super::{
    checked::Checked,
    destinations::Destination,
    memory::{Model, Parameters},
    stacks::{matrix_shape, turned_back},
    target::{PLACED, Target},
    tensor::Tensor,
};
use crate::{
    engine::{
        TensorChanges, TensorInfo, Visit, WeightDtype, WeightTensor,
        native::{
            backend::{Backend, NoRoom},
            weights::{WeightsError, as_rows},
        },
    },
    files,
};

/// How many numbers of a tensor are read at a time.
pub(super) const READ_NUMBERS: usize = 1 << 20;

/// What an update overwrote: whole matrices, and numbers of others.
pub(crate) struct Undo<B: Backend> {
    saved: BTreeMap<Destination, Saved<B>>,
    /// In the order in which they were overwritten, each before its matrix was saved as a whole, if it was.
    exchanged: Vec<Exchanged>,
}

/// Numbers of a tensor that were overwritten, and what they were.
struct Exchanged {
    place: Destination,
    places: Vec<u32>,
    numbers: Vec<u8>,
}

enum Saved<B: Backend> {
    Matrix(B::Saved),
    Vector(Vec<f32>),
}

impl<B: Backend> Default for Undo<B> {
    fn default() -> Self {
        Self { saved: BTreeMap::new(), exchanged: Vec::new() }
    }
}

impl<B: Backend> Model<B> {
    /// Every tensor, in the order of the layers, as it is held.
    pub(crate) fn tensors(&self) -> Vec<TensorInfo> {
        self.tensors.all().iter().map(|tensor| self.info(tensor)).collect()
    }

    fn info(&self, tensor: &Tensor) -> TensorInfo {
        TensorInfo { dtype: self.dtype(tensor), name: tensor.name.clone(), shape: tensor.shape.clone() }
    }

    /// Tensors that are to be written before anything can be computed.
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// The bytes of what these weights would overwrite and what is not kept yet.
    pub(crate) fn undo_bytes(&mut self, checked: &Checked<'_>, undo: &Undo<B>) -> u64 {
        let Some(parameters) = &mut self.parameters else { return 0 };
        let wholes: BTreeSet<Destination> = checked.tensors().flat_map(Tensor::wholes).collect();
        let unkept = wholes.into_iter().filter(|whole| !undo.saved.contains_key(whole));
        unkept.map(|whole| parameters.bytes(&self.backend, whole)).sum()
    }

    /// Overwrites weights; `undo` keeps what they were, unless there is none. After an error nobody knows what the
    /// weights are.
    pub(crate) fn replace(&mut self, checked: &Checked<'_>, undo: Option<&mut Undo<B>>) -> Result<u64, WeightsError> {
        self.embeddings.clear();
        if let Some(undo) = undo {
            let mut wholes: BTreeMap<Destination, usize> = BTreeMap::new();
            for tensor in checked.tensors() {
                for whole in tensor.wholes() {
                    *wholes.entry(whole).or_default() += 1;
                }
            }
            for (whole, tensors) in wholes {
                self.keep(whole, tensors == self.tensors.sharing(whole), undo)?;
            }
        }
        self.write(checked, &mut |_, _| ())?;
        checked.weights.check_unchanged()?;
        for tensor in checked.written() {
            self.lacking.remove(&tensor.name);
        }
        Ok(checked.tensors().map(|tensor| self.held_bytes(tensor)).sum())
    }

    /// Keeps a matrix or vector, unless it is kept already. Where all of it `is_replaced`, nothing has to be copied.
    fn keep(&mut self, whole: Destination, is_replaced: bool, undo: &mut Undo<B>) -> Result<(), NoRoom> {
        if undo.saved.contains_key(&whole) {
            return Ok(());
        }
        let Some(parameters) = &mut self.parameters else { return Ok(()) };
        let saved = match parameters.target(whole).expect(PLACED) {
            Target::Rows(matrix, _) if is_replaced => Saved::Matrix(self.backend.set_aside(matrix)?),
            Target::Rows(matrix, _) => Saved::Matrix(self.backend.save(matrix)?),
            Target::Numbers(vector, _) => Saved::Vector(self.backend.read_vector(vector)),
        };
        undo.saved.insert(whole, saved);
        Ok(())
    }

    /// Compares numbers that are to be changed with the model's tensors.
    pub(crate) fn check_changes(&self, all: &[TensorChanges]) -> Result<(), WeightsError> {
        let mut seen = BTreeSet::new();
        for TensorChanges { name, dtype, shape, places, numbers } in all {
            let Some(tensor) = self.tensors.named(name) else { return Err(WeightsError::Unknown(vec![name.clone()])) };
            if *shape != tensor.shape {
                let (name, found, expected) = (name.clone(), shape.clone(), tensor.shape.clone());
                return Err(WeightsError::Shape { name, found, expected });
            }
            let held = self.dtype(tensor);
            if *dtype != held {
                return Err(WeightsError::Held { name: name.clone(), found: dtype.name(), held: held.name() });
            }
            let ascend = places.is_sorted_by(|one, next| one < next);
            if !ascend || places.last().is_some_and(|last| *last as usize >= tensor.numbers()) {
                return Err(WeightsError::Places(name.clone()));
            }
            let expected = places.len() * dtype.size();
            if numbers.len() != expected {
                return Err(WeightsError::Length { name: name.clone(), found: numbers.len(), expected });
            }
            if !seen.insert(&tensor.name) {
                return Err(WeightsError::Repeated(name.clone()));
            }
        }
        Ok(())
    }

    /// The bytes that it takes to keep what [checked](Self::check_changes) changes would overwrite.
    pub(crate) fn undo_bytes_of_changes(&mut self, all: &[TensorChanges], undo: &Undo<B>) -> u64 {
        let Self { tensors, parameters: Some(parameters), backend, .. } = self else { return 0 };
        let of_one = |changes: &TensorChanges| {
            let Some(tensor) = tensors.named(&changes.name) else { return 0 };
            let unkept: Vec<Destination> = tensor.wholes().filter(|whole| !undo.saved.contains_key(whole)).collect();
            // Where numbers cannot be exchanged one by one, the whole is kept.
            let is_exchanged = tensor.place().is_some() && !tensor.is_vector() && backend.exchanges();
            if is_exchanged && !unkept.is_empty() {
                return changes.bytes() as u64;
            }
            unkept.into_iter().map(|whole| parameters.bytes(backend, whole)).sum()
        };
        all.iter().map(of_one).sum()
    }

    /// Overwrites numbers that were [checked](Self::check_changes); for the rest as [`replace`](Self::replace).
    pub(crate) fn change(
        &mut self,
        all: Vec<TensorChanges>,
        mut undo: Option<&mut Undo<B>>,
    ) -> Result<u64, WeightsError> {
        self.embeddings.clear();
        let mut written = 0;
        for changes in all {
            written += changes.numbers.len() as u64;
            let tensor = Arc::clone(self.tensors.named(&changes.name).expect("a tensor that was checked"));
            let left = match tensor.place() {
                Some(place) => self.exchange(place, changes, undo.as_deref_mut()),
                None => Some(changes),
            };
            if let Some(changes) = left {
                if let Some(undo) = &mut undo {
                    tensor.wholes().try_for_each(|whole| self.keep(whole, false, undo))?;
                }
                self.rewrite(&tensor, &changes)?;
            }
        }
        Ok(written)
    }

    /// Exchanges numbers in place, and gives the changes back where this tensor's numbers cannot be.
    fn exchange(
        &mut self,
        place: Destination,
        mut changes: TensorChanges,
        undo: Option<&mut Undo<B>>,
    ) -> Option<TensorChanges> {
        let target = self.parameters.as_mut().and_then(|parameters| parameters.target(place));
        let Some(Target::Rows(matrix, first)) = target else { return Some(changes) };
        if !self.backend.exchange(matrix, first, &changes.places, &mut changes.numbers) {
            return Some(changes);
        }
        if let Some(undo) = undo.filter(|undo| !undo.saved.contains_key(&place.whole())) {
            let TensorChanges { places, numbers, .. } = changes;
            undo.exchanged.push(Exchanged { place, places, numbers });
        }
        None
    }

    /// Changes numbers by writing the whole tensor.
    fn rewrite(&mut self, tensor: &Tensor, changes: &TensorChanges) -> Result<(), WeightsError> {
        let TensorInfo { name, dtype, shape } = self.info(tensor);
        let mut bytes = self.read_tensor(tensor)?;
        for (place, number) in changes.places.iter().zip(changes.numbers.chunks_exact(dtype.size())) {
            bytes[*place as usize * dtype.size()..][..number.len()].copy_from_slice(number);
        }
        self.write_tensor(tensor, &&WeightTensor { name, dtype, shape, bytes: bytes.into() })
    }

    /// Puts back what an update overwrote.
    pub(crate) fn undo(&mut self, undo: Undo<B>) -> Result<(), NoRoom> {
        self.embeddings.clear();
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
        // They are older than what was saved as a whole, and the last of them is the youngest.
        for Exchanged { place, places, mut numbers } in undo.exchanged.into_iter().rev() {
            if let Some(Target::Rows(matrix, first)) = parameters.target(place) {
                let done = self.backend.exchange(matrix, first, &places, &mut numbers);
                assert!(done, "numbers that were exchanged are exchanged again");
            }
        }
        Ok(())
    }

    /// Takes note that nobody knows what the weights are.
    pub(crate) fn lose_weights(&mut self) {
        self.embeddings.clear();
        self.lacking = self.tensors.all().iter().map(|tensor| tensor.name.clone()).collect();
    }

    /// Gives the memory of the weights back.
    pub(crate) fn discard_weights(&mut self) {
        self.parameters = None;
        self.lose_weights();
        self.backend.return_freed_memory();
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

    /// Gives the memory of keys and values, and of recurrent states, back.
    pub(crate) fn discard_cache(&mut self) {
        self.caches.clear();
        self.recurrents.clear();
        self.backend.return_freed_memory();
    }

    /// Takes memory for as many blocks and slots as before.
    pub(crate) fn restore_cache(&mut self) -> Result<(), NoRoom> {
        if self.caches.is_empty() { self.allocate_cache(self.room) } else { Ok(()) }
    }

    /// Reads tensors of these names, in the order of the layers.
    pub(crate) fn read_tensors(&mut self, names: &[String], visit: &mut Visit) -> Result<(), NoRoom> {
        let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for tensor in self.tensors.all().to_vec() {
            if wanted.contains(tensor.name.as_str()) {
                let bytes = self.read_tensor(&tensor)?;
                visit(&self.info(&tensor), bytes);
            }
        }
        Ok(())
    }

    pub(super) fn read_tensor(&mut self, tensor: &Tensor) -> Result<Vec<u8>, NoRoom> {
        let dtype = self.dtype(tensor);
        let mut bytes: Vec<u8> = files::zeros(tensor.numbers() * dtype.size()).map_err(|_| NoRoom)?;
        if let Some(place) = tensor.place() {
            self.read_place(place, as_rows(&tensor.shape), dtype, &mut bytes)?;
            return Ok(bytes);
        }
        let row = bytes.len() / tensor.shape[0].max(1);
        for part in &tensor.parts {
            let out = &mut bytes[part.rows.start * row..part.rows.end * row];
            let mut matrix = files::zeros(out.len()).map_err(|_| NoRoom)?;
            self.read_place(part.place, matrix_shape(tensor, part), dtype, &mut matrix)?;
            turned_back(tensor, part, dtype, &matrix, out);
        }
        Ok(bytes)
    }

    /// Reads so many rows and columns of a matrix or vector.
    fn read_place(
        &mut self,
        place: Destination,
        (rows, columns): (usize, usize),
        dtype: WeightDtype,
        bytes: &mut [u8],
    ) -> Result<(), NoRoom> {
        let Some(parameters) = &mut self.parameters else { return Ok(()) };
        match parameters.target(place).expect(PLACED) {
            Target::Numbers(vector, first) => {
                dtype.narrow(&self.backend.read_vector(vector)[first..][..rows * columns], bytes);
            }
            Target::Rows(matrix, first) => {
                let (row_bytes, step) = (columns * dtype.size(), (READ_NUMBERS / columns.max(1)).max(1));
                for (start, part) in (0..rows).step_by(step).zip(bytes.chunks_mut((step * row_bytes).max(1))) {
                    let range: Range<usize> = first + start..first + rows.min(start + step);
                    self.backend.read_rows(matrix, range, part)?;
                }
            }
        }
        Ok(())
    }
}
