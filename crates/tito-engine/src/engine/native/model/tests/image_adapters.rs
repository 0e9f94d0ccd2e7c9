//! Adapters of the text of models that read images: what PEFT makes of both (`tests/golden/image_lora`).

use serde_json::json;

use super::{
    adapters::Adapted,
    families::off,
    images::{FAR, ImagePrompt, on, prompts},
    *,
};
use crate::weights::peft::{PeftAdapter, PeftModule};

/// A model with each kind of text behind a tower, and how older releases of transformers begin the names of modules, and PEFT
/// with them.
const MODELS: [(&str, &[(&str, &str)]); 14] = [
    ("gemma3_plain", WITH_HEAD),
    ("gemma3_untied", WITH_HEAD),
    ("internvl_llama", WITH_HEAD),
    ("internvl_plain", WITH_HEAD),
    ("internvl_qwen3_moe", WITH_HEAD),
    ("mistral3_ministral3", WITH_HEAD),
    ("mistral3_mistral4", WITH_HEAD),
    ("mistral3_plain", WITH_HEAD),
    ("qwen2_5_vl_plain", BESIDE_TOWER),
    ("qwen2_5_vl_tied", BESIDE_TOWER),
    ("qwen3_5_moe_plain", &[]),
    ("qwen3_5_plain", &[]),
    ("qwen3_vl_moe_plain", &[]),
    ("qwen3_vl_plain", &[]),
];
const WITH_HEAD: &[(&str, &str)] =
    &[("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head")];
const BESIDE_TOWER: &[(&str, &str)] = &[("model.language_model.", "model.")];

fn loaded(adapted: &Adapted) -> Model<CpuBackend> {
    on(cpu(KernelSet::available()[0], 2, Precision::F32), &adapted.golden)
}

impl Adapted {
    /// The prompts of the model that were recorded with the adapter, and the log-probs of their tokens.
    fn image_prompts(&self) -> Vec<(ImagePrompt, Vec<f64>)> {
        let recorded = self.content()["prompts"].as_object().unwrap();
        let of = |prompt: ImagePrompt| recorded.get(&prompt.name).map(|expected| (prompt, floats(expected)));
        let found: Vec<_> = prompts(&self.golden).into_iter().filter_map(of).collect();
        assert!(found.len() == recorded.len() && found.iter().any(|(prompt, _)| !prompt.images.is_empty()));
        found
    }

    /// The greatest difference of a log-prob from that of PEFT.
    fn compare_images<B: Backend>(&self, model: &mut Model<B>) -> f64 {
        model.put_adapter(1, &self.adapter(None)).unwrap();
        let of_prompt = |(prompt, expected): (ImagePrompt, Vec<f64>)| {
            let rows = prompt.rows(model, Some(1));
            let scored = rows.into_iter().zip(&prompt.token_ids[1..]).zip(expected);
            scored.map(|((row, next), expected)| off(&row, *next, expected)).fold(0.0, f64::max)
        };
        self.image_prompts().into_iter().map(of_prompt).fold(0.0, f64::max)
    }
}

impl ImagePrompt {
    /// All logits, computed with the adapter of a slot.
    fn rows<B: Backend>(&self, model: &mut Model<B>, adapter: Option<AdapterSlot>) -> Vec<Vec<f32>> {
        let images = SequenceImages::attending(&self.images, model.sees_images_both_ways());
        let span = Span { adapter, ..super::families::span(self.token_ids.len(), 0) };
        rows_seeing(model, span, &self.token_ids, images.as_ref())
    }
}

/// The same adapter under other names; those that begin otherwise are the same.
fn renamed(adapter: &PeftAdapter, prefixes: &[(&str, &str)]) -> PeftAdapter {
    let rename = |module: &PeftModule| {
        let begins = |(from, to): &(&str, &str)| module.name.strip_prefix(from).map(|rest| format!("{to}{rest}"));
        PeftModule { name: prefixes.iter().find_map(begins).unwrap_or_else(|| module.name.clone()), ..module.clone() }
    };
    PeftAdapter { modules: adapter.modules.iter().map(rename).collect() }
}

