//! The tower that makes embeddings of an image: its parameters, and the order of its parts.
//!
//! An image is computed alone, so that its embeddings do not depend on company.

mod buffers;
mod downsampling;
mod embeddings;
mod layer;
mod merger;
mod patches;
mod pooling;
mod projector;

use tito_images::PreparedImage;

use self::{
    buffers::Buffers,
    downsampling::Downsampling,
    layer::{Norm, TowerLayer},
    merger::Merger,
    patches::Patches,
    pooling::Pooling,
    projector::Projector,
};
use super::{
    destinations::InTower,
    shape::{Ending, ImagesShape, TowerShape},
    target::{Target, numbers},
};
use crate::engine::native::backend::{Backend, Batch, NoRoom};

pub(super) use embeddings::{Embeddings, ImageRows};

/// What a tower has learnt.
pub(super) struct Tower<B: Backend> {
    shape: TowerShape,
    patch: B::Matrix,
    patch_bias: Option<B::Vector>,
    positions: Option<B::Matrix>,
    class: Option<ClassToken<B>>,
    first_norm: Option<Norm<B>>,
    layers: Vec<TowerLayer<B>>,
    last_norm: Option<Norm<B>>,
    end: End<B>,
}

/// A state that is of no patch: the token that it begins as, and the positions of all states, its own first.
struct ClassToken<B: Backend> {
    token: B::Vector,
    positions: B::Vector,
}

/// What makes embeddings of states.
enum End<B: Backend> {
    /// That of the last layer, and those of the deepstack.
    Mergers(Vec<Merger<B>>),
    Pooling(Pooling<B>),
    Projector(Projector<B>),
    Downsampling(Downsampling<B>),
}

impl<B: Backend> Tower<B> {
    pub(super) fn zeros(backend: &B, ImagesShape { tower: shape, .. }: &ImagesShape) -> Result<Self, NoRoom> {
        let layer = |whole: &bool| TowerLayer::zeros(backend, shape, *whole);
        let norm = || Norm::zeros(backend, shape, shape.hidden);
        let merger = |number| Merger::zeros(backend, shape, number > 0);
        let end = match shape.ending {
            Ending::Joined => End::Mergers((0..=shape.deepstack.len()).map(merger).collect::<Result<_, _>>()?),
            Ending::JoinedFirst { norm } => End::Mergers(vec![Merger::joining_first(backend, shape, norm)?]),
            Ending::Pooled { norm } => End::Pooling(Pooling::zeros(backend, shape, norm)?),
            Ending::Projected { norm, biases } => End::Projector(Projector::zeros(backend, shape, norm, biases)?),
            Ending::Downsampled { norm, intermediate } => {
                End::Downsampling(Downsampling::zeros(backend, shape, norm, intermediate)?)
            }
        };
        Ok(Self {
            shape: shape.clone(),
            patch: backend.matrix(shape.hidden, shape.patch.numbers())?,
            patch_bias: shape.patch_bias.then(|| backend.vector(shape.hidden)).transpose()?,
            positions: shape
                .positions
                .filter(|_| !shape.class_token)
                .map(|positions| backend.matrix(positions, shape.hidden))
                .transpose()?,
            class: shape.class_token.then(|| ClassToken::zeros(backend, shape)).transpose()?,
            first_norm: shape.first_norm.then(norm).transpose()?,
            layers: shape.layers.iter().map(layer).collect::<Result<_, _>>()?,
            last_norm: shape.last_norm.then(norm).transpose()?,
            end,
        })
    }

