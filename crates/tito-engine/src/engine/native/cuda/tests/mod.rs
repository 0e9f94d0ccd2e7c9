//! The models of `tests/golden/native` on candle's processor, which computes them with the code that a GPU runs.

#![expect(clippy::cast_precision_loss, reason = "small numbers")]

#[cfg(feature = "cuda")]
mod ahead;
#[cfg(feature = "cuda")]
mod sleeping;
mod speculation;
mod underway;

use std::{env, sync::OnceLock};

use candle_core::Device;
use parking_lot::Mutex;

use super::*;
use crate::engine::{
    WeightDtype, WeightTensor,
    native::{
        backend::{BLOCK_TOKENS, Span},
        cpu::{CpuBackend, KernelSet, Pool, Precision, Processor},
        model::{
            Model, Room,
            tests::{
                MODELS, TOLERANCE,
                adapters::{self, Adapted},
                compare, compare_changes, directory,
                families::{Golden, KINDS, in_order},
                images, loaded, logits, model as on_cpu,
            },
        },
        tests::Random,
        weights::{GivenTensors, SafetensorsFiles, Weights},
    },
};

/// Where tests compute: on the processor, or on the first GPU that the driver shows if `TITO_TEST_GPU` is set.
pub(super) fn test_device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let open = || match env::var_os("TITO_TEST_GPU") {
        Some(_) => Gpu::open(0).unwrap().device(),
        None => Device::Cpu,
    };
    DEVICE.get_or_init(open).clone()
}

/// Threads, and instructions that every machine has.
pub(super) fn processor(threads: usize) -> Processor {
    Processor { set: KernelSet::PORTABLE, pool: Pool::new(threads).unwrap() }
}

fn backend(dtype: DType) -> DeviceBackend {
    DeviceBackend::new(test_device(), dtype, processor(2))
}

/// A row of logits for each that was asked for, and for each span whether it is finite.
pub(super) fn step<B: Backend>(model: &mut Model<B>, batch: &Batch) -> (Vec<Vec<f32>>, Vec<bool>) {
    let rows = Mutex::new(vec![Vec::new(); batch.logit_rows.len()]);
    let finite = model.forward(batch, &|row: usize, logits: &mut [f32]| rows.lock()[row] = logits.to_vec());
    (rows.into_inner(), finite)
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len());
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < tolerance, "{what}: row {row} is off by {worst}");
    }
}

pub(super) fn assert_same_bits(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{what}: row {row} has other bits");
    }
}

#[test]
fn every_family_agrees_with_numpy() {
    for name in MODELS {
        compare(name, &mut loaded(name, backend(DType::F32)), TOLERANCE);
    }
}

#[test]
fn what_was_computed_to_warm_up_changes_nothing() {
    for name in MODELS {
        let mut model = loaded(name, backend(DType::F32));
        model.warm_up();
        compare(name, &mut model, TOLERANCE);
    }
    for name in KINDS {
        let golden = Golden::named(name);
        let mut model = golden.model(backend(DType::F32)).unwrap();
        model.warm_up();
        let worst = golden.compare(&mut model);
        assert!(worst < TOLERANCE, "{name} is off by {worst:.1e}");
    }
}

#[test]
fn every_family_agrees_with_numpy_in_equal_shapes() {
    for name in MODELS {
        compare(name, &mut loaded(name, backend(DType::F32).deterministic()), TOLERANCE);
    }
}

/// All that read images; on an emulated GPU, where each takes half a minute, those of every family.
fn models_with_images() -> Vec<&'static str> {
    match env::var_os("TITO_EMULATED_ORDER") {
        Some(_) => images::FAMILIES.into_iter().chain(images::OTHER_FAMILIES).collect(),
        None => images::all().collect(),
    }
}

