use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

use super::*;

const MODULE: &str = "model.layers.0.self_attn.q_proj";

fn settings(more: &Value) -> Value {
    let mut all = json!({ "peft_type": "LORA", "r": 2, "lora_alpha": 8, "bias": "none" });
    all["target_modules"] = json!(["q_proj", "embed_tokens", "lm_head", "m"]);
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// Tensors of zeros in f32 with these names and shapes.
fn tensors(all: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
    all.iter().map(|(name, shape)| (format!("base_model.model.{name}"), shape.to_vec())).collect()
}

fn pair() -> Vec<(String, Vec<usize>)> {
    tensors(&[(&format!("{MODULE}.lora_A.weight"), &[2, 3]), (&format!("{MODULE}.lora_B.weight"), &[4, 2])])
}

fn serialized(all: &[(String, Vec<usize>)], note: Option<&Value>) -> Vec<u8> {
    let zeros = vec![0; 4 * 64];
    let views = all.iter().map(|(name, shape)| {
        let bytes = &zeros[..4 * shape.iter().product::<usize>()];
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    let notes = note.map(|note| [(CONFIG_NOTE.to_owned(), note.to_string())].into());
    safetensors::serialize(views, notes).unwrap()
}

fn read(settings: &Value, all: &[(String, Vec<usize>)]) -> Result<PeftAdapter, String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(CONFIG), settings.to_string()).unwrap();
    std::fs::write(directory.path().join(TENSORS), serialized(all, None)).unwrap();
    PeftAdapter::open(&Directory::anywhere(directory.path())).map_err(|error| error.to_string())
}

#[test]
fn an_adapter_is_read_from_a_directory_and_from_memory() {
    let adapter = read(&settings(&json!({})), &pair()).unwrap();
    let [module] = &adapter.modules[..] else { panic!("one module: {adapter:?}") };
    assert_eq!(
        (module.name.as_str(), module.kind, module.scale.to_bits()),
        (MODULE, PeftKind::Linear, 4.0_f32.to_bits())
    );
    assert_eq!((adapter.rank(), adapter.bytes()), (2, 4 * (6 + 8)));
    let bytes = serialized(&pair(), Some(&settings(&json!({}))));
    assert_eq!(PeftAdapter::parse(bytes.into()).unwrap(), adapter);
}

/// Settings of one version and tensors of another one would be an adapter that nobody trained.
#[test]
fn an_adapter_that_is_written_while_it_is_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path(CONFIG), settings(&json!({})).to_string()).unwrap();
    std::fs::write(path(TENSORS), serialized(&pair(), None)).unwrap();
    let open = || PeftAdapter::open(&Directory::anywhere(directory.path())).map_err(|error| error.to_string());
    for name in [CONFIG, TENSORS] {
        let file = std::fs::File::options().write(true).open(path(name)).unwrap();
        let first = &std::fs::read(path(name)).unwrap()[..1];
        let (is_over, refused) = (std::sync::atomic::AtomicBool::new(false), std::sync::Mutex::new(None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                    std::os::unix::fs::FileExt::write_all_at(&file, first, 0).unwrap();
                }
            });
            // A writer that gets no time writes nothing.
            *refused.lock().unwrap() = (0..).find_map(|_| open().err());
            is_over.store(true, std::sync::atomic::Ordering::Release);
        });
        let refused = refused.into_inner().unwrap().unwrap();
        assert!(refused.starts_with(&format!("{} was changed while it was read", path(name).display())), "{refused}");
    }
    open().unwrap();
}

#[test]
fn factors_are_those_of_the_settings() {
    let scale = |more: Value| read(&settings(&more), &pair()).unwrap().modules[0].scale.to_bits();
    assert_eq!(scale(json!({ "use_rslora": true })), 5.656_854_f32.to_bits());
    assert_eq!(scale(json!({ "alpha_pattern": { "k_proj": 1, "q_proj": 3.0 } })), 1.5_f32.to_bits());
    // The first pattern that fits counts, and only from a dot on.
    assert_eq!(
        scale(json!({ "alpha_pattern": { "_proj": 1, "self_attn.q_proj": 6, "q_proj": 2 } })),
        3.0_f32.to_bits()
    );
    assert_eq!(scale(json!({ "alpha_pattern": { r"layers\.[01]\..*q_proj": 6 } })), 3.0_f32.to_bits());
    // A rank of the settings that another pattern overrides.
    assert_eq!(scale(json!({ "r": 16, "rank_pattern": { "q_proj": 2 } })), 4.0_f32.to_bits());
}

