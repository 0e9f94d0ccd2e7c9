//! Products with matrices that are widened block by block.
//!
//! A thread widens some blocks of 16 outputs into memory that stays in its cache, in the layout of [`Packed`],
//! and multiplies with them. So the product has the same bits as with the widened matrix, with every kernel set.

use std::{cell::RefCell, ops::Range};

use super::{
    KernelSet, LANES, Operand, Packed, Pool, Precision, Processor, States,
    gemm::{Product, Shares},
    multiplier::Multiplier,
    packed::Numbers,
    pages::Stored,
    parts::Parts,
};
use crate::engine::native::{
    backend::NoRoom,
    weights::{Rows, WeightsError},
};

/// Bytes of widened blocks that a thread multiplies with at a time: they stay in its cache.
const PANEL_BYTES: usize = 192 << 10;

/// A matrix of blocks that can be widened.
pub(super) trait Widen: Sync {
    /// How many outputs and inputs there are.
    fn shape(&self) -> [usize; 2];

    /// What blocks are widened to, for activations of a precision: no less than bf16 for bf16.
    fn precision(&self, activations: Precision) -> Precision;

    /// Widens a block into a part of a panel, which has [`LANES`] numbers for each input, padded as a packed matrix is.
    fn widen(&self, set: KernelSet, block: usize, panel: &mut Stored, part: Range<usize>);

    /// Multiplies the first of these blocks with rows while they are widened, without a panel; says how many of them. It
    /// must give the bits of a product with a panel.
    ///
    /// # Safety
    /// From `c` on, which nobody else uses meanwhile, there is room for the products of these rows with all of the blocks.
    unsafe fn multiply_few(&self, _set: KernelSet, _blocks: Range<usize>, _rows: &OfRows<'_>, _c: *mut f32) -> usize {
        0
    }
}

/// Some rows of activations, and how their products are written.
pub(super) struct OfRows<'a> {
    /// The numbers of all rows, and where the first of these begins.
    pub(super) a: &'a Numbers,
    pub(super) first: usize,
    /// Numbers from a row to the next.
    pub(super) stride: usize,
    pub(super) count: usize,
    /// The same for their products.
    pub(super) c_stride: usize,
    /// Whether products are added to what is there.
    pub(super) accumulate: bool,
}

/// `out[r] (+)= matrix * input[r]` for every row of `input`.
///
/// # Panics
/// If shapes do not fit together.
pub(super) fn multiply(
    Processor { set, pool }: &mut Processor,
    input: &Operand,
    matrix: &impl Widen,
    out: &mut States,
    accumulate: bool,
) {
    let ([outputs, inputs], precision) = (matrix.shape(), matrix.precision(input.precision()));
    let (set, stride) = (*set, out.stride);
    let (depth, number_bytes) = match precision {
        Precision::Bf16 => (inputs.next_multiple_of(Precision::Bf16.step()), size_of::<u16>()),
        Precision::F32 => (inputs, size_of::<f32>()),
    };
    // Rows of activations in f32 end with a whole pair, before the padding of weights in bf16 does.
    let k = depth.min(input.stride);
    assert_eq!(input.columns, inputs, "the inner dimensions are equal");
    assert_eq!((out.rows, out.columns), (input.rows, outputs), "the result has the outer dimensions");
    let block_len = depth * LANES;
    let at_once = (PANEL_BYTES / (block_len * number_bytes).max(1)).max(1);
    let shares = Shares::of(input.rows, outputs.div_ceil(LANES), set, pool);
    let out = Parts::new(&mut out.numbers);
    pool.for_each(shares.count(), &|index| {
        let (rows, blocks) = shares.get(index);
        let of_rows = OfRows {
            a: &input.numbers,
            first: rows.start * input.stride,
            stride: input.stride,
            count: rows.len(),
            c_stride: stride,
            accumulate,
        };
        let mut multiplier = Multiplier::new(set);
        let mut first = blocks.start;
        while first < blocks.end {
            let c = out.address(rows.start * stride + first * LANES);
            // SAFETY: `out` has the rows and whole blocks from `c` on, and shares of it do not overlap.
            let done = unsafe { matrix.multiply_few(set, first..blocks.end, &of_rows, c) };
            if done > 0 {
                first += done;
                continue;
            }
            let blocks = first..blocks.end.min(first + at_once);
            first = blocks.end;
            with_panel(precision, blocks.len() * block_len, |panel| {
                for (place, block) in blocks.clone().enumerate() {
                    matrix.widen(set, block, panel, place * block_len..(place + 1) * block_len);
                }
                let product = Product {
                    a: (&input.numbers, rows.start * input.stride),
                    a_stride: input.stride,
                    rows: rows.len(),
                    b: (panel, 0),
                    b_block_stride: block_len,
                    blocks: blocks.len(),
                    following: 0,
                    next: (0, 0),
                    soon: 0,
                    k,
                    c_stride: stride,
                    accumulate,
                };
                // SAFETY: as above; the depth is padded to what its precision reads at once, and rows in f32 to whole pairs.
                unsafe { product.compute(&mut multiplier, c) };
            });
        }
    });
}

/// Calls `work` with so many numbers of this thread's own.
fn with_panel(precision: Precision, len: usize, work: impl FnOnce(&mut Stored)) {
    thread_local! {
        static PANELS: [RefCell<Option<Stored>>; 2] = const { [RefCell::new(None), RefCell::new(None)] };
    }
    PANELS.with(|panels| {
        let mut panel = panels[usize::from(precision == Precision::Bf16)].borrow_mut();
        let panel = match &mut *panel {
            Some(panel) if panel.len() >= len => panel,
            small => small.insert(Stored::zeros(precision, len).expect("room for some blocks")),
        };
        work(panel);
    });
}

/// The matrix of so many outputs and inputs whose rows `read_row` gives, without blocks to be widened.
pub(super) fn packed(
    pool: &mut Pool,
    precision: Precision,
    [outputs, inputs]: [usize; 2],
    read_row: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<Packed, WeightsError> {
    let mut packed = Packed::try_zeros(precision, outputs, inputs).map_err(|NoRoom| WeightsError::NoRoom)?;
    packed.write_rows(pool, 0, &WidenedRows { outputs, inputs, read_row })?;
    Ok(packed)
}

/// The rows of a matrix that is widened row by row.
struct WidenedRows<F> {
    outputs: usize,
    inputs: usize,
    read_row: F,
}

impl<F: Fn(usize, &mut [f32]) + Sync> Rows for WidenedRows<F> {
    fn rows(&self) -> usize {
        self.outputs
    }

    fn columns(&self) -> usize {
        self.inputs
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        for row in rows {
            let start = out.len();
            out.resize(start + self.inputs, 0.0);
            (self.read_row)(row, &mut out[start..]);
        }
        Ok(())
    }
}
