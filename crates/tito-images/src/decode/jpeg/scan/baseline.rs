//! A scan of a file that is not progressive. Blocks become samples at once, as each component is in one scan only.

#![expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]

use std::mem;

use pulp::{Arch, Simd, WithSimd};

use super::{
    super::{
        bits::Bits,
        blocks::{self, Band},
        broken,
        coefficients::Coefficients,
        frame::{Component, Frame},
        huffman::Huffman,
        idct::Transform,
        samples::Samples,
    },
    parts::Part,
};
use crate::error::ImageError;

/// A component while it is read.
struct Reading<'a> {
    component: usize,
    dc: &'a Huffman,
    ac: Coefficients<'a>,
    /// The first coefficient of the block before.
    before: i32,
    /// Blocks of an MCU, across and down.
    sampling: (usize, usize),
    /// Blocks that hold samples, across and down; the others only fill an MCU.
    blocks: (usize, usize),
    transform: Transform,
    /// A number that no image has is an error of the image, and not of the scan: a scan that ends too early comes first.
    samples: Result<Samples, ImageError>,
}

impl<'a> Reading<'a> {
    fn new(part: &Part<'a>, component: &mut Component, alone: bool) -> Result<Self, ImageError> {
        let (Some(dc), Some(ac)) = (part.dc, part.ac) else { return Err(broken("a Huffman table is missing")) };
        Ok(Self {
            component: part.component,
            dc,
            ac: Coefficients::new(ac),
            before: 0,
            sampling: if alone { (1, 1) } else { component.sampling },
            blocks: component.blocks(),
            transform: component.transform()?,
            samples: mem::replace(&mut component.samples, Ok(Samples::of_blocks((0, 0)))),
        })
    }

    /// The blocks of an MCU.
    #[inline(always)]
    fn read(&mut self, bits: &mut Bits<'_>, mcu: (usize, usize)) -> Result<(), ImageError> {
        let (across, down) = self.sampling;
        for row in mcu.1 * down..(mcu.1 + 1) * down {
            for column in mcu.0 * across..(mcu.0 + 1) * across {
                self.read_block(bits, column, row)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn read_block(&mut self, bits: &mut Bits<'_>, column: usize, row: usize) -> Result<(), ImageError> {
        let mut block = [0; 64];
        block[0] = blocks::dc(bits, self.dc, Band::BASELINE, &mut self.before)?;
        let last = self.ac.read(bits, &mut block)?;
        if column >= self.blocks.0 || row >= self.blocks.1 {
            return Ok(());
        }
        if let Ok(samples) = &mut self.samples {
            let made = if last == 0 { self.transform.samples_of_one(block[0]) } else { self.transform.samples(&block) };
            match made {
                Ok(made) => samples.put(column, row, &made),
                Err(error) => self.samples = Err(error),
            }
        }
        Ok(())
    }
}

/// Reads the scan. Returns the bits behind it.
pub(super) fn read<'a>(
    bits: Bits<'a>,
    parts: &[Part<'_>],
    frame: &mut Frame,
    restart_interval: usize,
) -> Result<Bits<'a>, ImageError> {
    let (columns, rows) = match parts {
        [part] => frame.components[part.component].blocks(),
        _ => frame.mcus,
    };
    let readings = parts.iter().map(|part| Reading::new(part, &mut frame.components[part.component], parts.len() == 1));
    let mut readings = readings.collect::<Result<Vec<_>, _>>()?;
    let read = ReadMcus { bits, readings: &mut readings, size: (columns, rows), restart_interval };
    let bits = Arch::new().dispatch(read)?;
    for reading in readings {
        frame.components[reading.component].samples = reading.samples;
    }
    Ok(bits)
}

/// Reads MCUs, and returns the bits behind them.
struct ReadMcus<'a, 'b, 'c> {
    bits: Bits<'a>,
    readings: &'b mut [Reading<'c>],
    /// How many, across and down.
    size: (usize, usize),
    restart_interval: usize,
}

impl<'a> WithSimd for ReadMcus<'a, '_, '_> {
    type Output = Result<Bits<'a>, ImageError>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
        let Self { mut bits, readings, size: (columns, rows), restart_interval } = self;
        for mcu in 0..columns * rows {
            if restart_interval > 0 && mcu > 0 && mcu.is_multiple_of(restart_interval) {
                bits.restart(mcu / restart_interval)?;
                for reading in &mut *readings {
                    reading.before = 0;
                }
            }
            for reading in &mut *readings {
                reading.read(&mut bits, (mcu % columns, mcu / columns))?;
            }
        }
        Ok(bits)
    }
}
