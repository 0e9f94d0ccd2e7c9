//! Attention against sums in f64, over every way to cut a sequence and every shape that is awkward.

use std::ops::Range;

use half::bf16;

use super::*;
use crate::engine::native::{
    backend::Reach,
    cpu::kernels::{KvLayout, Pool, Precision},
};

const TOKENS: usize = 150;

/// A shape, and what is attended to.
#[derive(Debug, Clone, Copy)]
struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    reach: Reach,
    cap: Option<f32>,
    sinks: bool,
    precision: Precision,
    /// Of which each token attends to all.
    images: &'static [Range<usize>],
}

/// Numbers between -1 and 1, in bf16 so that no precision rounds them.
fn number(place: usize) -> f32 {
    bf16::from_f32(f32::sin(f32::from(u16::try_from(place * 7919 % 65_521).unwrap()))).to_f32()
}

/// The score that a head of queries gives to nothing.
fn sink(head: usize) -> f32 {
    [0.5, -2.0, 3.0][head % 3]
}

impl Case {
    fn width(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn row(self, token: usize) -> Vec<f32> {
        (0..self.width()).map(|place| number(token * self.width() + place)).collect()
    }

    /// All rows of the result, computed in pieces that end at `cuts`, in blocks that held something else before.
    fn attended(self, set: KernelSet, threads: usize, cuts: &[usize]) -> Vec<Vec<f32>> {
        let Self { heads, kv_heads, head_dim, reach, cap, precision, .. } = self;
        let sinks: Vec<f32> = (0..heads).map(sink).collect();
        let blocks: Vec<u32> = vec![3, 0, 4, 1, 2];
        let layout = KvLayout { heads: kv_heads, head_dim, precision };
        let mut store = KvStore::new(layout, blocks.len()).unwrap();
        let junk = vec![1e30; kv_heads * head_dim];
        for place in 0..blocks.len() * BLOCK_TOKENS {
            let mut block = store.block_mut(blocks[place / BLOCK_TOKENS]);
            block.write(set, layout, place % BLOCK_TOKENS, (&junk, &junk));
        }
        let mut processor = Processor { set, pool: Pool::new(threads).unwrap() };
        let (mut first, mut rows) = (0, Vec::new());
        for cut in cuts {
            let mut states = States::default();
            states.reshape(cut - first, self.width());
            for token in first..*cut {
                let row = self.row(token);
                let (block, slot) = (blocks[token / BLOCK_TOKENS], token % BLOCK_TOKENS);
                if slot == 0 {
                    store.block_mut(block).clear();
                }
                let (keys, values) = row[heads * head_dim..].split_at(kv_heads * head_dim);
                store.block_mut(block).write(set, layout, slot, (keys, values));
                states.row_mut(token - first).copy_from_slice(&row);
            }
            let shape = AttentionShape { heads, scale: 0.3, reach, cap };
            let sinks = self.sinks.then_some(&sinks[..]);
            let whole = self.images.iter().filter(|image| first <= image.start && image.end <= *cut);
            let both_ways = &BothWays::of_span(whole.cloned().collect());
            let attention = Attention { states: &states, store: &store, shape, sinks, both_ways };
            let span = Span {
                first_row: 0,
                tokens: cut - first,
                first_position: first,
                blocks: blocks.clone(),
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            };
            let mut out = Operand::new(precision);
            attend(&mut processor, &attention, &[span], &mut out);
            for row in 0..cut - first {
                let range = row * out.stride..row * out.stride + heads * head_dim;
                rows.push(match &out.numbers {
                    Numbers::Bf16(bits) => bits[range].iter().map(|bits| bf16::from_bits(*bits).to_f32()).collect(),
                    Numbers::F32(numbers) => numbers[range].to_vec(),
                });
            }
            first = *cut;
        }
        rows
    }

    fn exact(self, token: usize) -> Vec<f64> {
        let Self { heads, kv_heads, head_dim, reach, cap, .. } = self;
        let end = self.images.iter().find(|image| image.contains(&token)).map_or(token + 1, |image| image.end);
        let rows: Vec<Vec<f32>> = (0..end).map(|token| self.row(token)).collect();
        let mut out = Vec::new();
        for head in 0..heads {
            let kv_head = head / (heads / kv_heads);
            let first = reach.first_key(token);
            let part = |row: &[f32], head: usize| -> Vec<f64> {
                row[head * head_dim..][..head_dim].iter().map(|number| f64::from(*number)).collect()
            };
            let wanted = part(&rows[token], head);
            let mut total = if self.sinks { f64::from(sink(head)).exp() } else { 0.0 };
            let mut sums = vec![0.0; head_dim];
            for row in &rows[first..] {
                let score: f64 = part(row, heads + kv_head).iter().zip(&wanted).map(|(key, query)| key * query).sum();
                let score = score * f64::from(0.3_f32);
                let weight = cap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh()).exp();
                total += weight;
                for (sum, value) in sums.iter_mut().zip(part(row, heads + kv_heads + kv_head)) {
                    *sum += weight * value;
                }
            }
            out.extend(sums.iter().map(|sum| sum / total));
        }
        out
    }
}

