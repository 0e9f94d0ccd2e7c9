//! Models whose weights stay in the blocks of a GGUF file.

use candle_core::quantized::GgmlDType;
use parking_lot::Mutex;

use super::*;
use crate::{
    engine::native::{
        model::{Model, ModelShape, Room},
        weights::{GgufWeights, Rounded, SomeRows, Weights},
    },
    gguf::{GgufFile, fixture::HuggingFace},
};

const TOKENS: TokenId = 40;
/// What all of the models know.
const VOCABULARY: TokenId = 8;

fn backend(threads: usize, precision: Precision) -> CpuBackend {
    CpuBackend::new(Processor { set: KernelSet::available()[0], pool: Pool::new(threads).unwrap() }, precision)
}

fn opened(class: &str, dtype: GgmlDType, other: GgmlDType) -> (tempfile::TempDir, GgufFile) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    HuggingFace::wide(class).to_gguf(dtype, other).write(&path);
    let file = GgufFile::open(path).unwrap();
    (directory, file)
}

fn load(file: &GgufFile, backend: CpuBackend) -> Model<CpuBackend> {
    let shape = ModelShape::read(&file.model_config().unwrap()).unwrap();
    let weights = GgufWeights::open(file).unwrap();
    let weights = Rounded(if backend.keeps_quantized { weights.giving_codes() } else { weights });
    let mut model = Model::load(backend, shape, &weights, &mut |_, _| ()).unwrap();
    model.allocate_cache(Room { blocks: 2, slots: 0 }).unwrap();
    model
}

/// Logits of some tokens of one sequence, row by row.
fn logits(model: &mut Model<CpuBackend>, tokens: Range<TokenId>) -> Vec<f32> {
    let (first, count) = (tokens.start as usize, tokens.len());
    let batch = Batch {
        token_ids: tokens.map(|index| (index * 7 + 3) % VOCABULARY).collect(),
        spans: vec![Span {
            first_row: 0,
            tokens: count,
            first_position: first,
            blocks: vec![1, 0],
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        }],
        logit_rows: (0..count).collect(),
        images: Vec::new(),
    };
    let rows = Mutex::new(vec![Vec::new(); count]);
    model.forward(&batch, &|row: usize, logits: &mut [f32]| rows.lock()[row] = logits.to_vec());
    rows.into_inner().concat()
}

#[test]
fn a_model_in_blocks_gives_the_same_bits_for_pieces_of_a_prompt_and_any_threads() {
    for class in ["LlamaForCausalLM", "Qwen3MoeForCausalLM"] {
        for dtype in [GgmlDType::Q4K, GgmlDType::Q8_0, GgmlDType::Q4_1] {
            let (_directory, file) = opened(class, dtype, GgmlDType::F32);
            for precision in [Precision::Bf16, Precision::F32] {
                let whole = logits(&mut load(&file, backend(1, precision).keeping_quantized()), 0..TOKENS);
                let mut model = load(&file, backend(3, precision).keeping_quantized());
                let pieces = [0..1, 1..30, 30..TOKENS].map(|piece| logits(&mut model, piece)).concat();
                assert!(whole.iter().zip(&pieces).all(|(whole, piece)| whole.to_bits() == piece.to_bits()));
            }
        }
    }
}

#[test]
fn a_model_in_blocks_gives_the_bits_of_the_same_model_widened() {
    for class in ["LlamaForCausalLM", "Qwen3MoeForCausalLM"] {
        for dtype in [GgmlDType::Q4K, GgmlDType::Q6K, GgmlDType::Q8_0, GgmlDType::Q5_1] {
            let (_directory, file) = opened(class, dtype, GgmlDType::F32);
            let of = |backend| logits(&mut load(&file, backend), 0..TOKENS);
            for precision in [Precision::Bf16, Precision::F32] {
                let found = of(backend(1, precision).keeping_quantized());
                assert_eq!(found, of(backend(1, precision)), "{class} {dtype:?} {precision:?}");
            }
            let [kept, widened] = [true, false].map(|kept| {
                let backend = backend(1, Precision::Bf16).with_f32_activations();
                of(if kept { backend.keeping_quantized() } else { backend })
            });
            assert_eq!(kept, widened, "{class} {dtype:?}");
        }
    }
}

