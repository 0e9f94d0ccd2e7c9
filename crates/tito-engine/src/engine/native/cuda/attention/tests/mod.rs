//! Attention as it is defined, beside what a device makes of it.

#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]

mod preparation;

use std::{collections::BTreeMap, ops::Range};

use candle_core::DType;
use half::bf16;

use super::{
    super::{
        DeviceBackend,
        buffer::{Allocations, TensorKind},
        inputs::StepInputs,
        landings::Landings,
        shared::WholeImage,
        tests::{processor, test_device},
    },
    *,
};
use crate::engine::native::backend::{Batch, CacheShape, Reach};

const SCALE: f32 = 0.4;

/// A number that bf16 has.
fn number(seed: usize) -> f32 {
    bf16::from_f32(((seed * 7919 + 17) % 10_007) as f32 / 5_000.0 - 1.0).to_f32()
}

/// What not every layer has.
#[derive(Debug, Clone, Copy)]
struct Odd {
    reach: Reach,
    cap: Option<f32>,
    sinks: bool,
}

impl Odd {
    const PLAIN: Self = Self { reach: Reach::All, cap: None, sinks: false };

    fn shape(self, heads: usize) -> AttentionShape {
        AttentionShape { heads, scale: SCALE, reach: self.reach, cap: self.cap }
    }

    fn sinks(self, heads: usize) -> Option<Tensor> {
        let sinks: Vec<f32> = (0..heads).map(sink).collect();
        self.sinks.then(|| Tensor::new(sinks, &test_device()).unwrap())
    }
}

/// The score that a head of queries gives to nothing.
fn sink(head: usize) -> f32 {
    [0.5, -2.0, 3.0][head % 3]
}

/// Queries, keys and values of every position, and a cache that holds the latter in blocks out of order.
struct Sequence {
    heads: usize,
    kept: CacheShape,
    rows: Vec<Vec<f32>>,
    states: Tensor,
    cache: Cache,
    blocks: Vec<u32>,
    /// Images that are seen both ways, in steps that have them as a whole.
    images: Vec<Range<usize>>,
}

impl Sequence {
    /// What is not written of the cache is no number.
    fn new(heads: usize, kept: CacheShape, length: usize, dtype: DType) -> Self {
        let columns = (heads + 2 * kept.heads) * kept.head_dim;
        let rows: Vec<Vec<f32>> =
            (0..length).map(|row| (0..columns).map(|column| number(row * columns + column)).collect()).collect();
        let states = Tensor::from_vec(rows.concat(), (length, columns), &test_device()).unwrap();
        let blocks: Vec<u32> = (0..length.div_ceil(BLOCK_TOKENS) as u32).rev().collect();
        let kind = TensorKind { device: &test_device(), dtype, allocations: &Allocations::default() };
        let cache = Cache::new(kind, kept, blocks.len()).unwrap();
        for part in [&cache.keys, &cache.values] {
            let nothing = Tensor::full(f32::NAN, part.shape(), &test_device()).unwrap().to_dtype(dtype).unwrap();
            part.slice_set(&nothing, 0, 0).unwrap();
        }
        let sequence = Self { heads, kept, rows, states, cache, blocks, images: Vec::new() };
        let mut shared = sequence.begin_step(&[(0, length)]);
        sequence.cache.write(&sequence.states, heads * kept.head_dim, &mut shared).unwrap();
        assert_eq!(shared.finiteness().unwrap().0.land(&mut Landings::default()).unwrap(), [true]);
        sequence
    }

    /// Spans of `(first position, tokens)`, all of this sequence.
    fn begin_step(&self, spans: &[(usize, usize)]) -> StepShared {
        let mut batch = Batch::default();
        for (first_position, tokens) in spans {
            let (first_row, tokens) = (batch.token_ids.len(), *tokens);
            let blocks = self.blocks[..(first_position + tokens).div_ceil(BLOCK_TOKENS)].to_vec();
            batch.spans.push(Span {
                first_row,
                tokens,
                first_position: *first_position,
                blocks,
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            });
            batch.token_ids.resize(first_row + tokens, 0);
        }
        let mut shared = StepShared::new(&test_device(), &batch, Vec::new(), StepInputs::default()).unwrap();
        for (span, (first, tokens)) in spans.iter().enumerate() {
            let within = self.images.iter().filter(|image| *first <= image.start && image.end <= first + tokens);
            shared.whole_images.extend(within.map(|positions| WholeImage { span, positions: positions.clone() }));
        }
        shared
    }

