//! The routes of a step's rows: those that are given to it, and those that it takes.

use std::sync::Arc;

use super::{
    ModelShape,
    shape::{LayerShape, MlpShape, SparseShape},
};
use crate::engine::{GivenRoutes, RouteShape, native::routing::NOT_GIVEN};

/// The token of a row whose routes may be given.
#[derive(Debug, Clone)]
pub(crate) struct RoutedRow {
    /// The routes of its sequence.
    pub(crate) routes: Arc<GivenRoutes>,
    /// Its place in the sequence.
    pub(crate) position: usize,
}

/// See the module's documentation. While nothing is given and nothing is to be kept, it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct StepRoutes {
    /// For each row; empty where no row is given any.
    given: Vec<Option<RoutedRow>>,
    /// The experts of each row in all mixtures, row by row, where they are to be kept.
    taken: Option<Vec<u16>>,
    /// The numbers of a row in `taken`.
    width: usize,
    /// The mixture that comes next.
    mixture: usize,
}

impl StepRoutes {
    /// Prepares a step of so many rows. With a `width`, the experts of each row are kept, which are as many.
    pub(crate) fn begin(&mut self, rows: usize, given: Vec<Option<RoutedRow>>, width: Option<usize>) {
        let taken = width.map(|width| vec![0; rows * width]);
        *self = Self { given, taken, width: width.unwrap_or(0), mixture: 0 };
    }

    /// The experts that the rows went through, if they were to be kept; the next step keeps nothing unless it is told.
    pub(crate) fn end(&mut self) -> Option<Vec<u16>> {
        std::mem::take(self).taken
    }

    /// Whether nothing is given to the step, and nothing is to be kept of it.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.is_none() && self.given.iter().all(Option::is_none)
    }

    /// The experts that a row is to go through in this mixture; `None` where they are chosen.
    pub(super) fn given_experts(&self, row: usize) -> Option<&[u16]> {
        let RoutedRow { routes, position } = self.given.get(row)?.as_ref()?;
        routes.experts(*position, self.mixture)
    }

    /// The experts that rows are given in this mixture, for a device: `per_token` numbers for each row, [`NOT_GIVEN`] where
    /// they are chosen. `None` where no row is given any.
    pub(super) fn given_to_device(&self, per_token: usize) -> Option<Vec<u32>> {
        let rows = 0..self.given.len();
        if rows.clone().all(|row| self.given_experts(row).is_none()) {
            return None;
        }
        let mut all = vec![NOT_GIVEN; rows.len() * per_token];
        for (row, of_row) in rows.zip(all.chunks_exact_mut(per_token)) {
            let given = self.given_experts(row).unwrap_or_default();
            of_row.iter_mut().zip(given).for_each(|(number, expert)| *number = u32::from(*expert));
        }
        Some(all)
    }

    /// Whether the experts of each row are to be kept.
    pub(super) fn keeps(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes note of the experts that all rows go through in this mixture, `per_token` for each.
    pub(super) fn keep_all(&mut self, per_token: usize, experts: &[u32]) {
        let Some(taken) = &mut self.taken else { return };
        for (row, experts) in taken.chunks_exact_mut(self.width).zip(experts.chunks_exact(per_token)) {
            let kept = &mut row[self.mixture * per_token..];
            kept.iter_mut().zip(experts).for_each(|(kept, expert)| *kept = u16::try_from(*expert).unwrap_or(u16::MAX));
        }
    }

    /// Takes note of the experts that a row goes through in this mixture.
    pub(super) fn keep(&mut self, row: usize, experts: &[(usize, f32)]) {
        let Some(taken) = &mut self.taken else { return };
        let place = row * self.width + self.mixture * experts.len();
        for (kept, (expert, _)) in taken[place..].iter_mut().zip(experts) {
            *kept = u16::try_from(*expert).unwrap_or(u16::MAX);
        }
    }

    /// Goes on with the next mixture.
    pub(super) fn next(&mut self) {
        self.mixture += 1;
    }
}

impl ModelShape {
    /// The mixtures of the model; `None` where it has none, or where tokens go through more experts in one than in
    /// another, or where there are more experts than routes have numbers for.
    pub(crate) fn routes(&self) -> Option<RouteShape> {
        let sparse = |(layer, shape): (usize, &LayerShape)| match &shape.mlp {
            Some(
                MlpShape::Sparse(SparseShape { experts, per_token, .. })
                | MlpShape::Both(_, SparseShape { experts, per_token, .. }),
            ) => Some((layer, *experts, *per_token)),
            Some(MlpShape::Dense(_)) | None => None,
        };
        let mixtures: Vec<_> = self.layers.iter().enumerate().filter_map(sparse).collect();
        let (_, _, per_token) = *mixtures.first()?;
        let experts = mixtures.iter().map(|(_, experts, _)| *experts).max()?;
        let alike = mixtures.iter().all(|(_, _, each)| *each == per_token);
        (alike && experts < usize::from(u16::MAX)).then(|| RouteShape {
            layers: self.layers.len(),
            mixtures: mixtures.iter().map(|(layer, _, _)| *layer).collect(),
            experts,
            per_token,
        })
    }
}
