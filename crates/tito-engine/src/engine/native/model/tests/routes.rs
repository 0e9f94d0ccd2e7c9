//! Routes against another computation: the first layer's, of a prompt of one token, which attends to itself alone.

use super::{families::Golden, *};

/// One matrix times a row.
#[expect(clippy::cast_possible_truncation, reason = "the one rounding of a number")]
fn product(matrix: &[f32], row: &[f32]) -> Vec<f32> {
    let of_output = |weights: &[f32]| {
        weights.iter().zip(row).map(|(weight, number)| f64::from(*weight) * f64::from(*number)).sum::<f64>() as f32
    };
    matrix.chunks_exact(row.len()).map(of_output).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a short row, rounded once")]
fn normed(row: &[f32], weights: &[f32], epsilon: f64) -> Vec<f32> {
    let squares = row.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>() / row.len() as f64;
    let factor = (squares + epsilon).sqrt().recip();
    row.iter().zip(weights).map(|(number, weight)| (f64::from(*number) * factor) as f32 * weight).collect()
}

/// The scores of the first layer's experts.
fn scores(golden: &Golden, token: usize) -> Vec<f32> {
    let config = golden.config();
    let size = |key: &str| usize::try_from(config[key].as_u64().unwrap()).unwrap();
    let layer = |name: &str| golden.tensor(&format!("model.layers.0.{name}.weight"));
    let (hidden, heads, kv_heads) = (size("hidden_size"), size("num_attention_heads"), size("num_key_value_heads"));
    let epsilon = config["rms_norm_eps"].as_f64().unwrap();
    let state = golden.tensor("model.embed_tokens.weight")[token * hidden..][..hidden].to_vec();
    let values = product(&layer("self_attn.v_proj"), &normed(&state, &layer("input_layernorm"), epsilon));
    let of_head = values.chunks_exact(values.len() / kv_heads);
    let attended: Vec<f32> = of_head.flat_map(|values| values.repeat(heads / kv_heads)).collect();
    let attention = product(&layer("self_attn.o_proj"), &attended);
    let state: Vec<f32> = state.iter().zip(attention).map(|(state, attention)| state + attention).collect();
    product(&layer("mlp.gate"), &normed(&state, &layer("post_attention_layernorm"), epsilon))
}

#[test]
fn routes_are_the_experts_with_the_best_scores() {
    let golden = Golden::named("families/olmoe_plain");
    let mut model = golden.model(cpu(KernelSet::available()[0], 1, Precision::F32)).unwrap();
    let shape = model.shape().routes().unwrap();
    assert_eq!((shape.layers, shape.mixtures.as_slice(), shape.experts, shape.per_token), (3, &[0, 1, 2][..], 8, 2));
    let mut found = std::collections::BTreeSet::new();
    for token in 0..96_u32 {
        model.routes().begin(1, Vec::new(), Some(shape.width()));
        families::in_order(&mut model, &[token], 0);
        let routes = model.routes().end().unwrap();
        let scores = scores(&golden, token as usize);
        let mut order: Vec<u16> = (0..8).collect();
        order.sort_by(|left, right| scores[usize::from(*right)].total_cmp(&scores[usize::from(*left)]));
        assert_eq!(routes[..2], order[..2], "{token}: {scores:?}");
        found.insert(routes);
    }
    assert!(found.len() > 10, "tokens go different ways");
    assert_eq!(model.routes().end(), None, "nothing is kept that was not asked for");
}
