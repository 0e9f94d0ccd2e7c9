//! Adapters against what PEFT makes of the same models and the same adapters (`tests/golden/lora`), and against themselves
//! in company.

use serde_json::json;

use super::{drawn::drawn, families::Golden, *};
use crate::weights::peft::PeftAdapter;

/// How far a log-prob may be from that of PEFT, both in f32.
pub(in crate::engine::native) const FAR: f64 = 1e-4;

/// An adapter of a model, and what PEFT makes of both.
pub(in crate::engine::native) struct Adapted {
    pub(in crate::engine::native) golden: Golden,
    content: Map<String, Value>,
}

impl Adapted {
    /// All that were recorded.
    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/lora");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The one of this model.
    pub(in crate::engine::native) fn named(name: &str) -> Self {
        let file = format!("tests/golden/lora/{}.json", name.replace('/', "_"));
        Self::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file))
    }

    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_string_lossy().replacen('_', "/", 1);
        Self { golden: Golden::named(&name), content: object(path) }
    }

    /// The one of this model that reads images.
    pub(in crate::engine::native) fn beside_images(name: &str) -> Self {
        let file = format!("../../tests/golden/image_lora/{name}.json");
        let content = object(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        Self { golden: Golden::named(&format!("images/{name}")), content }
    }

    /// The whole file.
    pub(super) fn content(&self) -> &Map<String, Value> {
        &self.content
    }

    /// The recorded adapter, or another one of the same modules.
    pub(in crate::engine::native) fn adapter(&self, seed: Option<u64>) -> PeftAdapter {
        self.of_modules(self.content["modules"].as_object().unwrap(), seed)
    }

    /// An adapter of modules with these shapes.
    pub(super) fn of_modules(&self, modules: &Map<String, Value>, seed: Option<u64>) -> PeftAdapter {
        let settings = self.content["settings"].as_object().unwrap();
        let mut config =
            json!({ "peft_type": "LORA", "bias": "none", "target_modules": modules.keys().collect::<Vec<_>>() });
        config.as_object_mut().unwrap().extend(settings.clone());
        let tensors: Vec<(String, Vec<usize>)> = modules
            .iter()
            .flat_map(|(name, shape)| {
                let [rows, columns]: [usize; 2] = serde_json::from_value(shape.clone()).unwrap();
                let rank = self.rank(name);
                let full = |end: &str| format!("base_model.model.{name}.lora_{end}");
                if self.content["embeddings"].as_array().unwrap().contains(&json!(name)) {
                    [(full("embedding_A"), vec![rank, rows]), (full("embedding_B"), vec![columns, rank])]
                } else {
                    [(full("A.weight"), vec![rank, columns]), (full("B.weight"), vec![rows, rank])]
                }
            })
            .collect();
        let numbers = |(name, shape): &(String, Vec<usize>)| -> Vec<u8> {
            let (_, family) = self.golden.seed_and_family();
            let own = self.content["seed"].as_u64().unwrap();
            drawn(seed.unwrap_or(own), name, shape, family).into_iter().flat_map(f32::to_le_bytes).collect()
        };
        let bytes: Vec<Vec<u8>> = tensors.iter().map(numbers).collect();
        let views = tensors.iter().zip(&bytes).map(|((name, shape), bytes)| {
            let dtype = safetensors::Dtype::F32;
            (name, safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes).unwrap())
        });
        let notes = [("adapter_config".to_owned(), config.to_string())].into();
        let bytes = safetensors::serialize(views, Some(notes)).unwrap();
        PeftAdapter::parse(bytes.into()).unwrap_or_else(|error| panic!("{}: {error}", self.golden.name))
    }

    /// The rank that the settings give to a module: written down once more, so that a wrong reading of them is found.
    fn rank(&self, module: &str) -> usize {
        let ranks = self.content["settings"]["rank_pattern"].as_object().unwrap();
        assert_eq!(ranks.len(), 3, "the patterns that are known here");
        match module {
            _ if module.ends_with(".v_proj") => 3,
            _ if module.ends_with(".in_proj") => 5,
            _ if module.contains("layers.1.") && module.ends_with("o_proj") => 2,
            _ => 4,
        }
    }

    pub(in crate::engine::native) fn loaded<B: Backend>(&self, backend: B) -> Model<B> {
        self.golden.loaded(backend, ModelShape::read(self.golden.config()).unwrap())
    }

    /// The model on the simplest backend.
    fn plain(&self) -> Model<CpuBackend> {
        self.loaded(cpu(KernelSet::PORTABLE, 1, Precision::F32))
    }

    /// The greatest difference of a log-prob with the adapter from that of PEFT.
    pub(in crate::engine::native) fn compare<B: Backend>(&self, backend: B) -> f64 {
        let mut model = self.loaded(backend);
        model.put_adapter(1, &self.adapter(None)).unwrap();
        let expected = floats(&self.content["next_log_probs"]);
        let tokens = &self.golden.token_ids()[..=expected.len()];
        let rows = rows_of(&mut model, Span { adapter: Some(1), ..families::span(tokens.len(), 0) }, tokens);
        let scored = rows.iter().zip(&tokens[1..]).zip(expected);
        scored.map(|((row, next), expected)| families::off(row, *next, expected)).fold(0.0, f64::max)
    }
}

