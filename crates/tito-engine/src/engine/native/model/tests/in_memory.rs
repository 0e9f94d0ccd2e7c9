//! Weights under the names that transformers 5 has for them in memory, as trainers send them.

use std::collections::BTreeMap;

use super::{families::Golden, *};

/// How transformers has a family's tensors in memory.
struct InMemory {
    golden: &'static str,
    /// What its checkpoints call something, and what it is called in memory.
    renamed: &'static [(&'static str, &'static str)],
    /// What is joined: how the names of its parts end, of each number in place of `*`, and how its own ends.
    joined: &'static [(&'static [&'static str], &'static str)],
}

/// The experts of most.
const EXPERTS: &[(&[&str], &str)] = &[
    (&["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"], "mlp.experts.gate_up_proj"),
    (&["mlp.experts.*.down_proj.weight"], "mlp.experts.down_proj"),
];
/// Those of Mixtral and its like, once they are renamed.
const EXPERTS_OF_MIXTRAL: &[(&[&str], &str)] = &[
    (&["mlp.experts.*.w1.weight", "mlp.experts.*.w3.weight"], "mlp.experts.gate_up_proj"),
    (&["mlp.experts.*.w2.weight"], "mlp.experts.down_proj"),
];
const MIXTRAL: &[(&str, &str)] = &[(".block_sparse_moe.", ".mlp.")];
const GRANITE: &[(&str, &str)] = &[
    ("block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"),
    ("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"),
    ("block_sparse_moe.router.layer.weight", "block_sparse_moe.router.weight"),
];

/// As `conversion_mapping.py` of transformers 5.19 has them.
const ALL: &[InMemory] = &[
    InMemory { golden: "mistralrs/qwen3_moe", renamed: &[], joined: EXPERTS },
    InMemory { golden: "families/qwen2_moe_plain", renamed: &[], joined: EXPERTS },
    InMemory { golden: "families/glm4_moe_plain", renamed: &[], joined: EXPERTS },
    InMemory { golden: "mistralrs/glm4_moe_lite", renamed: &[], joined: EXPERTS },
    InMemory { golden: "families/deepseek_v2_plain", renamed: &[], joined: EXPERTS },
    InMemory { golden: "families/deepseek_v3_plain", renamed: &[], joined: EXPERTS },
    InMemory { golden: "families/olmoe_plain", renamed: &[], joined: EXPERTS },
    InMemory { golden: "families/hunyuan_v1_moe_plain", renamed: &[], joined: EXPERTS },
    InMemory {
        golden: "families/ernie4_5_moe_plain",
        renamed: &[("mlp.moe_statics.", "mlp.gate.moe_statics.")],
        joined: EXPERTS,
    },
    InMemory { golden: "mistralrs/mixtral", renamed: MIXTRAL, joined: EXPERTS_OF_MIXTRAL },
    InMemory { golden: "families/minimax_m2_plain", renamed: MIXTRAL, joined: EXPERTS_OF_MIXTRAL },
    InMemory {
        golden: "families/lfm2_moe_plain",
        renamed: &[],
        joined: &[
            (
                &["feed_forward.experts.*.w1.weight", "feed_forward.experts.*.w3.weight"],
                "feed_forward.experts.gate_up_proj",
            ),
            (&["feed_forward.experts.*.w2.weight"], "feed_forward.experts.down_proj"),
        ],
    },
    InMemory { golden: "families/granitemoe_plain", renamed: GRANITE, joined: &[] },
    InMemory { golden: "families/granitemoeshared_plain", renamed: GRANITE, joined: &[] },
    InMemory { golden: "families/granitemoehybrid_experts", renamed: GRANITE, joined: &[] },
    InMemory { golden: "families/nemotron_h_experts", renamed: NEMOTRON, joined: EXPERTS_OF_NEMOTRON },
    InMemory { golden: "families/nemotron_h_latent_experts", renamed: NEMOTRON, joined: EXPERTS_OF_NEMOTRON },
    InMemory {
        golden: "families/kimi_linear_plain",
        renamed: &[
            (".block_sparse_moe.", ".mlp."),
            ("self_attn.f_a_proj.", "self_attn.forget_gate.f_a_proj."),
            ("self_attn.f_b_proj.", "self_attn.forget_gate.f_b_proj."),
            ("self_attn.dt_bias", "self_attn.forget_gate.dt_bias"),
            ("self_attn.A_log", "self_attn.forget_gate.A_log"),
        ],
        joined: &[
            EXPERTS_OF_MIXTRAL[0],
            EXPERTS_OF_MIXTRAL[1],
            (
                &["self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight", "self_attn.v_conv1d.weight"],
                "self_attn.conv1d.weight",
            ),
        ],
    },
];

