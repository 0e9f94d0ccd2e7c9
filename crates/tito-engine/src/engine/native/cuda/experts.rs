//! What the experts of a mixture make of their rows.

use candle_core::{Result, Tensor};

use super::{
    device::DeviceBackend,
    elementwise, kernels,
    matrix::Matrix,
    mixture::{Chosen, Way},
};
use crate::engine::native::{
    backend::MixtureBuffers,
    routing::{ExpertShape, Experts},
};

impl DeviceBackend {
    /// Adds to every row of `sum` what its experts make of the input, each times its weight and the factor.
    pub(super) fn compute_experts(
        &mut self,
        input: &Tensor,
        (chosen, experts, factor): (&Chosen, &Experts<'_, Matrix, Tensor>, f32),
        MixtureBuffers { wide, gated, out }: MixtureBuffers<'_, Self>,
        sum: &Tensor,
    ) -> Result<()> {
        let ExpertShape { width, intermediate, gate } = experts.shape;
        let rows = chosen.places();
        let [to_gate, back] = Way::both(&experts.all);
        let wide = wide.reshape(self.sums(), rows, gate.inputs(intermediate))?;
        let mut sent = std::mem::take(&mut self.sent);
        to_gate.multiply(input, chosen, (&mut sent, |matrix: &Matrix| self.numbers_of(matrix)), wide)?;
        let gated = gated.reshape(self.numbers(), rows, intermediate)?;
        elementwise::gate(wide, gate, intermediate, gated)?;
        let out = out.reshape(self.sums(), rows, width)?;
        back.multiply(gated, chosen, (&mut sent, |matrix: &Matrix| self.numbers_of(matrix)), out)?;
        self.sent = sent;
        kernels::add_experts(out, chosen, factor, sum)
    }
}
