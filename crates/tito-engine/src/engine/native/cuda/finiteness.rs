//! Which sequences of a step have keys and values that are finite: how that comes to the host.

use candle_core::Result;

#[cfg(feature = "cuda")]
use super::kernels::Coming;
use super::{host, inputs::StepInputs, landings::Landings, shared::StepShared};
use crate::engine::native::backend::Span;

/// What a step tells of its spans, which may be on its way to the host.
pub(super) struct FinitenessUnderway {
    spans: Vec<Span>,
    /// For each span whether its recurrent states are finite.
    states: Vec<bool>,
    rows: Rows,
}

/// A number for each row, which is 0 where it is finite.
enum Rows {
    There(Vec<f32>),
    #[cfg(feature = "cuda")]
    Coming(Coming<f32>),
}

impl StepShared {
    /// Begins to bring to the host which rows are not finite, all of which are computed.
    #[cfg(feature = "cuda")]
    pub(super) fn bring_finite(&mut self, landings: &mut Landings) -> Result<()> {
        if self.device.is_cuda() {
            self.coming = Some(Coming::begin(&self.broken, landings)?);
        }
        Ok(())
    }

    /// What the step tells of its spans; and where all that was told of the step lies, which the next step overwrites.
    pub(super) fn finiteness(self) -> Result<(FinitenessUnderway, StepInputs)> {
        let there = || host::numbers_of(&self.broken).map(Rows::There);
        #[cfg(feature = "cuda")]
        let rows = self.coming.map_or_else(there, |coming| Ok(Rows::Coming(coming)))?;
        #[cfg(not(feature = "cuda"))]
        let rows = there()?;
        Ok((FinitenessUnderway { spans: self.spans, states: self.finite, rows }, self.inputs.into_inner()))
    }
}

impl FinitenessUnderway {
    /// For each span whether all of its rows are finite, once that is there.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(
            unused_variables,
            clippy::unnecessary_wraps,
            clippy::infallible_destructuring_match,
            reason = "only from a GPU it comes"
        )
    )]
    pub(super) fn land(self, landings: &mut Landings) -> Result<Vec<bool>> {
        let rows = match self.rows {
            Rows::There(rows) => rows,
            #[cfg(feature = "cuda")]
            Rows::Coming(coming) => coming.land(landings)?,
        };
        let of = |span: &Span| rows[span.first_row..][..span.tokens].iter().all(|flag| *flag == 0.0);
        Ok(self.spans.iter().zip(&self.states).map(|(span, finite)| *finite && of(span)).collect())
    }
}
