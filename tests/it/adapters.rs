//! Adapters that come, stay while they are in use, and leave for others.

use std::{future::Future, sync::Arc, task::Poll};

use futures::FutureExt;
use serde_json::{Value, json};
use tito::{
    adapters::{AdapterDirectory, AdapterError, AdapterPolicy, AdapterSource, Adapters, Load},
    admin::{self, Admin},
    control::ControlPolicy,
    engine::{
        AdapterLimits, Engine, NewWeights, OnWeightsChange, UndoPolicy, WeightDtype, WeightTensor,
        native::NativeSettings,
    },
    generation::{Finish, GenerationRequest},
};

use crate::it::{control, control_effects::ask};

/// An adapter of one module of the tiny model that changes nothing, as safetensors.
pub(super) fn adapter(settings: &NativeSettings) -> Vec<u8> {
    let size = |name: &str| settings.config[name].as_u64().unwrap();
    let (inner, heads) = (size("hidden_size"), size("num_attention_heads"));
    let outer = heads * settings.config.get("head_dim").and_then(Value::as_u64).unwrap_or(inner / heads);
    let name = |end: &str| format!("base_model.model.model.layers.0.self_attn.q_proj.{end}.weight");
    let said = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"] }).to_string();
    let header = json!({
        "__metadata__": { "adapter_config": said },
        name("lora_A"): { "dtype": "F32", "shape": [1, inner], "data_offsets": [0, 4 * inner] },
        name("lora_B"): { "dtype": "F32", "shape": [outer, 1], "data_offsets": [4 * inner, 4 * (inner + outer)] },
    });
    let (header, zeros) = (header.to_string(), vec![0_u8; usize::try_from(4 * (inner + outer)).unwrap()]);
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &zeros].concat()
}

/// The head of the tiny model, times a factor.
fn head(factor: f32) -> WeightTensor {
    let file = std::fs::read(std::path::Path::new(control::MODEL).join("model.safetensors")).unwrap();
    let all = safetensors::SafeTensors::deserialize(&file).unwrap();
    let served = all.tensor("lm_head.weight").unwrap();
    let number = |four: &[u8; 4]| (factor * f32::from_le_bytes(*four)).to_le_bytes();
    let bytes: Vec<u8> = served.data().as_chunks::<4>().0.iter().flat_map(number).collect();
    let (name, shape) = ("lm_head.weight".to_owned(), served.shape().to_vec());
    WeightTensor { name, dtype: WeightDtype::F32, shape, bytes: bytes.into() }
}

/// An adapter of the head that changes nothing, with the head that it was trained beside.
fn adapter_of_head(head: &WeightTensor) -> Vec<u8> {
    let [outer, inner] = head.shape[..] else { panic!("a matrix") };
    let said = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["lm_head"] }).to_string();
    let zeros = vec![0; 4 * inner.max(outer)];
    let tensors = [("lora_A", [1, inner], &zeros[..4 * inner]), ("lora_B", [outer, 1], &zeros[..4 * outer])];
    let with_base = tensors.into_iter().chain([("base_layer", [outer, inner], &head.bytes[..])]);
    let views = with_base.map(|(end, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes).unwrap();
        (format!("base_model.model.lm_head.{end}.weight"), view)
    });
    safetensors::serialize(views, Some([("adapter_config".to_owned(), said)].into())).unwrap()
}

