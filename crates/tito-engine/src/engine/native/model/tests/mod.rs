//! The models of `tests/golden/native` against what numpy made of them.

mod activations;
pub(in crate::engine::native) mod adapters;
mod agreement;
mod drawn;
pub(in crate::engine::native) mod families;
mod gguf;
mod image_adapters;
pub(in crate::engine::native) mod images;
mod in_memory;
pub(in crate::engine::native) mod made_up;
mod memory;
mod page;
mod routes;
mod states;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::*;
use crate::{
    TokenId,
    engine::{
        TensorChanges, TensorInfo, Visit, WeightDtype, WeightTensor,
        native::{
            backend::{BLOCK_TOKENS, Span},
            cpu::{CpuBackend, KernelSet, Pool, Precision, Processor},
            images::SequenceImages,
            weights::{GivenTensors, SafetensorsFiles},
        },
    },
    sampling::score_token,
};

pub(in crate::engine::native) const MODELS: [&str; 16] = [
    "llama",
    "llama_tied_bias",
    "llama_llama3_rope",
    "llama_linear_rope",
    "llama_sharded",
    "llama_heads_of_64",
    "mistral",
    "qwen2",
    "qwen2_yarn",
    "qwen2_window",
    "qwen3",
    "qwen3_heads_of_128",
    "qwen3_yarn",
    "qwen3_moe",
    "qwen3_moe_plain",
    "smollm3",
];
pub(in crate::engine::native) const TOLERANCE: f64 = 1e-4;
const BLOCKS: usize = 6;

pub(in crate::engine::native) fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/native").join(name)
}

