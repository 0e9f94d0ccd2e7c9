//! How heads are made ready: by one operation after the other, by a kernel of its own, and by the one that attends.

use half::bf16;

use super::{
    super::super::buffer::Buffer, Allocations, AttentionShape, BLOCK_TOKENS, Batch, Cache, CacheShape, DType,
    DeviceBackend, Reach, SCALE, Span, StepInputs, StepShared, Tensor, TensorKind, number, processor, test_device,
};
use crate::engine::native::backend::{Backend, HeadPreparation, NormShape, Rotation, prepare_one_by_one};

/// A layer whose heads are to be made ready.
#[derive(Debug, Clone, Copy)]
struct Layer {
    heads: usize,
    kept: CacheShape,
    /// Pairs of a head that are rotated.
    pairs: usize,
    neighbours: bool,
    has_norms: bool,
    reach: Reach,
}

/// What is there after a layer's attention.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// What the queries of all rows are, unless the kernel that attends has prepared them for itself.
    queries: Vec<f32>,
    attended: Vec<Vec<f32>>,
    /// All keys and values of the blocks of each sequence.
    kept: Vec<[Vec<f32>; 2]>,
    /// Which rows are marked.
    marks: Vec<bool>,
}

type Operation = fn(
    &mut DeviceBackend,
    &mut Buffer,
    &HeadPreparation<'_, Tensor>,
    &mut Cache,
    AttentionShape,
    &mut StepShared,
    &mut Buffer,
);

/// By the operation that a model asks for.
const AT_ONCE: Operation = |backend, states, preparation, cache, shape, shared, out| {
    backend.prepare_and_attend(states, preparation, cache, shape, None, shared, out);
};

const ONE_BY_ONE: Operation = |backend, states, preparation, cache, shape, shared, out| {
    prepare_one_by_one(backend, states, preparation, cache, shared);
    backend.attend(states, cache, shape, None, shared, out);
};

impl Layer {
    const PLAIN: Self = Self {
        heads: 4,
        kept: CacheShape { heads: 1, head_dim: 64 },
        pairs: 32,
        neighbours: false,
        has_norms: true,
        reach: Reach::All,
    };

    fn columns(&self) -> usize {
        (self.heads + 2 * self.kept.heads) * self.kept.head_dim
    }

    /// A step over sequences of `(first position, tokens)`, each of which has blocks of its own and keys and values before its
    /// tokens. Everything follows from the sequence's number and the position, so that a row is the same in any company. One row
    /// has a value that is not finite: that of the last token of the first sequence.
    fn outcome(&self, sequences: &[(usize, usize)], operation: Operation) -> Outcome {
        let Self { heads, kept, pairs, neighbours, reach, .. } = *self;
        let mut backend = DeviceBackend::new(test_device(), DType::BF16, processor(1));
        let (batch, blocks) = batch(sequences);
        let rows: Vec<(usize, usize)> = batch
            .spans
            .iter()
            .enumerate()
            .flat_map(|(sequence, span)| (span.first_position..).take(span.tokens).map(move |at| (sequence, at)))
            .collect();
        let columns = self.columns();
        let row = |(sequence, at)| (0..columns).map(move |i| number((sequence * 5000 + at) * columns + i));
        let mut numbers: Vec<f32> = rows.iter().copied().flat_map(row).collect();
        numbers[sequences[0].1 * columns - 1] = f32::INFINITY;
        let mut states = Buffer::default();
        backend.put(&numbers, columns, &mut states);

        let mut cache = self.cache(blocks);
        let mut shared = StepShared::new(&test_device(), &batch, Vec::new(), StepInputs::default()).unwrap();
        let angle = |(_, at)| (0..pairs).map(move |pair| at as f32 / (1.0 + pair as f32));
        let angles: Vec<f32> = rows.iter().copied().flat_map(angle).collect();
        let sent = |turn: fn(f32) -> f32| {
            let numbers = angles.iter().map(|angle| turn(*angle)).collect();
            Tensor::from_vec(numbers, (rows.len(), pairs), &test_device()).unwrap()
        };
        shared.angles.push((sent(f32::cos), sent(f32::sin)));

        let norms = self.norms();
        let preparation = HeadPreparation {
            heads,
            kept,
            norms: norms.each_ref().map(Option::as_ref),
            norm: NormShape { epsilon: 1e-5, offset: 0.5, centred: false },
            rotation: Rotation { first: 0, heads: heads + kept.heads, head_dim: kept.head_dim, neighbours, angles: 0 },
        };
        let (shape, mut out) = (AttentionShape { heads, scale: SCALE, reach, cap: None }, Buffer::default());
        operation(&mut backend, &mut states, &preparation, &mut cache, shape, &mut shared, &mut out);
        let queries = states.tensor().narrow(1, 0, heads * kept.head_dim).unwrap().contiguous().unwrap();
        // A mark is any number but zero.
        let marks = read(&shared.broken).into_iter().map(|mark| mark != 0.0).collect();
        let attended = read(out.tensor()).chunks(heads * kept.head_dim).map(<[f32]>::to_vec).collect();
        let kept = |span: &Span| {
            let own = |part: &Tensor| read(&part.narrow(0, span.blocks[0] as usize, span.blocks.len()).unwrap());
            [own(&cache.keys), own(&cache.values)]
        };
        Outcome { queries: read(&queries), attended, kept: batch.spans.iter().map(kept).collect(), marks }
    }

