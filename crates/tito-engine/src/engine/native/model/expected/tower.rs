//! The tensors of the tower for images.

use super::super::{
    destinations::{Destination, InDownsampling, InMerger, InProjector, InTower, InTowerLayer},
    shape::{Ending, TowerShape},
    tensor::{Tensor, TensorSlice},
};
use crate::engine::native::weights::as_rows;

/// All of them.
pub(super) fn of_tower(tower: &TowerShape) -> Vec<Tensor> {
    let mut all = Expected { tower, tensors: Vec::new(), prefix: String::new() };
    all.beginning();
    for layer in 0..tower.layers.len() {
        all.prefix = format!("{}{}{layer}.", tower.names.prefix, tower.names.layers);
        all.layer(&|place| InTower::Layer(layer, place));
    }
    tower.names.prefix.clone_into(&mut all.prefix);
    if tower.last_norm {
        all.norm(tower.names.last_norm, tower.hidden, [InTower::LastNorm, InTower::LastNormBias]);
    }
    match tower.ending {
        Ending::Joined => all.mergers(),
        Ending::JoinedFirst { .. } => all.joined_first(),
        Ending::Pooled { .. } => all.pooling(),
        Ending::Projected { biases, .. } => all.projector(biases),
        Ending::Downsampled { intermediate, .. } => all.downsampling(intermediate),
    }
    all.tensors
}

/// The tensors so far.
struct Expected<'a> {
    tower: &'a TowerShape,
    tensors: Vec<Tensor>,
    /// How the names of the present part begin.
    prefix: String,
}