#[test]
fn prompts_with_images_agree_with_transformers() {
    for name in models_with_images() {
        let golden = images::golden(name);
        for backend in [backend(DType::F32), backend(DType::F32).deterministic()] {
            let mut model = images::on(backend, &golden);
            for prompt in images::prompts(&golden) {
                let worst = prompt.compare(&mut model);
                assert!(worst < TOLERANCE, "{name}: {} is off by {worst:.1e}", prompt.name);
            }
        }
    }
}

#[test]
fn pieces_of_prompts_with_images_have_the_same_bits_in_equal_shapes() {
    let names = images::FAMILIES.into_iter().chain(images::OTHER_FAMILIES);
    for (name, dtype) in names.zip([DType::BF16, DType::F32].into_iter().cycle()) {
        let golden = images::golden(name);
        let load = || images::on(backend(dtype).deterministic(), &golden);
        let (mut whole, mut pieces) = (load(), load());
        for prompt in images::prompts(&golden) {
            let same = prompt.bits(&mut pieces, &[1, 4, 2, 3, 21]) == prompt.bits(&mut whole, &[]);
            assert!(same, "{name} in {dtype:?}: {}", prompt.name);
        }
    }
}

#[test]
fn every_kind_of_arithmetic_agrees_with_transformers() {
    for name in KINDS {
        let golden = Golden::named(name);
        for backend in [backend(DType::F32), backend(DType::F32).deterministic()] {
            let worst = golden.compare(&mut golden.model(backend).unwrap());
            assert!(worst < TOLERANCE, "{name} is off by {worst:.1e}");
        }
    }
}

#[test]
fn pieces_have_the_same_bits_in_equal_shapes_in_every_kind_of_arithmetic() {
    for (name, dtype) in KINDS.into_iter().zip([DType::F32, DType::BF16].into_iter().cycle()) {
        let golden = Golden::named(name);
        let load = || golden.model(backend(dtype).deterministic()).unwrap();
        let (token_ids, mut model) = (&golden.token_ids()[..72], load());
        let whole = in_order(&mut load(), token_ids, 0);
        let mut first = 0;
        for length in [1, 15, 2, 33, 21] {
            let piece = in_order(&mut model, &token_ids[first..first + length], first);
            assert_same_bits(&piece, &whole[first..first + length], name);
            first += length;
        }
    }
}

#[test]
fn adapters_agree_with_peft_and_have_the_same_bits_in_equal_shapes() {
    let models =
        ["mistralrs/llama", "families/cohere_plain", "families/qwen3_next_plain", "families/deepseek_v3_plain"];
    for adapted in models.map(Adapted::named) {
        let name = &adapted.golden.name;
        let worst = adapted.compare(backend(DType::F32));
        assert!(worst < adapters::FAR, "{name} is off by {worst:.1e}");
        let mut model = adapted.loaded(backend(DType::BF16).deterministic());
        model.allocate_cache(Room { blocks: 12, slots: 6 }).unwrap();
        for slot in 0..2 {
            model.put_adapter(slot, &adapted.adapter(Some(slot as u64))).unwrap();
        }
        let tokens = &adapted.golden.token_ids()[..19];
        let company = [Some(1), None, Some(0), Some(1)];
        let found = adapters::together(&mut model, tokens, &company);
        for (adapter, rows) in company.into_iter().zip(found) {
            assert_same_bits(&rows, &adapters::together(&mut model, tokens, &[adapter])[0], name);
        }
    }
}

#[test]
fn bf16_stays_close_to_the_cpu_engine() {
    for name in ["llama", "qwen3", "mistral", "qwen3_moe", "llama_heads_of_64", "qwen3_heads_of_128"] {
        let token_ids: Vec<TokenId> = (0..70).map(|index| (index * 29 + 5) % 96).collect();
        let expected = logits(&mut on_cpu(name, KernelSet::PORTABLE, 1, Precision::Bf16), &token_ids, 0);
        let found = logits(&mut loaded(name, backend(DType::BF16)), &token_ids, 0);
        assert_close(&found, &expected, 0.1, name);
    }
}

