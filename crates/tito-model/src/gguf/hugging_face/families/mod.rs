//! The families that are understood: a file for each group of them, which says as data what their files hold.

mod apertus;
mod arcee;
mod cohere;
mod deepseek;
mod ernie;
mod exaone;
mod falcon;
mod gemma;
mod gemma4;
mod glm;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod hunyuan;
mod hybrid;
mod indexed;
mod kimi;
mod lfm;
mod llama;
mod llama4;
mod minimax;
mod mistral;
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
static ALL: &[Family] = &[
    llama::LLAMA,
    llama::SMOLLM3,
    llama4::LLAMA4,
    mistral::MISTRAL3,
    mistral::MISTRAL4,
    qwen::QWEN2,
    qwen::QWEN3,
    qwen::QWEN2_MOE,
    qwen::QWEN3_MOE,
    qwen_next::QWEN3_NEXT,
    qwen_next::QWEN3_5,
    qwen_next::QWEN3_5_MOE,
    gpt_oss::GPT_OSS,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma4::GEMMA4,
    glm::GLM4,
    glm::GLM4_MOE,
    phi::PHI3,
    olmo::OLMO2,
    olmo::OLMOE,
    granite::GRANITE,
    granite::GRANITE_MOE,
    granite_hybrid::GRANITE_HYBRID,
    falcon::FALCON_H1,
    deepseek::DEEPSEEK2,
    indexed::DEEPSEEK3_2,
    indexed::GLM_DSA,
    kimi::KIMI_LINEAR,
    ernie::ERNIE4_5,
    ernie::ERNIE4_5_MOE,
    exaone::EXAONE4,
    seed_oss::SEED_OSS,
    hunyuan::DENSE,
    hunyuan::MIXTURE,
    minimax::MINIMAX_M2,
    nemotron::NEMOTRON_H_MOE,
    nemotron::NEMOTRON_H,
    lfm::LFM2,
    lfm::LFM2_MOE,
    arcee::ARCEE,
    apertus::APERTUS,
    cohere::COMMAND_R,
    cohere::COHERE2,
];

/// The family of a file; another one is an error that names those that are understood.
pub(super) fn of(file: &GgufFile) -> Result<&'static Family, GgufError> {
    let name = file.architecture()?;
    find(name).ok_or_else(|| {
        let known = ALL.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
        GgufError::Unsupported(format!("its architecture is `{name}`, not one of {known}"))
    })
}

/// The family of this architecture.
pub(super) fn find(name: &str) -> Option<&'static Family> {
    ALL.iter().find(|family| family.name == name)
}