impl Expected<'_> {
    fn one(&mut self, name: &str, shape: &[usize], place: InTower) {
        self.turned(name, shape, place, false);
    }

    fn turned(&mut self, name: &str, shape: &[usize], place: InTower, transposed: bool) {
        let slice = TensorSlice { place: Destination::Tower(place), rows: 0..as_rows(shape).0, transposed };
        self.tensors.push(Tensor { name: format!("{}{name}", self.prefix), shape: shape.to_vec(), parts: vec![slice] });
    }

    /// A matrix and its bias, of which `name` lacks the endings.
    fn with_bias(&mut self, name: &str, shape: [usize; 2], places: [InTower; 2]) {
        self.matrix(name, shape, places, true);
    }

    fn matrix(&mut self, name: &str, [rows, columns]: [usize; 2], [weight, bias]: [InTower; 2], has_bias: bool) {
        self.one(&format!("{name}.weight"), &[rows, columns], weight);
        if has_bias {
            self.one(&format!("{name}.bias"), &[rows], bias);
        }
    }

    /// A norm, with its bias where norms have one.
    fn norm(&mut self, name: &str, width: usize, [weight, bias]: [InTower; 2]) {
        self.one(&format!("{name}.weight"), &[width], weight);
        if self.tower.norm_bias {
            self.one(&format!("{name}.bias"), &[width], bias);
        }
    }

    /// What makes states of patches.
    fn beginning(&mut self) {
        let TowerShape { hidden, patch, patch_bias, positions, first_norm, names, .. } = self.tower;
        names.prefix.clone_into(&mut self.prefix);
        let mut kernel = vec![*hidden, 3, patch.frames, patch.side, patch.side];
        if !names.patch_has_frames {
            kernel.remove(2);
        }
        self.one(&format!("{}.weight", names.patch), &kernel, InTower::Patch);
        if *patch_bias {
            self.one(&format!("{}.bias", names.patch), &[*hidden], InTower::PatchBias);
        }
        if self.tower.class_token {
            let count = positions.map_or(1, |positions| positions + 1);
            self.one(names.class_token, &[1, 1, *hidden], InTower::ClassToken);
            self.one(names.positions, &[1, count, *hidden], InTower::ClassPositions);
        } else if let Some(positions) = positions {
            self.one(&format!("{}.weight", names.positions), &[*positions, *hidden], InTower::Positions);
        }
        if *first_norm {
            self.one(&format!("{}.weight", names.first_norm), &[*hidden], InTower::FirstNorm);
        }
    }

    fn layer(&mut self, place: &dyn Fn(InTowerLayer) -> InTower) {
        let TowerShape { hidden, intermediate: inner, names, biases, qkv_biases, .. } = *self.tower;
        let [before_attention, before_mlp] = names.norms;
        self.norm(before_attention, hidden, [InTowerLayer::AttentionNorm, InTowerLayer::AttentionNormBias].map(place));
        self.norm(before_mlp, hidden, [InTowerLayer::MlpNorm, InTowerLayer::MlpNormBias].map(place));
        let rows = 3 * hidden / names.qkv.len();
        for (number, name) in names.qkv.iter().enumerate() {
            let first = number * rows;
            let places = [InTowerLayer::Qkv(first), InTowerLayer::QkvBias(first)].map(place);
            self.matrix(name, [rows, hidden], places, qkv_biases);
        }
        if self.tower.query_key_norm.is_some() {
            for (name, norm) in names.query_key_norms.iter().zip([InTowerLayer::QueryNorm, InTowerLayer::KeyNorm]) {
                self.one(&format!("{name}.weight"), &[hidden], place(norm));
            }
        }
        if self.tower.scaled {
            for (name, scale) in names.scales.iter().zip([InTowerLayer::AttentionScale, InTowerLayer::MlpScale]) {
                self.one(name, &[hidden], place(scale));
            }
        }
        let output = [InTowerLayer::Output, InTowerLayer::OutputBias].map(place);
        self.matrix(names.attention_output, [hidden, hidden], output, biases);
        for (number, name) in names.ups.iter().enumerate() {
            let first = number * inner;
            let places = [InTowerLayer::Up(first), InTowerLayer::UpBias(first)].map(place);
            self.matrix(name, [inner, hidden], places, biases);
        }
        self.matrix(names.down, [hidden, inner], [InTowerLayer::Down, InTowerLayer::DownBias].map(place), biases);
    }

    fn mergers(&mut self) {
        for number in 0..=self.tower.deepstack.len() {
            self.prefix = match number.checked_sub(1) {
                None => format!("{}merger.", self.tower.names.prefix),
                Some(number) => format!("{}deepstack_merger_list.{number}.", self.tower.names.prefix),
            };
            self.merger(number);
        }
    }

    fn joined_first(&mut self) {
        let TowerShape { output, names, .. } = *self.tower;
        let joined = self.tower.joined();
        let place = |place| InTower::Merger(0, place);
        self.prefix.clear();
        let [norm, up, down] = [0, 1, 2].map(|place| names.merger[place]);
        self.one(&format!("{norm}.weight"), &[joined], place(InMerger::Norm));
        self.one(&format!("{norm}.bias"), &[joined], place(InMerger::NormBias));
        self.with_bias(up, [output, joined], [InMerger::Up, InMerger::UpBias].map(place));
        self.with_bias(down, [output, output], [InMerger::Down, InMerger::DownBias].map(place));
    }

    fn pooling(&mut self) {
        let TowerShape { hidden, output, names, .. } = *self.tower;
        self.prefix.clear();
        self.one(&format!("{}.weight", names.merger[0]), &[hidden], InTower::PooledNorm);
        self.turned(names.merger[1], &[hidden, output], InTower::Projection, true);
    }

    fn projector(&mut self, biases: bool) {
        let TowerShape { hidden, output, names, .. } = *self.tower;
        let place = InTower::Projector;
        self.prefix.clear();
        let [norm, join, up, down] = [0, 1, 2, 3].map(|place| names.merger[place]);
        self.one(&format!("{norm}.weight"), &[hidden], place(InProjector::Norm));
        self.one(&format!("{join}.weight"), &[hidden, self.tower.joined()], place(InProjector::Join));
        self.matrix(up, [output, hidden], [InProjector::Up, InProjector::UpBias].map(place), biases);
        self.matrix(down, [output, output], [InProjector::Down, InProjector::DownBias].map(place), biases);
    }

    fn downsampling(&mut self, intermediate: usize) {
        let TowerShape { hidden, output, patch, names, .. } = *self.tower;
        let place = InTower::Downsampling;
        let [join, projection, norm, gate, up, down] = [0, 1, 2, 3, 4, 5].map(|place| names.merger[place]);
        self.one(&format!("{join}.weight"), &[output, hidden, patch.merge, patch.merge], place(InDownsampling::Join));
        self.one(&format!("{join}.bias"), &[output], place(InDownsampling::JoinBias));
        for (name, shape, part) in [
            (projection, [output, output], InDownsampling::Projection),
            (gate, [intermediate, output], InDownsampling::Up(0)),
            (up, [intermediate, output], InDownsampling::Up(intermediate)),
            (down, [output, intermediate], InDownsampling::Down),
        ] {
            self.one(&format!("{name}.weight"), &shape, place(part));
        }
        self.one(&format!("{norm}.weight"), &[output], place(InDownsampling::Norm));
        self.one(&format!("{norm}.bias"), &[output], place(InDownsampling::NormBias));
    }

    fn merger(&mut self, number: usize) {
        let TowerShape { hidden, output, names, .. } = *self.tower;
        let place = |place| InTower::Merger(number, place);
        let [norm, up, down] = [0, 1, 2].map(|place| names.merger[place]);
        let joined = self.tower.joined();
        // Those of the deepstack normalise what is joined already.
        let width = if number == 0 { hidden } else { joined };
        self.norm(norm, width, [InMerger::Norm, InMerger::NormBias].map(place));
        self.with_bias(up, [joined, joined], [InMerger::Up, InMerger::UpBias].map(place));
        self.with_bias(down, [output, joined], [InMerger::Down, InMerger::DownBias].map(place));
    }
}
