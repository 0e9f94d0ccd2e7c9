//! The tensors of what layers read of a token besides its state, and of what only layers with such inputs have.

use super::{
    super::{
        destinations::{Destination, InLayer},
        shape::{InputShape, LayerShape},
    },
    list::Expected,
};

impl Expected<'_> {
    /// What makes the inputs of all layers.
    pub(super) fn inputs_of_layers(&mut self) {
        let shape = self.shape;
        let Some(InputShape { width, vocab_size, .. }) = shape.inputs else { return };
        let ([embedding, projection, norm], all) = (shape.names.inputs, shape.layers.len() * width);
        self.table(embedding, vocab_size, all, Destination::InputEmbedding);
        self.table(projection, all, shape.hidden, Destination::InputProjection);
        self.vector(norm, width, Destination::InputNorm);
    }

    /// Norms of a feed-forward part and a mixture that are side by side.
    pub(super) fn norms_of_both(&mut self) {
        for (name, place) in [
            ("post_feedforward_layernorm_1", InLayer::AfterDenseNorm),
            ("pre_feedforward_layernorm_2", InLayer::BeforeSparseNorm),
            ("post_feedforward_layernorm_2", InLayer::AfterSparseNorm),
        ] {
            self.vector(name, self.shape.hidden, self.within(place));
        }
    }

    /// What a layer makes of its input, and the factor of its state.
    pub(super) fn end_of_layer(&mut self, layer: &LayerShape) {
        let hidden = self.shape.hidden;
        if let Some(InputShape { width, .. }) = self.shape.inputs {
            self.table("per_layer_input_gate", width, hidden, self.within(InLayer::InputGate));
            self.table("per_layer_projection", hidden, width, self.within(InLayer::InputProjection));
            self.vector("post_per_layer_input_norm", hidden, self.within(InLayer::AfterInputNorm));
        }
        if layer.scaled {
            self.one("layer_scalar", &[1], self.within(InLayer::Scalar));
        }
    }
}