    pub(super) fn target(&mut self, place: InTower) -> Option<Target<'_, B>> {
        match place {
            InTower::Patch => Some(Target::Rows(&mut self.patch, 0)),
            InTower::PatchBias => numbers(&mut self.patch_bias, 0),
            InTower::Positions => self.positions.as_mut().map(|table| Target::Rows(table, 0)),
            InTower::ClassToken => Some(Target::Numbers(&mut self.class.as_mut()?.token, 0)),
            InTower::ClassPositions => Some(Target::Numbers(&mut self.class.as_mut()?.positions, 0)),
            InTower::FirstNorm => Some(Target::Numbers(&mut self.first_norm.as_mut()?.weight, 0)),
            InTower::Layer(layer, place) => self.layers.get_mut(layer)?.target(place),
            InTower::LastNorm => Some(Target::Numbers(&mut self.last_norm.as_mut()?.weight, 0)),
            InTower::LastNormBias => numbers(&mut self.last_norm.as_mut()?.bias, 0),
            InTower::Merger(_, _)
            | InTower::PooledNorm
            | InTower::Projection
            | InTower::Projector(_)
            | InTower::Downsampling(_) => self.end.target(place),
        }
    }

    /// Makes the embeddings of an image, part by part where the tower reads parts by themselves.
    pub(super) fn read(&self, backend: &mut B, image: &PreparedImage) -> ImageRows {
        let patches = Patches::of(image.read_at_once(), &self.shape);
        let numbers = image.patches();
        let of_part = image.read_at_once().patches() * self.shape.patch.numbers();
        let parts = numbers.chunks_exact(of_part).map(|numbers| self.read_part(backend, numbers, &patches));
        parts.reduce(ImageRows::extended).expect("an image has patches")
    }

    fn read_part(&self, backend: &mut B, numbers: &[f32], patches: &Patches) -> ImageRows {
        let mut buffers = Buffers::new(backend);
        self.begin(backend, numbers, patches, &mut buffers);
        // A step of rows that are of no sequence, for their angles.
        let rows = Batch { token_ids: vec![0; patches.all().len()], ..Batch::default() };
        let shared = backend.begin_step(&rows, patches.angles(&self.shape).into_iter().collect());
        let mut deepstack = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            layer.compute(backend, patches, &mut buffers, &shared);
            let place = self.shape.deepstack.iter().position(|layer| *layer == number);
            if let (Some(place), End::Mergers(mergers)) = (place, &self.end) {
                deepstack.push(patches.in_order(&mergers[1 + place].merge(backend, &mut buffers)));
            }
        }
        if let Some(norm) = &self.last_norm {
            norm.apply_in_place(backend, &mut buffers.hidden);
        }
        if self.class.is_some() {
            let states = backend.read(&buffers.hidden, self.shape.hidden);
            backend.put(&states[self.shape.hidden..], self.shape.hidden, &mut buffers.hidden);
        }
        let made = match &self.end {
            End::Mergers(mergers) => mergers[0].merge(backend, &mut buffers),
            End::Pooling(pooling) => pooling.pool(backend, patches.all().len(), &mut buffers),
            End::Projector(projector) => projector.project(backend, &mut buffers),
            End::Downsampling(downsampling) => downsampling.downsample(backend, &mut buffers),
        };
        let rows = patches.in_order(&made);
        ImageRows { width: self.shape.output, rows, deepstack }
    }

    /// Makes the first states of all patches.
    fn begin(&self, backend: &mut B, numbers: &[f32], patches: &Patches, buffers: &mut Buffers<B>) {
        let Buffers { hidden, wide, out, input, .. } = buffers;
        let columns = self.shape.patch.numbers();
        backend.put(&patches.gathered(numbers, columns), columns, wide);
        backend.round(wide, 0..columns, input);
        if let Some(class) = &self.class {
            backend.linear(input, &self.patch, self.patch_bias.as_ref(), out);
            class.put(backend, patches, self.shape.hidden, hidden);
            let rows: Vec<(usize, f32)> = patches.all().skip(1).map(|row| (row, 1.0)).collect();
            return backend.add_scaled(out, &rows, hidden);
        }
        backend.linear(input, &self.patch, self.patch_bias.as_ref(), hidden);
        if let Some(norm) = &self.first_norm {
            norm.apply_in_place(backend, hidden);
        }
        let (Some(table), Some(count)) = (&self.positions, self.shape.positions) else { return };
        let mut sums = B::States::default();
        backend.zeros(hidden, self.shape.hidden, &mut sums);
        // A few at a time, since they are many more than patches.
        for taps in patches.taps(count, self.shape.interpolation).chunks(4 * patches.all().len()) {
            let ids: Vec<u32> = taps.iter().map(|tap| tap.id).collect();
            backend.embed(table, &ids, 1.0, wide);
            let weights: Vec<(usize, f32)> = taps.iter().map(|tap| (tap.row, tap.weight)).collect();
            backend.add_scaled(wide, &weights, &mut sums);
        }
        backend.add(&sums, 1.0, hidden);
    }
}

impl<B: Backend> ClassToken<B> {
    fn zeros(backend: &B, shape: &TowerShape) -> Result<Self, NoRoom> {
        let positions = 1 + shape.positions.unwrap_or(0);
        Ok(Self { token: backend.vector(shape.hidden)?, positions: backend.vector(positions * shape.hidden)? })
    }

    /// Makes states of the positions of all patches, after the one that is of none.
    fn put(&self, backend: &mut B, patches: &Patches, width: usize, states: &mut B::States) {
        let (token, positions) = (backend.read_vector(&self.token), backend.read_vector(&self.positions));
        let position = |number: usize| &positions[number * width..(number + 1) * width];
        let mut rows: Vec<f32> = token.iter().zip(position(0)).map(|(token, position)| token + position).collect();
        for row in patches.table_rows() {
            rows.extend_from_slice(position(1 + row));
        }
        backend.put(&rows, width, states);
    }
}

impl<B: Backend> End<B> {
    fn target(&mut self, place: InTower) -> Option<Target<'_, B>> {
        match (self, place) {
            (Self::Mergers(mergers), InTower::Merger(merger, place)) => mergers.get_mut(merger)?.target(place),
            (Self::Pooling(pooling), InTower::PooledNorm) => Some(Target::Numbers(&mut pooling.weight, 0)),
            (Self::Pooling(pooling), InTower::Projection) => Some(Target::Rows(&mut pooling.projection, 0)),
            (Self::Projector(projector), InTower::Projector(place)) => projector.target(place),
            (Self::Downsampling(downsampling), InTower::Downsampling(place)) => downsampling.target(place),
            _ => None,
        }
    }
}
