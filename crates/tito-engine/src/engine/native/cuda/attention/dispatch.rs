//! Which rows attend in which way, and what that gives.

use candle_core::{Result, Tensor};

#[cfg(feature = "cuda")]
use super::super::kernels;
use super::{
    super::{
        buffer::Buffer,
        cache::Cache,
        device::DeviceBackend,
        failure::done,
        shared::{Division, Policy, StepShared, WholeImage},
    },
    Setting, Tiles, attend_single_rows, attend_span,
};
#[cfg(feature = "cuda")]
use crate::engine::native::backend::HeadPreparation;
use crate::engine::native::backend::{AttentionShape, Span};

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

    /// How the rows of a layer attend to what is before them.
    pub(in super::super) fn setting<'a>(&self, shape: AttentionShape, sinks: Option<&'a Tensor>) -> Setting<'a> {
        Setting { shape, sinks, tiles: self.tiles(shape.heads), both_ways: false }
    }

    /// Room for what all rows of a layer attend to.
    pub(in super::super) fn attended<'a>(
        &self,
        states: &Tensor,
        cache: &Cache,
        shape: AttentionShape,
        out: &'a mut Buffer,
    ) -> &'a Tensor {
        let width = shape.heads * cache.shape().head_dim;
        done(states.dim(0).and_then(|rows| out.reshape(self.numbers(), rows, width)))
    }

    /// Prepares the heads of every row, and has it attend, by the engine's own kernels: by one of them where blocks of threads
    /// can prepare the rows that they attend for.
    #[cfg(feature = "cuda")]
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(in super::super) fn prepare_and_attend_paged(
        &self,
        states: &Tensor,
        preparation: &HeadPreparation<'_, Tensor>,
        cache: &Cache,
        setting: Setting<'_>,
        shared: &StepShared,
        out: &Tensor,
    ) -> Result<()> {
        // Rows of images that are seen both ways attend once more, by other operations.
        if shared.whole_images.is_empty() && kernels::tiles_prepare(cache, setting.shape, shared)? {
            return kernels::attend_paged(states, Some(preparation), cache, setting, shared, out);
        }
        kernels::prepare_paged(states, preparation, cache, shared)?;
        self.attend_all(states, cache, setting, shared, out)
    }

    /// Attention of every row, written to `out`.
    ///
    /// Rows of images that are seen both ways are computed twice, as all others first. So whatever attends to what is before a row
    /// need not know of them.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(in super::super) fn attend_all(
        &self,
        states: &Tensor,
        cache: &Cache,
        setting: Setting<'_>,
        shared: &StepShared,
        out: &Tensor,
    ) -> Result<()> {
        self.attend_to_earlier(states, cache, setting, shared, out)?;
        let setting = Setting { both_ways: true, ..setting };
        shared.whole_images.iter().try_for_each(|image| self.attend_image(states, image, cache, setting, shared, out))
    }

    /// Attention of the rows of an image to what is before it and to all of it, written over theirs in `out`. Shapes depend on
    /// nothing but the image and its place.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn attend_image(
        &self,
        states: &Tensor,
        WholeImage { span, positions }: &WholeImage,
        cache: &Cache,
        setting: Setting<'_>,
        shared: &StepShared,
        out: &Tensor,
    ) -> Result<()> {
        let whole = &shared.spans[*span];
        let (heads, head_dim, tokens) = (setting.shape.heads, cache.shape().head_dim, positions.len());
        let first_row = whole.first_row + positions.start - whole.first_position;
        let image = Span {
            first_row,
            tokens,
            first_position: positions.start,
            blocks: whole.blocks.clone(),
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        };
        let queries = states.narrow(0, first_row, tokens)?.narrow(1, 0, heads * head_dim)?.to_dtype(self.dtype)?;
        let queries = queries.contiguous()?.reshape((tokens, heads, head_dim))?;
        let attended = attend_span(&queries, &image, cache, setting, shared)?;
        out.slice_set(&attended.to_dtype(self.dtype)?, 0, first_row)
    }

    /// Attention of every row to what is before it and to itself, written to `out`.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn attend_to_earlier(
        &self,
        states: &Tensor,
        cache: &Cache,
        setting: Setting<'_>,
        shared: &StepShared,
        out: &Tensor,
    ) -> Result<()> {
        #[cfg(feature = "cuda")]
        if kernels::serve_paged(cache) {
            return kernels::attend_paged(states, None, cache, setting, shared, out);
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
