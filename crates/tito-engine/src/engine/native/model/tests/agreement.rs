//! Every architecture, in variants, against what transformers makes of them: a variant agrees, or it is refused. Which of
//! both is written down in `docs/models.md`, a row for each architecture.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    families::{FAR, Golden},
    page::{self, ComparedTable},
    states::States,
    *,
};
use crate::engine::native::model::families::architectures;

/// A test for each architecture, since all together take a minute.
macro_rules! architectures {
    ($($test:ident: $architecture:ident,)*) => {
        const ARCHITECTURES: &[&str] = &[$(stringify!($architecture)),*];

        mod every_family_agrees_with_transformers_or_is_refused {
            $(
                #[test]
                fn $test() {
                    super::check(stringify!($architecture));
                }
            )*
        }
    };
}

architectures! {
    apertus: ApertusForCausalLM,
    arcee: ArceeForCausalLM,
    bamba: BambaForCausalLM,
    cohere2: Cohere2ForCausalLM,
    cohere: CohereForCausalLM,
    deepseek_v2: DeepseekV2ForCausalLM,
    deepseek_v32: DeepseekV32ForCausalLM,
    deepseek_v3: DeepseekV3ForCausalLM,
    ernie4_5: Ernie4_5ForCausalLM,
    ernie4_5_moe: Ernie4_5_MoeForCausalLM,
    exaone4: Exaone4ForCausalLM,
    falcon_h1: FalconH1ForCausalLM,
    gemma2: Gemma2ForCausalLM,
    gemma3: Gemma3ForCausalLM,
    gemma4: Gemma4ForCausalLM,
    gemma: GemmaForCausalLM,
    glm4: Glm4ForCausalLM,
    glm4_moe: Glm4MoeForCausalLM,
    glm4_moe_lite: Glm4MoeLiteForCausalLM,
    glm: GlmForCausalLM,
    glm_moe_dsa: GlmMoeDsaForCausalLM,
    gpt_oss: GptOssForCausalLM,
    granite: GraniteForCausalLM,
    granitemoe: GraniteMoeForCausalLM,
    granitemoehybrid: GraniteMoeHybridForCausalLM,
    granitemoeshared: GraniteMoeSharedForCausalLM,
    hunyuan_v1_dense: HunYuanDenseV1ForCausalLM,
    hunyuan_v1_moe: HunYuanMoEV1ForCausalLM,
    kimi_linear: KimiLinearForCausalLM,
    lfm2: Lfm2ForCausalLM,
    lfm2_moe: Lfm2MoeForCausalLM,
    llama4: Llama4ForCausalLM,
    llama: LlamaForCausalLM,
    minimax_m2: MiniMaxM2ForCausalLM,
    ministral3: Ministral3ForCausalLM,
    ministral: MinistralForCausalLM,
    mistral4: Mistral4ForCausalLM,
    mistral: MistralForCausalLM,
    mixtral: MixtralForCausalLM,
    nemotron_h: NemotronHForCausalLM,
    olmo2: Olmo2ForCausalLM,
    olmo3: Olmo3ForCausalLM,
    olmoe: OlmoeForCausalLM,
    phi3: Phi3ForCausalLM,
    qwen2: Qwen2ForCausalLM,
    qwen2_moe: Qwen2MoeForCausalLM,
    qwen3: Qwen3ForCausalLM,
    qwen3_moe: Qwen3MoeForCausalLM,
    qwen3_next: Qwen3NextForCausalLM,
    qwen3_5: Qwen3_5ForCausalLM,
    qwen3_5_moe: Qwen3_5MoeForCausalLM,
    seed_oss: SeedOssForCausalLM,
    smollm3: SmolLM3ForCausalLM,
}

/// What became of the variants of one architecture.
#[derive(Default)]
struct Outcomes {
    agree: BTreeSet<String>,
    refused: BTreeSet<String>,
    /// How far states are off, in the one variant whose states were recorded.
    states: Option<f64>,
}

impl Outcomes {
    fn of(architecture: &str) -> Self {
        let mut outcomes = Self::default();
        for golden in Golden::of(architecture) {
            outcomes.compare(&golden);
            if let Some(states) = States::of(golden) {
                assert!(outcomes.states.is_none(), "states of two models of {architecture} were recorded");
                // On the set that computes the same everywhere.
                outcomes.states = Some(states.compare(cpu(KernelSet::PORTABLE, 2, Precision::F32)));
            }
        }
        outcomes
    }

