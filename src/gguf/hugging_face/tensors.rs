//! The table of names: which rows of which tensor of a GGUF file are which tensor of a Hugging Face directory.

use std::collections::{BTreeMap, HashSet};

use candle_core::quantized::GgmlDType;

use super::{
    super::{GgufError, GgufFile},
    shape::{Experts, LayerKind, Shape},
};

/// The factors of rotary frequencies, which config.json says in its own way.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// A tensor of the directory, and where the file has its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedTensor {
    /// Its name in the directory.
    pub(crate) name: String,
    /// Its name in the GGUF file.
    pub(crate) source: String,
    /// Rows first.
    pub(crate) shape: Vec<usize>,
    /// For queries and keys whose rows the file interleaves: the number of heads.
    pub(crate) rotary_heads: Option<usize>,
    /// Which of how many experts it is, where the file stacks all of a layer's in one tensor.
    pub(crate) expert: Option<(usize, usize)>,
}

impl NamedTensor {
    fn source_shape(&self) -> Vec<usize> {
        let experts = self.expert.map(|(_, count)| count);
        experts.into_iter().chain(self.shape.iter().copied()).collect()
    }
}

impl GgufFile {
    /// All tensors, sorted by their names in the directory. A missing, an unexpected or a misshapen one is an error.
    pub(crate) fn named_tensors(&self) -> Result<Vec<NamedTensor>, GgufError> {
        let shape = Shape::read(self)?;
        let infos = &self.content.tensor_infos;
        let mut tensors = table(&shape);
        let mut known: HashSet<&str> = tensors.iter().map(|tensor| tensor.source.as_str()).collect();
        known.insert(ROPE_FACTORS);
        // Sorted, so that a file is always refused for the same tensor.
        let by_name: BTreeMap<_, _> = infos.iter().collect();
        if let Some(name) = by_name.keys().find(|name| !known.contains(name.as_str())) {
            let architecture = shape.architecture.name();
            let reason = format!("it has a tensor `{name}`, which the architecture `{architecture}` does not have");
            return Err(GgufError::Unsupported(reason));
        }
        for tensor in &tensors {
            let error = |reason| GgufError::Tensor { name: tensor.source.clone(), reason };
            let info = infos.get(&tensor.source).ok_or_else(|| error("the file does not have it".to_owned()))?;
            let expected = tensor.source_shape();
            if info.shape.dims() != expected {
                return Err(error(format!("its shape is {:?}, not {expected:?}", info.shape.dims())));
            }
            // candle reads no numbers of this type, which is for products only.
            if info.ggml_dtype == GgmlDType::Q8_1 {
                return Err(error("its type Q8_1 is not for weights".to_owned()));
            }
            // A reordered vector is reordered number by number.
            let row =
                if tensor.rotary_heads.is_some() && expected.len() == 1 { 1 } else { expected[expected.len() - 1] };
            let block = info.ggml_dtype.block_size();
            if !row.is_multiple_of(block) {
                return Err(error(format!("a row of {row} numbers is not made of blocks of {block}")));
            }
        }
        tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(tensors)
    }
}

/// What a model of this shape has.
fn table(shape: &Shape) -> Vec<NamedTensor> {
    let mut table = Table(Vec::new());
    table.add("token_embd.weight", "model.embed_tokens.weight", &[shape.vocab, shape.hidden]);
    table.add("output_norm.weight", "model.norm.weight", &[shape.hidden]);
    if !shape.tied {
        table.add("output.weight", "lm_head.weight", &[shape.vocab, shape.hidden]);
    }
    for (layer, kind) in shape.layers.iter().enumerate() {
        let (source, name) = (format!("blk.{layer}"), format!("model.layers.{layer}"));
        table.add(&format!("{source}.attn_norm.weight"), &format!("{name}.input_layernorm.weight"), &[shape.hidden]);
        table.add(
            &format!("{source}.ffn_norm.weight"),
            &format!("{name}.post_attention_layernorm.weight"),
            &[shape.hidden],
        );
        table.add_attention(shape, &source, &format!("{name}.self_attn"));
        match (kind, shape.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                table.add_experts(shape.hidden, experts, &source, &format!("{name}.mlp"));
            }
            _ => table.add_mlp(shape, &source, &format!("{name}.mlp")),
        }
    }
    table.0
}

/// The feed-forward matrices, under both names; the last one leads back.
const MLP: [(&str, &str); 3] = [("ffn_gate", "gate_proj"), ("ffn_up", "up_proj"), ("ffn_down", "down_proj")];

struct Table(Vec<NamedTensor>);

impl Table {
    fn add(&mut self, source: &str, name: &str, shape: &[usize]) -> &mut NamedTensor {
        self.0.push(NamedTensor {
            name: name.to_owned(),
            source: source.to_owned(),
            shape: shape.to_vec(),
            rotary_heads: None,
            expert: None,
        });
        self.0.last_mut().expect("one was pushed")
    }

    fn add_attention(&mut self, shape: &Shape, source: &str, name: &str) {
        let Shape { hidden, heads, kv_heads, head_dim, .. } = *shape;
        let interleaved = shape.architecture.interleaves_rotary();
        let (q, kv) = (heads * head_dim, kv_heads * head_dim);
        for (from, to, dims, bias, rotary_heads) in [
            ("attn_q", "q_proj", [q, hidden], shape.biases.qkv, Some(heads)),
            ("attn_k", "k_proj", [kv, hidden], shape.biases.qkv, Some(kv_heads)),
            ("attn_v", "v_proj", [kv, hidden], shape.biases.qkv, None),
            ("attn_output", "o_proj", [hidden, q], shape.biases.output, None),
        ] {
            let rotary_heads = rotary_heads.filter(|_| interleaved);
            let kinds = [("weight", &dims[..]), ("bias", &dims[..1])];
            for (kind, dims) in kinds.into_iter().take(1 + usize::from(bias)) {
                self.add(&format!("{source}.{from}.{kind}"), &format!("{name}.{to}.{kind}"), dims).rotary_heads =
                    rotary_heads;
            }
        }
        if shape.architecture.has_head_norms() {
            self.add(&format!("{source}.attn_q_norm.weight"), &format!("{name}.q_norm.weight"), &[head_dim]);
            self.add(&format!("{source}.attn_k_norm.weight"), &format!("{name}.k_norm.weight"), &[head_dim]);
        }
    }

    fn add_mlp(&mut self, shape: &Shape, source: &str, name: &str) {
        for (from, to) in MLP {
            let dims = mlp_shape(to, shape.intermediate, shape.hidden);
            self.add(&format!("{source}.{from}.weight"), &format!("{name}.{to}.weight"), &dims);
            if shape.biases.mlp {
                self.add(&format!("{source}.{from}.bias"), &format!("{name}.{to}.bias"), &dims[..1]);
            }
        }
    }

    fn add_experts(&mut self, hidden: usize, experts: Experts, source: &str, name: &str) {
        let Experts { count, intermediate, .. } = experts;
        self.add(&format!("{source}.ffn_gate_inp.weight"), &format!("{name}.gate.weight"), &[count, hidden]);
        for (from, to) in MLP {
            let dims = mlp_shape(to, intermediate, hidden);
            for expert in 0..count {
                let name = format!("{name}.experts.{expert}.{to}.weight");
                self.add(&format!("{source}.{from}_exps.weight"), &name, &dims).expert = Some((expert, count));
            }
        }
    }
}

fn mlp_shape(name: &str, intermediate: usize, hidden: usize) -> [usize; 2] {
    if name == "down_proj" { [hidden, intermediate] } else { [intermediate, hidden] }
}