/// Whether it is loaded before or after an update, an adapter is refused that was trained beside another head.
#[tokio::test]
async fn an_adapter_with_weights_of_the_base_is_refused_once_an_update_has_changed_them() {
    let limits = AdapterLimits { max_loras: 1, max_lora_rank: 1 };
    let settings = NativeSettings { adapters: Some(limits), ..control::settings() };
    let engine: Arc<dyn Engine> = Arc::new(control::engine_of(&settings));
    let adapters = Adapters::new(Arc::clone(&engine), AdapterPolicy::default());
    let load = |name: &str, bytes: Vec<u8>, replaces: bool| {
        let (name, source) = (name.to_owned(), AdapterSource::Memory(bytes.into()));
        adapters.load(Load { name, source, replaces, base_model: None, stays: false })
    };
    let (own, other) = (head(1.0), head(1.5));
    load("head", adapter_of_head(&own), false).await.unwrap();
    load("attention", adapter(&settings), false).await.unwrap();
    let at_load = AdapterError::Model(
        "the adapter has other numbers for lm_head.weight than the model that is served, so it was trained with another one"
            .to_owned(),
    );
    assert_eq!(load("other", adapter_of_head(&other), false).await.unwrap_err(), at_load);
    let control = engine.control().unwrap();
    let update = async |weights: Vec<WeightTensor>| {
        control.begin_update(UndoPolicy::Memory).await.unwrap();
        // Nobody knows yet what is served.
        assert!(matches!(adapters.fitting("head").await, Err(AdapterError::Unsettled(_))));
        assert!(adapters.fitting("attention").await.unwrap().is_some());
        control.write_weights(NewWeights::Tensors(weights)).await.unwrap();
        control.finish_update(None, OnWeightsChange::default()).await.unwrap();
    };
    let is_refused = async || {
        let refused = adapters.fitting("head").await.unwrap_err();
        assert_eq!(refused, AdapterError::OtherBase("lm_head.weight".to_owned()));
        assert!(refused.to_string().contains("trained with another one; load it again"), "{refused}");
    };
    // An update of something else leaves it as it is.
    let NewWeights::Tensors(norm) = control::norm(0.5) else { panic!("tensors") };
    update(norm).await;
    assert!(adapters.fitting("head").await.unwrap().is_some());
    update(vec![other.clone()]).await;
    is_refused().await;
    is_refused().await;
    assert!(adapters.fitting("attention").await.unwrap().is_some());
    assert_eq!(load("head", adapter_of_head(&own), true).await.unwrap_err(), at_load);
    is_refused().await;
    // It fits again where the head is again what it was, and so does one that was trained beside the new one.
    update(vec![own]).await;
    assert!(adapters.fitting("head").await.unwrap().is_some());
    update(vec![other.clone()]).await;
    load("head", adapter_of_head(&other), true).await.unwrap();
    assert_eq!(&**adapters.fitting("head").await.unwrap().unwrap().label(), "head@2");
    assert!(adapters.fitting("none").await.unwrap().is_none());
}

/// Adapters of which `most` are loaded at a time, and how one is loaded.
fn adapters(most: usize) -> (Adapters, impl Fn(&str) -> Load) {
    let limits = AdapterLimits { max_loras: 1, max_lora_rank: 1 };
    let settings = NativeSettings { adapters: Some(limits), ..control::settings() };
    let bytes = bytes::Bytes::from(adapter(&settings));
    let policy = AdapterPolicy { most: Some(most), ..AdapterPolicy::default() };
    let load = move |name: &str| Load {
        name: name.to_owned(),
        source: AdapterSource::Memory(bytes.clone()),
        replaces: false,
        base_model: None,
        stays: false,
    };
    (Adapters::new(Arc::new(control::engine_of(&settings)), policy), load)
}