#[test]
fn settings_that_ask_for_more_are_refused_by_name() {
    let refusal = |more: Value| read(&settings(&more), &pair()).unwrap_err();
    let begins = |more: Value, beginning: &str| {
        let refused = refusal(more);
        assert!(refused.starts_with(&format!("adapter_config.json: {beginning}")), "{refused}");
    };
    begins(json!({ "peft_type": "IA3" }), "`peft_type` is not LORA");
    begins(json!({ "peft_type": null }), "`peft_type` is missing");
    begins(json!({ "use_dora": true }), "`use_dora` is set; DoRA is not served");
    begins(json!({ "bias": "all" }), "`bias` is not none; adapters that train biases");
    begins(
        json!({ "init_lora_weights": "pissa_niter_4" }),
        "`init_lora_weights` is a way that changes the weights of the base model",
    );
    for name in ["modules_to_save", "alora_invocation_tokens", "layer_replication"] {
        begins(json!({ name: ["a"] }), &format!("`{name}` is set, which is not served"));
        for nothing in [json!({ name: null }), json!({ name: [] })] {
            assert!(read(&settings(&nothing), &pair()).is_ok(), "{nothing}");
        }
    }
    // PEFT takes an empty object for a method with its defaults.
    for name in
        ["kasa_config", "arrow_config", "use_bdlora", "velora_config", "trainable_token_indices", "something_new"]
    {
        for value in [json!({}), json!({ "a": 1 })] {
            begins(json!({ name: value }), &format!("`{name}` is set, which is not served"));
        }
        assert!(read(&settings(&json!({ name: null })), &pair()).is_ok());
    }
    begins(json!({ "trainable_token_indices": [] }), "`trainable_token_indices` is set, which is not served");
    begins(json!({ "something_new": [] }), "`something_new` is set, which is not served");
    begins(json!({ "peft_type": "lora" }), "`peft_type` is not LORA");
    begins(json!({ "task_type": "NONSENSE" }), "`task_type` is none that PEFT knows");
    begins(json!({ "init_lora_weights": 1 }), "`init_lora_weights` is neither true, false nor");
    let saved = json!({ "loftq_config": {}, "eva_config": null, "task_type": "CAUSAL_LM", "init_lora_weights": true });
    assert!(read(&settings(&saved), &pair()).is_ok());
    for name in ["lora_bias", "fan_in_fan_out", "use_qalora", "something_new"] {
        begins(json!({ name: true }), &format!("`{name}` is set, which is not served"));
        assert!(read(&settings(&json!({ name: false })), &pair()).is_ok());
    }
    begins(json!({ "r": 0 }), "`r` is not a whole number of at least 1");
    begins(json!({ "r": 2.5 }), "`r` is not a whole number of at least 1");
    begins(json!({ "lora_alpha": "8" }), "`lora_alpha` is not a number");
    begins(json!({ "rank_pattern": { "(?<=a)b": 2 } }), "`rank_pattern` has the pattern (?<=a)b");
    for pattern in ["[a-z--q]_proj", r"\<q_proj\>", "q_proj)|(k_proj", "(?i)q_proj"] {
        begins(json!({ "alpha_pattern": { pattern: 50 } }), "`alpha_pattern` has the pattern ");
    }
    begins(json!({ "rank_pattern": { "q_proj": -1 } }), "`rank_pattern`: `q_proj` is not a whole number");
    assert!(read(&settings(&json!({ "init_lora_weights": "gaussian" })), &pair()).is_ok());
}

