//! Components with fewer samples than the image has pixels, widened as libjpeg-turbo does by default: twice as many samples by
//! a triangle filter, others by repeating them.

#![expect(clippy::cast_possible_truncation, reason = "means of bytes")]
#![expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]

use super::samples::Samples;

/// The samples of a component.
pub(super) struct Plane {
    width: usize,
    height: usize,
    /// Pixels for a sample, across and down.
    times: (usize, usize),
    samples: Samples,
}

/// Components of fewer samples across are repeated.
const NARROW: usize = 2;

impl Plane {
    /// Of samples, of which only those within the size count.
    pub(super) fn new((width, height): (usize, usize), times: (usize, usize), samples: Samples) -> Self {
        Self { width, height, times, samples }
    }

    #[inline(always)]
    fn samples(&self, y: usize) -> &[u8] {
        &self.samples.row(y)[..self.width]
    }

    /// The row of samples that row `y` is in, and the one that it is next to. At the edges, that is the same.
    #[inline(always)]
    fn near_and_far(&self, y: usize) -> (&[u8], &[u8]) {
        let near = y / 2;
        let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(self.height - 1) };
        (self.samples(near), self.samples(far))
    }
}

/// Makes rows of a plane for rows of the image.
pub(super) struct Rows<'a> {
    plane: &'a Plane,
    /// The row that was made last.
    row: Vec<u8>,
    /// What the row was made from: numbers with a neighbour at each end.
    sums: Vec<u16>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(plane: &'a Plane) -> Self {
        Self { plane, row: vec![0; plane.width * plane.times.0], sums: vec![0; plane.width + 2] }
    }

    /// The samples for row `y` of the image, and maybe a few more.
    #[inline(always)]
    pub(super) fn at(&mut self, y: usize) -> &[u8] {
        let Self { plane, row, sums } = self;
        match plane.times {
            (1, 1) => return plane.samples(y),
            (2, 1) if plane.width > NARROW => {
                let samples = plane.samples(y);
                sums[1..].iter_mut().zip(samples).for_each(|(sum, &sample)| *sum = sample.into());
                twice_across::<2>([1, 2], sums, row);
            }
            (1, 2) => {
                let (near, far) = plane.near_and_far(y);
                let rounding = if y.is_multiple_of(2) { 1 } else { 2 };
                for (pixel, (&near, &far)) in row.iter_mut().zip(near.iter().zip(far)) {
                    *pixel = ((3 * u16::from(near) + u16::from(far) + rounding) >> 2) as u8;
                }
            }
            (2, 2) if plane.width > NARROW => {
                let (near, far) = plane.near_and_far(y);
                for (sum, (&near, &far)) in sums[1..].iter_mut().zip(near.iter().zip(far)) {
                    *sum = 3 * u16::from(near) + u16::from(far);
                }
                twice_across::<4>([8, 7], sums, row);
            }
            (across, down) => {
                for (pixels, &sample) in row.chunks_exact_mut(across).zip(plane.samples(y / down)) {
                    pixels.fill(sample);
                }
            }
        }
        row
    }
}

/// Two pixels for each of the numbers between the first and the last, weighed with the neighbour on the pixel's side, and
/// divided by two to the power of `SHIFT`. `rounding` is added before that on the left, and on the right.
#[inline(always)]
fn twice_across<const SHIFT: u32>([left, right]: [u16; 2], sums: &mut [u16], row: &mut [u8]) {
    let width = sums.len() - 2;
    sums[0] = sums[1];
    sums[width + 1] = sums[width];
    let neighbours = sums.iter().zip(&sums[1..]).zip(&sums[2..]);
    for (pixels, ((&before, &here), &after)) in row.as_chunks_mut().0.iter_mut().zip(neighbours) {
        *pixels = [((3 * here + before + left) >> SHIFT) as u8, ((3 * here + after + right) >> SHIFT) as u8];
    }
}
