//! Components with fewer samples than the image has pixels, widened as libjpeg-turbo does by default: twice as many samples by
//! a triangle filter, others by repeating them.

#![expect(clippy::cast_possible_truncation, reason = "means of bytes")]

/// The samples of a component.
pub(super) struct Plane {
    width: usize,
    height: usize,
    /// Pixels for a sample, across and down.
    times: (usize, usize),
    samples: Vec<u8>,
}

/// Components of fewer samples across are repeated.
const NARROW: usize = 2;

impl Plane {
    /// Of rows of samples.
    pub(super) fn new((width, height): (usize, usize), times: (usize, usize), samples: Vec<u8>) -> Self {
        Self { width, height, times, samples }
    }

    fn samples(&self, y: usize) -> &[u8] {
        &self.samples[y * self.width..][..self.width]
    }

    /// The samples for row `y` of the image.
    pub(super) fn row(&self, y: usize, row: &mut [u8]) {
        match self.times {
            (1, 1) => row.copy_from_slice(&self.samples(y)[..row.len()]),
            (2, 1) if self.width > NARROW => twice_across(self.samples(y), row),
            (1, 2) => self.twice_down(y, row),
            (2, 2) if self.width > NARROW => self.twice(y, row),
            (across, down) => {
                let samples = self.samples(y / down).iter().flat_map(|&sample| std::iter::repeat_n(sample, across));
                row.iter_mut().zip(samples).for_each(|(pixel, sample)| *pixel = sample);
            }
        }
    }

    /// The row of samples that row `y` is in, and the one that it is next to. At the edges, that is the same.
    fn near_and_far(&self, y: usize) -> (&[u8], &[u8]) {
        let near = y / 2;
        let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(self.height - 1) };
        (self.samples(near), self.samples(far))
    }

    fn twice_down(&self, y: usize, row: &mut [u8]) {
        let (near, far) = self.near_and_far(y);
        let rounding = if y.is_multiple_of(2) { 1 } else { 2 };
        for (pixel, (&near, &far)) in row.iter_mut().zip(near.iter().zip(far)) {
            *pixel = ((3 * u32::from(near) + u32::from(far) + rounding) >> 2) as u8;
        }
    }

    fn twice(&self, y: usize, row: &mut [u8]) {
        let (near, far) = self.near_and_far(y);
        let sum = |x: usize| 3 * u32::from(near[x]) + u32::from(far[x]);
        for (x, pixel) in row.iter_mut().enumerate() {
            let (neighbour, rounding) = neighbour(x, self.width, 8, 7);
            *pixel = ((3 * sum(x / 2) + sum(neighbour) + rounding) >> 4) as u8;
        }
    }
}

fn twice_across(samples: &[u8], row: &mut [u8]) {
    for (x, pixel) in row.iter_mut().enumerate() {
        let (neighbour, rounding) = neighbour(x, samples.len(), 1, 2);
        *pixel = ((3 * u32::from(samples[x / 2]) + u32::from(samples[neighbour]) + rounding) >> 2) as u8;
    }
}

/// The sample beside that of pixel `x`, on the pixel's side, and what is added for rounding on the left or on the right.
fn neighbour(x: usize, width: usize, left: u32, right: u32) -> (usize, u32) {
    if x.is_multiple_of(2) { ((x / 2).saturating_sub(1), left) } else { ((x / 2 + 1).min(width - 1), right) }
}
