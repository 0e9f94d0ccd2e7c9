//! Examples of weights that stay in the blocks of a GGUF file or in the codes of a checkpoint: each number of bits, with and
//! without something to be added, by a single row, by a few, and by as many as are multiplied with a panel.

use std::ops::Range;

use candle_core::quantized::GgmlDType;

use super::{
    super::{Blocked, Coded, Operand, Pool, Precision, Processor, States},
    example::{Example, Tolerance},
    examples::{ERROR_OF_A_SUMMAND, numbers, numbers_of_states, states},
};
use crate::engine::native::weights::{BlockFormat, BlockRows, Code, CodedRows, Codes, Rows, WeightsError};

/// Types of blocks, and where in a block half floats are.
const BLOCKS: [(GgmlDType, &[usize]); 7] = [
    (GgmlDType::Q4_0, &[0]),
    (GgmlDType::Q4_1, &[0, 2]),
    (GgmlDType::Q5_0, &[0]),
    (GgmlDType::Q5_1, &[0, 2]),
    (GgmlDType::Q8_0, &[0]),
    (GgmlDType::Q4K, &[0, 2]),
    (GgmlDType::Q6K, &[208]),
];

/// Rows of an input, and what they are in.
const INPUTS: [(usize, Precision); 4] =
    [(1, Precision::Bf16), (4, Precision::Bf16), (20, Precision::Bf16), (3, Precision::F32)];
/// Rows of a matrix: two blocks of 16, and a part of one.
const OUTPUTS: usize = 37;
/// No weight is larger.
const LARGEST_WEIGHT: f32 = 8.0;

/// All of them.
pub(super) fn all() -> Vec<Example> {
    let mut examples = Vec::new();
    for (rows, precision) in INPUTS {
        examples.extend(BLOCKS.map(|(dtype, halves)| product_with_blocks(dtype, halves, rows, precision)));
        for (code, scales) in [(Code::E4m3, 0.02), (Code::E2m1, 0.125)] {
            examples.push(product_with_codes(code, scales, rows, precision));
        }
    }
    examples
}

/// Bytes of any values.
fn bytes(count: usize, seed: u32) -> Vec<u8> {
    numbers(count, seed)
        .into_iter()
        .map(|number| number.to_bits().to_be_bytes()[1] ^ number.to_bits().to_be_bytes()[0])
        .collect()
}

/// A matrix, and what multiplies rows with it.
fn product(
    operation: &str,
    inputs: usize,
    (rows, precision): (usize, Precision),
    multiply: impl Fn(&mut Processor, &Operand, &mut States) + 'static,
) -> Example {
    let compute = move |processor: &mut Processor| {
        let mut input = Operand::new(precision);
        input.reshape(rows, inputs);
        for (row, values) in numbers(rows * inputs, 31).chunks_exact(inputs).enumerate() {
            input.write_row(row, values);
        }
        let mut out = states(rows, OUTPUTS, 32);
        multiply(processor, &input, &mut out);
        numbers_of_states(&out)
    };
    #[expect(clippy::cast_precision_loss, reason = "the inner dimension is small")]
    let most = LARGEST_WEIGHT * ERROR_OF_A_SUMMAND * (inputs + 32) as f32;
    let operation = format!("a product of {rows} x {inputs} numbers in {precision:?} and {operation}");
    Example { operation, tolerance: Tolerance::Within(most), compute: Box::new(compute) }
}

fn product_with_blocks(dtype: GgmlDType, halves: &'static [usize], rows: usize, precision: Precision) -> Example {
    let Some(format) = BlockFormat::of(dtype) else { unreachable!("{dtype:?} stays in its blocks") };
    let inputs = format.numbers.max(96);
    let weight = BlocksOfRows::new(format, halves, inputs);
    product(
        &format!("{inputs} x {OUTPUTS} in blocks of {dtype:?}"),
        inputs,
        (rows, precision),
        move |processor, input, out| {
            let mut matrix = Blocked::zeros(OUTPUTS, inputs);
            matrix.write_rows(&mut processor.pool, 0, &weight).expect("blocks in memory can be read");
            matrix.multiply(processor, input, out, false);
        },
    )
}

fn product_with_codes(code: Code, scale: f32, rows: usize, precision: Precision) -> Example {
    let inputs = 96;
    let weight = CodesOfRows { code, columns: inputs, scale, codes: bytes(OUTPUTS * inputs, 33) };
    product(
        &format!("{inputs} x {OUTPUTS} in codes of {code:?} times {scale}"),
        inputs,
        (rows, precision),
        move |processor, input, out| {
            let matrix = coded(precision, &mut processor.pool, &weight);
            matrix.multiply(processor, input, out, false);
        },
    )
}

fn coded(precision: Precision, pool: &mut Pool, rows: &CodesOfRows) -> Coded {
    let mut matrix = Coded::try_zeros(precision, OUTPUTS, rows).expect("there is room for a small matrix");
    matrix.write_rows(pool, 0, rows).expect("codes in memory can be read");
    matrix
}

/// Rows as a GGUF file has them.
struct BlocksOfRows {
    format: BlockFormat,
    columns: usize,
    bytes: Vec<u8>,
}

impl BlocksOfRows {
    fn new(format: BlockFormat, halves: &[usize], columns: usize) -> Self {
        let mut bytes = bytes(OUTPUTS * columns / format.numbers * format.bytes(), 30);
        for block in bytes.chunks_exact_mut(format.bytes()) {
            for at in halves {
                // Any mantissa and sign, and an exponent of -9.
                block[at + 1] = 0x18 | block[at + 1] & 0x83;
            }
        }
        Self { format, columns, bytes }
    }
}

impl Rows for BlocksOfRows {
    fn rows(&self) -> usize {
        OUTPUTS
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, _: Range<usize>, _: &mut Vec<f32>) -> Result<(), WeightsError> {
        unreachable!("blocks are read as they are")
    }

    fn blocks(&self) -> Option<(BlockFormat, &dyn BlockRows)> {
        Some((self.format, self))
    }
}

impl BlockRows for BlocksOfRows {
    fn read(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let row = self.bytes.len() / OUTPUTS;
        Ok(self.bytes[rows.start * row..rows.end * row].to_vec())
    }
}

/// Rows in codes, of which 32 share a scale.
struct CodesOfRows {
    code: Code,
    columns: usize,
    scale: f32,
    codes: Vec<u8>,
}

impl Rows for CodesOfRows {
    fn rows(&self) -> usize {
        OUTPUTS
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, _: Range<usize>, _: &mut Vec<f32>) -> Result<(), WeightsError> {
        unreachable!("codes are read as they are")
    }

    fn coded(&self) -> Option<&dyn CodedRows> {
        Some(self)
    }
}

impl CodedRows for CodesOfRows {
    fn code(&self) -> Code {
        self.code
    }

    fn rows(&self) -> usize {
        OUTPUTS
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn group(&self) -> usize {
        32
    }

    fn is_rounded(&self) -> bool {
        false
    }

    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError> {
        let code = |byte: &u8| match self.code {
            // Numbers below 2, none of which is not a number.
            Code::E4m3 => byte & 0xbf,
            Code::E2m1 => byte & 0xf,
        };
        let codes = self.codes[rows.start * self.columns..rows.end * self.columns].iter().map(code).collect();
        // Each group has another one.
        let groups = rows.len() * self.columns / 32;
        let scales = (0..groups).map(|group| if group % 2 == 0 { self.scale } else { self.scale / 4.0 }).collect();
        Ok(Codes { codes, scales })
    }
}
