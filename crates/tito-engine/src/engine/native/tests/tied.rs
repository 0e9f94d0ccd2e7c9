//! Heads that come to a model whose embeddings are its head too.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value, json};

use super::{super::*, engine, settings};
use crate::engine::{NewWeights, OnWeightsChange, UndoPolicy, UpdateError, WeightDtype, WeightTensor};

const MODEL: &str = "llama_tied_bias";
const SHAPE: [usize; 2] = [151, 48];
const EMBEDDINGS: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// A table of numbers that count on from a first one.
fn table(name: &str, dtype: WeightDtype, first: f32) -> WeightTensor {
    let numbers: Vec<f32> = (0..151_u8).flat_map(|row| vec![first + f32::from(row) / 1024.0; 48]).collect();
    let mut bytes = vec![0; numbers.len() * dtype.size()];
    dtype.narrow(&numbers, &mut bytes);
    WeightTensor { name: name.to_owned(), dtype, shape: SHAPE.to_vec(), bytes: bytes.into() }
}

async fn update(engine: &NativeEngine, parts: Vec<Vec<WeightTensor>>) -> Result<u64, UpdateError> {
    engine.begin_update(UndoPolicy::Memory).await?;
    for part in parts {
        engine.write_weights(NewWeights::Tensors(part)).await?;
    }
    Ok(engine.finish_update(None, OnWeightsChange::Recompute).await?.number)
}

/// The embeddings, as they are held.
async fn held_embeddings(engine: &NativeEngine) -> Vec<u8> {
    let (sender, read) = std::sync::mpsc::channel();
    let visit = move |_: &TensorInfo, bytes: Vec<u8>| sender.send(bytes).unwrap();
    engine.read_weights(vec![EMBEDDINGS.to_owned()], Box::new(visit)).await.unwrap();
    read.recv().unwrap()
}

#[tokio::test]
async fn a_head_is_the_embeddings_or_the_update_is_refused() {
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let engine = engine(&NativeSettings { dtype, ..settings(MODEL) });
        let there = WeightTensor {
            dtype: if dtype == Dtype::Bf16 { WeightDtype::Bf16 } else { WeightDtype::F32 },
            bytes: held_embeddings(&engine).await.into(),
            ..table(HEAD, WeightDtype::F32, 0.0)
        };
        // Alone, it is compared with what is there.
        assert_eq!(update(&engine, vec![vec![there.clone()]]).await, Ok(1));
        let before = held_embeddings(&engine).await;
        let wide = WeightDtype::F32;
        let embeddings = |first| table(EMBEDDINGS, wide, first);
        let head = |first| table(HEAD, wide, first);
        let misshapen = WeightTensor { shape: vec![48, 151], ..head(1.0) };
        for (parts, what) in [
            (vec![vec![head(1.0)]], "other numbers"),
            (vec![vec![embeddings(2.0), head(1.0)]], "other numbers"),
            (vec![vec![embeddings(2.0)], vec![head(1.0)]], "other numbers"),
            (vec![vec![head(1.0)], vec![embeddings(2.0)]], "other numbers"),
            // The head that was right before the update is not that of the new embeddings.
            (vec![vec![there], vec![embeddings(2.0)]], "other numbers"),
            (vec![vec![misshapen.clone()]], "[48, 151]"),
            (vec![vec![embeddings(1.0), misshapen]], "[48, 151]"),
        ] {
            let refused = update(&engine, parts).await;
            assert!(matches!(&refused, Err(UpdateError::Refused(reason)) if reason.contains(what)), "{refused:?}");
            assert_eq!((held_embeddings(&engine).await == before, engine.weights().number), (true, 1));
        }
        for (number, parts) in (2..).zip([
            vec![vec![embeddings(1.0), head(1.0)]],
            vec![vec![head(2.0)], vec![embeddings(2.0)]],
            vec![vec![embeddings(3.0)], vec![head(3.0)]],
            // What came last counts.
            vec![vec![head(1.0)], vec![embeddings(4.0)], vec![head(4.0)]],
            // A bf16 server rounds both.
            vec![vec![embeddings(1.0 / 3.0), head(1.0 / 3.0)]],
        ]) {
            assert_eq!(update(&engine, parts).await, Ok(number));
        }
    }
}

/// A checkpoint with one tensor more.
fn with_tensor(directory: &Path, name: &str, like: &str, flip: u8) {
    let data = fs::read(directory.join("model.safetensors")).unwrap();
    let length = usize::try_from(u64::from_le_bytes(data[..8].try_into().unwrap())).unwrap();
    let mut header: BTreeMap<String, Value> = serde_json::from_slice(&data[8..8 + length]).unwrap();
    let body = &data[8 + length..];
    let mut info: Map<String, Value> = header[like].as_object().unwrap().clone();
    let offset = |index: usize| usize::try_from(info["data_offsets"][index].as_u64().unwrap()).unwrap();
    let more: Vec<u8> = body[offset(0)..offset(1)].iter().map(|byte| byte ^ flip).collect();
    info.insert("data_offsets".to_owned(), json!([body.len(), body.len() + more.len()]));
    header.insert(name.to_owned(), Value::Object(info));
    let header = serde_json::to_vec(&header).unwrap();
    let file = [&(header.len() as u64).to_le_bytes(), &header[..], body, &more].concat();
    fs::write(directory.join("model.safetensors"), file).unwrap();
}

#[test]
fn a_checkpoint_with_a_head_of_its_own_is_refused_where_the_embeddings_are_the_head() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/native").join(MODEL);
    for (like, flip, refusal) in [
        (EMBEDDINGS, 0, None),
        (EMBEDDINGS, 1, Some("tensor lm_head.weight has other numbers than model.embed_tokens.weight")),
        ("model.norm.weight", 0, Some("tensor lm_head.weight has the shape [48]")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fs::copy(golden.join("model.safetensors"), directory.path().join("model.safetensors")).unwrap();
        with_tensor(directory.path(), HEAD, like, flip);
        let source = WeightsSource::Directory(directory.path().to_owned());
        let loaded = NativeEngine::load(&NativeSettings { source, ..settings(MODEL) }, &mut |_, _| ());
        let error = loaded.err().map(|error| error.to_string());
        match (&error, refusal) {
            (None, None) => {}
            (Some(error), Some(refusal)) if error.contains(refusal) => {}
            _ => panic!("{error:?} is not {refusal:?}"),
        }
    }
}

/// Where weights were lost, a head may come in an update before that of the embeddings that it is.
#[tokio::test]
async fn a_head_that_comes_before_lost_embeddings_is_compared_once_they_are_there() {
    let engine = engine(&NativeSettings { dtype: Dtype::F32, ..settings(MODEL) });
    let bytes = super::weights::all_bytes(&engine).await;
    let all = super::weights::whole_model(&engine, bytes);
    let there = all.iter().find(|tensor| tensor.name == EMBEDDINGS).unwrap().clone();
    let (head, other) = (WeightTensor { name: HEAD.to_owned(), ..there }, table(HEAD, WeightDtype::F32, 1.0));
    for (heads, is_right) in [(vec![&head], true), (vec![&other, &head], true), (vec![&head, &other], false)] {
        engine.lose_weights().await.unwrap();
        for sent in heads {
            update(&engine, vec![vec![sent.clone()]]).await.unwrap();
        }
        assert_eq!(engine.lacking(), all.len());
        let outcome = update(&engine, vec![all.clone()]).await;
        assert_eq!(outcome.is_ok(), is_right, "{outcome:?}");
        assert_eq!(engine.lacking() == 0, is_right);
    }
}
