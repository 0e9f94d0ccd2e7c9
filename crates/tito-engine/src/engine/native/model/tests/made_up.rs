//! Models of any shape, whose weights are made up.

use serde_json::Value;

use super::super::{tensors::Tensors, *};
use crate::engine::native::weights::{Rows, as_rows};

/// A model with a config, whose weights are small numbers by their places. What layers add to a state is zero, so that each of
/// them reads the same, and chooses the same experts.
pub(in crate::engine::native) fn made_up<B: Backend>(config: &Value, backend: B, room: Room) -> Model<B> {
    let shape = ModelShape::read(config.as_object().unwrap()).unwrap();
    let weights = MadeUp(Tensors::of(&shape).shapes());
    let mut model = Model::load(backend, shape, &weights, &mut |_, _| ()).unwrap();
    model.allocate_cache(room).unwrap();
    model
}

/// Names and shapes of tensors.
struct MadeUp(Vec<(String, Vec<usize>)>);

struct MadeUpRows {
    rows: usize,
    columns: usize,
    is_zero: bool,
}

impl Weights for MadeUp {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.0.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let (_, shape) = self.0.iter().find(|(known, _)| known == name).unwrap();
        let (rows, columns) = as_rows(shape);
        let is_zero = [".o_proj.", ".down_proj."].iter().any(|part| name.contains(part));
        Ok(Box::new(MadeUpRows { rows, columns, is_zero }))
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
