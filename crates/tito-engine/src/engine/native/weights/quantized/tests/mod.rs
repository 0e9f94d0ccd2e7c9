//! The checkpoints of `tests/golden/quantized` against what the references of their formats widened.

mod images;
mod made;
mod settings;
mod variants;

use std::{
    fs,
    path::{Path, PathBuf},
};

use half::bf16;
use serde_json::json;

use super::*;
use crate::engine::native::{
    cpu::{CpuBackend, KernelSet, Pool, Precision, Processor},
    model::{Model, ModelShape, Room, check_weights, tests::logits as logits_of},
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/quantized")
}

/// All directories, by name.
fn cases() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap());
    let mut cases: Vec<_> = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect();
    cases.sort();
    assert!(cases.len() >= 21, "{cases:?}");
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

/// Compares numbers to the bit.
fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    let (found, expected) = (bits(found), bits(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    let differing = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    if let Some(place) = differing {
        panic!("{what}: number {place} is {:#x}, not {:#x}", found[place], expected[place]);
    }
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
        let tensors: Vec<_> = weights.tensors().into_iter().filter(|(name, _)| !weights.is_filler(name)).collect();
        assert_eq!(tensors, expected.tensors(), "{case}");
        for (name, _) in expected.tensors() {
            let wide = all_of(&expected, name);
            let rows = weights.rows(name).unwrap();
            assert_same(&all_of(&*weights, name), &wide, &format!("{case}: {name}"));
            let (mut parts, mut rounded) = (Vec::new(), Vec::new());
            for row in (0..rows.rows()).rev() {
                let first = parts.len();
                rows.read(row..row + 1, &mut parts).unwrap();
                let expected = &wide[row * rows.columns()..][..rows.columns()];
                assert_same(&parts[first..], expected, &format!("{case}: {name}, row {row}"));
            }
            rows.read_bf16(0..rows.rows(), &mut rounded).unwrap();
            let rounded: Vec<f32> = rounded.into_iter().map(bf16::to_f32).collect();
            let wide: Vec<f32> = wide.into_iter().map(|number| bf16::from_f32(number).to_f32()).collect();
            assert_same(&rounded, &wide, &format!("{case}: {name} in bf16"));
        }
    }
}

/// What a model of these settings computes on the processor.
fn computed(config: &Map<String, Value>, backend: CpuBackend, weights: &dyn Weights) -> Vec<Vec<u32>> {
    logits_now(&mut loaded(config, backend, weights))
}

fn loaded(config: &Map<String, Value>, backend: CpuBackend, weights: &dyn Weights) -> Model<CpuBackend> {
    let mut model = Model::load(backend, ModelShape::read(config).unwrap(), weights, &mut |_, _| ()).unwrap();
    model.allocate_cache(Room { blocks: 6, slots: 0 }).unwrap();
    model
}

fn logits_now(model: &mut Model<CpuBackend>) -> Vec<Vec<u32>> {
    let rows = logits_of(model, &[1, 5, 9, 33, 7, 7, 2, 30, 11, 39], 0);
    rows.iter().map(|row| bits(row)).collect()
}

fn backend(precision: Precision) -> CpuBackend {
    CpuBackend::new(Processor { set: KernelSet::PORTABLE, pool: Pool::new(2).unwrap() }, precision)
}

/// Whether widened weights and those that stay in their codes compute what is expected, in every precision.
fn assert_both_compute(case: &str, config: &Map<String, Value>, packed: &dyn Weights, wide: &dyn Weights) {
    let rounding_weights = || backend(Precision::Bf16).with_f32_activations();
    let backends: [(&str, &dyn Fn() -> CpuBackend); 3] = [
        ("bf16", &|| backend(Precision::Bf16)),
        ("f32", &|| backend(Precision::F32)),
        ("bf16 times f32", &rounding_weights),
    ];
    for (name, backend) in backends {
        let expected = computed(config, backend(), wide);
        assert!(computed(config, backend(), packed) == expected, "{case}: the log-probs differ in {name}");
        let kept = computed(config, backend().keeping_quantized(), packed);
        assert!(kept == expected, "{case}: the log-probs of codes differ in {name}");
    }
}

