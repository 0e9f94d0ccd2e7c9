//! The kernels' own machine code, on the processor where it has AMX, else on the emulator.

mod emulator;
mod guarded;
mod pieces;

use std::{iter, ops::Range, ptr};

use self::{
    emulator::{step, widen},
    guarded::Guarded,
};
use super::{
    Ahead, B_TILE, BLOCK, Bf16Gemm, PANEL_ROWS, STEP, Tiles, across, available, blocks_at_hand, panel_at, soon_of,
};

const NAN: u16 = 0x7fc0;
const CANARY: f32 = -1234.5;
/// Canaries before the first row of C.
const BEFORE: usize = 32;

/// Elements between rows of A, blocks of B and rows of C that belong to nobody.
#[derive(Clone, Copy)]
struct Gaps {
    a: usize,
    b: usize,
    c: usize,
}

const TIGHT: Gaps = Gaps { a: 0, b: 0, c: 0 };
const LOOSE: Gaps = Gaps { a: 7, b: 34, c: 19 };

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// A random number of either sign, from 1/64 to 4.
    fn bf16(&mut self) -> u16 {
        let (sign, exponent, fraction) = (self.below(2), 121 + self.below(8), self.below(128));
        u16::try_from(sign << 15 | exponent << 7 | fraction).unwrap()
    }

    fn f32(&mut self) -> f32 {
        let low = u32::try_from(self.below(1 << 16)).unwrap();
        f32::from_bits(u32::from(self.bf16()) << 16 | low)
    }
}

/// Matrices without gaps.
#[derive(Clone)]
struct Product {
    rows: usize,
    blocks: usize,
    k: usize,
    /// `[rows][k]`
    a: Vec<u16>,
    /// `[blocks][k / 2][16][2]`
    b: Vec<u16>,
    /// `[rows][16 * blocks]`, what accumulation starts from.
    c: Vec<f32>,
}

impl Product {
    fn random(rows: usize, blocks: usize, k: usize) -> Self {
        let mut random = Random((rows * 1000 + blocks * 100 + k) as u64);
        let a = (0..rows * k).map(|_| random.bf16()).collect();
        let b = (0..k * blocks * BLOCK).map(|_| random.bf16()).collect();
        let c = (0..rows * blocks * BLOCK).map(|_| random.f32()).collect();
        Self { rows, blocks, k, a, b, c }
    }

    fn columns(&self) -> usize {
        self.blocks * BLOCK
    }

    fn b_index(&self, k: usize, column: usize) -> usize {
        column / BLOCK * self.k * BLOCK + k / 2 * 2 * BLOCK + column % BLOCK * 2 + k % 2
    }

    /// The pairs of numbers that one element of C is made of, in the order of K.
    fn factors(&self, row: usize, column: usize) -> impl Iterator<Item = (f32, f32)> {
        (0..self.k).map(move |k| (widen(self.a[row * self.k + k]), widen(self.b[self.b_index(k, column)])))
    }

    /// Some rows and blocks of it.
    fn part(&self, rows: Range<usize>, blocks: Range<usize>) -> Self {
        let block = self.k * BLOCK;
        let c = rows.clone().flat_map(|row| &self.c[row * self.columns()..][blocks.start * BLOCK..blocks.end * BLOCK]);
        Self {
            rows: rows.len(),
            blocks: blocks.len(),
            k: self.k,
            c: c.copied().collect(),
            a: self.a[rows.start * self.k..rows.end * self.k].to_vec(),
            b: self.b[blocks.start * block..blocks.end * block].to_vec(),
        }
    }