fn names(adapters: &Adapters) -> Vec<String> {
    adapters.all().into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_loop_that_loads_one_adapter_after_the_other_goes_on() {
    let (adapters, load) = adapters(2);
    for version in 1..=5 {
        adapters.load(load(&format!("policy-v{version}"))).await.unwrap();
    }
    assert_eq!(names(&adapters), ["policy-v4", "policy-v5"]);
    assert!(adapters.get("policy-v3").is_none());
    // What left may come again, and its name counts on.
    adapters.load(load("policy-v3")).await.unwrap();
    assert_eq!(&**adapters.get("policy-v3").unwrap().label(), "policy-v3@2");
    assert_eq!(names(&adapters), ["policy-v5", "policy-v3"]);
}

#[tokio::test]
async fn a_load_waits_for_a_request_that_is_about_to_end() {
    let (adapters, load) = adapters(1);
    adapters.load(load("a")).await.unwrap();
    let request = adapters.get("a").unwrap();
    let mut loading = std::pin::pin!(adapters.load(load("b")));
    assert!(futures::poll!(&mut loading).is_pending());
    drop(request);
    loading.await.unwrap();
    assert_eq!(names(&adapters), ["b"]);
}

/// A request takes the only adapter that may leave, while the next one is being read.
#[test]
fn a_load_waits_for_a_request_that_comes_while_it_reads() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (adapters, load) = adapters(1);
        adapters.load(load("a")).await.unwrap();
        // The only thread that reads does so once the request is there.
        let (taken, waits) = std::sync::mpsc::channel::<()>();
        let waited = tokio::task::spawn_blocking(move || waits.recv());
        let mut loading = std::pin::pin!(adapters.load(load("b")));
        assert!(futures::poll!(&mut loading).is_pending());
        let request = adapters.get("a");
        drop(taken);
        assert!(waited.await.unwrap().is_err());
        // It is woken once when the adapter was read, and finds the other one in use.
        let mut woken = false;
        std::future::poll_fn(|context| {
            assert!(loading.as_mut().poll(context).is_pending());
            if std::mem::replace(&mut woken, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(request);
        loading.await.unwrap();
        assert_eq!(names(&adapters), ["b"]);
    });
}

/// Requests that run with an adapter end once it is replaced, though the client that asked for it is gone by then.
#[tokio::test]
async fn a_replacement_ends_the_requests_of_the_adapter_whether_or_not_its_client_stays() {
    let limits = AdapterLimits { max_loras: 1, max_lora_rank: 1 };
    let settings = NativeSettings { adapters: Some(limits), ..control::settings() };
    let engine = Arc::new(control::engine_of(&settings));
    let gate = engine.step_gate();
    gate.shut().await.unwrap();
    let engine: Arc<dyn Engine> = engine;
    let served = control::serve(Arc::clone(&engine), ControlPolicy::default());
    let adapters = Arc::new(Adapters::new(engine, AdapterPolicy::default()));
    let names = admin::Served { model: "tiny".to_owned(), name: "tiny".to_owned(), weights: None, kv_block_size: None };
    let (control, loaded) = (Arc::clone(&served.control), Arc::clone(&adapters));
    let router = admin::router(Arc::new(Admin { control, served: names, adapters }));
    let (media_type, bytes) = ("application/octet-stream", adapter(&settings));
    let load = |query: &str| {
        let path = format!("/skyrl/v1/load_lora_adapter?lora_name=a{query}");
        let (router, bytes) = (router.clone(), bytes.clone());
        async move { ask(&router, &axum::http::Method::POST, &path, media_type, bytes).await }
    };
    assert_eq!(load("").await.0, 200);
    let generation = GenerationRequest { adapter: loaded.get("a"), ..control::generation(400) };
    let running = tokio::spawn(control::answered(served.generate(generation)));
    gate.step().await.unwrap();
    assert!(load("&on_replace=abort").now_or_never().is_none(), "the client goes before the adapter was read");
    assert_eq!(running.await.unwrap().unwrap().1, Finish::Abort);
    assert_eq!(&**loaded.get("a").unwrap().label(), "a@2");
    gate.open().await.unwrap();
}

#[tokio::test]
async fn the_adapter_that_was_asked_for_longest_ago_leaves_and_none_in_use() {
    let (adapters, load) = adapters(3);
    for name in ["a", "b", "c"] {
        adapters.load(load(name)).await.unwrap();
    }
    drop(adapters.get("a"));
    adapters.load(load("d")).await.unwrap();
    assert_eq!(names(&adapters), ["a", "c", "d"]);
    let (a, c) = (adapters.get("a").unwrap(), adapters.get("c").unwrap());
    adapters.load(load("e")).await.unwrap();
    adapters.load(load("f")).await.unwrap();
    assert_eq!(names(&adapters), ["a", "c", "f"]);
    let f = adapters.get("f").unwrap();
    assert_eq!(adapters.load(load("g")).await.unwrap_err(), AdapterError::TooMany(3));
    // One that takes the place of its name needs no room.
    adapters.load(Load { replaces: true, ..load("a") }).await.unwrap();
    assert_eq!(names(&adapters), ["a", "c", "f"]);
    drop((a, c));
    drop(adapters.get("a"));
    adapters.load(load("g")).await.unwrap();
    assert_eq!(names(&adapters), ["a", "f", "g"]);
    drop(f);
}

#[tokio::test]
async fn adapters_that_flags_name_stay() {
    let (adapters, load) = adapters(2);
    adapters.load(Load { stays: true, ..load("named") }).await.unwrap();
    for name in ["a", "b", "c"] {
        adapters.load(load(name)).await.unwrap();
        assert_eq!(names(&adapters), ["named", name]);
    }
    adapters.load(Load { replaces: true, ..load("named") }).await.unwrap();
    adapters.load(load("d")).await.unwrap();
    assert_eq!(names(&adapters), ["named", "d"]);
    adapters.unload("named").await.unwrap();
    adapters.load(load("e")).await.unwrap();
    adapters.load(load("f")).await.unwrap();
    assert_eq!(names(&adapters), ["e", "f"]);
}

#[tokio::test]
async fn however_many_ask_for_an_adapter_by_its_name_it_is_loaded_once() {
    let settings =
        NativeSettings { adapters: Some(AdapterLimits { max_loras: 1, max_lora_rank: 1 }), ..control::settings() };
    let root = tempfile::tempdir().unwrap();
    let write = || {
        let directory = root.path().join("policy");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("adapter_model.safetensors"), adapter(&settings)).unwrap();
        let said = json!({
            "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "base_model_name_or_path": "base",
        });
        std::fs::write(directory.join("adapter_config.json"), said.to_string()).unwrap();
        directory
    };
    let directory = write();
    let found_in = Some(AdapterDirectory::new(root.path().to_owned(), "base".to_owned()));
    let policy = AdapterPolicy { found_in, ..AdapterPolicy::default() };
    let adapters = Arc::new(Adapters::new(Arc::new(control::engine_of(&settings)), policy));
    let asked = futures::future::join_all((0..32).map(|_| adapters.find("policy"))).await;
    let first = adapters.get("policy").unwrap();
    assert_eq!(&**first.label(), "policy@1");
    for found in asked {
        assert!(Arc::ptr_eq(&found.unwrap().unwrap(), &first));
    }
    // Its files may go, and it is served on; once it is unloaded, it is looked for again.
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(adapters.find("policy").await.unwrap().is_some());
    adapters.unload("policy").await.unwrap();
    assert!(adapters.find("policy").await.unwrap().is_none());
    write();
    assert_eq!(&**adapters.find("policy").await.unwrap().unwrap().label(), "policy@2");
    // The name is taken for a call that does not replace it.
    let load = Load {
        name: "policy".to_owned(),
        source: AdapterSource::Memory(adapter(&settings).into()),
        replaces: false,
        base_model: None,
        stays: false,
    };
    assert_eq!(adapters.load(load).await.unwrap_err(), AdapterError::Taken("policy".to_owned()));
}