    /// Attention of one head of one position.
    fn expected(&self, position: usize, head: usize, Odd { reach, cap, sinks }: Odd) -> Vec<f64> {
        let (dim, kv_head) = (self.kept.head_dim, head * self.kept.heads / self.heads);
        let part =
            |row: usize, head: usize| self.rows[row][head * dim..][..dim].iter().map(|number| f64::from(*number));
        let image = self.images.iter().find(|image| image.contains(&position));
        let seen: Vec<usize> = (reach.first_key(position)..image.map_or(position + 1, |image| image.end)).collect();
        let score = |other: usize| -> f64 {
            let dot: f64 = part(position, head).zip(part(other, self.heads + kv_head)).map(|(a, b)| a * b).sum();
            let score = dot * f64::from(SCALE);
            cap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh()).exp()
        };
        let weights: Vec<f64> = seen.iter().map(|other| score(*other)).collect();
        let sink = if sinks { f64::from(sink(head)).exp() } else { 0.0 };
        let total: f64 = weights.iter().sum::<f64>() + sink;
        let mut out = vec![0.0; dim];
        for (other, weight) in seen.iter().zip(&weights) {
            for (sum, value) in out.iter_mut().zip(part(*other, self.heads + self.kept.heads + kv_head)) {
                *sum += weight / total * value;
            }
        }
        out
    }

    /// How far all heads of a position are from that.
    fn error(&self, found: &[f32], position: usize, odd: Odd) -> f64 {
        assert_eq!(found.len(), self.heads * self.kept.head_dim);
        assert!(found.iter().all(|number| number.is_finite()), "position {position}: {found:?}");
        let of_head = |(head, found): (usize, &[f32])| {
            let expected = self.expected(position, head, odd);
            found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
        };
        found.chunks_exact(self.kept.head_dim).enumerate().map(of_head).fold(0.0, f64::max)
    }

    /// Attention of all rows of a batch, which a backend computes in the ways that it chooses.
    fn attended(&self, spans: &[(usize, usize)], odd: Odd, deterministic: bool) -> Vec<Vec<f32>> {
        let dtype = self.cache.keys.dtype();
        let backend = DeviceBackend::new(test_device(), dtype, processor(1));
        let backend = if deterministic { backend.deterministic() } else { backend };
        let positions = positions(spans);
        let picks = Tensor::new(positions.iter().map(|row| *row as u32).collect::<Vec<_>>(), &test_device()).unwrap();
        let states = self.states.index_select(&picks, 0).unwrap();
        let out = Tensor::full(f32::NAN, (positions.len(), self.heads * self.kept.head_dim), &test_device()).unwrap();
        let out = out.to_dtype(dtype).unwrap();
        let (shape, sinks) = (odd.shape(self.heads), odd.sinks(self.heads));
        let setting = Setting { shape, sinks: sinks.as_ref(), tiles: backend.tiles(self.heads), both_ways: false };
        backend.attend_all(&states, &self.cache, setting, &self.begin_step(spans), &out).unwrap();
        out.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap()
    }

    /// The error over all rows of a batch. Rows at the same position have the same bits, and one of them counts; unless a GPU
    /// gathers their keys, in shapes that spans decide, as it does for what is odd in f32.
    fn error_of_batch(&self, spans: &[(usize, usize)], odd: Odd, deterministic: bool) -> f64 {
        let found = self.attended(spans, odd, deterministic);
        let is_odd = odd.cap.is_some() || odd.sinks || odd.reach != Reach::All;
        let dtype = self.cache.keys.dtype();
        let have_same_bits = deterministic || !is_odd || test_device().is_cpu() || dtype == DType::BF16;
        let mut rows: BTreeMap<usize, &[f32]> = BTreeMap::new();
        let mut worst = 0.0_f64;
        for (row, position) in found.iter().zip(positions(spans)) {
            let first = *rows.entry(position).or_insert(row);
            if have_same_bits {
                assert_eq!(first, row, "position {position}");
            }
            if !have_same_bits || std::ptr::eq(first, &raw const **row) {
                worst = worst.max(self.error(row, position, odd));
            }
        }
        worst
    }
}

