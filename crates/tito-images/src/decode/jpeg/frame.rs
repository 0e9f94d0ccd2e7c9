//! The size of an image, and its components.

use super::{KIND, broken, idct::Transform, samples::Samples, upsample::Plane};
use crate::{decoded::ImageLimits, error::ImageError};

/// The image before its coefficients become samples.
pub(super) struct Frame {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) progressive: bool,
    pub(super) components: Vec<Component>,
    /// MCUs of scans with several components, across and down.
    pub(super) mcus: (usize, usize),
    most_across: usize,
    most_down: usize,
}

/// A component, as brightness.
pub(super) struct Component {
    pub(super) id: u8,
    /// Blocks of an MCU, across and down.
    pub(super) sampling: (usize, usize),
    quantisation_index: usize,
    /// The table when its first scan came.
    pub(super) quantisation: Option<[u16; 64]>,
    /// Its samples, across and down.
    size: (usize, usize),
    /// Blocks in a row, with those that only fill an MCU.
    stride: usize,
    /// The coefficients of each block, row by row, of a progressive file.
    coefficients: Vec<i16>,
    /// What became of the coefficients, of any other file.
    pub(super) samples: Result<Samples, ImageError>,
    /// How many of the lowest digits are still missing, by place in the file's order; none if all are.
    pub(super) missing: [Option<u8>; 64],
}

/// Blocks of an MCU, of all components of a scan.
pub(super) const MOST_BLOCKS: usize = 10;

impl Frame {
    /// Of the segment that begins it.
    pub(super) fn read(content: &[u8], progressive: bool, limits: ImageLimits) -> Result<Self, ImageError> {
        let short = || broken("its size is cut off");
        let (&[bits, height_1, height_0, width_1, width_0, count], list) =
            content.split_first_chunk().ok_or_else(short)?;
        let height = u32::from(u16::from_be_bytes([height_1, height_0]));
        let width = u32::from(u16::from_be_bytes([width_1, width_0]));
        limits.check(width, height)?;
        if bits != 8 {
            return Err(ImageError::unsupported(KIND, format!("its samples have {bits} bits")));
        }
        let (list, more) = list.as_chunks::<3>();
        if list.len() != usize::from(count) || !more.is_empty() {
            return Err(broken("its components are described wrongly"));
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(ImageError::unsupported(KIND, format!("it has {count} components")));
        }
        let mut components = list.iter().copied().map(Component::read).collect::<Result<Vec<_>, _>>()?;
        let most = |side: fn(&Component) -> usize| components.iter().map(side).max().unwrap_or(1);
        let (most_across, most_down) = (most(|one| one.sampling.0), most(|one| one.sampling.1));
        let (wide, high) = (width as usize, height as usize);
        let mcus = (wide.div_ceil(8 * most_across), high.div_ceil(8 * most_down));
        for component in &mut components {
            let (across, down) = component.sampling;
            if most_across % across != 0 || most_down % down != 0 {
                return Err(ImageError::unsupported(KIND, "the sizes of its components do not divide each other"));
            }
            component.size = ((wide * across).div_ceil(most_across), (high * down).div_ceil(most_down));
            component.stride = mcus.0 * across;
            if progressive {
                component.coefficients = vec![0; 64 * component.stride * mcus.1 * down];
            } else {
                component.samples = Ok(Samples::of_blocks(component.blocks()));
            }
        }
        Ok(Self { width, height, progressive, components, mcus, most_across, most_down })
    }

    /// libjpeg-turbo makes up what is not there, in a way that depends on its version.
    pub(super) fn check_complete(&self) -> Result<(), ImageError> {
        let smoothed = 10;
        for component in &self.components {
            if component.missing[0].is_none() {
                return Err(broken("a component is missing"));
            }
            if self.progressive && component.missing[1..smoothed].iter().any(|&missing| missing != Some(0)) {
                return Err(ImageError::unsupported(KIND, "scans are missing that would make it sharp"));
            }
        }
        Ok(())
    }

    /// The samples of each component.
    pub(super) fn planes(self) -> Result<Vec<Plane>, ImageError> {
        let (across, down) = (self.most_across, self.most_down);
        let planes = self.components.into_iter().map(|component| {
            let times = (across / component.sampling.0, down / component.sampling.1);
            let (size, progressive) = (component.size, self.progressive);
            let samples = if progressive { component.transformed()? } else { component.samples? };
            Ok(Plane::new(size, times, samples))
        });
        planes.collect()
    }
}

impl Component {
    fn read([id, sampling, quantisation]: [u8; 3]) -> Result<Self, ImageError> {
        let sampling = (usize::from(sampling >> 4), usize::from(sampling & 15));
        if !(1..=4).contains(&sampling.0) || !(1..=4).contains(&sampling.1) || quantisation > 3 {
            return Err(broken("a component is described wrongly"));
        }
        Ok(Self {
            id,
            sampling,
            quantisation_index: quantisation.into(),
            quantisation: None,
            size: (0, 0),
            stride: 0,
            coefficients: Vec::new(),
            samples: Ok(Samples::of_blocks((0, 0))),
            missing: [None; 64],
        })
    }

    /// Takes its table, unless it has one.
    pub(super) fn quantise(&mut self, tables: &[Option<[u16; 64]>; 4]) -> Result<(), ImageError> {
        if self.quantisation.is_none() {
            let table = tables[self.quantisation_index].ok_or_else(|| broken("a quantisation table is missing"))?;
            self.quantisation = Some(table);
        }
        Ok(())
    }

    /// Blocks that hold samples, across and down: what a scan of this component alone has.
    pub(super) fn blocks(&self) -> (usize, usize) {
        (self.size.0.div_ceil(8), self.size.1.div_ceil(8))
    }

    /// The coefficients of a block.
    pub(super) fn block(&mut self, column: usize, row: usize) -> &mut [i16; 64] {
        let (blocks, _) = self.coefficients.as_chunks_mut();
        &mut blocks[row * self.stride + column]
    }

    /// The arithmetic that makes samples of its coefficients.
    pub(super) fn transform(&self) -> Result<Transform, ImageError> {
        let quantisation = self.quantisation.ok_or_else(|| broken("a component is missing"))?;
        Ok(Transform::new(&quantisation))
    }

    /// The samples of a component whose coefficients are all there.
    fn transformed(self) -> Result<Samples, ImageError> {
        let transform = self.transform()?;
        let (columns, rows) = self.blocks();
        let mut samples = Samples::of_blocks((columns, rows));
        let (blocks, _) = self.coefficients.as_chunks::<64>();
        for row in 0..rows {
            for (column, block) in blocks[row * self.stride..][..columns].iter().enumerate() {
                samples.put(column, row, &transform.samples(block)?);
            }
        }
        Ok(samples)
    }
}
