//! Which rows attend in which way, and what that gives.

use candle_core::{Result, Tensor};

#[cfg(feature = "cuda")]
use super::super::kernels;
use super::{
    super::{
        cache::Cache,
        device::DeviceBackend,
        shared::{Division, Policy, StepShared},
    },
    Setting, Tiles, attend_single_rows, attend_span,
};

impl DeviceBackend {
    /// The kernel over blocks knows neither caps nor sinks as they are defined here.
    fn policy(&self, cache: &Cache, is_plain: bool) -> Policy {
        #[cfg(feature = "cuda")]
        let single = !self.device.is_cuda() || (is_plain && kernels::serve(cache));
        #[cfg(not(feature = "cuda"))]
        let single = is_plain && cache.keys.device().is_cpu();
        Policy { single, invariant: self.tile.is_some() }
    }

    pub(in super::super) fn tiles(&self, heads: usize) -> Tiles {
        if self.tile.is_some() { Tiles::equal() } else { Tiles::large(heads) }
    }

    /// Attention of every row, written to `out`.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(in super::super) fn attend_all(
        &self,
        states: &Tensor,
        cache: &Cache,
        setting: Setting<'_>,
        shared: &StepShared,
        out: &Tensor,
    ) -> Result<()> {
        #[cfg(feature = "cuda")]
        if kernels::serve_paged(cache) {
            return kernels::attend_paged(states, cache, setting.shape, setting.sinks, shared, out);
        }
        #[cfg(feature = "cuda")]
        shared.by_kernels.set(false);
        let (shape, head_dim) = (setting.shape, cache.shape().head_dim);
        let (rows, width) = (states.dim(0)?, shape.heads * head_dim);
        let queries = states.narrow(1, 0, width)?.to_dtype(self.dtype)?.contiguous()?;
        let queries = queries.reshape((rows, shape.heads, head_dim))?;
        let is_plain = shape.cap.is_none() && setting.sinks.is_none();
        let division = shared.division(shape.reach, self.policy(cache, is_plain));
        for span in &division.gathered {
            let span = &shared.spans[*span];
            let own = queries.narrow(0, span.first_row, span.tokens)?;
            let attended = attend_span(&own, span, cache, setting, shared)?;
            out.slice_set(&attended.to_dtype(self.dtype)?, 0, span.first_row)?;
        }
        let Some(single) = &division.single else { return Ok(()) };
        let own: Vec<Tensor> =
            single.stretches.iter().map(|(first, count)| queries.narrow(0, *first, *count)).collect::<Result<_>>()?;
        let own = if let [own] = &own[..] { own.clone() } else { Tensor::cat(&own, 0)? };
        let attended = self.attend_single_rows(&own, &division, cache, setting, shared)?;
        let mut done = 0;
        for (first, count) in &single.stretches {
            out.slice_set(&attended.narrow(0, done, *count)?, 0, *first)?;
            done += count;
        }
        Ok(())
    }

    /// Attention of rows that go straight to the cache, in the order of their queries.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn attend_single_rows(
        &self,
        queries: &Tensor,
        division: &Division,
        cache: &Cache,
        setting: Setting<'_>,
        shared: &StepShared,
    ) -> Result<Tensor> {
        let rows = division.single.as_ref().expect("there are single rows");
        #[cfg(feature = "cuda")]
        if kernels::serve(cache) {
            let tables = division.tables(&shared.spans, &self.device)?;
            return kernels::attend(queries, &tables, cache, setting.shape.scale, self.tile.is_some());
        }
        attend_single_rows(queries, rows, cache, setting, shared)?.to_dtype(self.dtype)
    }
}