/// The position of each row of a batch.
fn positions(spans: &[(usize, usize)]) -> Vec<usize> {
    spans.iter().flat_map(|(first, tokens)| *first..first + tokens).collect()
}

#[test]
fn tiles_of_any_size_give_what_attention_is_defined_as() {
    let (heads, head_dim, length) = (4, 8, 700);
    let sequence = Sequence::new(heads, CacheShape { heads: 2, head_dim }, length, DType::F32);
    let queries = sequence.states.narrow(1, 0, heads * head_dim).unwrap().contiguous().unwrap();
    let queries = queries.reshape((length, heads, head_dim)).unwrap();
    let small = Tiles { queries: 7, keys: 64, equal: false };
    let reaches = [Reach::All, Reach::Window(1), Reach::Window(33), Reach::Window(300), Reach::Chunk(70)];
    for (tiles, reach) in
        [Tiles::large(heads), Tiles::equal(), small].into_iter().flat_map(|tiles| reaches.map(|reach| (tiles, reach)))
    {
        let odd = Odd { reach, cap: (reach != Reach::All).then_some(0.7), sinks: reach != Reach::Window(33) };
        let (shape, sinks) = (odd.shape(heads), odd.sinks(heads));
        for (first, tokens) in [(0, length), (511, 40), (650, 50), (699, 1)] {
            let shared = sequence.begin_step(&[(first, tokens)]);
            let own = queries.narrow(0, first, tokens).unwrap();
            let setting = Setting { shape, sinks: sinks.as_ref(), tiles, both_ways: false };
            let found = attend_span(&own, &shared.spans[0], &sequence.cache, setting, &shared).unwrap();
            let found = found.to_vec2::<f32>().unwrap();
            for token in (0..tokens).step_by(13) {
                let error = sequence.error(&found[token], first + token, odd);
                assert!(error < 1e-5, "{tiles:?}, {odd:?}, position {}: {error}", first + token);
            }
        }
    }
}

/// Rows of one batch that attend to contexts of all lengths, of one block to three partitions of the kernels.
const MIXED: [(usize, usize); 7] = [(0, 1), (32, 1), (31, 3), (511, 1), (512, 1), (1000, 40), (1099, 1)];

