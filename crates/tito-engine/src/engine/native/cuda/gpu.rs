//! A GPU: opening it, and what its memory has room for.

use candle_core::{DType, Device};

use super::{DeviceBackend, attention::MOST_SCORES};
use crate::engine::native::{
    LoadError,
    cpu::Processor,
    model::{LOGIT_ROWS, ModelShape, TowerShape},
    settings::Dtype,
};

/// How many rows of the residual stream's width, in f32, are there for each row of a step.
const ROWS_OF_HIDDEN: u64 = 8;
/// How many of the widest rows are there for each row of a step.
const ROWS_OF_WIDEST: u64 = 4;
/// How many copies of scores are there at a time: scores, their weights, and what both become.
const COPIES_OF_SCORES: u64 = 4;
/// How many rows of a tower's width, in f32, are there for each patch of an image: most of them where its position is made
/// of four others.
const COPIES_OF_PATCH: u64 = 16;
/// How many of the widest rows of a tower are there for each patch: the row, and its bias before it is written.
const COPIES_OF_WIDEST: u64 = 2;
/// The same where a product is made in tiles: the product, and its sum, too.
const COPIES_OF_WIDEST_IN_TILES: u64 = 4;
/// What libraries take, and what is lost between allocations.
const OTHER_BYTES: u64 = 1 << 30;

/// What a step takes besides weights and caches, at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepBytes {
    /// For its tokens.
    pub(crate) all: u64,
    /// For the largest image.
    pub(crate) image: u64,
}

/// An open GPU.
pub(crate) struct Gpu {
    device: Device,
    number: usize,
}

impl Gpu {
    /// Opens a GPU by its number among those that the driver shows.
    #[cfg(feature = "cuda")]
    pub(crate) fn open(number: usize) -> Result<Self, LoadError> {
        let unusable = |error: candle_core::Error| LoadError::Gpu(format!("cuda:{number} cannot be used: {error}"));
        Ok(Self { device: super::kernels::open(number).map_err(unusable)?, number })
    }

    /// Refuses: this build knows no GPUs.
    #[cfg(not(feature = "cuda"))]
    pub(crate) fn open(number: usize) -> Result<Self, LoadError> {
        Err(LoadError::Gpu(format!(
            "cuda:{number} cannot be used: this build computes on the CPU only; build it with the feature `cuda`"
        )))
    }

    #[cfg(test)]
    pub(super) fn device(&self) -> Device {
        self.device.clone()
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        format!("cuda:{}", self.number)
    }

    /// A backend on it.
    pub(crate) fn backend(&self, dtype: Dtype, processor: Processor) -> DeviceBackend {
        let dtype = match dtype {
            Dtype::Bf16 => DType::BF16,
            Dtype::F32 => DType::F32,
        };
        DeviceBackend::new(self.device.clone(), dtype, processor)
    }

    /// The bytes that keys and values may have: a share of the memory, less what is taken and what a step takes.
    pub(crate) fn room_for_cache(&self, share: f64, step: StepBytes) -> Result<u64, LoadError> {
        let (free, total) = self.memory()?;
        room(share, free, total, step.all + step.image).ok_or_else(|| {
            let image = match step.image >> 20 {
                0 => String::new(),
                image => {
                    format!(
                        ", the largest image {image} MB (--mm-processor-kwargs lowers it where images of the model have bounds, and \
                         --language-model-only leaves it out)"
                    )
                }
            };
            LoadError::Gpu(format!(
                "cuda:{} has no room for keys and values: {} MB of its {} MB are free, a step takes {} MB{image}, and \
                 --gpu-memory-utilization is {share}",
                self.number,
                free >> 20,
                total >> 20,
                step.all >> 20
            ))
        })
    }

    #[cfg(feature = "cuda")]
    fn memory(&self) -> Result<(u64, u64), LoadError> {
        super::kernels::memory(&self.device).map_err(|error| LoadError::Gpu(format!("{}: {error}", self.name())))
    }

    #[cfg(not(feature = "cuda"))]
    fn memory(&self) -> Result<(u64, u64), LoadError> {
        unreachable!("{} was not opened", self.name())
    }
}

impl DeviceBackend {
    /// What a step over so many tokens takes, with an image of so many patches among them.
    pub(crate) fn step_bytes(&self, shape: &ModelShape, tokens: usize, patches: usize) -> StepBytes {
        let widest = shape.widest_row() as u64;
        let row = 4 * (ROWS_OF_HIDDEN * shape.hidden as u64 + ROWS_OF_WIDEST * widest + shape.mixture_row() as u64);
        // Rows that go to the host are copied before.
        let logits = 2 * 4 * (LOGIT_ROWS * shape.vocab_size) as u64;
        let image = shape.images.as_ref().map_or(0, |images| patches as u64 * self.patch_bytes(&images.tower));
        let all = tokens as u64 * row + logits + 4 * COPIES_OF_SCORES * MOST_SCORES as u64 + OTHER_BYTES;
        StepBytes { all, image }
    }

    /// The most that a tower takes for each patch of an image, in bytes.
    fn patch_bytes(&self, tower: &TowerShape) -> u64 {
        let widest = (3 * tower.hidden).max(tower.gate.inputs(tower.intermediate)) as u64;
        let copies = if self.tile.is_some() { COPIES_OF_WIDEST_IN_TILES } else { COPIES_OF_WIDEST };
        4 * (COPIES_OF_PATCH * tower.hidden as u64 + copies * widest)
    }
}

/// What is left of a share of the memory; `None` if nothing is left.
fn room(share: f64, free: u64, total: u64, step_bytes: u64) -> Option<u64> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a byte more or less does not matter"
    )]
    let usable = (total as f64 * share) as u64;
    usable.checked_sub(total - free)?.checked_sub(step_bytes).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_have_what_weights_and_steps_leave_of_the_share() {
        assert_eq!(room(0.9, 60, 100, 20), Some(30));
        assert_eq!(room(1.0, 60, 100, 60), None);
        assert_eq!(room(0.3, 60, 100, 0), None);
    }

    #[test]
    fn without_cuda_a_gpu_cannot_be_opened() {
        if !cfg!(feature = "cuda") {
            let error = Gpu::open(3).err().unwrap().to_string();
            assert!(error.starts_with("cuda:3 cannot be used: this build computes on the CPU only"), "{error}");
        }
    }
}