#[test]
fn pieces_of_a_prompt_have_the_same_bits_in_equal_shapes_and_are_close_otherwise() {
    let token_ids: Vec<TokenId> = (0..90).map(|index| (index * 37 + 11) % 96).collect();
    for name in ["llama", "mistral", "qwen2_window", "qwen3_moe", "llama_heads_of_64", "qwen3_heads_of_128"] {
        for dtype in [DType::F32, DType::BF16] {
            let plain = || backend(dtype);
            let whole = logits(&mut loaded(name, plain()), &token_ids, 0);
            let equal = logits(&mut loaded(name, plain().deterministic()), &token_ids, 0);
            let (mut loose, mut strict) = (loaded(name, plain()), loaded(name, plain().deterministic()));
            let mut first = 0;
            for length in [1, 31, 33, 2, 23] {
                let (piece, rows) = (&token_ids[first..first + length], first..first + length);
                let tolerance = if dtype == DType::F32 { 1e-4 } else { 0.1 };
                assert_close(&logits(&mut loose, piece, first), &whole[rows.clone()], tolerance, name);
                assert_same_bits(&logits(&mut strict, piece, first), &equal[rows], name);
                first += length;
            }
        }
    }
}

/// The root of the mean square of differences.
fn distance(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let pairs = || found.iter().flatten().zip(expected.iter().flatten());
    (pairs().map(|(a, b)| (a - b).powi(2)).sum::<f32>() / pairs().count() as f32).sqrt()
}

/// A sequence of a batch: its tokens, how many are computed, and its blocks.
struct Sequence {
    tokens: Vec<TokenId>,
    computed: usize,
    blocks: Vec<u32>,
}

/// Steps over many sequences, some in their prompt and some after it, in an order that changes.
struct Company {
    sequences: Vec<Sequence>,
    random: Random,
}

impl Company {
    fn new(count: u32) -> Self {
        let mut random = Random::seeded(count);
        let mut blocks: Vec<u32> = (0..count * 4).rev().collect();
        let mut sequence = || {
            let tokens = (0..20 + random.below(90)).map(|_| random.below(96)).collect::<Vec<_>>();
            let blocks = blocks.split_off(blocks.len() - tokens.len().div_ceil(BLOCK_TOKENS));
            Sequence { tokens, computed: 0, blocks }
        };
        let sequences = (0..count).map(|_| sequence()).collect();
        Self { sequences, random }
    }

    fn batch(&mut self) -> Option<(Batch, Vec<(usize, usize)>)> {
        let mut batch = Batch::default();
        let mut places = Vec::new();
        for index in 0..self.sequences.len() {
            let tokens = [1, 1, 3, 20, 40][self.random.below(5) as usize];
            let sequence = &mut self.sequences[index];
            let tokens = tokens.min(sequence.tokens.len() - sequence.computed);
            if tokens == 0 || self.random.below(4) == 0 {
                continue;
            }
            let first_row = batch.token_ids.len();
            let rows = sequence.computed..sequence.computed + tokens;
            batch.token_ids.extend(&sequence.tokens[rows.clone()]);
            let blocks = sequence.blocks[..rows.end.div_ceil(BLOCK_TOKENS)].to_vec();
            batch.spans.push(Span {
                first_row,
                tokens,
                first_position: sequence.computed,
                blocks,
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            });
            batch.logit_rows.extend(first_row..first_row + tokens);
            places.extend(rows.map(|position| (index, position)));
            sequence.computed += tokens;
        }
        let left = self.sequences.iter().any(|sequence| sequence.computed < sequence.tokens.len());
        (left || !places.is_empty()).then_some((batch, places))
    }
}

