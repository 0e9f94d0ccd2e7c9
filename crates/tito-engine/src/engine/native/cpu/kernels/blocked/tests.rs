//! Matrices in blocks against the same matrices widened, to the bit, on every kernel set, and against sums in f64.

use candle_core::quantized::GgmlDType;

use super::*;
use crate::engine::native::cpu::kernels::multiply;

/// All types that stay in blocks.
const KEPT: [GgmlDType; 10] = [
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

/// Rows as a file would have them: any bytes, but for the half floats.
struct Made {
    format: BlockFormat,
    columns: usize,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Made {
    /// With scales of usual sizes.
    fn new(dtype: GgmlDType, shape: [usize; 2], seed: usize) -> Self {
        Self::with_halves(dtype, shape, seed, |mixed| 0x1800 | mixed & 0x83ff)
    }

    fn with_halves(dtype: GgmlDType, [rows, columns]: [usize; 2], seed: usize, half: impl Fn(u16) -> u16) -> Self {
        let format = BlockFormat::of(dtype).unwrap();
        let mut state = u64::try_from(seed).unwrap() + 1;
        let mut mixed = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u16::try_from(state >> 48).unwrap()
        };
        let mut bytes: Vec<u8> =
            (0..rows * columns / format.numbers * format.bytes()).map(|_| mixed().to_le_bytes()[1]).collect();
        for block in bytes.chunks_exact_mut(format.bytes()) {
            for at in halves(dtype) {
                block[*at..at + 2].copy_from_slice(&half(mixed()).to_le_bytes());
            }
        }
        let storage = candle_core::quantized::QStorage::from_data(
            std::borrow::Cow::Borrowed(&bytes),
            &candle_core::Device::Cpu,
            dtype,
        );
        let tensor = candle_core::quantized::QTensor::new(storage.unwrap(), (rows, columns)).unwrap();
        let values = tensor.dequantize(&candle_core::Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        Self { format, columns, bytes, values }
    }

    /// The numbers of a row, rounded to bf16.
    fn rounded(&self, row: usize) -> Vec<f32> {
        let values = &self.values[row * self.columns..][..self.columns];
        values.iter().map(|value| bf16::from_f32(*value).to_f32()).collect()
    }
}

/// Where a block has half floats.
fn halves(dtype: GgmlDType) -> &'static [usize] {
    match dtype {
        GgmlDType::Q4_0 | GgmlDType::Q5_0 | GgmlDType::Q8_0 => &[0],
        GgmlDType::Q2K => &[80, 82],
        GgmlDType::Q3K => &[108],
        GgmlDType::Q6K => &[208],
        _ => &[0, 2],
    }
}

impl Rows for Made {
    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        rows.for_each(|row| out.extend(self.rounded(row)));
        Ok(())
    }

    fn blocks(&self) -> Option<(BlockFormat, &dyn BlockRows)> {
        Some((self.format, self))
    }
}

impl BlockRows for Made {
    fn read(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let row = self.bytes.len() / Rows::rows(self);
        Ok(self.bytes[rows.start * row..rows.end * row].to_vec())
    }
}

fn processor(set: KernelSet, threads: usize) -> Processor {
    Processor { set, pool: Pool::new(threads).unwrap() }
}

/// Numbers between -1 and 1.
fn activation(index: usize) -> f32 {
    f32::sin(f32::from(u16::try_from(index * 7919 % 65_521).unwrap()))
}

fn operand(precision: Precision, rows: usize, columns: usize) -> Operand {
    let mut operand = Operand::new(precision);
    operand.reshape(rows, columns);
    for row in 0..rows {
        operand.write_row(row, &(0..columns).map(|column| activation(row * columns + column)).collect::<Vec<_>>());
    }
    operand
}