#[test]
fn log_probs_of_prompts_with_images_and_an_adapter_are_those_of_peft() {
    for ((name, _), set) in MODELS.into_iter().zip(KernelSet::tested().into_iter().cycle()) {
        let adapted = Adapted::beside_images(name);
        let worst = adapted.compare_images(&mut on(cpu(set, 2, Precision::F32), &adapted.golden));
        assert!(worst < FAR, "{name} is off by {worst:.1e} on {set}");
    }
}

#[test]
fn an_adapter_is_the_same_under_the_names_of_older_releases() {
    for (name, prefixes) in MODELS.into_iter().filter(|(_, prefixes)| !prefixes.is_empty()) {
        let adapted = Adapted::beside_images(name);
        let (newer, mut model) = (adapted.adapter(None), loaded(&adapted));
        let older = renamed(&newer, prefixes);
        assert_eq!(model.adapter_sites().check(&older), model.adapter_sites().check(&newer));
        model.put_adapter(0, &newer).unwrap();
        model.put_adapter(1, &older).unwrap();
        for (prompt, _) in adapted.image_prompts() {
            assert!(prompt.rows(&mut model, Some(0)) == prompt.rows(&mut model, Some(1)), "{name}: {}", prompt.name);
        }
        // Both names at once are one module too many.
        let twice = PeftAdapter { modules: [newer.modules, older.modules].concat() };
        let error = model.adapter_sites().check(&twice).unwrap_err();
        assert!(error.ends_with("twice, under two of its names"), "{error}");
    }
}

#[test]
fn images_are_read_once_for_the_base_and_all_adapters() {
    for (name, _) in MODELS {
        let adapted = Adapted::beside_images(name);
        let mut model = loaded(&adapted);
        for slot in 0..2 {
            model.put_adapter(slot, &adapted.adapter(Some(slot as u64))).unwrap();
        }
        for (prompt, _) in adapted.image_prompts() {
            let everyone = [None, Some(0), Some(1)];
            // Each reads the images itself.
            let alone = everyone.map(|adapter| {
                model.embeddings.clear();
                prompt.rows(&mut model, adapter)
            });
            assert!(alone[0] != alone[1] && alone[1] != alone[2] && alone[0] != alone[2], "{name}: {}", prompt.name);
            let known = model.embeddings.len();
            for (adapter, alone) in everyone.into_iter().zip(alone) {
                assert!(prompt.rows(&mut model, adapter) == alone, "{name}: {}", prompt.name);
            }
            assert_eq!(model.embeddings.len(), known);
        }
    }
}

#[test]
fn modules_that_read_images_are_refused_by_name_with_and_without_a_tower() {
    for (name, prefixes) in MODELS {
        let adapted = Adapted::beside_images(name);
        let shape = ModelShape::read(adapted.golden.config()).unwrap();
        let parts = shape.images.as_ref().unwrap().tower.names.parts;
        let refused: Vec<String> = serde_json::from_value(adapted.content()["refused"].clone()).unwrap();
        assert!(refused.len() > 8, "{name}");
        let sites = [AdapterSites::of(&shape), AdapterSites::of(&shape.clone().of_text_alone())];
        for module in refused {
            let reads_images = parts.iter().any(|part| module.starts_with(part));
            // Without the tower, it is not known which modules it has.
            let in_older = prefixes.first().and_then(|_| module.strip_prefix("model.")).filter(|_| reads_images);
            for module in [Some(module.as_str()), in_older].into_iter().flatten() {
                let modules = [(module.to_owned(), json!([8, 8]))].into_iter().collect();
                for sites in &sites {
                    let reason = sites.check(&adapted.of_modules(&modules, None)).unwrap_err();
                    assert!(reason.starts_with(&format!("the adapter changes {module}")), "{name}: {reason}");
                    let of_images = reason.ends_with("of what reads text, not of what reads images or sounds");
                    assert_eq!(of_images, reads_images, "{name}: {reason}");
                }
            }
        }
    }
}