/// What each sequence gives alone, and with all the others.
fn in_company(name: &str, dtype: DType, deterministic: bool) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let of = |count: usize| {
        let backend = backend(dtype);
        let mut model = loaded(name, if deterministic { backend.deterministic() } else { backend });
        model.allocate_cache(Room { blocks: count, slots: 2 }).unwrap();
        model
    };
    let mut company = Company::new(12);
    let whole = |sequence: &Sequence| {
        let batch = Batch {
            token_ids: sequence.tokens.clone(),
            spans: vec![Span {
                first_row: 0,
                tokens: sequence.tokens.len(),
                first_position: 0,
                blocks: vec![3, 0, 2, 1],
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            }],
            logit_rows: (0..sequence.tokens.len()).collect(),
            images: Vec::new(),
        };
        step(&mut of(4), &batch).0
    };
    let alone: Vec<Vec<Vec<f32>>> = company.sequences.iter().map(whole).collect();
    let mut model = of(48);
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    while let Some((batch, places)) = company.batch() {
        if batch.spans.is_empty() {
            continue;
        }
        let (rows, finite) = step(&mut model, &batch);
        assert!(finite.iter().all(|finite| *finite));
        for (row, (sequence, position)) in rows.into_iter().zip(places) {
            found.push(row);
            expected.push(alone[sequence][position].clone());
        }
    }
    (found, expected)
}

#[test]
fn sequences_in_company_are_what_they_are_alone() {
    for name in ["llama", "qwen2_window", "qwen3_moe", "qwen2", "llama_heads_of_64", "qwen3_heads_of_128"] {
        let (found, expected) = in_company(name, DType::F32, false);
        assert_close(&found, &expected, 1e-4, name);
    }
    for name in ["llama", "llama_heads_of_64", "qwen3_heads_of_128"] {
        // Other ways of attention round other numbers to bf16: neither may be further from the truth than the other.
        let (exact, _) = in_company(name, DType::F32, false);
        let (found, alone) = in_company(name, DType::BF16, false);
        let (error, own) = (distance(&found, &exact), distance(&alone, &exact));
        assert!(error < 1.1 * own, "{name}: {error} in company, {own} alone");
    }
    for name in ["llama", "qwen2_window", "llama_heads_of_64", "qwen3_heads_of_128"] {
        let dtype = if name == "qwen3_heads_of_128" { DType::BF16 } else { DType::F32 };
        let (found, expected) = in_company(name, dtype, true);
        assert_same_bits(&found, &expected, name);
    }
}

#[test]
fn a_copied_block_serves_another_sequence() {
    let token_ids: Vec<TokenId> = (0..40).map(|index| (index * 31 + 2) % 96).collect();
    let mut model = loaded("llama", backend(DType::F32));
    let whole = logits(&mut model, &token_ids, 0);
    // The helper's sequences begin in block 4 and go on in block 1.
    model.copy_blocks(&[(4, 2)]);
    let batch = Batch {
        token_ids: token_ids[32..].to_vec(),
        spans: vec![Span {
            first_row: 0,
            tokens: 8,
            first_position: 32,
            blocks: vec![2, 5],
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        }],
        logit_rows: (0..8).collect(),
        images: Vec::new(),
    };
    assert_close(&step(&mut model, &batch).0, &whole[32..], 1e-5, "the copy");
}

#[test]
fn changed_numbers_are_those_of_whole_tensors() {
    for (name, dtype) in [("llama", DType::BF16), ("qwen3_moe", DType::F32), ("llama_tied_bias", DType::BF16)] {
        compare_changes(&mut loaded(name, backend(dtype)));
    }
}

pub(super) fn one_tensor(name: &str, shape: &[usize], number: impl Fn(usize) -> f32) -> GivenTensors {
    let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|place| number(place).to_le_bytes()).collect();
    let tensor =
        WeightTensor { name: name.to_owned(), dtype: WeightDtype::F32, shape: shape.to_vec(), bytes: bytes.into() };
    GivenTensors::new(vec![tensor]).unwrap()
}

