//! The images of a step: which of its rows are parts of them, and what these rows are.

use std::{ops::Range, sync::Arc};

use super::{
    angles::KnownAngles,
    shape::ModelShape,
    tower::{Embeddings, ImageRows, Tower},
};
use crate::engine::native::backend::{Angles, Backend, Batch, Span};

/// Rows of a step that are a part of an image.
pub(super) struct StepPart {
    /// The first row of the step.
    first_row: usize,
    /// Which rows of the image.
    rows: Range<usize>,
    image: Arc<ImageRows>,
}

impl StepPart {
    /// Has rows be those of the image rather than those of its placeholders.
    pub(super) fn embed<B: Backend>(&self, backend: &mut B, hidden: &mut B::States) {
        backend.put_rows(self.image.rows(self.rows.clone()), self.first_row, hidden);
    }

    /// Adds what the tower adds after the layer of this number.
    pub(super) fn add<B: Backend>(&self, backend: &mut B, number: usize, hidden: &mut B::States) {
        if let Some(rows) = self.image.added(number, self.rows.clone()) {
            backend.add_rows(rows, self.first_row, hidden);
        }
    }
}

/// The parts of images in a step, with what the tower makes of them unless that is known.
pub(super) fn parts_of<B: Backend>(
    backend: &mut B,
    tower: Option<&Tower<B>>,
    known: &mut Embeddings,
    batch: &Batch,
) -> Vec<StepPart> {
    let Some(tower) = tower else { return Vec::new() };
    let mut parts = Vec::new();
    for (number, images) in &batch.images {
        let span = &batch.spans[*number];
        for part in images.within(indices(span)) {
            parts.push(StepPart {
                first_row: span.first_row + part.first_token - span.first_position,
                image: known.of(part.image, || tower.read(backend, part.image)),
                rows: part.rows,
            });
        }
    }
    parts
}

/// The angles of all rows of a step, for each way of rotating.
pub(super) fn angles_of(known: &mut [KnownAngles], shape: &ModelShape, batch: &Batch) -> Vec<Angles> {
    let known = known.iter_mut().zip(&shape.ropes);
    match &shape.images {
        Some(images) if !batch.images.is_empty() && !images.axes.is_empty() => {
            let places = places(batch);
            known.map(|(angles, rope)| angles.of_places(rope, &images.axes, &places)).collect()
        }
        _ => {
            let positions: Vec<usize> = batch.spans.iter().flat_map(indices).collect();
            known.map(|(angles, rope)| angles.of(rope, &positions)).collect()
        }
    }
}

/// The tokens of a sequence that a step computes.
fn indices(span: &Span) -> Range<usize> {
    span.first_position..span.first_position + span.tokens
}

/// The place in time, the row and the column of each row of a step.
fn places(batch: &Batch) -> Vec<[usize; 3]> {
    let mut images = batch.images.iter().peekable();
    let mut places = Vec::with_capacity(batch.token_ids.len());
    for (number, span) in batch.spans.iter().enumerate() {
        let own = images.next_if(|(of, _)| *of == number).map(|(_, images)| images);
        places.extend(indices(span).map(|index| own.map_or([index; 3], |images| images.place(index))));
    }
    places
}
