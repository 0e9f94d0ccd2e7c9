//! Matrices in codes against the same matrices widened, to the bit, on every kernel set.

use super::*;
use crate::engine::native::{
    cpu::kernels::{KernelSet, multiply},
    weights::SomeRows,
};

/// Codes that somebody made up.
struct Made {
    code: Code,
    columns: usize,
    group: usize,
    is_rounded: bool,
    codes: Vec<u8>,
    scales: Vec<f32>,
}

impl Made {
    fn new(code: Code, [rows, columns]: [usize; 2], group: usize, is_rounded: bool) -> Self {
        let mixed = |index: usize| (index * 7_919 + index * index * 31 + rows) % 251;
        let of_code = |index: usize| match (code, u8::try_from(mixed(index)).unwrap()) {
            // A number that is none would make all sums of its row none.
            (Code::E4m3, 0x7f | 0xff) => 3,
            (Code::E4m3, byte) => byte,
            (Code::E2m1, byte) => byte & 0xf,
        };
        let scale = |index: usize| match code {
            Code::E4m3 => (f32::from(u8::try_from(mixed(index + 5)).unwrap()) + 1.0) / 1_000.0,
            Code::E2m1 => 2_f32.powi(i32::try_from(mixed(index) % 9).unwrap() - 6),
        };
        Self {
            code,
            columns,
            group,
            is_rounded,
            codes: (0..rows * columns).map(of_code).collect(),
            scales: (0..rows * columns.div_ceil(group)).map(scale).collect(),
        }
    }
}

impl CodedRows for Made {
    fn code(&self) -> Code {
        self.code
    }