#[test]
fn tensors_that_are_not_pairs_of_the_rank_are_refused() {
    let refusal = |all: &[(&str, &[usize])]| read(&settings(&json!({})), &tensors(all)).unwrap_err();
    let begin = "the adapter's tensors are not usable: ";
    assert_eq!(refusal(&[("m.lora_A.weight", &[2, 3])]), format!("{begin}m lacks its matrix B"));
    assert_eq!(refusal(&[("m.lora_B.weight", &[2, 2])]), format!("{begin}m lacks its matrix A"));
    assert_eq!(refusal(&[]), format!("{begin}there are none"));
    for (a, b) in [([3, 3], [4, 3]), ([2, 3], [4, 3]), ([3, 2], [2, 4])] {
        let refused = refusal(&[("m.lora_A.weight", &a), ("m.lora_B.weight", &b)]);
        assert_eq!(refused, format!("{begin}m has the rank 2, and matrices of the shapes {a:?} and {b:?}"));
    }
    for name in ["m.lora_magnitude_vector.weight", "m.lora_B.bias", "m.weight", "m.lora_A.default.weight"] {
        let refused = refusal(&[(name, &[2, 3])]);
        assert!(refused.starts_with(&format!("{begin}base_model.model.{name} is not a matrix of LoRA")), "{refused}");
    }
    let mixed = refusal(&[("m.lora_A.weight", &[2, 3]), ("m.lora_embedding_B", &[4, 2])]);
    assert!(mixed.ends_with("is of a module that has matrices of another kind"), "{mixed}");
    let foreign = read(&settings(&json!({})), &[("model.q.lora_A.weight".to_owned(), vec![2, 3])]).unwrap_err();
    assert_eq!(foreign, format!("{begin}model.q.lora_A.weight does not begin with base_model.model."));
}