#[test]
fn rows_of_any_context_attend_to_all_of_it_and_to_nothing_else() {
    let odd = [
        Odd::PLAIN,
        Odd { cap: Some(0.7), ..Odd::PLAIN },
        Odd { sinks: true, ..Odd::PLAIN },
        Odd { reach: Reach::Window(37), sinks: true, cap: None },
        Odd { reach: Reach::Window(600), ..Odd::PLAIN },
        Odd { reach: Reach::Chunk(70), ..Odd::PLAIN },
    ];
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::BF16, 2e-2)] {
        for (heads, kv_heads, head_dim) in [(4, 2, 64), (4, 1, 128), (3, 3, 80)] {
            let sequence = Sequence::new(heads, CacheShape { heads: kv_heads, head_dim }, 1100, dtype);
            for deterministic in [false, true] {
                for odd in odd.into_iter().take(if head_dim == 80 { odd.len() } else { 1 }) {
                    let error = sequence.error_of_batch(&MIXED, odd, deterministic);
                    assert!(
                        error < tolerance,
                        "{dtype:?}, heads of {head_dim}, {odd:?}, deterministic: {deterministic}: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn heads_of_any_size_share_keys_in_groups_of_any_size() {
    for (heads, kv_heads, head_dim) in [(12, 2, 96), (7, 1, 112), (2, 2, 192), (2, 1, 256), (20, 1, 64), (36, 1, 64)] {
        let sequence = Sequence::new(heads, CacheShape { heads: kv_heads, head_dim }, 1100, DType::BF16);
        let error = sequence.error_of_batch(&MIXED, Odd::PLAIN, false);
        assert!(error < 2e-2, "{heads} heads of {head_dim} with {kv_heads} of keys: {error}");
    }
}

#[test]
fn contexts_longer_than_a_multiprocessors_memory_count_to_their_end() {
    let sequence = Sequence::new(2, CacheShape { heads: 1, head_dim: 64 }, 33_000, DType::F32);
    for spans in [[(0, 1), (19_999, 1)], [(70, 1), (32_999, 1)]] {
        let error = sequence.error_of_batch(&spans, Odd::PLAIN, false);
        assert!(error < 2e-5, "{spans:?}: {error}");
    }
}

#[test]
fn a_window_begins_in_any_split_of_a_context() {
    let sequence = Sequence::new(4, CacheShape { heads: 1, head_dim: 64 }, 2700, DType::BF16);
    let odd = Odd { reach: Reach::Window(1500), ..Odd::PLAIN };
    let error = sequence.error_of_batch(&[(2600, 1), (2047, 3), (1499, 1), (2523, 2), (2699, 1)], odd, false);
    assert!(error < 2e-2, "{error}");
}

#[test]
fn many_rows_attend_as_few_do() {
    // So many rows are not split into partitions, and scores of contexts this long need more memory than a block has
    // by default.
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::BF16, 2e-2)] {
        let sequence = Sequence::new(8, CacheShape { heads: 2, head_dim: 64 }, 12_500, dtype);
        let spans: Vec<_> = MIXED.into_iter().chain([(12_499, 1); 20]).cycle().take(81).collect();
        let error = sequence.error_of_batch(&spans, Odd::PLAIN, false);
        assert!(error < tolerance, "{dtype:?}: {error}");
    }
}

#[test]
fn rows_of_an_image_attend_to_all_of_it_and_to_what_is_before_it() {
    let reaches = [(Reach::All, false), (Reach::All, true), (Reach::Window(20), true), (Reach::Window(150), false)];
    for (dtype, tolerance, heads, head_dim) in [(DType::F32, 2e-5, 4, 8), (DType::BF16, 2e-2, 2, 256)] {
        let mut sequence = Sequence::new(heads, CacheShape { heads: heads / 2, head_dim }, 300, dtype);
        sequence.images = vec![5..6, 40..130, 130..139, 270..299];
        for (reach, deterministic) in reaches {
            let odd = Odd { reach, ..Odd::PLAIN };
            // Texts beside images, and parts of the sequence with and without some.
            for spans in [&[(31, 120)][..], &[(0, 7), (299, 1), (265, 34)]] {
                let error = sequence.error_of_batch(spans, odd, deterministic);
                assert!(error < tolerance, "{dtype:?}, heads of {head_dim}, {odd:?}, {deterministic}: {error}");
            }
        }
    }
}

/// What attends to a token in a prompt, in a piece of one, among a few and alone has the same sums in the same order, whether
/// one block of threads computes all splits of its context or several do.
#[test]
fn a_row_has_the_same_bits_in_a_prompt_in_a_piece_and_alone() {
    let prompts = [(1000, 40), (1017, 20), (1030, 9), (1005, 1), (1023, 1), (1024, 1), (1039, 1)];
    // With so many more rows, no context is divided.
    let many: Vec<_> = prompts.into_iter().chain([(1039, 1); 270]).collect();
    let all = [
        (Odd::PLAIN, 64),
        (Odd { cap: Some(0.7), sinks: true, ..Odd::PLAIN }, 80),
        (Odd { reach: Reach::Window(37), sinks: true, cap: None }, 80),
        (Odd { reach: Reach::Window(600), ..Odd::PLAIN }, 80),
        (Odd { reach: Reach::Chunk(70), ..Odd::PLAIN }, 80),
    ];
    for (odd, head_dim) in all {
        let sequence = Sequence::new(4, CacheShape { heads: 1, head_dim }, 1040, DType::BF16);
        let error = sequence.error_of_batch(&prompts, odd, false);
        assert!(error < 2e-2, "{odd:?}: {error}");
        let rows = sequence.attended(&prompts, odd, false);
        let in_company = sequence.attended(&many, odd, false);
        for ((position, row), other) in positions(&prompts).into_iter().zip(rows).zip(in_company) {
            assert_eq!(row, other, "{odd:?}, position {position}");
        }
    }
}
