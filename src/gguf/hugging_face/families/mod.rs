//! The families that are understood: a file for each group of them, which says as data what their files hold.

mod deepseek;
mod ernie;
mod exaone;
mod gemma;
mod glm;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod hunyuan;
mod hybrid;
mod lfm;
mod llama;
mod minimax;
mod nemotron;
mod olmo;
mod phi;
mod qwen;
mod qwen_next;
mod seed_oss;

use super::{
    super::{GgufError, GgufFile},
    model::Family,
};

/// All of them.
static ALL: [Family; 30] = [
    llama::LLAMA,
    llama::SMOLLM3,
    qwen::QWEN2,
    qwen::QWEN3,
    qwen::QWEN2_MOE,
    qwen::QWEN3_MOE,
    qwen_next::QWEN3_NEXT,
    gpt_oss::GPT_OSS,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    glm::GLM4,
    glm::GLM4_MOE,
    phi::PHI3,
    olmo::OLMO2,
    olmo::OLMOE,
    granite::GRANITE,
    granite::GRANITE_MOE,
    granite_hybrid::GRANITE_HYBRID,
    deepseek::DEEPSEEK2,
    ernie::ERNIE4_5,
    ernie::ERNIE4_5_MOE,
    exaone::EXAONE4,
    seed_oss::SEED_OSS,
    hunyuan::DENSE,
    hunyuan::MIXTURE,
    minimax::MINIMAX_M2,
    nemotron::NEMOTRON_H_MOE,
    lfm::LFM2,
    lfm::LFM2_MOE,
];

/// The family of a file; another one is an error that names those that are understood.
pub(super) fn of(file: &GgufFile) -> Result<&'static Family, GgufError> {
    let name = file.architecture()?;
    named(name).ok_or_else(|| {
        let known = ALL.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
        GgufError::Unsupported(format!("its architecture is `{name}`, not one of {known}"))
    })
}

/// The family of this architecture.
pub(super) fn named(name: &str) -> Option<&'static Family> {
    ALL.iter().find(|family| family.name == name)
}
