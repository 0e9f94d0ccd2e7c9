//! The tensors of the tower for images.

use super::super::{
    destinations::{Destination, InMerger, InTower, InTowerLayer},
    shape::TowerShape,
    tensor::{Tensor, TensorSlice},
};
use crate::engine::native::weights::as_rows;

/// All of them.
pub(super) fn of_tower(tower: &TowerShape) -> Vec<Tensor> {
    let mut all = Expected { tower, tensors: Vec::new(), prefix: String::new() };
    all.beginning();
    for layer in 0..tower.layers.len() {
        all.prefix = format!("{}blocks.{layer}.", tower.names.prefix);
        all.layer(&|place| InTower::Layer(layer, place));
    }
    for number in 0..=tower.deepstack.len() {
        all.prefix = match number.checked_sub(1) {
            None => format!("{}merger.", tower.names.prefix),
            Some(number) => format!("{}deepstack_merger_list.{number}.", tower.names.prefix),
        };
        all.merger(number);
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
        let slice = TensorSlice { place: Destination::Tower(place), rows: 0..as_rows(shape).0, transposed: false };
        self.tensors.push(Tensor { name: format!("{}{name}", self.prefix), shape: shape.to_vec(), parts: vec![slice] });
    }

    /// A matrix and its bias, of which `name` lacks the endings.
    fn with_bias(&mut self, name: &str, [rows, columns]: [usize; 2], [weight, bias]: [InTower; 2]) {
        self.one(&format!("{name}.weight"), &[rows, columns], weight);
        self.one(&format!("{name}.bias"), &[rows], bias);
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
        let TowerShape { hidden, patch, patch_bias, positions, names, .. } = self.tower;
        names.prefix.clone_into(&mut self.prefix);
        self.one("patch_embed.proj.weight", &[*hidden, 3, patch.frames, patch.side, patch.side], InTower::Patch);
        if *patch_bias {
            self.one("patch_embed.proj.bias", &[*hidden], InTower::PatchBias);
        }
        if let Some(positions) = positions {
            self.one("pos_embed.weight", &[*positions, *hidden], InTower::Positions);
        }
    }

    fn layer(&mut self, place: &dyn Fn(InTowerLayer) -> InTower) {
        let TowerShape { hidden, intermediate: inner, names, .. } = *self.tower;
        self.norm("norm1", hidden, [InTowerLayer::AttentionNorm, InTowerLayer::AttentionNormBias].map(place));
        self.norm("norm2", hidden, [InTowerLayer::MlpNorm, InTowerLayer::MlpNormBias].map(place));
        self.with_bias("attn.qkv", [3 * hidden, hidden], [InTowerLayer::Qkv, InTowerLayer::QkvBias].map(place));
        self.with_bias("attn.proj", [hidden, hidden], [InTowerLayer::Output, InTowerLayer::OutputBias].map(place));
        for (number, name) in names.ups.iter().enumerate() {
            let first = number * inner;
            self.with_bias(name, [inner, hidden], [InTowerLayer::Up(first), InTowerLayer::UpBias(first)].map(place));
        }
        self.with_bias(names.down, [hidden, inner], [InTowerLayer::Down, InTowerLayer::DownBias].map(place));
    }

    fn merger(&mut self, number: usize) {
        let TowerShape { hidden, output, names, .. } = *self.tower;
        let place = |place| InTower::Merger(number, place);
        let ([norm, up, down], joined) = (names.merger, self.tower.joined());
        // Those of the deepstack normalise what is joined already.
        let width = if number == 0 { hidden } else { joined };
        self.norm(norm, width, [InMerger::Norm, InMerger::NormBias].map(place));
        self.with_bias(up, [joined, joined], [InMerger::Up, InMerger::UpBias].map(place));
        self.with_bias(down, [output, joined], [InMerger::Down, InMerger::DownBias].map(place));
    }
}