fn object(path: &Path) -> Map<String, Value> {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub(in crate::engine::native) fn model(
    name: &str,
    set: KernelSet,
    threads: usize,
    precision: Precision,
) -> Model<CpuBackend> {
    loaded(name, cpu(set, threads, precision))
}

fn cpu(set: KernelSet, threads: usize, precision: Precision) -> CpuBackend {
    CpuBackend::new(Processor { set, pool: Pool::new(threads).unwrap() }, precision)
}

/// A model on any backend.
pub(in crate::engine::native) fn loaded<B: Backend>(name: &str, backend: B) -> Model<B> {
    let directory = directory(name);
    let shape = ModelShape::read(&object(&directory.join("config.json"))).unwrap();
    let weights = SafetensorsFiles::open(&directory).unwrap();
    let mut model = Model::load(backend, shape, &weights, &mut |_, _| ()).unwrap();
    model.allocate_cache(Room { blocks: BLOCKS, slots: 2 }).unwrap();
    model
}

/// Logits of all rows of one span, which begins at `first`; blocks are out of order on purpose.
pub(in crate::engine::native) fn logits<B: Backend>(
    model: &mut Model<B>,
    token_ids: &[TokenId],
    first: usize,
) -> Vec<Vec<f32>> {
    let blocks = (0..(first + token_ids.len()).div_ceil(BLOCK_TOKENS)).map(|block| [4, 1, 5, 0, 3, 2][block]).collect();
    let span = Span {
        first_row: 0,
        tokens: token_ids.len(),
        first_position: first,
        blocks,
        slot: 0,
        adapter: None,
        snapshots: Vec::new(),
    };
    rows_of(model, span, token_ids)
}

fn rows_of<B: Backend>(model: &mut Model<B>, span: Span, token_ids: &[TokenId]) -> Vec<Vec<f32>> {
    rows_seeing(model, span, token_ids, None)
}

/// The same of a sequence with images.
fn rows_seeing<B: Backend>(
    model: &mut Model<B>,
    span: Span,
    token_ids: &[TokenId],
    images: Option<&Arc<SequenceImages>>,
) -> Vec<Vec<f32>> {
    let batch = Batch {
        token_ids: token_ids.to_vec(),
        spans: vec![span],
        logit_rows: (0..token_ids.len()).collect(),
        images: images.map(|images| (0, Arc::clone(images))).into_iter().collect(),
    };
    let rows = Mutex::new(vec![Vec::new(); token_ids.len()]);
    model.forward(&batch, &|row: usize, logits: &mut [f32]| rows.lock()[row] = logits.to_vec());
    rows.into_inner()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn ids(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|id| TokenId::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// Log-probs and the greedy continuation of each prompt of a model against what numpy made of them.
pub(in crate::engine::native) fn compare<B: Backend>(name: &str, model: &mut Model<B>, tolerance: f64) {
    let expected = object(&directory(name).join("expected.json"));
    for prompt in expected["prompts"].as_array().unwrap() {
        let token_ids = ids(&prompt["token_ids"]);
        let rows = logits(model, &token_ids, 0);
        let close = |found: f32, expected: f64, what: &str| {
            let error = (f64::from(found) - expected).abs();
            assert!(error < tolerance, "{name}: {what} of {} tokens is off by {error:e}", token_ids.len());
        };
        for ((row, next), expected) in rows.iter().zip(&token_ids[1..]).zip(floats(&prompt["next_log_probs"])) {
            close(score_token(row, *next, 0).unwrap().logprob, expected, "a prompt log-prob");
        }
        for (id, expected) in (0..).zip(floats(&prompt["last_log_probs"])) {
            close(score_token(rows.last().unwrap(), id, 0).unwrap().logprob, expected, "a log-prob");
        }
        let mut row = rows.into_iter().next_back().unwrap();
        for (position, expected) in (token_ids.len()..).zip(ids(&prompt["greedy"])) {
            let best = score_token(&row, 0, 1).unwrap().top_logprobs[0].id;
            assert_eq!(best, expected, "{name}: the token at {position}");
            row = logits(model, &[best], position).remove(0);
        }
    }
}

#[test]
fn every_family_agrees_with_numpy_on_every_kernel_set() {
    for set in KernelSet::tested() {
        for name in MODELS {
            compare(name, &mut model(name, set, 2, Precision::F32), TOLERANCE);
        }
    }
}

#[test]
fn a_prompt_in_pieces_gives_the_same_bits_whatever_the_threads() {
    for set in KernelSet::tested() {
        for name in MODELS {
            for precision in [Precision::F32, Precision::Bf16] {
                let token_ids: Vec<TokenId> = (0..90).map(|index| (index * 37 + 11) % 96).collect();
                let whole = logits(&mut model(name, set, 1, precision), &token_ids, 0);
                let mut model = model(name, set, 3, precision);
                let mut first = 0;
                for length in [1, 31, 33, 2, 23] {
                    let piece = logits(&mut model, &token_ids[first..first + length], first);
                    for (row, (piece, whole)) in piece.iter().zip(&whole[first..]).enumerate() {
                        let same = piece.iter().zip(whole).all(|(piece, whole)| piece.to_bits() == whole.to_bits());
                        assert!(same, "{name}, {set}, {precision:?}: position {}", first + row);
                    }
                    first += length;
                }
            }
        }
    }
}

#[test]
fn bf16_stays_close_to_f32() {
    for set in KernelSet::tested() {
        for name in ["llama", "qwen3", "mistral"] {
            let token_ids: Vec<TokenId> = (0..70).map(|index| (index * 29 + 5) % 96).collect();
            let exact = logits(&mut model(name, set, 2, Precision::F32), &token_ids, 0);
            let rounded = logits(&mut model(name, set, 2, Precision::Bf16), &token_ids, 0);
            for (exact, rounded) in exact.iter().zip(&rounded) {
                let worst = exact.iter().zip(rounded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst > 0.0 && worst < 0.3, "{name}, {set}: {worst}");
            }
        }
    }
}

#[test]
fn replaced_weights_take_effect_and_what_does_not_fit_is_refused_before_anything_is_written() {
    let mut model = model("llama", KernelSet::PORTABLE, 1, Precision::F32);
    let before = logits(&mut model, &[1, 2, 3], 0);
    let given = |tensors: &[(&str, usize)]| {
        let tensors = tensors.iter().map(|(name, length)| WeightTensor {
            name: (*name).to_owned(),
            dtype: WeightDtype::F32,
            shape: vec![*length],
            bytes: 1.5_f32.to_le_bytes().repeat(*length).into(),
        });
        GivenTensors::new(tensors.collect()).unwrap()
    };
    let misshapen = given(&[("model.norm.weight", 64), ("model.layers.0.input_layernorm.weight", 32)]);
    assert!(matches!(model.check(&misshapen), Err(WeightsError::Shape { .. })));
    let unknown = given(&[("model.norm.weight", 64), ("model.layers.9.input_layernorm.weight", 64)]);
    assert!(matches!(model.check(&unknown), Err(WeightsError::Unknown(_))));
    assert_eq!(logits(&mut model, &[1, 2, 3], 0), before);
    let norm = given(&[("model.norm.weight", 64)]);
    let checked = model.check(&norm).unwrap();
    model.replace(&checked, None).unwrap();
    assert_ne!(logits(&mut model, &[1, 2, 3], 0), before);
}

#[test]
fn weights_that_lack_tensors_or_hold_others_are_refused_by_name() {
    let weights = SafetensorsFiles::open(&directory("qwen2")).unwrap();
    let shape = ModelShape::read(&object(&directory("llama").join("config.json"))).unwrap();
    let backend = CpuBackend::new(Processor { set: KernelSet::PORTABLE, pool: Pool::new(1).unwrap() }, Precision::F32);
    let Err(error) = Model::load(backend, shape, &weights, &mut |_, _| ()) else { panic!("a Qwen2 is no Llama") };
    assert!(error.to_string().contains("`model.layers.0.self_attn.k_proj.bias`"), "{error}");
}

/// A layer that `num_hidden_layers` does not count is passed over only where config.json says that so many predict further
/// tokens, and where it has what those join two states with.
#[test]
fn layers_that_are_not_counted_are_refused_unless_they_predict_further_tokens() {
    for (name, key) in [
        ("deepseek_v2_plain", "num_nextn_predict_layers"),
        ("deepseek_v3_plain", "num_nextn_predict_layers"),
        ("deepseek_v32_plain", "num_nextn_predict_layers"),
        ("glm4_moe_plain", "num_nextn_predict_layers"),
        ("minimax_m2_plain", "num_mtp_modules"),
        ("kimi_linear_plain", "num_nextn_predict_layers"),
        ("ernie4_5_moe_plain", "num_nextn_predict_layers"),
        ("mistral4_plain", "num_nextn_predict_layers"),
    ] {
        let golden = families::Golden::named(&format!("families/{name}"));
        let last = golden.config()["num_hidden_layers"].as_u64().unwrap() - 1;
        let check = |further: Option<u64>, joins: Option<u64>| {
            let mut config = golden.config().clone();
            config.insert("num_hidden_layers".to_owned(), last.into());
            for key in ["layer_types", "mlp_layer_types"] {
                config.remove(key);
            }
            config.extend(further.map(|count| (key.to_owned(), count.into())));
            let mut tensors = golden.tensors();
            tensors.extend(joins.map(|layer| WeightTensor {
                name: format!("model.layers.{layer}.eh_proj.weight"),
                dtype: WeightDtype::F32,
                shape: vec![1],
                bytes: vec![0; 4].into(),
            }));
            let shape = ModelShape::read(&config).unwrap();
            let weights = GivenTensors::new(tensors).unwrap();
            let (tensors, error) = (Tensors::of(&shape), |error: WeightsError| error.to_string());
            let whole = Checked::new(&tensors, &weights, true).err().map(error);
            // An update is asked for the same at its end.
            let some = Checked::new(&tensors, &weights, false).map(|checked| checked.further().uncounted().count());
            assert_eq!(some.is_ok_and(|uncounted| uncounted == 0), whole.is_none(), "{name}: {whole:?}");
            whole
        };
        for (further, joins) in [(None, None), (Some(0), Some(last)), (Some(1), None), (Some(1), Some(last + 1))] {
            let error = check(further, joins).expect(name);
            assert!(error.contains(&format!("`model.layers.{last}.")), "{name}: {error}");
        }
        assert_eq!(check(Some(1), Some(last)), None, "{name}");
        assert_eq!(check(Some(4000), Some(last)), None, "{name}");
    }
}

/// Every tensor as the model holds it.
fn held_tensors<B: Backend>(model: &mut Model<B>) -> Vec<WeightTensor> {
    let names: Vec<String> = model.tensors().into_iter().map(|tensor| tensor.name).collect();
    let read = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&read);
    let mut visit: Visit = Box::new(move |tensor: &TensorInfo, bytes: Vec<u8>| {
        let TensorInfo { name, dtype, shape } = tensor.clone();
        kept.lock().push(WeightTensor { name, dtype, shape, bytes: bytes.into() });
    });
    model.read_tensors(&names, &mut visit).unwrap();
    std::mem::take(&mut *read.lock())
}

/// Another lowest bit in the first number, the last one and one in `step`; and the tensor that has them.
fn changed(tensor: &WeightTensor, step: usize) -> (TensorChanges, WeightTensor) {
    let size = tensor.dtype.size();
    let (mut bytes, count) = (tensor.bytes.to_vec(), tensor.bytes.len() / size);
    let places: Vec<usize> = (0..count).filter(|place| place % step == 0 || place + 1 == count).collect();
    for place in &places {
        bytes[place * size] ^= 1;
    }
    let numbers = places.iter().flat_map(|place| &bytes[place * size..(place + 1) * size]).copied().collect();
    let changes = TensorChanges {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        places: places.into_iter().map(|place| u32::try_from(place).unwrap()).collect(),
        numbers,
    };
    (changes, WeightTensor { bytes: bytes.into(), ..tensor.clone() })
}

/// Numbers that are changed in every tensor are those of whole tensors, whatever a backend does with them, and come back
/// together with whole tensors that were written before them, between them and after them.
pub(in crate::engine::native) fn compare_changes<B: Backend>(model: &mut Model<B>) {
    let before = held_tensors(model);
    let (changes, after): (Vec<TensorChanges>, Vec<WeightTensor>) =
        before.iter().map(|tensor| changed(tensor, 37)).unzip();
    let (again, last): (Vec<TensorChanges>, Vec<WeightTensor>) = after.iter().map(|tensor| changed(tensor, 11)).unzip();
    model.check_changes(&changes).unwrap();
    let mut undo = Undo::default();
    assert!(model.undo_bytes_of_changes(&changes, &undo) > 0);
    let written: usize = changes.iter().map(|changes| changes.numbers.len()).sum();
    assert_eq!(model.change(changes.clone(), Some(&mut undo)).unwrap(), written as u64);
    assert!(held_tensors(model) == after);
    // Of those that share a matrix some, and some that have one alone.
    let some: Vec<WeightTensor> = last.iter().step_by(3).cloned().collect();
    let given = GivenTensors::new(some.clone()).unwrap();
    let checked = model.check(&given).unwrap();
    model.replace(&checked, Some(&mut undo)).unwrap();
    let rest = again.iter().enumerate().filter(|(number, _)| number % 3 != 0).map(|(_, changes)| changes.clone());
    model.change(rest.collect(), Some(&mut undo)).unwrap();
    assert!(held_tensors(model) == last);
    model.undo(undo).unwrap();
    assert!(held_tensors(model) == before);
    // Without a way back.
    model.change(changes, None).unwrap();
    assert!(held_tensors(model) == after);
}

#[test]
fn changed_numbers_are_those_of_whole_tensors_in_every_family() {
    for name in MODELS {
        for precision in [Precision::F32, Precision::Bf16] {
            compare_changes(&mut model(name, KernelSet::PORTABLE, 2, precision));
        }
    }
}

#[test]
fn changes_of_what_a_model_does_not_hold_are_refused() {
    let mut model = model("llama", KernelSet::PORTABLE, 1, Precision::Bf16);
    let tensor = held_tensors(&mut model).into_iter().find(|tensor| tensor.shape.len() == 2).unwrap();
    let (changes, _) = changed(&tensor, 5);
    let count = u32::try_from(tensor.shape.iter().product::<usize>()).unwrap();
    let wrong = [
        TensorChanges { name: "model.norm.bias".to_owned(), ..changes.clone() },
        TensorChanges { shape: vec![1, 2], ..changes.clone() },
        TensorChanges { dtype: WeightDtype::F16, ..changes.clone() },
        TensorChanges { places: vec![1, 1], numbers: vec![0; 4], ..changes.clone() },
        TensorChanges { places: vec![2, 1], numbers: vec![0; 4], ..changes.clone() },
        TensorChanges { places: vec![count], numbers: vec![0; 2], ..changes.clone() },
        TensorChanges { numbers: vec![0; 2], ..changes.clone() },
    ];
    for wrong in wrong {
        assert!(model.check_changes(&[wrong]).is_err());
    }
    assert!(model.check_changes(&[changes.clone(), changes.clone()]).is_err());
    model.check_changes(&[changes]).unwrap();
}
