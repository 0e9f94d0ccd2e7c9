//! The tensors of an adapter, two by two.

use std::collections::BTreeMap;

use super::{PeftKind, PeftModule, WeightTensor, config::Config, quoted_excerpt};

/// How PEFT begins the names of a model's modules.
const PREFIX: &str = "base_model.model.";

/// The ends of names, and what each says.
const ENDS: [(&str, Option<PeftKind>, Role); 5] = [
    (".lora_A.weight", Some(PeftKind::Linear), Role::A),
    (".lora_B.weight", Some(PeftKind::Linear), Role::B),
    (".lora_embedding_A", Some(PeftKind::Embedding), Role::A),
    (".lora_embedding_B", Some(PeftKind::Embedding), Role::B),
    (".base_layer.weight", None, Role::Base),
];

/// What a tensor is to its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    A,
    B,
    /// The weights that the module has without the adapter.
    Base,
}

/// The matrices of one module, as far as they were found.
#[derive(Default)]
struct Found {
    kind: Option<PeftKind>,
    a: Option<WeightTensor>,
    b: Option<WeightTensor>,
    base: Option<WeightTensor>,
}

/// Puts the tensors of an adapter together; the error is one line.
pub(super) fn modules(config: &Config, tensors: Vec<WeightTensor>) -> Result<Vec<PeftModule>, String> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for tensor in tensors {
        let (module, kind, role) = module_and_role(&tensor.name)?;
        let entry = found.entry(module).or_default();
        if kind.is_some() && entry.kind.is_some() && entry.kind != kind {
            return Err(format!("{} is of a module that has matrices of another kind", quoted_excerpt(&tensor.name)));
        }
        entry.kind = entry.kind.or(kind);
        match role {
            Role::A => entry.a = Some(tensor),
            Role::B => entry.b = Some(tensor),
            Role::Base => entry.base = Some(tensor),
        }
    }
    if found.is_empty() {
        return Err("there are none".to_owned());
    }
    for (name, found) in &found {
        config.targets.check(name, found.kind)?;
    }
    found.into_iter().map(|(name, found)| module(config, name, found)).collect()
}

/// The module of a tensor, of which kind the module is if the tensor says so, and what the tensor is to it.
fn module_and_role(name: &str) -> Result<(String, Option<PeftKind>, Role), String> {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return Err(format!("{} does not begin with {PREFIX}", quoted_excerpt(name)));
    };
    let end = ENDS.iter().find_map(|(end, kind, role)| Some((rest.strip_suffix(end)?.to_owned(), *kind, *role)));
    end.ok_or_else(|| {
        let served = "served are lora_A and lora_B, and lora_embedding_A and lora_embedding_B";
        format!("{} is not a matrix of LoRA ({served})", quoted_excerpt(name))
    })
}

fn module(config: &Config, name: String, found: Found) -> Result<PeftModule, String> {
    let called = quoted_excerpt(&name);
    let Found { kind: Some(kind), a, b, base } = found else {
        return Err(format!("{called} has weights of the base model, and no matrices of LoRA"));
    };
    let a = a.ok_or_else(|| format!("{called} lacks its matrix A"))?;
    let b = b.ok_or_else(|| format!("{called} lacks its matrix B"))?;
    let rank = config.rank(&name);
    let are_pair =
        matches!((&a.shape[..], &b.shape[..]), ([first, _], [_, second]) if *first == rank && *second == rank);
    if !are_pair {
        return Err(format!(
            "{called} has the rank {rank}, and matrices of the shapes {:?} and {:?}",
            a.shape, b.shape
        ));
    }
    Ok(PeftModule { scale: config.scale(&name), name, kind, a, b, base })
}
