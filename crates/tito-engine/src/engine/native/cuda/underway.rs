//! Steps that are left to the device, while the host goes on.
//!
//! All work of a device is done in its order. So another step may be begun before this one has come to the host: it is told what
//! it needs in the same memory, which is written once this one has read it, and takes its tokens from where this one writes them.
//! What comes to the host goes to memory that each step has for itself.

use candle_core::{Result, Tensor};

#[cfg(feature = "cuda")]
use super::kernels::Mark;
use super::{
    device::DeviceBackend,
    draws::{self, DrawsUnderway},
    finiteness::FinitenessUnderway,
    shared::StepShared,
};
use crate::{engine::native::backend::RowDraws, sampling::Drawn};

/// A step that was begun and not waited for.
pub(crate) struct Underway {
    finite: FinitenessUnderway,
    draws: Vec<DrawsUnderway>,
    /// After all that comes to the host.
    #[cfg(feature = "cuda")]
    mark: Option<Mark>,
}

impl DeviceBackend {
    /// Leaves a step to the device, all of which was begun.
    pub(super) fn leave(&mut self, mut shared: StepShared) -> Result<Underway> {
        let draws = std::mem::take(&mut shared.draws);
        let (finite, inputs) = shared.finiteness()?;
        self.inputs = inputs;
        #[cfg(feature = "cuda")]
        let mark = if self.device.is_cuda() { Some(Mark::after_all_so_far(&self.device)?) } else { None };
        Ok(Underway {
            finite,
            draws,
            #[cfg(feature = "cuda")]
            mark,
        })
    }

    /// Waits for a step, and not for one that was begun after it.
    pub(super) fn landed(&mut self, underway: Underway) -> Result<(Vec<Drawn>, Vec<bool>)> {
        #[cfg(feature = "cuda")]
        if let Some(mark) = underway.mark {
            mark.wait()?;
        }
        let mut drawn = Vec::new();
        for draws in underway.draws {
            drawn.extend(draws.land(&mut self.landings)?);
        }
        Ok((drawn, underway.finite.land(&mut self.landings)?))
    }

    /// Begins to draw from rows of logits.
    pub(super) fn begin_to_draw(
        &mut self,
        logits: &Tensor,
        draws: RowDraws<'_>,
        shared: &mut StepShared,
    ) -> Result<()> {
        shared.draws.push(draws::begin(logits, draws, &mut self.draws, &mut self.landings)?);
        Ok(())
    }
}