const NEMOTRON: &[(&str, &str)] = &[("backbone.", "model.")];
const EXPERTS_OF_NEMOTRON: &[(&[&str], &str)] = &[
    (&["mixer.experts.*.up_proj.weight"], "mixer.experts.up_proj"),
    (&["mixer.experts.*.down_proj.weight"], "mixer.experts.down_proj"),
];

impl InMemory {
    fn name(&self, name: &str) -> String {
        let of = self.renamed.iter().find(|(from, _)| name.contains(from));
        of.map_or_else(|| name.to_owned(), |(from, to)| name.replace(from, to))
    }

    fn tensors(&self, checkpoint: Vec<WeightTensor>) -> Vec<WeightTensor> {
        let named = |tensor: WeightTensor| (self.name(&tensor.name), tensor);
        let mut all: BTreeMap<String, WeightTensor> = checkpoint.into_iter().map(named).collect();
        let layers: BTreeSet<String> = all.keys().filter_map(|name| layer_of(name)).collect();
        for layer in layers {
            for (parts, whole) in self.joined {
                join(&layer, parts, whole, &mut all);
            }
        }
        all.into_iter().map(|(name, tensor)| WeightTensor { name, ..tensor }).collect()
    }
}

/// What stands before the parts of a layer in a name.
fn layer_of(name: &str) -> Option<String> {
    let (before, rest) = name.split_once(".layers.")?;
    Some(format!("{before}.layers.{}.", rest.split('.').next()?))
}

/// Joins the parts of a layer: those of each number one after the other, or all of them where they have no number.
fn join(layer: &str, parts: &[&str], whole: &str, all: &mut BTreeMap<String, WeightTensor>) {
    let numbered = parts[0].contains('*');
    let of_number = |all: &mut BTreeMap<String, WeightTensor>, number: usize| -> Option<Vec<WeightTensor>> {
        let name = |part: &&str| format!("{layer}{}", part.replace('*', &number.to_string()));
        parts.iter().map(|part| all.remove(&name(part))).collect()
    };
    let mut tensors = Vec::new();
    let mut count = 0;
    while let Some(more) = of_number(all, count) {
        tensors.extend(more);
        count += 1;
    }
    let Some(first) = tensors.first() else { return };
    let mut shape = first.shape.clone();
    shape[0] = tensors.iter().map(|tensor| tensor.shape[0]).sum::<usize>() / count;
    if numbered {
        shape.insert(0, count);
    }
    let bytes: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.bytes.to_vec()).collect();
    let name = format!("{layer}{whole}");
    all.insert(name.clone(), WeightTensor { name, dtype: first.dtype, shape, bytes: bytes.into() });
}

/// The same tensors with other numbers.
fn others(tensors: &[WeightTensor]) -> Vec<WeightTensor> {
    let negated = |bytes: &[u8]| -> Vec<u8> {
        let number = |bytes: &[u8]| 0.5 * f32::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(4).flat_map(|bytes| number(bytes).to_le_bytes()).collect()
    };
    tensors.iter().map(|tensor| WeightTensor { bytes: negated(&tensor.bytes).into(), ..tensor.clone() }).collect()
}