/// A model with experts in MXFP4.
fn mxfp4() -> GgufFile {
    GgufFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/gguf_mxfp4/model.gguf")).unwrap()
}

#[test]
fn experts_in_mxfp4_stay_in_their_codes_and_give_the_bits_of_widened_ones() {
    let file = mxfp4();
    for precision in [Precision::Bf16, Precision::F32] {
        let found = logits(&mut load(&file, backend(1, precision).keeping_quantized()), 0..TOKENS);
        let expected = logits(&mut load(&file, backend(1, precision)), 0..TOKENS);
        assert!(found.iter().zip(&expected).all(|(found, expected)| found.to_bits() == expected.to_bits()));
    }
    let weights = Rounded(GgufWeights::open(&file).unwrap().giving_codes());
    for (name, shape) in weights.tensors() {
        let rows = weights.rows(name).unwrap();
        let is_experts = name.ends_with("_proj") && name.contains("experts");
        assert_eq!(rows.coded().is_some(), is_experts, "{name}");
        if is_experts {
            let (outputs, inputs) = (shape[2], shape[1]);
            let first = SomeRows::new(rows.coded().unwrap(), 0..outputs);
            let mut backend = backend(1, Precision::Bf16).keeping_quantized();
            let mut matrix = backend.matrix(outputs, inputs).unwrap();
            backend.write_rows(&mut matrix, 0, &first).unwrap();
            let Matrix::Coded(coded) = &matrix else { panic!("{name} is kept") };
            assert_eq!(Matrix::kept_bytes(&first, 2), coded.bytes());
            // Outputs are a whole number of blocks, and codes and scales less than five bits for a number.
            assert!(8 * coded.bytes() < 5 * (outputs * inputs) as u64);
        }
    }
}

#[test]
fn a_cache_for_which_there_are_no_addresses_is_refused() {
    for precision in [Precision::Bf16, Precision::F32] {
        for (heads, head_dim, blocks) in [(1 << 10, 1 << 10, 1 << 31), (1 << 16, 1 << 16, usize::MAX)] {
            let cache = backend(1, precision).cache(CacheShape { heads, head_dim }, blocks);
            assert_eq!(cache.err(), Some(NoRoom));
        }
    }
}

#[test]
fn weights_for_which_there_are_no_addresses_are_refused() {
    let (_directory, file) = opened("LlamaForCausalLM", GgmlDType::F16, GgmlDType::F16);
    let weights = GgufWeights::open(&file).unwrap();
    let rows = weights.rows("model.embed_tokens.weight").unwrap();
    for outputs in [1 << 40, usize::MAX] {
        let mut backend = backend(1, Precision::Bf16);
        assert_eq!(backend.matrix(outputs, 1 << 20).err(), Some(NoRoom));
        assert_eq!(backend.vector(usize::MAX).err(), Some(NoRoom));
        // Where the rows of a matrix may stay in blocks, this is noticed only when the first rows come.
        backend = backend.keeping_quantized();
        let mut too_large = backend.matrix(outputs, rows.columns()).unwrap();
        assert!(matches!(backend.write_rows(&mut too_large, 0, &*rows), Err(WeightsError::NoRoom)));
    }
}

#[test]
fn matrices_without_blocks_are_computed_as_without_the_setting() {
    let (_directory, file) = opened("Qwen3MoeForCausalLM", GgmlDType::F16, GgmlDType::F16);
    let plain = logits(&mut load(&file, backend(1, Precision::F32)), 0..TOKENS);
    assert_eq!(logits(&mut load(&file, backend(1, Precision::F32).keeping_quantized()), 0..TOKENS), plain);
}
