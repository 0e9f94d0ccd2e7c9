//! What an adapter holds, module by module, and where it comes from.

use super::super::WeightTensor;

/// What an adapter adds to one module: `scale * b * a`.
#[derive(Debug, Clone, PartialEq)]
pub struct PeftModule {
    /// The module's name in the model, such as `model.layers.0.self_attn.q_proj`.
    pub name: String,
    /// What the matrices are of.
    pub kind: PeftKind,
    /// The thin matrix that is applied first. Of a linear module rank by inputs, of an embedding rank by vocabulary.
    pub a: WeightTensor,
    /// The other one, outputs by rank.
    pub b: WeightTensor,
    /// The factor of their product.
    pub scale: f32,
    /// The weights that they were trained beside, where the adapter has them: PEFT saves those of embeddings and heads.
    pub base: Option<WeightTensor>,
}

/// What the settings of an adapter say it is, and what it was trained on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeftOrigin {
    /// The method, `LORA` for adapters that are read here.
    pub peft_type: String,
    /// The model, as whoever trained the adapter named it.
    pub base_model: Option<String>,
}

/// The kinds of modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeftKind {
    /// A linear module.
    Linear,
    /// An embedding.
    Embedding,
}

impl PeftModule {
    /// Rows of the first matrix.
    pub fn rank(&self) -> usize {
        self.a.shape[0]
    }
}
