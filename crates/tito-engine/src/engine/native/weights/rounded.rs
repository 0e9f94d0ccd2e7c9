//! Tensors rounded to bf16, whatever they are computed with.

use std::ops::Range;

use half::bf16;

use super::{BlockFormat, BlockRows, Code, CodedRows, Rows, Weights, WeightsError};

/// The numbers of other weights, rounded to the nearest bf16, the even one of two.
///
/// A GGUF file that is computed with in f32 so has the weights of the directory that `tito convert` writes.
pub(crate) struct Rounded<W>(pub(crate) W);

impl<W: Weights> Weights for Rounded<W> {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.0.tensors()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        Ok(Box::new(RoundedRows(self.0.rows(name)?)))
    }

    fn is_filler(&self, name: &str) -> bool {
        self.0.is_filler(name)
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        self.0.check_unchanged()
    }
}

struct RoundedRows<'a>(Box<dyn Rows + 'a>);

impl Rows for RoundedRows<'_> {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn columns(&self) -> usize {
        self.0.columns()
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        let first = out.len();
        self.0.read(rows, out)?;
        round(&mut out[first..]);
        Ok(())
    }

    fn read_turned(&self, row: usize, out: &mut Vec<f32>) -> Result<bool, WeightsError> {
        let first = out.len();
        let is_turned = self.0.read_turned(row, out)?;
        round(&mut out[first..]);
        Ok(is_turned)
    }

    fn blocks(&self) -> Option<(BlockFormat, &dyn BlockRows)> {
        self.0.blocks()
    }

    fn coded(&self) -> Option<&dyn CodedRows> {
        // Powers of two times four bits are numbers of bf16 already.
        self.0.coded().filter(|coded| coded.code() == Code::E2m1 || coded.is_rounded())
    }
}

fn round(numbers: &mut [f32]) {
    for number in numbers {
        *number = bf16::from_f32(*number).to_f32();
    }
}