#[test]
fn weights_as_transformers_has_them_in_memory_are_those_of_its_checkpoints() {
    for family in ALL {
        let golden = Golden::named(family.golden);
        let (name, shape) = (family.golden, ModelShape::read(golden.config()).unwrap());
        let load = |tensors: Vec<WeightTensor>| {
            let backend = cpu(KernelSet::PORTABLE, 2, Precision::F32);
            Model::load(backend, shape.clone(), &GivenTensors::new(tensors).unwrap(), &mut |_, _| ()).unwrap()
        };
        let tensors = golden.tensors();
        let expected = held_tensors(&mut load(tensors.clone()));
        let mut model = load(others(&tensors));
        assert_ne!(held_tensors(&mut model), expected, "{name}");
        let in_memory = family.tensors(tensors.clone());
        let known: BTreeSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert!(in_memory.iter().any(|tensor| !known.contains(tensor.name.as_str())), "{name}");
        let given = GivenTensors::new(in_memory.clone()).unwrap();
        let checked = model.check(&given).unwrap_or_else(|error| panic!("{name}: {error}"));
        // All tensors of the model are written.
        assert_eq!(checked.count(), expected.len(), "{name}");
        model.replace(&checked, Some(&mut Undo::default())).unwrap();
        assert!(held_tensors(&mut model) == expected, "{name}");
        // What is turned, or comes under both names, is refused.
        for stack in in_memory.iter().filter(|tensor| tensor.shape.len() == 3 && tensor.name.contains("experts")) {
            let [experts, rows, columns] = stack.shape[..] else { unreachable!("three dimensions") };
            let turned = WeightTensor { shape: vec![experts, columns, rows], ..stack.clone() };
            let error = model.check(&GivenTensors::new(vec![turned]).unwrap()).err();
            assert_eq!(matches!(error, Some(WeightsError::Shape { .. })), rows != columns, "{name}: {error:?}");
        }
        let twice = GivenTensors::new(in_memory.into_iter().chain(tensors).collect::<Vec<_>>());
        let refused = twice.and_then(|twice| model.check(&twice).map(drop));
        assert!(matches!(refused, Err(WeightsError::Repeated(_))), "{name}: {refused:?}");
    }
}

/// What predicts further tokens is passed over under the names of memory, too.
#[test]
fn what_is_not_computed_is_passed_over_under_every_name() {
    let golden = Golden::named("families/nemotron_h_plain");
    let shape = ModelShape::read(golden.config()).unwrap();
    let tensors = Tensors::of(&shape);
    for name in ["mtp.a", "backbone.mtp.a", "model.mtp.a"] {
        assert!(tensors.is_redundant(name), "{name}");
    }
    assert!(!tensors.is_redundant("model.other.a"));
}

/// A part of a layer that is known to predict further tokens may come alone; one of any other layer may not.
#[test]
fn an_update_with_a_layer_that_is_not_counted_is_refused() {
    let golden = Golden::named("families/glm4_moe_plain");
    let last = golden.config()["num_hidden_layers"].as_u64().unwrap() - 1;
    let mut config = golden.config().clone();
    config.insert("num_hidden_layers".to_owned(), last.into());
    config.insert("num_nextn_predict_layers".to_owned(), 1.into());
    let shape = ModelShape::read(&config).unwrap();
    let prefix = format!("model.layers.{last}.");
    let (of_layer, counted): (Vec<_>, Vec<_>) =
        golden.tensors().into_iter().partition(|tensor| tensor.name.starts_with(&prefix));
    let joins = WeightTensor { name: format!("{prefix}eh_proj.weight"), ..of_layer[0].clone() };
    let backend = || cpu(KernelSet::PORTABLE, 2, Precision::F32);
    let load = |tensors: &[WeightTensor]| {
        Model::load(backend(), shape.clone(), &GivenTensors::new(tensors.to_vec()).unwrap(), &mut |_, _| ()).unwrap()
    };
    let check = |model: &mut Model<_>, parts: &[&[WeightTensor]]| {
        let mut further = FurtherLayers::default();
        for part in parts {
            let given = GivenTensors::new(part.to_vec()).unwrap();
            further.extend(model.check(&given).unwrap().further().clone());
        }
        model.check_further(&further)
    };
    let (all, only_joins) = ([&counted[..], &of_layer].concat(), [joins.clone()]);
    let mut model = load(&counted);
    for parts in [&[&all[..]][..], &[&counted, &of_layer]] {
        let error = check(&mut model, parts).unwrap_err();
        assert!(matches!(&error, WeightsError::Unknown(names) if names.len() == of_layer.len()), "{error}");
        assert!(error.to_string().contains(&format!("`{prefix}")), "{error}");
    }
    // What says so may come later, and counts from then on.
    check(&mut model, &[&of_layer, &only_joins]).unwrap();
    check(&mut model, &[&of_layer[..1]]).unwrap();
    let mut model = load(&[&all[..], &only_joins].concat());
    check(&mut model, &[&of_layer[..1]]).unwrap();
}