    fn rows(&self) -> usize {
        self.codes.len() / self.columns
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn group(&self) -> usize {
        self.group
    }

    fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError> {
        let groups = self.columns.div_ceil(self.group);
        Ok(Codes {
            codes: self.codes[rows.start * self.columns..rows.end * self.columns].to_vec(),
            scales: self.scales[rows.start * groups..rows.end * groups].to_vec(),
        })
    }
}

fn operand(precision: Precision, rows: usize, columns: usize) -> Operand {
    let mut operand = Operand::new(precision);
    operand.reshape(rows, columns);
    for row in 0..rows {
        let number = |column: usize| f32::from(u8::try_from((row * 31 + column * 17) % 201).unwrap()) / 128.0 - 0.7;
        operand.write_row(row, &(0..columns).map(number).collect::<Vec<_>>());
    }
    operand
}

/// The bits of all products.
fn products(multiply: impl FnOnce(&Operand, &mut States), input: &Operand, outputs: usize) -> Vec<u32> {
    let mut out = States::default();
    out.reshape(input.rows(), outputs);
    for row in out.rows_mut() {
        row.fill(0.25);
    }
    multiply(input, &mut out);
    (0..out.rows()).flat_map(|row| out.row(row).iter().map(|number| number.to_bits()).collect::<Vec<_>>()).collect()
}

#[test]
fn products_have_the_bits_of_those_with_the_widened_matrix() {
    // A panel has one or three blocks of the last one, and all of the others.
    let shapes = [[1, 32, 32], [17, 33, 6], [40, 96, 32], [50, 130, 128], [16, 7, 7], [70, 2_048, 128]];
    for set in KernelSet::tested() {
        for [outputs, inputs, group] in shapes {
            for (code, is_rounded) in [(Code::E4m3, false), (Code::E4m3, true), (Code::E2m1, false)] {
                let made = Made::new(code, [outputs, inputs], group, is_rounded);
                let rows = SomeRows::new(&made, 0..outputs);
                if Coded::keeps(&rows).is_none() {
                    assert_eq!((code, group), (Code::E2m1, 6), "a group of whole steps is kept");
                    continue;
                }
                // Of the matrix, and of what it is multiplied with.
                for (precision, activations) in [
                    (Precision::Bf16, Precision::Bf16),
                    (Precision::Bf16, Precision::F32),
                    (Precision::F32, Precision::F32),
                ] {
                    let mut processor = Processor { set, pool: Pool::new(2).unwrap() };
                    let mut coded = Coded::try_zeros(precision, outputs, &made).unwrap();
                    // From two tensors, which meet within a block.
                    let half = outputs / 2;
                    for part in [0..half, half..outputs] {
                        let rows = SomeRows::new(&made, part.clone());
                        coded.write_rows(&mut processor.pool, part.start, &rows).unwrap();
                    }
                    let mut packed = Packed::zeros(precision, outputs, inputs);
                    packed.write_rows(&mut processor.pool, 0, &rows).unwrap();
                    for accumulate in [false, true] {
                        for count in [0, 1, 2, 3, 4, if inputs > 1_000 { 5 } else { 130 }] {
                            let input = operand(activations, count, inputs);
                            let found = products(
                                |input, out| coded.multiply(&mut processor, input, out, accumulate),
                                &input,
                                outputs,
                            );
                            let expected = products(
                                |input, out| multiply(&mut processor, input, &packed, out, accumulate),
                                &input,
                                outputs,
                            );
                            assert!(
                                found == expected,
                                "{set} {code:?} {outputs} {inputs} {group} {precision:?} {activations:?} {count}"
                            );
                        }
                    }
                    let [mut row, mut plain] = [vec![0.0; inputs], vec![0.0; inputs]];
                    coded.read_row(outputs - 1, &mut row);
                    packed.read_row(outputs - 1, &mut plain);
                    assert_eq!(row, plain);
                }
            }
        }
    }
}

#[test]
fn a_matrix_becomes_the_widened_one() {
    let made = Made::new(Code::E4m3, [20, 40], 40, false);
    let mut pool = Pool::new(1).unwrap();
    let mut coded = Coded::try_zeros(Precision::F32, 20, &made).unwrap();
    coded.write_rows(&mut pool, 0, &SomeRows::new(&made, 0..20)).unwrap();
    let other = Made::new(Code::E4m3, [20, 40], 20, false);
    assert!(coded.takes(&SomeRows::new(&made, 0..3)) && !coded.takes(&SomeRows::new(&other, 0..3)));
    let widened = coded.widened(&mut pool).unwrap();
    let (mut found, mut expected) = (vec![0.0; 40], vec![0.0; 40]);
    for row in 0..20 {
        widened.read_row(row, &mut found);
        coded.read_row(row, &mut expected);
        assert_eq!(found, expected, "row {row}");
    }
}

#[test]
fn numbers_at_the_ends_of_what_bf16_holds_are_those_of_the_widened_matrix() {
    for set in KernelSet::tested() {
        for (scale, code) in [(1e-38, 1), (3e37, 0x7e), (0.0, 0x85), (1.0, 0xff), (f32::NAN, 5), (f32::INFINITY, 0)] {
            let mut made = Made::new(Code::E4m3, [16, 64], 32, false);
            made.scales[0] = scale;
            made.codes[1] = code;
            let mut pool = Pool::new(1).unwrap();
            let mut coded = Coded::try_zeros(Precision::Bf16, 16, &made).unwrap();
            coded.write_rows(&mut pool, 0, &SomeRows::new(&made, 0..16)).unwrap();
            let mut panel = Stored::zeros(Precision::Bf16, 16 * 64).unwrap();
            unpack::widen(set, coded.blocks(0..1), &mut panel, 0..16 * 64);
            for (input, number) in made.codes[..64].iter().enumerate() {
                let expected = bf16::from_f32(Code::E4m3.number(*number) * made.scales[input / 32]);
                let found = panel.slice(0..16 * 64).get(input / 2 * STEP_BYTES + input % 2);
                let same = found.to_bits() == expected.to_f32().to_bits() || (found.is_nan() && expected.is_nan());
                assert!(same, "{set}: {scale} {code:x}: {found} at {input}, not {expected}");
            }
        }
    }
}