#[test]
fn log_probs_with_an_adapter_are_those_of_peft() {
    let all = Adapted::all();
    assert!(all.len() > 50, "{} architectures", all.len());
    let mut wrong = Vec::new();
    for adapted in all {
        for set in KernelSet::tested() {
            let worst = adapted.compare(cpu(set, 2, Precision::F32));
            if worst.is_nan() || worst >= FAR {
                wrong.push(format!("{} is off by {worst:.1e} on {set}", adapted.golden.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn modules_that_are_not_served_are_refused_by_name() {
    let mut refused = 0;
    for adapted in Adapted::all() {
        let model = adapted.plain();
        for name in adapted.content["refused"].as_array().unwrap().iter().filter_map(Value::as_str) {
            let modules = [(name.to_owned(), json!([8, 8]))].into_iter().collect();
            let reason = model.adapter_sites().check(&adapted.of_modules(&modules, None)).unwrap_err();
            assert!(reason.starts_with(&format!("the adapter changes {name}")), "{name}: {reason}");
            refused += 1;
        }
    }
    assert!(refused >= 12, "{refused} modules");
}

#[test]
fn a_slot_has_room_for_an_adapter_of_all_that_is_served() {
    let adapted = Adapted::named("mistralrs/llama");
    let model = adapted.plain();
    let modules = adapted.content["modules"].as_object().unwrap();
    let numbers: u64 =
        adapted.adapter(None).modules.iter().map(|module| (module.rank() * module.a.shape[1]) as u64).sum();
    let room = |rank| model.adapter_sites().slot_bytes(rank, 4);
    assert!(room(4) > 4 * numbers, "{} modules", modules.len());
    assert_eq!(room(8), 2 * room(4));
}

#[test]
fn an_adapter_may_change_one_of_several_modules_that_share_a_matrix() {
    let adapted = Adapted::named("mistralrs/llama");
    let all = adapted.content["modules"].as_object().unwrap();
    let tokens = &adapted.golden.token_ids()[..9];
    let mut model = adapted.plain();
    let mut seen = vec![together(&mut model, tokens, &[None]).remove(0)];
    for name in ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"] {
        let of_name =
            all.iter().filter(|(module, _)| module.ends_with(name)).map(|(name, shape)| (name.clone(), shape.clone()));
        model.put_adapter(0, &adapted.of_modules(&of_name.collect(), None)).unwrap();
        let rows = together(&mut model, tokens, &[Some(0)]).remove(0);
        assert!(!seen.contains(&rows), "{name} changes something of its own");
        seen.push(rows);
    }
}

/// PEFT saves the names of transformers 5, and saved those of checkpoints before.
#[test]
fn a_router_has_the_names_of_the_checkpoint_and_of_its_module() {
    let adapted = Adapted::named("families/mixtral_plain");
    let model = adapted.plain();
    let router = "model.layers.1.block_sparse_moe.gate";
    let config = adapted.golden.config();
    let shape = ["num_local_experts", "hidden_size"].map(|name| config[name].as_u64().unwrap());
    let of = |names: &[&str]| {
        let modules = names.iter().map(|name| ((*name).to_owned(), json!(shape))).collect();
        model.adapter_sites().check(&adapted.of_modules(&modules, None))
    };
    let tensor = vec![format!("{router}.weight")];
    assert_eq!((of(&[router]), of(&["model.layers.1.mlp.gate"])), (Ok(tensor.clone()), Ok(tensor)));
    assert!(of(&[router, "model.layers.1.mlp.gate"]).unwrap_err().contains("twice"));
}

#[test]
fn an_adapter_of_another_model_is_refused() {
    let adapted = Adapted::named("families/cohere_plain");
    let model = adapted.plain();
    let refusal = |name: &str, shape: [usize; 2]| {
        let modules = [(name.to_owned(), json!(shape))].into_iter().collect();
        model.adapter_sites().check(&adapted.of_modules(&modules, None)).unwrap_err()
    };
    let missing = "model.layers.99.self_attn.q_proj";
    assert_eq!(refusal(missing, [8, 8]), format!("the adapter changes {missing}, which the model does not have"));
    let reason = refusal("model.layers.0.self_attn.q_proj", [8, 9]);
    assert!(reason.contains("takes model.layers.0.self_attn.q_proj to be of the shape [8, 9]"), "{reason}");
    let norm = refusal("model.layers.0.input_layernorm", [8, 8]);
    assert!(norm.contains("adapters of linear layers and embeddings are served"), "{norm}");
    let embeddings = refusal("model.embed_tokens", [7, 8]);
    assert!(embeddings.contains("takes model.embed_tokens to be of the shape [7, 8]"), "{embeddings}");
}

/// Several sequences of the same tokens in one step, each with its adapter.
pub(in crate::engine::native) fn together<B: Backend>(
    model: &mut Model<B>,
    tokens: &[TokenId],
    adapters: &[Option<AdapterSlot>],
) -> Vec<Vec<Vec<f32>>> {
    let (each, blocks) = (tokens.len(), tokens.len().div_ceil(BLOCK_TOKENS));
    let span = |(number, adapter): (usize, &Option<AdapterSlot>)| Span {
        first_row: number * each,
        adapter: *adapter,
        slot: u32::try_from(number).unwrap(),
        blocks: (0..).skip(number * blocks).take(blocks).collect(),
        ..families::span(each, 0)
    };
    let rows = each * adapters.len();
    let batch = Batch {
        token_ids: tokens.repeat(adapters.len()),
        spans: adapters.iter().enumerate().map(span).collect(),
        logit_rows: (0..rows).collect(),
        images: Vec::new(),
    };
    let found = Mutex::new(vec![Vec::new(); rows]);
    model.forward(&batch, &|row: usize, logits: &mut [f32]| found.lock()[row] = logits.to_vec());
    found.into_inner().chunks(each).map(<[_]>::to_vec).collect()
}

/// Bits of rows, which differ where numbers do.
pub(super) fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|number| number.to_bits()).collect()).collect()
}

#[test]
fn a_row_has_the_same_bits_whatever_adapters_are_in_its_company() {
    for adapted in
        ["families/cohere_plain", "families/qwen3_next_plain", "families/deepseek_v3_plain"].map(Adapted::named)
    {
        for set in KernelSet::tested() {
            for (threads, precision) in [(1, Precision::Bf16), (3, Precision::Bf16), (2, Precision::F32)] {
                let mut model = adapted.loaded(cpu(set, threads, precision));
                model.allocate_cache(Room { blocks: 20, slots: 8 }).unwrap();
                for slot in 0..3 {
                    model.put_adapter(slot, &adapted.adapter(Some(slot as u64))).unwrap();
                }
                let tokens = &adapted.golden.token_ids()[..37];
                let alone: Vec<_> = [None, Some(0), Some(1), Some(2)]
                    .iter()
                    .map(|adapter| bits(&together(&mut model, tokens, &[*adapter])[0]))
                    .collect();
                assert!(alone.iter().enumerate().all(|(number, rows)| !alone[..number].contains(rows)), "all differ");
                let company = [Some(2), None, Some(0), Some(2), Some(1), None];
                for (adapter, rows) in company.iter().zip(together(&mut model, tokens, &company)) {
                    let own = adapter.map_or(0, |slot| slot + 1);
                    assert!(alone[own] == bits(&rows), "{} {adapter:?} on {set}", adapted.golden.name);
                }
                model.clear_adapter(0);
                assert!(alone[0] == bits(&together(&mut model, tokens, &[None])[0]), "the base needs no adapter");
            }
        }
    }
}