#[test]
fn awkward_shapes_agree_with_f64_and_pieces_with_the_whole() {
    let shapes = [(1, 1, 2), (3, 1, 6), (5, 5, 10), (40, 1, 16), (6, 2, 24), (4, 4, 80), (7, 1, 96), (2, 1, 256)];
    let reaches = [
        Reach::All,
        Reach::Window(1),
        Reach::Window(33),
        Reach::Window(128),
        Reach::Window(129),
        Reach::Chunk(40),
        Reach::Chunk(1),
    ];
    for (index, (heads, kv_heads, head_dim)) in shapes.into_iter().enumerate() {
        let precision = if index % 2 == 0 { Precision::Bf16 } else { Precision::F32 };
        let (reach, cap) = (reaches[index % reaches.len()], (index % 3 == 1).then_some(1.5));
        let case = Case { heads, kv_heads, head_dim, reach, cap, sinks: index % 3 == 2, precision, images: &[] };
        // The fastest, and what every machine has.
        for set in [KernelSet::available()[0], KernelSet::PORTABLE] {
            let whole = case.attended(set, 1, &[TOKENS]);
            let tolerance = if precision == Precision::Bf16 { 0.02 } else { 2e-5 };
            for token in [0, 31, 128, TOKENS - 1] {
                for (found, exact) in whole[token].iter().zip(case.exact(token)) {
                    let error = (f64::from(*found) - exact).abs();
                    assert!(error < tolerance, "{case:?}, {set}, token {token}: {found} is not {exact}");
                }
            }
            let pieces = case.attended(set, 2, &[1, 2, 32, 33, 97, 128, 149, TOKENS]);
            let bits = |rows: &[Vec<f32>]| rows.iter().flatten().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert!(bits(&pieces) == bits(&whole), "{case:?}, {set}");
        }
    }
}

#[test]
fn tokens_of_an_image_attend_to_all_of_it_and_others_do_not() {
    // Within a block, over a border of blocks and of strides, one beside another, and at the end.
    const IMAGES: [Range<usize>; 5] = [2..11, 28..36, 36..45, 120..137, 147..150];
    for (index, reach) in [Reach::All, Reach::Window(6), Reach::Window(40)].into_iter().enumerate() {
        for precision in [Precision::Bf16, Precision::F32] {
            let (heads, kv_heads, head_dim) = [(4, 2, 16), (1, 1, 10), (6, 1, 24)][index];
            let case =
                Case { heads, kv_heads, head_dim, reach, cap: None, sinks: index == 1, precision, images: &IMAGES };
            let causal = Case { images: &[], ..case };
            for set in KernelSet::tested() {
                let whole = case.attended(set, 1, &[TOKENS]);
                let tolerance = if precision == Precision::Bf16 { 0.02 } else { 2e-5 };
                for (token, found) in whole.iter().enumerate() {
                    for (found, exact) in found.iter().zip(case.exact(token)) {
                        let error = (f64::from(*found) - exact).abs();
                        assert!(error < tolerance, "{case:?}, {set}, token {token}: {found} is not {exact}");
                    }
                }
                let bits = |rows: &[Vec<f32>]| rows.iter().flatten().map(|number| number.to_bits()).collect::<Vec<_>>();
                let pieces = case.attended(set, 2, &[1, 2, 12, 28, 36, 46, 119, 120, 138, TOKENS]);
                assert!(bits(&pieces) == bits(&whole), "{case:?}, {set}");
                // To the bit as without images, but for their own tokens.
                let plain = causal.attended(set, 2, &[TOKENS]);
                for (token, (found, plain)) in whole.iter().zip(&plain).enumerate() {
                    let sees_later = IMAGES.iter().any(|image| image.contains(&token) && token + 1 < image.end);
                    assert_eq!(found == plain, !sees_later, "{case:?}, {set}, token {token}");
                }
            }
        }
    }
}
