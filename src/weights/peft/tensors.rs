//! The tensors of an adapter, two by two.

use std::collections::BTreeMap;

use super::{PeftKind, PeftModule, WeightTensor, config::Config, shown};

/// How PEFT begins the names of a model's modules.
const PREFIX: &str = "base_model.model.";

/// The ends of names, and what each says.
const ENDS: [(&str, PeftKind, Half); 4] = [
    (".lora_A.weight", PeftKind::Linear, Half::A),
    (".lora_B.weight", PeftKind::Linear, Half::B),
    (".lora_embedding_A", PeftKind::Embedding, Half::A),
    (".lora_embedding_B", PeftKind::Embedding, Half::B),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    A,
    B,
}

/// The matrices of one module, as far as they were found.
#[derive(Default)]
struct Found {
    kind: Option<PeftKind>,
    a: Option<WeightTensor>,
    b: Option<WeightTensor>,
}

/// Puts the tensors of an adapter together; the error is one line.
pub(super) fn modules(config: &Config, tensors: Vec<WeightTensor>) -> Result<Vec<PeftModule>, String> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for tensor in tensors {
        let (module, kind, half) = told(&tensor.name)?;
        let entry = found.entry(module).or_default();
        if entry.kind.is_some_and(|other| other != kind) {
            return Err(format!("{} is of a module that has matrices of another kind", shown(&tensor.name)));
        }
        entry.kind = Some(kind);
        match half {
            Half::A => entry.a = Some(tensor),
            Half::B => entry.b = Some(tensor),
        }
    }
    if found.is_empty() {
        return Err("there are none".to_owned());
    }
    found.into_iter().map(|(name, found)| module(config, name, found)).collect()
}

/// The module of a tensor, and which of its matrices it is.
fn told(name: &str) -> Result<(String, PeftKind, Half), String> {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return Err(format!("{} does not begin with {PREFIX}", shown(name)));
    };
    let end = ENDS.iter().find_map(|(end, kind, half)| Some((rest.strip_suffix(end)?.to_owned(), *kind, *half)));
    end.ok_or_else(|| {
        let served = "served are lora_A and lora_B, and lora_embedding_A and lora_embedding_B";
        format!("{} is not a matrix of LoRA ({served})", shown(name))
    })
}

fn module(config: &Config, name: String, found: Found) -> Result<PeftModule, String> {
    let called = shown(&name);
    let Found { kind: Some(kind), a, b } = found else { unreachable!("an entry has a tensor") };
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
    Ok(PeftModule { scale: config.scale(&name), name, kind, a, b })
}