    /// The kernel's result, for some of K, where everything between and after the matrices is poisoned or watched.
    fn compute(&self, gaps: Gaps, k: Range<usize>, accumulate: bool) -> Vec<f32> {
        emulate_unless_available();
        let (a_stride, b_stride) = (k.len() + gaps.a, k.len() * BLOCK + gaps.b);
        let (columns, c_stride) = (self.columns(), self.columns() + gaps.c);
        let mut a = Guarded::filled(spanned(self.rows, a_stride, gaps.a), NAN);
        for row in 0..self.rows {
            a[row * a_stride..][..k.len()].copy_from_slice(&self.a[row * self.k..][k.clone()]);
        }
        let mut b = Guarded::filled(spanned(self.blocks, b_stride, gaps.b), NAN);
        for block in 0..self.blocks {
            let source = &self.b[block * self.k * BLOCK..][k.start * BLOCK..k.end * BLOCK];
            b[block * b_stride..][..source.len()].copy_from_slice(source);
        }
        let mut c = Guarded::filled(BEFORE + spanned(self.rows, c_stride, gaps.c), CANARY);
        for row in 0..self.rows {
            let start = &mut c[BEFORE + row * c_stride..][..columns];
            if accumulate { start.copy_from_slice(&self.c[row * columns..][..columns]) } else { start.fill(f32::NAN) }
        }
        let work = Bf16Gemm {
            a: a.as_ptr(),
            a_stride,
            rows: self.rows,
            b: b.as_ptr(),
            b_block_stride: b_stride,
            blocks: self.blocks,
            following: 0,
            next: (ptr::null(), 0),
            soon: 0,
            k: k.len(),
            c: c[BEFORE..].as_mut_ptr(),
            c_stride,
            accumulate,
        };
        // SAFETY: the matrices are as large as `work` says, and AMX works, be it emulated.
        unsafe { Tiles::new().multiply(&work) };
        let is_canary = |c: &[f32]| c.iter().all(|number| number.to_bits() == CANARY.to_bits());
        assert!(is_canary(&c[..BEFORE]), "something is written before C");
        let rows = c[BEFORE..].chunks(c_stride.max(1)).take(self.rows);
        assert!(rows.clone().all(|row| is_canary(&row[columns..])), "something is written between rows of C");
        rows.flat_map(|row| &row[..columns]).copied().collect()
    }

    fn overwrite(&self, gaps: Gaps) -> Vec<f32> {
        self.compute(gaps, 0..self.k, false)
    }

    fn accumulate(&self, gaps: Gaps) -> Vec<f32> {
        self.compute(gaps, 0..self.k, true)
    }
}

/// The elements from the first to the last one, without the gap after that.
fn spanned(count: usize, stride: usize, gap: usize) -> usize {
    (count * stride).saturating_sub(gap)
}

