//! Mixtures of experts whose experts are chosen on the device, listed there, and computed all at once.
//!
//! Owns which mixtures that is for, and the lists. Refuses to wait for the device: nothing of a mixture comes to the host,
//! unless it asks which experts were chosen, or matrices are in codes.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::{
    buffer::{Allocations, Buffer, TensorKind},
    host, kernels,
    matrix::Matrix,
};
use crate::engine::native::{
    backend::Gate,
    routing::{ExpertShape, ExpertWeights, Leaning, Routing},
};

/// The most experts that the kernels choose from, `MOST_EXPERTS` in experts.cu.
const MOST_EXPERTS: usize = 1024;
/// The most experts of a row, `MOST_CHOSEN` there, and the most groups: a lane has one.
const MOST_CHOSEN: usize = 32;
/// Numbers of bf16 that are read together.
const TOGETHER: usize = 8;
/// Words of a tile, `Tile` in experts.cu.
const TILE_WORDS: usize = 3;

/// Whether such a mixture has kernels.
pub(super) fn is_served(dtype: DType, routing: Routing, shape: ExpertShape) -> bool {
    let Routing { experts, per_token, router } = routing;
    let ExpertShape { width, intermediate, gate } = shape;
    let groups_serve = router.groups.is_none_or(|groups| {
        let is_even = groups.count <= MOST_CHOSEN && experts.is_multiple_of(groups.count);
        is_even && groups.chosen * (experts / groups.count) >= per_token
    });
    let is_aligned = dtype == DType::F32 || (width.is_multiple_of(TOGETHER) && intermediate.is_multiple_of(TOGETHER));
    let is_small = experts <= MOST_EXPERTS && per_token <= MOST_CHOSEN && per_token <= experts;
    is_small
        && is_aligned
        && groups_serve
        && !router.on_inputs
        && !matches!(gate, Gate::GeluTanhAlone | Gate::GeluAlone | Gate::Xielu(_))
}

/// The experts that the rows of a step go through, and the rows of each expert, on the device.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// All lists one after the other, see [`List`]; weights are the bits of f32.
    words: Tensor,
    pub(super) rows: usize,
    pub(super) per_token: usize,
    pub(super) experts: usize,
    /// How many rows a tile has.
    pub(super) tile_rows: usize,
    /// How many tiles there may be.
    pub(super) tiles: usize,
}

/// What `words` of [`Chosen`] has, in this order.
#[derive(Debug, Clone, Copy)]
pub(super) enum List {
    /// The experts of each row, from the best to the worst.
    Experts,
    /// Their weights.
    Weights,
    /// The row of each place of the list by expert.
    Rows,
    /// The place of each choice in that list.
    Places,
    /// How many rows each expert has.
    Counts,
    /// Tiles.
    Tiles,
}

impl Chosen {
    /// Room for the lists of all rows of `scores`; what it holds is left over from before.
    fn new(
        scores: &Tensor,
        routing: Routing,
        tile_rows: usize,
        (room, allocations): (&mut Buffer, &Allocations),
    ) -> Result<Self> {
        let Routing { experts, per_token, .. } = routing;
        let rows = scores.dim(0)?;
        let places = rows * per_token;
        // Each expert's last tile may be short.
        let tiles = experts.min(places) + places / tile_rows;
        let kind = TensorKind { device: scores.device(), dtype: DType::U32, allocations };
        let words = room.reshape(kind, 1, 4 * places + experts + TILE_WORDS * tiles)?.flatten_all()?;
        Ok(Self { words, rows, per_token, experts, tile_rows, tiles })
    }

    /// How many times a row goes through an expert.
    pub(super) fn places(&self) -> usize {
        self.rows * self.per_token
    }

    /// Where a list begins.
    pub(super) fn list(&self, list: List) -> Result<Tensor> {
        let places = self.places();
        let (first, len) = match list {
            List::Experts => (0, places),
            List::Weights => (places, places),
            List::Rows => (2 * places, places),
            List::Places => (3 * places, places),
            List::Counts => (4 * places, self.experts),
            List::Tiles => (4 * places + self.experts, TILE_WORDS * self.tiles),
        };
        self.words.narrow(0, first, len)
    }

    /// The experts of all rows, row by row.
    pub(super) fn read(&self) -> Result<Vec<u32>> {
        host::numbers_of(&self.list(List::Experts)?)
    }
}