/// SGLang's calls at the root answer in its words, vLLM's below `/v1` in vLLM's.
#[tokio::test]
async fn an_adapter_is_taken_away_in_the_words_of_the_call() {
    let settings =
        NativeSettings { adapters: Some(AdapterLimits { max_loras: 1, max_lora_rank: 1 }), ..control::settings() };
    let engine: Arc<dyn Engine> = Arc::new(control::engine_of(&settings));
    let control = control::serve(Arc::clone(&engine), ControlPolicy::default()).control;
    let adapters = Arc::new(Adapters::new(engine, AdapterPolicy::default()));
    let served =
        admin::Served { model: "tiny".to_owned(), name: "tiny".to_owned(), weights: None, kv_block_size: None };
    let router = admin::router(Arc::new(Admin { control, served, adapters }));
    let (bytes, post) = (adapter(&settings), axum::http::Method::POST);
    let named = json!({ "lora_name": "a" }).to_string();
    for (root, says_success) in [("", true), ("/v1", false)] {
        let load = format!("{root}/load_lora_adapter?lora_name=a");
        let (status, loaded) = ask(&router, &post, &load, "application/octet-stream", bytes.clone()).await;
        let path = format!("{root}/unload_lora_adapter");
        let (unloaded, gone) = ask(&router, &post, &path, "application/json", named.clone()).await;
        assert_eq!((status.as_u16(), unloaded.as_u16()), (200, 200), "{path}");
        for answer in [loaded, gone] {
            let said: Value = serde_json::from_slice(&answer).unwrap_or_default();
            assert_eq!(said["success"] == true && said["error_message"] == "", says_success, "{path}: {said}");
        }
    }
}