    fn norms(&self) -> [Option<Tensor>; 2] {
        let weight = |seed: usize| (0..self.kept.head_dim).map(|i| number(i + seed)).collect::<Vec<f32>>();
        [1_000, 2_000].map(|seed| self.has_norms.then(|| Tensor::new(weight(seed), &test_device()).unwrap()))
    }

    /// A cache whose blocks are full of keys and values.
    fn cache(&self, blocks: usize) -> Cache {
        let kind = TensorKind { device: &test_device(), dtype: DType::BF16, allocations: &Allocations::default() };
        let cache = Cache::new(kind, self.kept, blocks).unwrap();
        for (seed, part) in [&cache.keys, &cache.values].into_iter().enumerate() {
            let numbers: Vec<bf16> =
                (0..part.elem_count()).map(|place| bf16::from_f32(number(place + seed * 977))).collect();
            let numbers = Tensor::from_vec(numbers, part.shape(), &test_device()).unwrap();
            part.slice_set(&numbers, 0, 0).unwrap();
        }
        cache
    }
}

/// The batch of some sequences, whose blocks follow each other, and how many blocks there are.
fn batch(sequences: &[(usize, usize)]) -> (Batch, usize) {
    let (mut batch, mut blocks) = (Batch::default(), 0);
    for (first_position, tokens) in sequences {
        let (first_row, tokens, count) =
            (batch.token_ids.len(), *tokens, (first_position + tokens).div_ceil(BLOCK_TOKENS));
        batch.spans.push(Span {
            first_row,
            tokens,
            first_position: *first_position,
            blocks: (blocks as u32..).take(count).collect(),
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        });
        batch.token_ids.resize(first_row + tokens, 0);
        blocks += count;
    }
    (batch, blocks)
}

fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
}

/// Single tokens, and as many as a tile has rows for where four heads share keys; the last two of one are in another split.
const FEW: [(usize, usize); 5] = [(70, 1), (0, 1), (1022, 4), (31, 3), (2600, 1)];

fn assert_close(found: &[f32], expected: &[f32], least: f32, what: &str) {
    assert_eq!(found.len(), expected.len());
    // A product and a sum may be fused in one kernel and not in another.
    let close = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a - b).abs() <= least + b.abs() / 128.0;
    assert!(found.iter().zip(expected).all(close), "{what}");
}

#[test]
fn heads_are_prepared_at_once_as_one_operation_after_the_other_does() {
    for (heads, kv_heads, head_dim, pairs) in
        [(4, 1, 128, 64), (6, 2, 64, 32), (3, 3, 80, 16), (2, 1, 96, 48), (4, 2, 112, 56), (5, 1, 256, 64)]
    {
        for (neighbours, has_norms) in [(false, true), (true, true), (false, false), (true, false)] {
            let kept = CacheShape { heads: kv_heads, head_dim };
            let layer = Layer { heads, kept, pairs, neighbours, has_norms, reach: Reach::All };
            for sequences in [&[(0, 37)][..], &[(70, 1), (31, 2)]] {
                let (found, expected) = (layer.outcome(sequences, AT_ONCE), layer.outcome(sequences, ONE_BY_ONE));
                let what = format!("{layer:?}, {sequences:?}");
                assert_eq!(found.marks, expected.marks, "{what}");
                assert_eq!(found.marks.iter().filter(|mark| **mark).count(), 1);
                for (found, expected) in found.kept.iter().flatten().zip(expected.kept.iter().flatten()) {
                    assert_close(found, expected, 1e-5, &what);
                }
                // Of a prompt, no block of threads has all rows.
                if sequences.len() == 1 {
                    assert_close(&found.queries, &expected.queries, 1e-5, &what);
                }
                // What the marked row attends to is no number.
                for ((found, expected), mark) in found.attended.iter().zip(&expected.attended).zip(&found.marks) {
                    if !mark {
                        assert_close(found, expected, 2e-2, &what);
                    }
                }
            }
        }
    }
}

/// Beside a prompt, another kernel prepares the heads of all rows.
#[test]
fn heads_have_the_same_bits_whichever_kernel_prepares_them() {
    if !test_device().is_cuda() {
        return eprintln!("SKIPPED: only a GPU has these kernels; tests/emulated-gpu/run has an emulated one");
    }
    let layers = [
        Layer::PLAIN,
        Layer { kept: CacheShape { heads: 2, head_dim: 128 }, heads: 8, pairs: 64, ..Layer::PLAIN },
        Layer { kept: CacheShape { heads: 1, head_dim: 80 }, pairs: 20, neighbours: true, ..Layer::PLAIN },
        Layer { has_norms: false, reach: Reach::Window(40), ..Layer::PLAIN },
        Layer { reach: Reach::Window(1500), ..Layer::PLAIN },
        Layer { kept: CacheShape { heads: 2, head_dim: 192 }, heads: 2, pairs: 96, ..Layer::PLAIN },
    ];
    for layer in layers {
        let alone = layer.outcome(&FEW, AT_ONCE);
        let rows = alone.attended.len();
        let company: Vec<_> = FEW.into_iter().chain([(0, 130)]).collect();
        let beside = layer.outcome(&company, AT_ONCE);
        assert_eq!(alone.marks, beside.marks[..rows], "{layer:?}");
        assert_eq!(alone.kept, beside.kept[..FEW.len()], "{layer:?}");
        for (row, (alone, beside)) in alone.attended.iter().zip(&beside.attended).enumerate() {
            // Not those that are no numbers.
            let bits = |row: &[f32]| row.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(alone), bits(beside), "{layer:?}, row {row}");
        }
    }
}