/// How many rows of an expert share what is read of its matrices: as many as measured best on an H100, by how many rows an
/// expert has on average. No result depends on it.
pub(super) fn tile_rows(rows: usize, routing: Routing, dtype: DType) -> usize {
    match rows * routing.per_token / routing.experts {
        _ if dtype == DType::F32 => 8,
        0..=8 => 8,
        9..=16 => 16,
        17..=128 => 32,
        _ => 64,
    }
}

/// Chooses the experts of all rows, and lists rows by expert.
pub(super) fn choose(
    scores: &Tensor,
    routing: Routing,
    leaning: Leaning<'_, Tensor>,
    tile_rows: usize,
    room: (&mut Buffer, &Allocations),
) -> Result<Chosen> {
    let chosen = Chosen::new(scores, routing, tile_rows, room)?;
    let given = leaning.given.map(|given| Tensor::new(given, scores.device())).transpose()?;
    kernels::choose_experts(scores, routing, (leaning.bias, leaning.factors, given.as_ref()), &chosen)?;
    kernels::list_rows(&chosen)?;
    Ok(chosen)
}

/// The matrices of all experts and their biases, as addresses on the device.
pub(super) struct Table {
    pub(super) matrices: Tensor,
    pub(super) biases: Option<Tensor>,
    pub(super) dtype: DType,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// The addresses of matrices that were sent to the device, by the first of them: a layer's are the same in every step.
#[derive(Debug, Default)]
pub(super) struct SentAddresses {
    known: HashMap<i64, (Vec<i64>, Tensor)>,
    allocations: Allocations,
}

impl SentAddresses {
    pub(super) fn new(allocations: Allocations) -> Self {
        Self { known: HashMap::new(), allocations }
    }

    /// More than the layers of any model have. What is left over from matrices that are no more there goes with all the rest.
    const MOST: usize = 1 << 12;

    /// These addresses on the device, which are sent unless they are there.
    pub(super) fn on(&mut self, device: &Device, addresses: Vec<i64>) -> Result<Tensor> {
        let Some(first) = addresses.first().copied() else { bail!("a mixture without experts") };
        if let Some((sent, table)) = self.known.get(&first)
            && *sent == addresses
        {
            return Ok(table.clone());
        }
        self.allocations.count();
        if self.known.len() == Self::MOST {
            self.known.clear();
        }
        let table = Tensor::new(addresses.as_slice(), device)?;
        self.known.insert(first, (addresses, table.clone()));
        Ok(table)
    }
}

/// One of the two ways through experts: their matrices, and their biases.
pub(super) struct Way<'a> {
    matrices: Vec<&'a Matrix>,
    biases: Vec<&'a Tensor>,
    /// Whether rows of the step go it, which each place of the list names; otherwise there is a row for each place.
    is_gathered: bool,
}

impl<'a> Way<'a> {
    /// The ways to the gate, and back.
    pub(super) fn both(experts: &[ExpertWeights<'a, Matrix, Tensor>]) -> [Self; 2] {
        let to_gate = Self {
            matrices: experts.iter().map(|expert| expert.gate_up).collect(),
            biases: experts.iter().filter_map(|expert| expert.gate_up_bias).collect(),
            is_gathered: true,
        };
        let back = Self {
            matrices: experts.iter().map(|expert| expert.down).collect(),
            biases: experts.iter().filter_map(|expert| expert.down_bias).collect(),
            is_gathered: false,
        };
        [to_gate, back]
    }

    /// What the experts make of their rows. `widen` makes numbers of a matrix in codes, which are there until the next one's
    /// are: such experts are multiplied one after the other, and the host has to know which ones have rows.
    pub(super) fn multiply(
        &self,
        input: &Tensor,
        chosen: &Chosen,
        (sent, mut widen): (&mut SentAddresses, impl FnMut(&Matrix) -> Result<Tensor>),
        out: &Tensor,
    ) -> Result<()> {
        let plain = |matrix: &&'a Matrix| if let Matrix::Plain(tensor) = matrix { Some(tensor) } else { None };
        let experts = self.matrices.len();
        if let Some(matrices) = self.matrices.iter().map(plain).collect::<Option<Vec<_>>>() {
            let table = kernels::table(&matrices, &self.biases, experts, sent)?;
            return kernels::multiply_experts(input, (&table, None), chosen, self.is_gathered, out);
        }
        let counts = host::numbers_of::<u32>(&chosen.list(List::Counts)?)?;
        for (expert, matrix) in self.matrices.iter().enumerate().filter(|(expert, _)| counts[*expert] > 0) {
            let table = kernels::table(&[&widen(matrix)?], &self.biases, experts, sent)?;
            kernels::multiply_experts(input, (&table, Some(expert)), chosen, self.is_gathered, out)?;
        }
        Ok(())
    }
}
