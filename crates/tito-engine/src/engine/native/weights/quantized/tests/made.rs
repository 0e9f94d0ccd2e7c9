//! Checkpoints that tests make up, or make of others.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use tempfile::TempDir;

use super::*;
use crate::engine::native::weights::E4M3;

/// A tensor of a checkpoint.
pub(super) type Stored = (String, (Dtype, Vec<usize>, Vec<u8>));

pub(super) fn bf16_bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect()
}

/// A matrix in FP8, with its scales, and what both make.
pub(super) fn in_fp8(name: &str, shape: &[usize], numbers: &[f32], side: Option<usize>) -> (Vec<Stored>, Vec<f32>) {
    let [rows, columns] = shape[..] else { panic!("{name} is no matrix") };
    let [down, across] = side.map_or([rows, columns], |side| [side; 2]);
    let grid = [rows.div_ceil(down), columns.div_ceil(across)];
    let block = |place: usize| place / columns / down * grid[1] + place % columns / across;
    let mut scales = vec![0.0_f32; grid[0] * grid[1]];
    for (place, number) in numbers.iter().enumerate() {
        scales[block(place)] = scales[block(place)].max(number.abs() / 448.0);
    }
    let scales: Vec<f32> = scales.into_iter().map(|scale| bf16::from_f32(scale).to_f32()).collect();
    let nearest = |(place, number): (usize, &f32)| {
        let off = |code: &u8| (E4M3[usize::from(*code)] * scales[block(place)] - number).abs();
        (0..=u8::MAX).filter(|code| !off(code).is_nan()).min_by(|one, other| off(one).total_cmp(&off(other))).unwrap()
    };
    let codes: Vec<u8> = numbers.iter().enumerate().map(nearest).collect();
    let wide = codes.iter().enumerate().map(|(place, code)| E4M3[usize::from(*code)] * scales[block(place)]);
    let wide = wide.collect();
    let module = name.strip_suffix(".weight").unwrap();
    let of_scales = if side.is_some() { grid.to_vec() } else { Vec::new() };
    let mut stored = vec![
        (name.to_owned(), (Dtype::F8_E4M3, shape.to_vec(), codes)),
        (format!("{module}.weight_scale_inv"), (Dtype::BF16, of_scales, bf16_bytes(scales))),
    ];
    if side.is_none() {
        stored.push((format!("{module}.activation_scale"), (Dtype::BF16, Vec::new(), bf16_bytes([0.5]))));
    }
    (stored, wide)
}

/// Writes a checkpoint; the last tensor of a name counts.
pub(super) fn write(directory: &Path, config: &Map<String, Value>, stored: &[Stored]) {
    let by_name: BTreeMap<&String, _> = stored.iter().map(|(name, tensor)| (name, tensor)).collect();
    let views = by_name
        .into_iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(directory.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(directory.join("config.json"), Value::from(config.clone()).to_string()).unwrap();
}

/// The tensors of a file.
pub(super) fn stored(path: &Path) -> Vec<Stored> {
    let file = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let own =
        |(name, view): (String, TensorView<'_>)| (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
    tensors.tensors().into_iter().map(own).collect()
}

/// A golden checkpoint with other settings and more tensors.
pub(super) fn changed(case: &str, settings: &Value, tensors: &[Stored]) -> (TempDir, Map<String, Value>) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&golden().join(case));
    for (key, value) in settings.as_object().unwrap() {
        config.insert(key.clone(), value.clone());
    }
    let all = [&stored(&golden().join(case).join("model.safetensors")), tensors].concat();
    write(directory.path(), &config, &all);
    (directory, config)
}