#[test]
fn an_adapter_says_what_it_was_trained_on() {
    let directory = tempfile::tempdir().unwrap();
    let origin = || PeftAdapter::origin(&Directory::anywhere(directory.path()));
    assert!(matches!(origin(), Err(PeftError::NotFound(_))));
    let says = |text: &str| {
        std::fs::write(directory.path().join(CONFIG), text).unwrap();
        origin().map(|PeftOrigin { peft_type, base_model }| (peft_type, base_model)).map_err(|error| error.to_string())
    };
    let found = |base: Option<&str>| Ok(("LORA".to_owned(), base.map(str::to_owned)));
    assert_eq!(says(r#"{"peft_type": "LORA", "base_model_name_or_path": "org/m"}"#), found(Some("org/m")));
    assert_eq!(says(r#"{"peft_type": "LORA", "base_model_name_or_path": null}"#), found(None));
    for text in ["{", "[]", "{}", r#"{"peft_type": 1}"#] {
        assert!(says(text).unwrap_err().starts_with("adapter_config.json: "), "{text}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = || {
        let refused = PeftAdapter::open(&Directory::anywhere(directory.path())).unwrap_err().to_string();
        refused.replace(&directory.path().display().to_string(), "DIR")
    };
    assert_eq!(refusal(), "there is no adapter_config.json in DIR");
    std::fs::write(directory.path().join(CONFIG), "{").unwrap();
    assert!(refusal().starts_with("adapter_config.json: its JSON ends too early, at line 1 column 1"));
    for text in ["root:x:0:0", "\"hunter2\"", r#"{"peft_type": "hunter2"}"#, r#"{"peft_type": "LORA", "r": "hunter2"}"#]
    {
        std::fs::write(directory.path().join(CONFIG), text).unwrap();
        let refused = refusal();
        assert!(refused.starts_with("adapter_config.json: "), "{refused}");
        assert!(!["root", "hunter2"].iter().any(|secret| refused.contains(secret)), "{refused}");
    }
    std::fs::write(directory.path().join(CONFIG), settings(&json!({})).to_string()).unwrap();
    assert!(refusal().starts_with("cannot read DIR/adapter_model.safetensors: "), "{}", refusal());
    std::fs::write(directory.path().join(PICKLED), "").unwrap();
    assert!(refusal().contains("adapter_model.bin is not read"), "{}", refusal());
    std::fs::write(directory.path().join(TENSORS), [0; 4]).unwrap();
    assert!(refusal().contains("the stream ended early"), "{}", refusal());
    let bytes = serialized(&pair(), None);
    let refused = PeftAdapter::parse(bytes.into()).unwrap_err().to_string();
    assert!(refused.contains("their metadata lack `adapter_config`"), "{refused}");
}

#[test]
fn base_weights_stay_with_the_module_that_they_are_of() {
    let table = tensors(&[
        ("model.embed_tokens.lora_embedding_A", &[2, 5]),
        ("model.embed_tokens.lora_embedding_B", &[4, 2]),
        ("model.embed_tokens.base_layer.weight", &[5, 4]),
    ]);
    let adapter = read(&settings(&json!({})), &table).unwrap();
    let [PeftModule { kind, base: Some(base), .. }] = &adapter.modules[..] else { panic!("one module: {adapter:?}") };
    assert_eq!((*kind, &base.shape[..]), (PeftKind::Embedding, &[5, 4][..]));
    let alone = tensors(&[("lm_head.base_layer.weight", &[5, 4])]);
    let refusal = read(&settings(&json!({})), &[pair(), alone].concat()).unwrap_err();
    assert!(refusal.contains("lm_head has weights of the base model, and no matrices of LoRA"), "{refusal}");
}

#[test]
fn modules_that_the_settings_leave_out_are_refused_by_name() {
    let with = |more: Value| read(&settings(&more), &pair());
    for more in [
        json!({ "target_modules": ["v_proj", "self_attn.q_proj"] }),
        json!({ "target_modules": [MODULE], "layers_to_transform": [1] }),
        json!({ "target_modules": "all-linear" }),
        // As SkyRL saves adapters.
        json!({ "target_modules": null, "task_type": null }),
        json!({ "target_modules": "All-Linear", "layers_to_transform": null }),
        json!({ "target_modules": r".*\.(q_proj|up_proj)" }),
        json!({ "target_modules": "^(?!.*(?:visual|lm_head)).*(?:q_proj|up_proj).*" }),
        json!({ "target_modules": ".*q_proj", "exclude_modules": ".*v_proj" }),
        json!({ "exclude_modules": null, "layers_to_transform": null }),
        json!({ "exclude_modules": "", "layers_pattern": "" }),
        json!({ "exclude_modules": ["v_proj"], "layers_to_transform": [1, 0], "layers_pattern": null }),
        json!({ "layers_to_transform": 0 }),
        json!({ "layers_to_transform": [] }),
        json!({ "layers_to_transform": [], "layers_pattern": "h" }),
        json!({ "layers_to_transform": [0], "layers_pattern": "layers" }),
        json!({ "layers_to_transform": [0], "layers_pattern": ["h", "lay.rs"] }),
    ] {
        assert!(with(more.clone()).is_ok(), "{more}: {:?}", with(more.clone()));
    }
    for (more, setting) in [
        (json!({ "target_modules": ["v_proj", "proj"] }), "target_modules"),
        (json!({ "target_modules": [] }), "target_modules"),
        (json!({ "target_modules": r".*\.(k_proj|up_proj)" }), "target_modules"),
        // A regular expression is of the whole name.
        (json!({ "target_modules": "q_proj" }), "target_modules"),
        (json!({ "target_modules": "all_linear" }), "target_modules"),
        (json!({ "target_modules": "^(?!.*layers).*q_proj" }), "target_modules"),
        (json!({ "exclude_modules": ["self_attn.q_proj"] }), "exclude_modules"),
        (json!({ "exclude_modules": ".*q_proj" }), "exclude_modules"),
        (json!({ "target_modules": "all-linear", "exclude_modules": ["q_proj"] }), "exclude_modules"),
        (json!({ "layers_to_transform": [1, 2] }), "layers_to_transform"),
        (json!({ "layers_to_transform": 1 }), "layers_to_transform"),
        (json!({ "layers_to_transform": [1], "layers_pattern": "layers" }), "layers_to_transform"),
        (json!({ "layers_to_transform": [0], "layers_pattern": ["h"] }), "layers_to_transform"),
    ] {
        let error = with(more.clone()).unwrap_err();
        assert!(error.contains(&format!("`{setting}` leaves")) && error.contains(MODULE), "{more}: {error}");
    }
}

#[test]
fn settings_of_modules_that_peft_refuses_are_refused_by_name() {
    for (more, setting) in [
        (json!({ "target_modules": { "q_proj": 1 } }), "target_modules"),
        (json!({ "target_modules": [1] }), "target_modules"),
        (json!({ "target_modules": "(?<=a).*" }), "target_modules"),
        (json!({ "exclude_modules": 1 }), "exclude_modules"),
        (json!({ "exclude_modules": "[a--b]" }), "exclude_modules"),
        (json!({ "layers_to_transform": "a" }), "layers_to_transform"),
        (json!({ "layers_to_transform": [-1] }), "layers_to_transform"),
        (json!({ "layers_pattern": "layers" }), "layers_pattern"),
        (json!({ "layers_to_transform": [0], "layers_pattern": 1 }), "layers_pattern"),
        (json!({ "layers_to_transform": [0], "layers_pattern": "(?i)layers" }), "layers_pattern"),
        (json!({ "target_modules": ".*q_proj", "layers_to_transform": [0] }), "layers_to_transform"),
        (json!({ "target_modules": "all-linear", "layers_pattern": [] }), "layers_pattern"),
    ] {
        let error = read(&settings(&more), &pair()).unwrap_err();
        assert!(error.starts_with(&format!("adapter_config.json: `{setting}`")), "{more}: {error}");
    }
    let mut without = settings(&json!({}));
    without.as_object_mut().unwrap().remove("target_modules");
    let error = read(&without, &pair()).unwrap_err();
    assert!(error.starts_with("adapter_config.json: `target_modules` is missing"), "{error}");
}

/// PEFT leaves out the head, and whatever is not linear.
#[test]
fn all_linear_modules_are_neither_the_head_nor_embeddings() {
    let all = settings(&json!({ "target_modules": "all-linear" }));
    for (module, [a, b]) in [
        ("lm_head", ["lora_A.weight", "lora_B.weight"]),
        ("language_model.lm_head", ["lora_A.weight", "lora_B.weight"]),
        ("model.embed_tokens", ["lora_embedding_A", "lora_embedding_B"]),
    ] {
        let [a, b] = [a, b].map(|end| format!("{module}.{end}"));
        let error = read(&all, &[pair(), tensors(&[(&a, &[2, 3]), (&b, &[4, 2])])].concat()).unwrap_err();
        assert!(error.contains(&format!("`target_modules` leaves {module} out")), "{error}");
    }
}

/// Routers are parameters of transformers 5.
#[test]
fn weights_that_are_named_for_themselves_are_read() {
    let gate = "model.layers.0.mlp.gate";
    let of_gate = tensors(&[(&format!("{gate}.lora_A.weight"), &[2, 3]), (&format!("{gate}.lora_B.weight"), &[4, 2])]);
    let with = |more: Value, all: &[(String, Vec<usize>)]| read(&settings(&more), all);
    let both = [pair(), of_gate.clone()].concat();
    let saved = json!({ "target_parameters": ["gate.weight"], "exclude_modules": ["gate"] });
    assert_eq!(with(saved, &both).unwrap().modules.len(), 2);
    let alone = json!({ "target_modules": null, "target_parameters": ["mlp.gate.weight"] });
    assert_eq!(with(alone.clone(), &of_gate).unwrap().modules[0].name, gate);
    assert!(with(alone, &both).unwrap_err().contains(&format!("`target_modules` leaves {MODULE} out")));
    // PEFT looks for the rank and the factor by the name of the parameter.
    let factor = |pattern: Value| {
        let more = json!({ "target_parameters": ["gate.weight"], "alpha_pattern": pattern });
        with(more, &of_gate).unwrap().modules[0].scale.to_bits()
    };
    assert_eq!(factor(json!({ "gate": 2 })), 4.0_f32.to_bits());
    assert_eq!(factor(json!({ "gate.weight": 2 })), 1.0_f32.to_bits());
    let neither = with(json!({ "target_parameters": [] }), &both).unwrap_err();
    assert!(neither.contains(&format!("`target_modules` leaves {gate} out")), "{neither}");
    let twice =
        with(json!({ "target_modules": ["gate"], "target_parameters": ["gate.weight"] }), &of_gate).unwrap_err();
    assert!(twice.contains("both `target_modules` and `target_parameters` name"), "{twice}");
    for other in [json!(["experts.gate_up_proj"]), json!("gate.weight"), json!([1])] {
        let refused = with(json!({ "target_parameters": other }), &of_gate).unwrap_err();
        assert!(refused.starts_with("adapter_config.json: `target_parameters`"), "{refused}");
    }
}