/// Products beside numbers that are there.
fn products(multiply: impl FnOnce(&Operand, &mut States), input: &Operand, outputs: usize) -> Vec<f32> {
    let mut out = States::default();
    out.reshape(input.rows(), outputs);
    for row in out.rows_mut() {
        row.fill(0.25);
    }
    multiply(input, &mut out);
    (0..out.rows()).flat_map(|row| out.row(row).to_vec()).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    // Which NaN comes out is the processor's choice.
    numbers.iter().map(|number| if number.is_nan() { u32::MAX } else { number.to_bits() }).collect()
}

/// Both, of the same rows.
fn matrices(pool: &mut Pool, parts: &[(usize, &Made)], outputs: usize, precision: Precision) -> (Blocked, Packed) {
    let columns = parts[0].1.columns;
    let (mut blocked, mut packed) = (Blocked::zeros(outputs, columns), Packed::zeros(precision, outputs, columns));
    for (first, made) in parts {
        blocked.write_rows(pool, *first, *made).unwrap();
        packed.write_rows(pool, *first, *made).unwrap();
    }
    (blocked, packed)
}

#[test]
fn products_have_the_bits_of_those_with_the_widened_matrix() {
    // A panel has three blocks of the last one, and all of the others.
    for set in KernelSet::tested() {
        for dtype in KEPT {
            let most = if dtype == GgmlDType::Q4K { 2_048 } else { 512 };
            for (outputs, columns) in [(1, 256), (50, 512), (70, most)] {
                let made = Made::new(dtype, [outputs, columns], outputs);
                for (weights, activations) in [
                    (Precision::Bf16, Precision::Bf16),
                    (Precision::Bf16, Precision::F32),
                    (Precision::F32, Precision::F32),
                ] {
                    let mut processor = processor(set, 2);
                    let (blocked, packed) = matrices(&mut processor.pool, &[(0, &made)], outputs, weights);
                    // Few rows, of each number, more, and a share of many.
                    for (accumulate, count) in
                        [(false, 0), (false, 1), (true, 2), (true, 3), (false, 4), (false, 5), (false, 130)]
                    {
                        if cfg!(unoptimised) && count * columns > 40_000 {
                            continue;
                        }
                        let input = operand(activations, count, columns);
                        let found = products(
                            |input, out| blocked.multiply(&mut processor, input, out, accumulate),
                            &input,
                            outputs,
                        );
                        let expected = products(
                            |input, out| multiply(&mut processor, input, &packed, out, accumulate),
                            &input,
                            outputs,
                        );
                        assert!(bits(&found) == bits(&expected), "{set} {dtype:?} {outputs} {columns} {count}");
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_those_in_f64_up_to_what_sums_in_f32_lose() {
    let (outputs, columns) = (40, 512);
    for set in KernelSet::tested() {
        for dtype in KEPT {
            let made = Made::new(dtype, [outputs, columns], 3);
            let mut processor = processor(set, 1);
            let (blocked, _) = matrices(&mut processor.pool, &[(0, &made)], outputs, Precision::Bf16);
            let input = operand(Precision::F32, 2, columns);
            let mut out = States::default();
            out.reshape(2, outputs);
            blocked.multiply(&mut processor, &input, &mut out, false);
            for row in 0..2 {
                for (output, found) in out.row(row).iter().enumerate() {
                    let weights = &made.values[output * columns..][..columns];
                    let pairs = || weights.iter().zip((row * columns..).map(activation));
                    let exact: f64 = pairs().map(|(weight, value)| f64::from(*weight) * f64::from(value)).sum();
                    let size: f64 = pairs().map(|(weight, value)| f64::from((weight * value).abs())).sum();
                    // Half of the last of the eight places of bf16, and far less for the sums.
                    let (error, bound) = ((f64::from(*found) - exact).abs(), size * (1.0 / 512.0 + 1e-5));
                    assert!(error <= bound, "{set} {dtype:?}: {error} is over {bound}");
                }
            }
        }
    }
}

#[test]
fn blocks_with_extreme_scales_have_the_numbers_that_candle_reads() {
    let mut row = vec![0.0; 256];
    for set in KernelSet::available() {
        for dtype in KEPT {
            // Zeros, the least and the largest halves, none, and infinities, of both signs.
            for half in [0x0000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0x7e00, 0x7fff] {
                let made = Made::with_halves(dtype, [16, 256], 5, |mixed| half | mixed & 0x8000);
                let mut processor = processor(set, 1);
                let (blocked, _) = matrices(&mut processor.pool, &[(0, &made)], 16, Precision::Bf16);
                let mut panel = Stored::zeros(Precision::Bf16, 16 * 256).unwrap();
                Widen::widen(&blocked, set, 0, &mut panel, 0..16 * 256);
                for lane in 0..16 {
                    let expected = made.rounded(lane);
                    let panel = panel.slice(0..16 * 256);
                    let widened: Vec<f32> =
                        (0..256).map(|input| panel.get(input / 2 * 2 * LANES + 2 * lane + input % 2)).collect();
                    assert!(bits(&widened) == bits(&expected), "{set} {dtype:?} {half:x}: {widened:?} {expected:?}");
                    blocked.read_row(lane, &mut row);
                    assert!(bits(&row) == bits(&expected), "{dtype:?} {half:x}");
                }
            }
        }
    }
}

#[test]
fn a_row_gives_the_same_bits_whatever_other_rows_and_threads_there_are() {
    for set in KernelSet::tested() {
        for precision in [Precision::Bf16, Precision::F32] {
            for dtype in KEPT {
                let made = Made::new(dtype, [130, 256], 1);
                let (blocked, _) = matrices(&mut Pool::new(1).unwrap(), &[(0, &made)], 130, Precision::Bf16);
                let of = |threads: usize, input: &Operand| {
                    products(|input, out| blocked.multiply(&mut processor(set, threads), input, out, false), input, 130)
                };
                let all = operand(precision, 5, 256);
                let together = of(3, &all);
                for (row, together) in together.chunks_exact(130).enumerate() {
                    let mut alone = Operand::new(precision);
                    alone.gather(&all, &[row]);
                    assert!(bits(&of(1, &alone)) == bits(together), "{set} {dtype:?}");
                }
            }
        }
    }
}

#[test]
fn rows_of_several_types_lie_side_by_side() {
    let parts = [(GgmlDType::Q4K, 0, 32), (GgmlDType::Q6K, 48, 16), (GgmlDType::Q5_1, 64, 20)];
    let parts = parts.map(|(dtype, first, rows)| (first, Made::new(dtype, [rows, 256], first)));
    let parts = parts.each_ref().map(|(first, made)| (*first, made));
    for set in KernelSet::tested() {
        let mut processor = processor(set, 2);
        let (blocked, packed) = matrices(&mut processor.pool, &parts, 84, Precision::Bf16);
        for rows in [1, 4, 9] {
            let input = operand(Precision::Bf16, rows, 256);
            let found = products(|input, out| blocked.multiply(&mut processor, input, out, false), &input, 84);
            let expected = products(|input, out| multiply(&mut processor, input, &packed, out, false), &input, 84);
            assert!(bits(&found) == bits(&expected), "{set}, {rows} rows");
            assert!(found[32..48].iter().all(|number| *number == 0.0), "what was never written is zeros");
        }
        let widened = blocked.widened(&mut processor.pool, Precision::F32).unwrap();
        let [mut plain, mut row] = [vec![f32::NAN; 256], vec![f32::NAN; 256]];
        for index in 0..84 {
            widened.read_row(index, &mut plain);
            blocked.read_row(index, &mut row);
            assert_eq!(plain, row);
        }
    }
}

#[test]
fn rows_are_overwritten_as_they_were_written_and_share_no_block_with_others() {
    let [first, second] = [1, 2].map(|seed| Made::new(GgmlDType::Q8_0, [16, 64], seed));
    let mut pool = Pool::new(1).unwrap();
    let mut matrix = Blocked::zeros(40, 64);
    matrix.write_rows(&mut pool, 16, &first).unwrap();
    matrix.write_rows(&mut pool, 16, &second).unwrap();
    let mut row = vec![0.0; 64];
    matrix.read_row(17, &mut row);
    assert_eq!(row, second.rounded(1));
    let [eight, wide] = [[8, 64], [32, 64]].map(|shape| Made::new(GgmlDType::Q8_0, shape, 0));
    assert!(matrix.takes(0, &first) && matrix.takes(32, &eight));
    assert!(!matrix.takes(0, &eight) && !matrix.takes(4, &first) && !matrix.takes(0, &wide));
}

#[test]
fn packed_blocks_are_about_as_large_as_the_file() {
    let sizes = KEPT.map(|dtype| {
        let format = BlockFormat::of(dtype).unwrap();
        (Layout::new(format).piece_bytes, LANES * format.bytes())
    });
    let grown: Vec<_> = KEPT.into_iter().zip(sizes).filter(|(_, (packed, file))| packed != file).collect();
    let of_row = |dtype, bytes: [usize; 2]| (dtype, (LANES * bytes[0], LANES * bytes[1]));
    let expected = [
        of_row(GgmlDType::Q2K, [164, 84]),
        of_row(GgmlDType::Q3K, [146, 110]),
        of_row(GgmlDType::Q4K, [148, 144]),
        of_row(GgmlDType::Q5K, [180, 176]),
    ];
    assert_eq!(grown, expected);
}

#[test]
fn the_bytes_of_a_matrix_are_known_before_it_is_there() {
    for dtype in KEPT {
        for outputs in [1, 16, 50] {
            let made = Made::new(dtype, [outputs, 512], 1);
            let mut matrix = Blocked::zeros(outputs, 512);
            matrix.write_rows(&mut Pool::new(1).unwrap(), 0, &made).unwrap();
            assert_eq!(Blocked::bytes_of(&made), Some(matrix.bytes()), "{dtype:?}");
            assert!(matrix.bytes() >= made.bytes.len() as u64, "{dtype:?}");
        }
    }
}

#[test]
fn numbers_that_are_no_blocks_are_not_kept() {
    for dtype in [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16, GgmlDType::Q8_1, GgmlDType::Q8K] {
        assert_eq!(BlockFormat::of(dtype), None);
    }
}

/// `cargo test … products_measured -- --ignored --nocapture`, with `--config
/// profile.dev.package.tito-engine.KEY=VALUE` for `opt-level=3`, `debug-assertions=false` and `overflow-checks=false`
/// (without these, each load and store is checked), prints how long a product takes beside one with the widened matrix.
#[test]
#[ignore = "measures"]
fn products_measured() {
    let (outputs, columns) = (8 * 2_048, 2_048);
    for set in KernelSet::available() {
        let mut processor = processor(set, 1);
        for dtype in [GgmlDType::Q8_0, GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q4K, GgmlDType::Q5K, GgmlDType::Q6K]
        {
            let made = Made::new(dtype, [outputs, columns], 1);
            let (blocked, packed) = matrices(&mut processor.pool, &[(0, &made)], outputs, Precision::Bf16);
            for rows in [1, 4, 16] {
                let input = operand(Precision::Bf16, rows, columns);
                let mut out = States::default();
                out.reshape(rows, outputs);
                let mut best = [f64::INFINITY; 2];
                for _ in 0..20 {
                    let begun = std::time::Instant::now();
                    blocked.multiply(&mut processor, &input, &mut out, false);
                    best[0] = best[0].min(begun.elapsed().as_secs_f64());
                    let begun = std::time::Instant::now();
                    multiply(&mut processor, &input, &packed, &mut out, false);
                    best[1] = best[1].min(begun.elapsed().as_secs_f64());
                }
                let [own, plain] = best.map(|seconds| 1e3 * seconds);
                println!("{set} {dtype:?}, {rows} rows: {own:.2} ms, widened {plain:.2} ms, {:.2} ×", plain / own);
            }
        }
    }
}