    fn compare(&mut self, golden: &Golden) {
        let backend = || cpu(KernelSet::available()[0], 2, Precision::F32);
        let variant = golden.variant();
        match golden.model(backend()) {
            Err(ConfigError::Setting { key, .. }) => match golden.compare_beginning(backend()) {
                None => self.refused.insert(format!("{variant} (`{key}`)")),
                Some((most, worst)) => {
                    assert!(worst < FAR, "{} is off by {worst:.1e}", golden.name);
                    self.agree.insert(format!("{variant} up to `{most}`"))
                }
            },
            Err(error) => panic!("{}: {error}", golden.name),
            Ok(mut model) => {
                let worst = golden.compare(&mut model);
                assert!(worst < FAR, "{} is off by {worst:.1e}", golden.name);
                self.agree.insert(variant)
            }
        };
    }

    fn row(&self, architecture: &str) -> String {
        let listed = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        let states = self.states.unwrap_or_else(|| panic!("record the states of a model of {architecture}"));
        let refused =
            if self.refused.is_empty() { String::new() } else { format!(" Refused: {}.", listed(&self.refused)) };
        format!("- `{architecture}`: {}.{refused} States off by {states:.0e}.", listed(&self.agree))
    }
}

fn check(architecture: &str) {
    let row = Outcomes::of(architecture).row(architecture);
    page::compare(ComparedTable::Native, |table| {
        let mut rows = rows(table);
        rows.insert(architecture.to_owned(), row);
        written(&rows)
    });
}

/// The items of the list, by the architecture that each begins with.
fn rows(list: &str) -> BTreeMap<String, String> {
    list.lines().map(|row| (row.split('`').nth(1).unwrap().to_owned(), row.to_owned())).collect()
}

fn written(rows: &BTreeMap<String, String>) -> String {
    rows.values().fold(String::new(), |list, row| list + row + "\n")
}

#[test]
fn every_architecture_that_is_computed_is_compared_and_no_other_is_in_the_table() {
    let known = |golden: &Golden| !matches!(ModelShape::read(golden.config()), Err(ConfigError::Architecture(_)));
    let computed: BTreeSet<String> = Golden::all().filter(known).map(|golden| golden.architecture()).collect();
    let compared: BTreeSet<String> = ARCHITECTURES.iter().map(|&architecture| architecture.to_owned()).collect();
    let missing: Vec<_> = computed.difference(&compared).collect();
    assert!(missing.is_empty(), "add a line to `architectures!` of this file for each of {missing:?}");
    let unknown: Vec<_> = compared.difference(&computed).collect();
    assert!(unknown.is_empty(), "not in FAMILIES of model/families/mod.rs, or without recorded models: {unknown:?}");
    page::compare(ComparedTable::Native, |table| {
        let mut rows = rows(table);
        rows.retain(|architecture, _| compared.contains(architecture));
        written(&rows)
    });
}

/// The text of a model of several parts is compared in `families`, and its images in `images`.
#[test]
fn every_architecture_that_is_known_is_compared_and_counted() {
    let known: BTreeSet<&str> = architectures().collect();
    let whole = known.iter().filter(|name| !name.ends_with("ForConditionalGeneration"));
    let uncompared: Vec<_> = whole.filter(|name| !ARCHITECTURES.contains(name)).collect();
    assert!(uncompared.is_empty(), "record models of these, and add lines to `architectures!`: {uncompared:?}");
    for (page, count) in [("README.md", known.len()), ("docs/adapters.md", ARCHITECTURES.len())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let count = format!(" {count} architectures");
        assert!(std::fs::read_to_string(path).unwrap().contains(&count), "{page} does not say that there are{count}");
    }
}

#[test]
fn an_adapter_of_every_architecture_is_compared_with_peft() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/lora");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let names = files.map(|path| path.file_stem().unwrap().to_string_lossy().replacen('_', "/", 1));
    let adapted: BTreeSet<String> = names.map(|name| Golden::named(&name).architecture()).collect();
    let missing: Vec<_> = ARCHITECTURES.iter().filter(|name| !adapted.contains(**name)).collect();
    assert!(missing.is_empty(), "record an adapter of each of {missing:?}, by tests/reference/record_lora.py");
}
