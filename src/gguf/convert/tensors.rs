//! Which tensor of the GGUF file becomes which of the directory.

use std::collections::HashSet;

use super::{ConvertError, GgufFile, config::Sizes};

/// One tensor to write.
#[derive(Debug)]
pub(super) struct Tensor {
    /// Its name in the GGUF file.
    pub(super) source: String,
    /// Its name in the directory.
    pub(super) name: String,
    /// Rows first.
    pub(super) shape: Vec<usize>,
    /// For queries and keys: the heads whose rows are to be reordered.
    pub(super) rotary_heads: Option<usize>,
}

/// Returns the tensors of a Llama, sorted by their new names. A missing, an unexpected or a misshapen one is an error.
pub(super) fn plan(file: &GgufFile) -> Result<Vec<Tensor>, ConvertError> {
    let sizes = Sizes::read(file)?;
    let infos = &file.content.tensor_infos;
    if infos.contains_key("rope_freqs.weight") {
        let reason = "it scales its rotary embedding by `rope_freqs.weight`, which config.json cannot say".to_owned();
        return Err(ConvertError::Unsupported(reason));
    }
    let mut tensors = expected(&sizes);
    tensors.retain(|tensor| tensor.source != "output.weight" || infos.contains_key("output.weight"));
    let known: HashSet<&str> = tensors.iter().map(|tensor| tensor.source.as_str()).collect();
    if let Some(name) = infos.keys().find(|name| !known.contains(name.as_str())) {
        return Err(ConvertError::Unsupported(format!("it has a tensor `{name}`, which a Llama does not have")));
    }
    for tensor in &tensors {
        let error = |reason| ConvertError::Tensor { name: tensor.source.clone(), reason };
        let info = infos.get(&tensor.source).ok_or_else(|| error("the file does not have it".to_owned()))?;
        if info.shape.dims() != tensor.shape {
            return Err(error(format!("its shape is {:?}, not {:?}", info.shape.dims(), tensor.shape)));
        }
    }
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

fn expected(sizes: &Sizes) -> Vec<Tensor> {
    let Sizes { hidden, intermediate, layers, heads, kv_heads, head_dim, vocab } = *sizes;
    let tensor = |source: String, name: String, shape: &[usize], rotary_heads| Tensor {
        source: format!("{source}.weight"),
        name: format!("{name}.weight"),
        shape: shape.to_vec(),
        rotary_heads,
    };
    let mut tensors = vec![
        tensor("token_embd".to_owned(), "model.embed_tokens".to_owned(), &[vocab, hidden], None),
        tensor("output_norm".to_owned(), "model.norm".to_owned(), &[hidden], None),
        tensor("output".to_owned(), "lm_head".to_owned(), &[vocab, hidden], None),
    ];
    let (q, kv) = (heads * head_dim, kv_heads * head_dim);
    let parts: [(&str, &str, &[usize], Option<usize>); 9] = [
        ("attn_q", "self_attn.q_proj", &[q, hidden], Some(heads)),
        ("attn_k", "self_attn.k_proj", &[kv, hidden], Some(kv_heads)),
        ("attn_v", "self_attn.v_proj", &[kv, hidden], None),
        ("attn_output", "self_attn.o_proj", &[hidden, q], None),
        ("ffn_gate", "mlp.gate_proj", &[intermediate, hidden], None),
        ("ffn_up", "mlp.up_proj", &[intermediate, hidden], None),
        ("ffn_down", "mlp.down_proj", &[hidden, intermediate], None),
        ("attn_norm", "input_layernorm", &[hidden], None),
        ("ffn_norm", "post_attention_layernorm", &[hidden], None),
    ];
    for layer in 0..layers {
        tensors.extend(parts.iter().map(|(source, name, shape, rotary_heads)| {
            tensor(format!("blk.{layer}.{source}"), format!("model.layers.{layer}.{name}"), shape, *rotary_heads)
        }));
    }
    tensors
}