#[test]
fn models_compute_what_their_widened_checkpoints_compute_to_the_bit() {
    let (mut compared, mut kept) = (0, Vec::new());
    for (case, directory) in cases() {
        let config = config(&directory);
        if !config.contains_key("architectures") {
            continue;
        }
        let keeps = holds_codes(&directory, &config).unwrap();
        let packed = open_directory(&directory, &config).unwrap();
        assert_both_compute(&case, &config, &*packed, &widened(&directory));
        compared += 1;
        kept.extend(keeps.then_some(case));
    }
    assert!(compared >= 17, "{compared} models");
    let expected = [
        "compressed_fp8_block",
        "compressed_fp8_channel",
        "compressed_fp8_tensor",
        "fp8_blocks",
        "fp8_tensor",
        "gpt_oss",
        "modelopt_fp8",
    ];
    assert_eq!(kept, expected);
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
        (json!({"quant_method": "gptq", "bits": 3}), "has `bits` 3, which is not supported; 2, 4 and 8 are"),
        (json!({"quant_method": "gptq"}), "lacks `bits`"),
        (
            json!({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*up.*": {}}}),
            "has `dynamic` {\"-:.*up.*\":{}}, which is not understood",
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}),
            "has `checkpoint_format` \"marlin\"",
        ),
        (json!({"quant_method": "gptq", "bits": 4, "group_size": 0}), "has `group_size` 0"),
        (json!({"quant_method": "awq", "version": "gemv"}), "has `version` \"gemv\", which is not supported; gemm is"),
        (json!({"quant_method": "awq", "zero_point": false}), "has `zero_point` false"),
        (json!({"quant_method": "modelopt"}), "lacks `quant_algo`"),
        (json!({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}), "has `quant_algo` \"W4A8_AWQ\""),
        (
            json!({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", "group_size": 32}}),
            "has `quantization.group_size` 32",
        ),
        (json!({"quant_method": "mxfp4", "group_size": 16}), "has `group_size` 16, which is not understood"),
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

/// A fixed stream of numbers.
fn random(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % below.max(1) as u64).unwrap()
}

/// Opens a directory and reads all of it, whether or not a model has such tensors; why not.
fn read_all(directory: &Path) -> Result<(), String> {
    let config: Map<String, Value> =
        serde_json::from_slice(&fs::read(directory.join("config.json")).unwrap()).map_err(|error| error.to_string())?;
    let weights = open_directory(directory, &config).map_err(|error| error.to_string())?;
    for (name, shape) in weights.tensors() {
        let rows = weights.rows(name).map_err(|error| error.to_string())?;
        assert_eq!((rows.rows(), rows.columns()), crate::engine::native::weights::as_rows(shape), "{name}");
        let mut numbers = Vec::new();
        for row in 0..rows.rows().min(100) {
            rows.read(row..row + 1, &mut numbers).map_err(|error| error.to_string())?;
        }
        assert_eq!(numbers.len(), rows.rows().min(100) * rows.columns(), "{name}");
    }
    Ok(())
}

#[test]
fn damaged_checkpoints_are_read_or_refused() {
    const NUMBERS: [&str; 8] = ["0", "-1", "1", "7", "33", "4294967296", "18446744073709551615", "null"];
    let directory = tempfile::tempdir().unwrap();
    let (mut read, mut refused, mut state) = (0, 0, 0x9e37_79b9_7f4a_7c15);
    for (_, case) in cases() {
        for number in 0..24 {
            for name in ["config.json", "model.safetensors"] {
                let mut file = fs::read(case.join(name)).unwrap();
                let is_damaged = (name == "config.json") == (number % 3 == 0);
                let header = file.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length));
                let end = usize::try_from(header).map_or(file.len(), |header| file.len().min(header));
                let at = random(&mut state, end);
                if is_damaged && number % 2 == 0 {
                    // Another number, within a header of the same length.
                    let digits = file[at..].iter().position(u8::is_ascii_digit).map(|start| at + start);
                    let digits = digits.map(|start| {
                        start..start + file[start..].iter().take_while(|byte| byte.is_ascii_digit()).count()
                    });
                    if let Some(digits) = digits {
                        let by = NUMBERS[random(&mut state, NUMBERS.len())];
                        let longer = by.len().cast_signed() - digits.len().cast_signed();
                        file.splice(digits, by.bytes());
                        if name == "model.safetensors" {
                            let header = header.wrapping_add_signed(i64::try_from(longer).unwrap());
                            file[..8].copy_from_slice(&header.to_le_bytes());
                        }
                    }
                } else if is_damaged {
                    file[at] ^= 1 << random(&mut state, 8);
                }
                fs::write(directory.path().join(name), file).unwrap();
            }
            match read_all(directory.path()) {
                Ok(()) => read += 1,
                Err(reason) => {
                    assert!(!reason.is_empty());
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 40 && refused > 100, "{read} were read, {refused} refused");
}

#[test]
fn weights_that_are_brought_are_widened_by_the_config_beside_them_alone() {
    let directory = golden().join("fp8_blocks");
    let name = "model.layers.0.mlp.up_proj.weight";
    for path in [directory.clone(), directory.join("model.safetensors")] {
        let brought = open_any(&path).unwrap();
        assert_same(&all_of(&*brought, name), &all_of(&widened(&directory), name), name);
    }
    let alone = tempfile::tempdir().unwrap();
    let copied = alone.path().join("model.safetensors");
    fs::copy(directory.join("model.safetensors"), &copied).unwrap();
    for path in [alone.path(), &copied] {
        let names: Vec<String> = open_any(path).unwrap().tensors().iter().map(|(name, _)| (*name).to_owned()).collect();
        assert!(names.iter().any(|name| name.ends_with(".weight_scale_inv")), "{names:?}");
    }
    let described = golden().join("modelopt_nvfp4");
    fs::copy(described.join("model.safetensors"), &copied).unwrap();
    let config = json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}});
    fs::write(alone.path().join(OF_MODELOPT), config.to_string()).unwrap();
    let brought = open_any(alone.path()).unwrap();
    assert_same(&all_of(&*brought, name), &all_of(&widened(&described), name), name);
    fs::write(alone.path().join(OF_MODELOPT), json!({"quantization": {"quant_algo": "INT4"}}).to_string()).unwrap();
    let refusal = open_any(alone.path()).err().unwrap().to_string();
    assert!(
        refusal.ends_with(
            "usable description of weights: it has a value of `quantization.quant_algo` which is not \
                               supported; fp8 or nvfp4 is"
        ),
        "{refusal}"
    );
    let config = json!({"quantization_config": {"quant_method": "gguf"}});
    fs::write(alone.path().join("config.json"), config.to_string()).unwrap();
    let refusal = open_any(alone.path()).err().unwrap().to_string();
    assert!(
        refusal.starts_with("config.json: `quantization_config` has a value of `quant_method` which is not read"),
        "{refusal}"
    );
    for (name, text) in [("config.json", "\"hunter2\""), (OF_MODELOPT, r#"{"hunter2": "hunter2"}"#)] {
        fs::write(alone.path().join("config.json"), "{}").unwrap();
        fs::write(alone.path().join(name), text).unwrap();
        let refusal = open_any(alone.path()).err().unwrap().to_string();
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }
}
