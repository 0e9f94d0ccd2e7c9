//! Models of any shape, whose weights are made up.

use serde_json::Value;

use super::super::{tensors::Tensors, *};
use crate::engine::native::weights::{Rows, as_rows};

/// A model with a config, whose weights are small numbers by their places. What layers add to a state is zero, so that each of
/// them reads the same, and chooses the same experts.
#[cfg(feature = "cuda")]
pub(in crate::engine::native) fn made_up<B: Backend>(config: &Value, backend: B, room: Room) -> Model<B> {
    loaded(config, backend, room, true)
}

/// The same, whose layers do add to a state.
pub(in crate::engine::native) fn made_up_to_add<B: Backend>(config: &Value, backend: B, room: Room) -> Model<B> {
    loaded(config, backend, room, false)
}

fn loaded<B: Backend>(config: &Value, backend: B, room: Room, adds_nothing: bool) -> Model<B> {
    let shape = ModelShape::read(config.as_object().unwrap()).unwrap();
    let weights = MadeUp { tensors: Tensors::of(&shape).shapes(), adds_nothing };
    let mut model = Model::load(backend, shape, &weights, &mut |_, _| ()).unwrap();
    model.allocate_cache(room).unwrap();
    model
}

/// Names and shapes of tensors.
struct MadeUp {
    tensors: Vec<(String, Vec<usize>)>,
    adds_nothing: bool,
}

struct MadeUpRows {
    rows: usize,
    columns: usize,
    is_zero: bool,
}

impl Weights for MadeUp {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let (_, shape) = self.tensors.iter().find(|(known, _)| known == name).unwrap();
        let (rows, columns) = as_rows(shape);
        let is_zero = self.adds_nothing && [".o_proj.", ".down_proj."].iter().any(|part| name.contains(part));
        Ok(Box::new(MadeUpRows { rows, columns, is_zero }))
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        Ok(())
    }
}

impl Rows for MadeUpRows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn read(&self, rows: std::ops::Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        let places = rows.start * self.columns..rows.end * self.columns;
        out.extend(places.map(|place| if self.is_zero { 0.0 } else { (place * 7919 % 1009) as f32 / 1009.0 - 0.5 }));
        Ok(())
    }
}
