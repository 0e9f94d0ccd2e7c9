//! Images of which each token attends to all, also to later tokens.

use std::ops::Range;

use crate::engine::native::backend::{Batch, Span};

/// The images of a batch, by span; none at all where no sequence has any.
#[derive(Debug, Clone, Default)]
pub(crate) struct BothWays(Vec<Vec<Range<usize>>>);

impl BothWays {
    /// Those of a batch, whose images are there as a whole.
    pub(crate) fn of(batch: &Batch) -> Self {
        if batch.images.is_empty() {
            return Self::default();
        }
        let mut all = vec![Vec::new(); batch.spans.len()];
        for (number, images) in &batch.images {
            let Span { first_position, tokens, .. } = batch.spans[*number];
            all[*number] = images.both_ways_within(first_position..first_position + tokens);
        }
        Self(all)
    }

    /// Those of one span, for tests.
    #[cfg(test)]
    pub(super) fn of_span(images: Vec<Range<usize>>) -> Self {
        Self(vec![images])
    }

    /// The position after the last one that a token attends to.
    pub(super) fn end(&self, span: usize, position: usize) -> usize {
        let Some(images) = self.0.get(span) else { return position + 1 };
        let after = images.partition_point(|image| image.end <= position);
        images.get(after).filter(|image| image.start <= position).map_or(position + 1, |image| image.end)
    }
}