pub(super) fn replace<B: Backend>(model: &mut Model<B>, weights: &dyn Weights) {
    let checked = model.check(weights).unwrap();
    model.replace(&checked, None).unwrap();
}

#[test]
fn a_span_that_is_not_finite_is_named_and_spoils_no_other() {
    let every = |dtype| [("llama", 64, dtype), ("llama_heads_of_64", 32, dtype)];
    for (name, hidden, dtype) in [DType::F32, DType::BF16].into_iter().flat_map(every) {
        // The last of the embeddings are not numbers.
        let number = |place| if place < 95 * hidden { (place as f32).sin() } else { f32::NAN };
        let table = one_tensor("model.embed_tokens.weight", &[96, hidden], number);
        let mut model = loaded(name, backend(dtype));
        replace(&mut model, &table);
        let span = |first_row, blocks: &[u32]| Span {
            first_row,
            tokens: 20,
            first_position: 0,
            blocks: blocks.to_vec(),
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        };
        let mut batch = Batch {
            token_ids: (0..40).collect(),
            spans: vec![span(0, &[1]), span(20, &[2])],
            logit_rows: vec![19, 39],
            images: Vec::new(),
        };
        let (healthy, finite) = step(&mut model, &batch);
        assert_eq!(finite, [true, true]);
        batch.token_ids[25] = 95;
        let (rows, finite) = step(&mut model, &batch);
        assert_eq!(finite, [true, false]);
        assert_eq!(rows[0], healthy[0]);
        // What the broken one left behind in its block is not seen by the next one.
        batch.token_ids[25] = 25;
        let (rows, finite) = step(&mut model, &batch);
        assert_eq!((rows, finite), (healthy, vec![true, true]));
    }
}

#[test]
fn replaced_weights_are_those_of_the_cpu_engine() {
    let weights =
        one_tensor("model.layers.0.self_attn.k_proj.weight", &[32, 64], |place| (place as f32 * 0.37).sin() * 0.1);
    let mut expected = on_cpu("llama", KernelSet::PORTABLE, 1, Precision::F32);
    let mut found = loaded("llama", backend(DType::F32));
    let before = logits(&mut found, &[1, 2, 3], 0);
    replace::<CpuBackend>(&mut expected, &weights);
    replace(&mut found, &weights);
    let after = logits(&mut found, &[1, 2, 3], 0);
    assert_ne!(after, before);
    assert_close(&after, &logits(&mut expected, &[1, 2, 3], 0), 1e-4, "the replaced weights");
}

#[test]
fn a_model_that_a_gpu_has_no_room_for_is_refused() {
    if !test_device().is_cuda() {
        eprintln!("SKIPPED: a processor's memory has no such end; TITO_TEST_GPU=1 tries it on a GPU");
        return;
    }
    let weights = SafetensorsFiles::open(&directory("llama")).unwrap();
    let rows = weights.rows("model.embed_tokens.weight").unwrap();
    let mut backend = backend(DType::F32);
    assert_eq!(backend.matrix(1 << 24, 1 << 20).err(), Some(NoRoom));
    assert_eq!(backend.vector(1 << 44).err(), Some(NoRoom));
    // What fits still does.
    let mut fits = backend.matrix(96, 64).unwrap();
    backend.write_rows(&mut fits, 0, &*rows).unwrap();
    let mut vector = backend.vector(64).unwrap();
    backend.write_vector(&mut vector, 0, &[1.0; 64]).unwrap();
}

#[test]
fn a_cache_for_which_there_are_no_addresses_is_refused() {
    for (heads, head_dim, blocks) in [(1 << 10, 1 << 10, 1 << 40), (1 << 16, 1 << 16, usize::MAX)] {
        let cache = backend(DType::BF16).cache(CacheShape { heads, head_dim }, blocks);
        assert_eq!(cache.err(), Some(NoRoom));
    }
}