fn emulate_unless_available() {
    if !available() {
        emulator::install();
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn assert_close(product: &Product, gaps: Gaps) {
    let results = [(product.overwrite(gaps), false), (product.accumulate(gaps), true)];
    for (result, accumulate) in results {
        assert_eq!(result.len(), product.c.len());
        for (at, number) in result.into_iter().enumerate() {
            let (row, column) = (at / product.columns(), at % product.columns());
            let start = if accumulate { f64::from(product.c[at]) } else { 0.0 };
            let (mut sum, mut size) = (start, start.abs());
            for (a, b) in product.factors(row, column) {
                let term = f64::from(a) * f64::from(b);
                (sum, size) = (sum + term, size + term.abs());
            }
            let error = (f64::from(number) - sum).abs();
            assert!(error <= 1e-5 * size, "{number} for {sum} at row {row}, column {column}");
        }
    }
}

#[test]
fn products_of_every_kind_of_shape_are_right() {
    let shapes = [
        (1, 1, 32),
        (1, 7, 576),
        (2, 2, 64),
        (15, 4, 96),
        (16, 3, 128),
        (17, 2, 160),
        (17, 7, 32),
        (31, 1, 64),
        (32, 2, 320),
        (33, 5, 192),
        (33, 1, 576),
        (48, 3, 32),
        (49, 6, 64),
        (64, 4, 32),
        (65, 1, 32),
    ];
    for (rows, blocks, k) in shapes {
        let product = Product::random(rows, blocks, k);
        assert_close(&product, TIGHT);
        assert_close(&product, LOOSE);
    }
}

#[test]
fn products_of_random_shapes_are_right() {
    let mut random = Random(1);
    for _ in 0..24 {
        let (rows, blocks, k) = (random.below(50), random.below(8), 32 * (1 + random.below(6)));
        let gaps = Gaps { a: random.below(40), b: random.below(40), c: random.below(40) };
        assert_close(&Product::random(rows, blocks, k), gaps);
    }
}

#[test]
fn a_b_that_does_not_fit_into_l2_is_taken_in_groups() {
    let product = Product::random(33, 5, 4128);
    assert!(product.blocks > blocks_at_hand(product.k, product.rows));
    let whole = product.overwrite(TIGHT);
    // The panel of 32 rows and the one below it, which changes the tiles' configuration in each group.
    for row in [0, 32] {
        for block in 0..5 {
            let alone = product.part(row..row + 1, block..block + 1).overwrite(TIGHT);
            let place = row * product.columns() + block * BLOCK;
            assert_eq!(bits(&whole[place..][..BLOCK]), bits(&alone), "row {row}, block {block}");
        }
    }
}

#[test]
fn nothing_is_touched_where_there_is_nothing_to_compute() {
    emulate_unless_available();
    for (rows, blocks, k) in [(0, 3, 64), (5, 0, 64), (0, 0, 0)] {
        let (a, b, c) = (ptr::dangling(), ptr::dangling(), ptr::dangling_mut());
        let work = Bf16Gemm {
            a,
            a_stride: k,
            rows,
            b,
            b_block_stride: k * BLOCK,
            blocks,
            following: 0,
            next: (ptr::null(), 0),
            soon: 0,
            k,
            c,
            c_stride: blocks * BLOCK,
            accumulate: true,
        };
        // SAFETY: there is nothing to read or write.
        unsafe { Tiles::new().multiply(&work) };
    }
}

#[test]
fn a_product_over_no_k_is_zero_or_what_c_held() {
    for rows in [1, 20] {
        let product = Product::random(rows, 3, 0);
        assert_eq!(bits(&product.overwrite(LOOSE)), vec![0; product.c.len()]);
        assert_eq!(bits(&product.accumulate(LOOSE)), bits(&product.c));
    }
}

#[test]
fn the_walk_over_k_is_the_one_that_the_manual_gives() {
    let mut product = Product::random(33, 3, 96);
    // Subnormal numbers count for zero in every place.
    (product.a[1], product.b[2], product.c[3]) = (0x0001, 0x807f, 1e-40);
    (product.a[40 * 2], product.b[40 * 2 + 1]) = (0x0010, 0xff80);
    let result = product.accumulate(LOOSE);
    for (at, start) in product.c.iter().enumerate() {
        let factors = product.factors(at / product.columns(), at % product.columns());
        let (a, b): (Vec<f32>, Vec<f32>) = factors.unzip();
        let steps = a.chunks(STEP).zip(b.chunks(STEP));
        let walked = steps.fold(*start, |sum, (a, b)| step(sum, a, b));
        let agree = walked.to_bits() == result[at].to_bits() || walked.is_nan() && result[at].is_nan();
        assert!(agree, "{walked} for {} at {at}", result[at]);
    }
}

#[test]
fn subnormal_numbers_count_for_zero() {
    let mut product = Product::random(1, 1, 32);
    product.a.fill(0x3f80);
    product.b.fill(0x007f);
    product.c.fill(1e-40);
    assert_eq!(bits(&product.overwrite(TIGHT)), vec![0; BLOCK]);
    assert_eq!(bits(&product.accumulate(TIGHT)), vec![0; BLOCK]);
    (product.a[0], product.b[0]) = (0x0080, 0x3f00);
    assert_eq!(product.overwrite(TIGHT)[0].to_bits(), 0, "half of the smallest normal number");
    product.b[0] = 0x3f80;
    assert_eq!(product.overwrite(TIGHT)[0].to_bits(), f32::MIN_POSITIVE.to_bits());
}

#[test]
fn an_element_does_not_depend_on_the_rows_and_blocks_that_are_computed_with_it() {
    let product = Product::random(50, 7, 96);
    let whole = product.accumulate(TIGHT);
    let expect = |rows: Range<usize>, blocks: Range<usize>| -> Vec<u32> {
        let row = |row: usize| &whole[row * product.columns()..][blocks.start * BLOCK..blocks.end * BLOCK];
        rows.flat_map(row).map(|number| number.to_bits()).collect()
    };
    let check = |rows: Range<usize>, blocks: Range<usize>| {
        let part = product.part(rows.clone(), blocks.clone());
        let expected = expect(rows.clone(), blocks.clone());
        assert_eq!(bits(&part.accumulate(LOOSE)), expected, "rows {rows:?}, blocks {blocks:?}");
    };
    for row in [0, 15, 16, 31, 32, 33, 47, 48, 49] {
        check(row..row + 1, 0..7);
    }
    for split in [1, 5, 16, 17, 31, 32, 33, 49] {
        check(0..split, 0..3);
        check(split..50, 3..7);
    }
    for split in 1..7 {
        check(3..21, 0..split);
        check(30..40, split..7);
    }
}

#[test]
fn k_in_two_calls_is_k_in_one() {
    for rows in [1, 16, 33] {
        let product = Product::random(rows, 5, 224);
        for accumulate in [false, true] {
            let whole = product.compute(TIGHT, 0..224, accumulate);
            for split in [32, 128, 192] {
                let first = product.compute(LOOSE, 0..split, accumulate);
                let both = Product { c: first, ..product.clone() }.compute(LOOSE, split..224, true);
                assert_eq!(bits(&both), bits(&whole), "{rows} rows, split at {split}");
            }
        }
    }
}

#[test]
fn each_low_panel_fetches_its_own_b_and_then_the_next_panels() {
    for (k, width) in [(32, 4), (128, 2), (160, 4), (576, 3)] {
        let (b, mut c) = (vec![0_u16; k * BLOCK * 2 * width], [0.0; 1]);
        let work = Bf16Gemm {
            a: b.as_ptr(),
            a_stride: k,
            rows: 1,
            b: b.as_ptr(),
            b_block_stride: k * BLOCK,
            blocks: 2 * width,
            following: 0,
            next: (ptr::null(), 0),
            soon: 0,
            k,
            c: c.as_mut_ptr(),
            c_stride: 0,
            accumulate: false,
        };
        // SAFETY: takes the addresses of things within `b`, and of the first element of C.
        let soon = unsafe { soon_of(&work, 0, width) };
        // SAFETY: as above.
        let [panel, next] = [0, width].map(|block| unsafe { panel_at(&work, 0, block.min(width), width, soon) });
        let fetched = (0..panel.steps + panel.ahead.last_steps).map(|step| {
            let Ahead { distance, last_distance, .. } = panel.ahead;
            panel.b.addr() + step * B_TILE + if step < panel.steps { distance } else { last_distance }
        });
        let tiles = |b: *const u16| iter::successors(Some(b.addr()), |tile| Some(tile + B_TILE)).take(k / 32);
        let skipped = panel.ahead.last_steps;
        let expected: Vec<usize> = tiles(panel.b).skip(skipped).chain(tiles(next.b).take(skipped)).collect();
        assert_eq!(fetched.collect::<Vec<_>>(), expected, "k is {k}");
    }
}

#[test]
fn high_panels_fetch_all_blocks_that_come_next_and_none_beyond_them() {
    emulate_unless_available();
    for (rows, blocks, k, next) in
        [(32, 7, 576, 9), (64, 12, 576, 1), (40, 3, 2048, 0), (100, 4, 1536, 4), (160, 5, 64, 2)]
    {
        let (a, b) = (vec![0_u16; rows * k], vec![0_u16; (blocks + next) * k * BLOCK]);
        let mut c = vec![0.0; rows * blocks * BLOCK];
        let work = Bf16Gemm {
            a: a.as_ptr(),
            a_stride: k,
            rows,
            b: b.as_ptr(),
            b_block_stride: k * BLOCK,
            blocks,
            following: 0,
            next: (b[blocks * k * BLOCK..].as_ptr(), next),
            soon: 0,
            k,
            c: c.as_mut_ptr(),
            c_stride: blocks * BLOCK,
            accumulate: false,
        };
        let (group, mut tiles, mut fetched) = (blocks_at_hand(k, rows), Tiles::new(), 0);
        for first in (0..blocks).step_by(group) {
            let end = blocks.min(first + group);
            // SAFETY: the matrices are as large as `work` says, and AMX works, be it emulated.
            let soon = unsafe { soon_of(&work, end, group) };
            assert_eq!(soon.from.addr(), b.as_ptr().addr() + end * k * BLOCK * 2, "where those at hand end");
            let left = (0..rows).step_by(PANEL_ROWS).fold(soon, |soon, top| {
                let height = PANEL_ROWS.min(rows - top);
                // SAFETY: as above.
                unsafe {
                    tiles.configure(height);
                    across(&work, top, height, first..end, soon)
                }
            });
            assert!(left.from >= left.end || end - first < group, "{rows} rows of {k}, after {first}: all are fetched");
            assert_eq!(left.end, soon.end);
            fetched += soon.end.addr() - soon.from.addr();
        }
        let expected = (blocks - blocks.min(group) + next.min(group)) * k * BLOCK * 2;
        assert_eq!(fetched, expected, "{rows} rows of {k}");
    }
}
