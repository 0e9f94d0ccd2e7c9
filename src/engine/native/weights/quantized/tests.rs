//! The checkpoints of `tests/golden/quantized` against what the references of their formats widened.

use std::{
    fs,
    path::{Path, PathBuf},
};

use half::bf16;
use serde_json::json;

use super::*;
use crate::engine::native::{
    cpu::{CpuBackend, KernelSet, Pool, Precision, Processor},
    model::{Model, ModelShape, tests::logits as logits_of},
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quantized")
}

/// All directories, by name.
fn cases() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap());
    let mut cases: Vec<_> = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect();
    cases.sort();
    assert!(cases.len() >= 6, "{cases:?}");
    cases
}

fn config(directory: &Path) -> Map<String, Value> {
    serde_json::from_str(&fs::read_to_string(directory.join("config.json")).unwrap()).unwrap()
}

/// What the reference made of a case, as an ordinary checkpoint.
fn widened(directory: &Path) -> SafetensorsFiles {
    SafetensorsFiles::open_any(&directory.join("widened.safetensors")).unwrap()
}

/// The bits of numbers, those of any NaN the same.
fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| if number.is_nan() { u32::MAX } else { number.to_bits() }).collect()
}

fn all_of(weights: &dyn Weights, name: &str) -> Vec<f32> {
    let rows = weights.rows(name).unwrap();
    let mut numbers = Vec::new();
    rows.read(0..rows.rows(), &mut numbers).unwrap();
    numbers
}

#[test]
fn numbers_are_those_of_the_references_to_the_bit() {
    for (case, directory) in cases() {
        let weights = open_directory(&directory, &config(&directory)).unwrap();
        let expected = widened(&directory);
        assert_eq!(weights.tensors(), expected.tensors(), "{case}");
        for (name, _) in expected.tensors() {
            let wide = all_of(&expected, name);
            let rows = weights.rows(name).unwrap();
            assert_eq!(bits(&all_of(&*weights, name)), bits(&wide), "{case}: {name}");
            let (mut parts, mut rounded) = (Vec::new(), Vec::new());
            for row in (0..rows.rows()).rev() {
                let first = parts.len();
                rows.read(row..row + 1, &mut parts).unwrap();
                let expected = &wide[row * rows.columns()..][..rows.columns()];
                assert_eq!(bits(&parts[first..]), bits(expected), "{case}: {name}, row {row}");
            }
            rows.read_bf16(0..rows.rows(), &mut rounded).unwrap();
            let rounded: Vec<f32> = rounded.into_iter().map(bf16::to_f32).collect();
            let wide: Vec<f32> = wide.into_iter().map(|number| bf16::from_f32(number).to_f32()).collect();
            assert_eq!(bits(&rounded), bits(&wide), "{case}: {name} in bf16");
        }
    }
}

#[test]
fn models_compute_what_their_widened_checkpoints_compute_to_the_bit() {
    let mut compared = 0;
    for (case, directory) in cases() {
        let config = config(&directory);
        if !config.contains_key("architectures") {
            continue;
        }
        for precision in [Precision::Bf16, Precision::F32] {
            let logits = |weights: &dyn Weights| {
                let processor = Processor { set: KernelSet::PORTABLE, pool: Pool::new(2).unwrap() };
                let shape = ModelShape::read(&config).unwrap();
                let backend = CpuBackend::new(processor, precision);
                let mut model = Model::load(backend, shape, weights, &mut |_, _| ()).unwrap();
                model.allocate_cache(6).unwrap();
                let rows = logits_of(&mut model, &[1, 5, 9, 33, 7, 7, 2, 30, 11, 39], 0);
                rows.iter().map(|row| bits(row)).collect::<Vec<_>>()
            };
            let packed = open_directory(&directory, &config).unwrap();
            let (packed, wide) = (logits(&*packed), logits(&widened(&directory)));
            assert!(packed == wide, "{case}: the log-probs differ in {precision:?}");
        }
        compared += 1;
    }
    assert!(compared >= 5, "{compared} models");
}

fn refusal(config: &Value) -> String {
    let config = json!({ "quantization_config": config });
    Quantization::read(config.as_object().unwrap()).err().unwrap_or_else(|| panic!("{config} is read"))
}

#[test]
fn what_cannot_be_honoured_is_refused_by_its_name_and_value() {
    for (config, expected) in [
        (json!(7), "is not an object"),
        (json!({}), "lacks `quant_method`"),
        (
            json!({"quant_method": "bitsandbytes"}),
            "has `quant_method` \"bitsandbytes\", which is not read; pass the model in bf16, f16 or f32",
        ),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "has `fmt` \"e5m2\", which is not supported"),
        (
            json!({"quant_method": "fp8", "weight_block_size": [128, 0]}),
            "has `weight_block_size` [128,0], which has a side of no length",
        ),
        (json!({"quant_method": "fp8", "expert_dtype": "fp4"}), "has `expert_dtype` \"fp4\""),
        (
            json!({"quant_method": "fp8", "rotation": "hadamard"}),
            "has `rotation` \"hadamard\", which is not understood",
        ),
        (json!({"quant_method": "compressed-tensors"}), "lacks `config_groups`"),
        (json!({"quant_method": "compressed-tensors", "format": "marlin-24"}), "has `format` \"marlin-24\""),
        (
            json!({"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"a": 1}}}),
            "has `transform_config` {\"config_groups\":{\"a\":1}}",
        ),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 7}}}}),
            "has `config_groups.group_0.weights.num_bits` 7",
        ),
    ] {
        let found = refusal(&config);
        assert!(found.starts_with(expected), "{found}");
    }
    assert!(Quantization::read(&Map::new()).unwrap().is_none());
}
