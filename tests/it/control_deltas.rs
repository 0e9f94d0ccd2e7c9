//! Updates that bring nothing, and deltas whose version is said to be there: done only where that is shown.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde_json::json;
use tempfile::TempDir;

use super::control::{MODEL, Served, control, norm, norm_file, streamed};
use tito::{
    control::{ControlError, ControlPolicy, LoadedFiles, Update, Updated},
    engine::{NewWeights, UpdateError},
};

const NORM: &str = "model.norm.weight";
/// The checkpoint has it, and it is 64 numbers of f32 as the engine holds it.
const BEFORE: f32 = 1.0;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL)
}

/// Writes a file of safetensors: header and data.
pub(super) fn write(path: &Path, header: &serde_json::Value, data: &[u8]) {
    let header = header.to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
    fs::write(path, file).unwrap();
}

fn filled(number: f32) -> Vec<u8> {
    number.to_le_bytes().repeat(64)
}

/// Name, description and bytes of each tensor of the checkpoint.
fn tensors() -> Vec<(String, serde_json::Value, Vec<u8>)> {
    let file = fs::read(model().join("model.safetensors")).unwrap();
    let (len, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*len)).unwrap());
    let mut header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(header).unwrap();
    header.remove("__metadata__");
    let bytes = |tensor: &serde_json::Value| {
        let [first, end]: [usize; 2] = serde_json::from_value(tensor["data_offsets"].clone()).unwrap();
        data[first..end].to_vec()
    };
    header.into_iter().map(|(name, tensor)| (name, tensor.clone(), bytes(&tensor))).collect()
}

/// The norm of the checkpoint, as the engine holds it.
fn loaded_norm() -> Vec<u8> {
    let (_, tensor, bytes) = tensors().into_iter().find(|(name, ..)| name == NORM).unwrap();
    assert_eq!(tensor["dtype"], "F32");
    bytes
}

/// Writes a file with the norm of the checkpoint, or one with all other tensors.
fn write_part(path: &Path, norm: bool) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, mut tensor, bytes) in tensors().into_iter().filter(|(name, ..)| (name == NORM) == norm) {
        tensor["data_offsets"] = json!([data.len(), data.len() + bytes.len()]);
        data.extend(bytes);
        header.insert(name, tensor);
    }
    write(path, &header.into(), &data);
}

/// Publishes a delta as slime does: the norm is overwritten with one number; `None` for one that changes no tensor.
pub(super) fn publish(directory: &TempDir, version: u64, (before, after): (f32, Option<f32>)) -> PathBuf {
    publish_from(directory, version, &filled(before), after)
}

/// The same from any numbers.
fn publish_from(directory: &TempDir, version: u64, before: &[u8], after: Option<f32>) -> PathBuf {
    let path = directory.path().join(format!("weight_v{version:06}"));
    fs::create_dir_all(&path).unwrap();
    let file = "model-00000-of-00001.safetensors";
    let map = after.map_or(json!({}), |_| json!({ NORM: file }));
    let metadata = json!({
        "version": format!("{version:06}"), "base_version": format!("{:06}", version - 1),
        "delta_encoding": "xor", "compression_format": "zstd", "checksum_format": "blake3",
    });
    let index = json!({ "metadata": metadata, "weight_map": map }).to_string();
    fs::write(path.join("model.safetensors.index.json"), index).unwrap();
    let Some(after) = after else { return path };
    let changed: Vec<u8> = before.iter().zip(filled(after)).map(|(before, after)| before ^ after).collect();
    let xored = zstd::encode_all(&changed[..], 1).unwrap();
    let header = json!({
        "__metadata__": { NORM: blake3::hash(&filled(after)).to_hex().to_string() },
        NORM: { "dtype": "U8", "shape": [xored.len()], "data_offsets": [0, xored.len()] },
    });
    write(&path.join(file), &header, &xored);
    path
}

async fn update(control: &Served, path: &Path, label: Option<&str>) -> Result<Updated, ControlError> {
    control.update(Update { path: path.to_owned(), label: label.map(Into::into), aborts: false }).await
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: &Result<T, ControlError>, what: &str) {
    let is_said = matches!(outcome, Err(ControlError::Update(UpdateError::Refused(reason))) if reason.contains(what));
    assert!(is_said, "{outcome:?} does not say {what:?}");
}

/// A server whose norm is one number, which its trainer calls version 0.
async fn trained() -> Served {
    let control = control(ControlPolicy::default());
    let file = norm_file(NORM, BEFORE);
    let piece: Result<Bytes, String> = Ok(file.into());
    control.update_from_stream(futures::stream::iter([piece]), Some("0".into())).await.unwrap();
    control
}

#[tokio::test]
async fn what_the_server_counts_is_not_what_a_trainer_has_trained() {
    let directory = tempfile::tempdir().unwrap();
    let delta = publish(&directory, 1, (BEFORE, Some(0.5)));
    for in_phases in [false, true] {
        let control = control(ControlPolicy::default());
        // A path says nothing of what is there, even if it is that of the start.
        let version = if in_phases {
            control.start_update().await.unwrap();
            control.write_weights(NewWeights::Path(model())).await.unwrap();
            control.finish_update(None).await.unwrap().version
        } else {
            update(&control, &model(), None).await.unwrap().version
        };
        assert_eq!(&*version.label, "1");
        let before = control.checksums().await.unwrap();
        refused(&update(&control, &delta, None).await, "it is not known which of them are there");
        control.start_update().await.unwrap();
        let part = control.write_version(directory.path().to_owned(), 1).await;
        refused(&part, "it is not known which of them are there");
        assert_eq!((control.checksums().await.unwrap(), control.weights()), (before, version));
    }
}

#[tokio::test]
async fn lost_weights_are_no_base_of_a_delta_though_they_still_lie_there() {
    let directory = tempfile::tempdir().unwrap();
    let delta = publish(&directory, 1, (BEFORE, Some(0.5)));
    let control = trained().await;
    control.reset_weights().await.unwrap();
    let lost = control.lacking();
    let reason = format!("{lost} tensors of the weights are lost, and a delta is for weights that are there");
    refused(&update(&control, &delta, None).await, &reason);
    // The norm comes back with the very numbers that the delta is for; all others are still lost.
    control.start_update().await.unwrap();
    control.write_weights(norm(BEFORE)).await.unwrap();
    let written = control.write_version(directory.path().to_owned(), 1).await;
    assert!(
        matches!(written, Err(ControlError::Update(UpdateError::Refused(_) | UpdateError::Lost { .. }))),
        "{written:?}"
    );
    assert!(control.lacking() > 0);
}

/// The weights of the start are version 0 again where they are read from the files of then, and from no others.
#[tokio::test]
async fn weights_of_the_start_that_are_read_again_are_version_0() {
    let directory = tempfile::tempdir().unwrap();
    let (delta, first) = (publish_from(&directory, 1, &loaded_norm(), Some(0.5)), directory.path().join("first"));
    fs::create_dir(&first).unwrap();
    for file in fs::read_dir(model()).unwrap().map(|file| file.unwrap().path()) {
        fs::copy(&file, first.join(file.file_name().unwrap())).unwrap();
    }
    let control = control(ControlPolicy::default());
    let (loaded, loaded_weights) = (LoadedFiles::at(&first), control.checksums().await.unwrap());
    for _ in 0..2 {
        update(&control, &delta, None).await.unwrap();
        assert_ne!(control.checksums().await.unwrap(), loaded_weights);
        control.reload(&loaded).await.unwrap();
        assert_eq!(control.checksums().await.unwrap(), loaded_weights);
    }
    // That they are there is known of version 0 itself, too.
    control.start_update().await.unwrap();
    control.write_version(directory.path().to_owned(), 0).await.unwrap();
    control.finish_update(None).await.unwrap();
    fs::write(first.join("more.txt"), "written since").unwrap();
    control.reload(&loaded).await.unwrap();
    refused(&update(&control, &delta, None).await, "it is not known which of them are there");
}

/// What is lost may come back in several updates. Deltas go on from it where all of them are of the same number.
#[tokio::test]
async fn weights_that_were_lost_come_back_in_updates_of_one_number_or_of_none() {
    let directory = tempfile::tempdir().unwrap();
    let delta = publish_from(&directory, 1, &loaded_norm(), Some(0.5));
    let [norm, rest] = ["norm.safetensors", "rest.safetensors"].map(|name| directory.path().join(name));
    write_part(&norm, true);
    write_part(&rest, false);
    for (numbers, is_whole, is_known) in
        [(["0", "0"], false, true), (["0", "7"], false, false), (["7", "0"], false, false), (["7", "0"], true, true)]
    {
        let control = control(ControlPolicy::default());
        let (whole, all) = (control.checksums().await.unwrap(), control.lacking());
        assert_eq!(all, 0);
        control.reset_weights().await.unwrap();
        let lost = control.lacking();
        let piece: Result<Bytes, String> = Ok(fs::read(&norm).unwrap().into());
        let one = control.update_from_stream(futures::stream::iter([piece]), Some(numbers[0].into())).await;
        let one = one.unwrap().unwrap();
        assert_eq!((one.lacking, one.written.tensors, one.tensors), (lost - 1, 1, lost));
        assert_eq!(control.lacking(), lost - 1);
        let path = if is_whole { model() } else { rest.clone() };
        let brought = update(&control, &path, Some(numbers[1])).await.unwrap();
        assert_eq!((brought.lacking, control.checksums().await.unwrap()), (0, whole));
        let outcome = update(&control, &delta, None).await;
        if is_known {
            outcome.unwrap();
        } else {
            refused(&outcome, "it is not known which of them are there");
        }
    }
}

#[tokio::test]
async fn a_version_that_is_there_is_compared_before_its_delta_counts_as_applied() {
    let directory = tempfile::tempdir().unwrap();
    let delta = publish(&directory, 1, (BEFORE, Some(0.5)));
    let control = trained().await;
    assert_eq!(update(&control, &delta, None).await.unwrap().written.tensors, 1);
    let after = control.checksums().await.unwrap();
    // A trainer that asks again gets the same answer, as one part too.
    let again = update(&control, &delta, None).await.unwrap();
    assert_eq!((again.written.tensors, &*again.version.label, again.version.number), (0, "1", 2));
    control.start_update().await.unwrap();
    control.write_version(directory.path().to_owned(), 1).await.unwrap();
    assert_eq!(&*control.finish_update(Some("1".into())).await.unwrap().version.label, "1");
    assert_eq!(control.checksums().await.unwrap(), after);
    // The next delta finds what it builds on.
    let next = publish(&directory, 2, (0.5, Some(0.25)));
    assert_eq!(update(&control, &next, None).await.unwrap().written.tensors, 1);
    // Somebody else calls other weights by the number of that version.
    streamed_as(&control, "2", 0.75).await;
    let other = control.checksums().await.unwrap();
    refused(
        &update(&control, &next, None).await,
        "tensor model.norm.weight is not what the delta of that version makes",
    );
    let foreign = model().join("../../weights/slime_xor/weight_v000002");
    refused(&update(&control, &foreign, None).await, "tensor model.embed_tokens.weight is not what");
    assert_eq!((control.checksums().await.unwrap(), &*control.weights().label), (other, "2"));
}

async fn streamed_as(control: &Served, label: &str, value: f32) {
    let piece: Result<Bytes, String> = Ok(norm_file(NORM, value).into());
    control.update_from_stream(futures::stream::iter([piece]), Some(label.into())).await.unwrap();
}

#[tokio::test]
async fn an_update_goes_on_from_the_parts_that_it_has_had() {
    let directory = tempfile::tempdir().unwrap();
    let control = trained().await;
    publish(&directory, 1, (BEFORE, Some(0.5)));
    publish(&directory, 2, (0.5, Some(0.25)));
    control.start_update().await.unwrap();
    assert_eq!(control.write_version(directory.path().to_owned(), 1).await.unwrap().tensors, 1);
    assert_eq!(control.write_version(directory.path().to_owned(), 2).await.unwrap().tensors, 1);
    control.finish_update(Some("2".into())).await.unwrap();
    // After weights of which nobody says what they are, it is not known what a delta would be applied to.
    control.start_update().await.unwrap();
    control.write_weights(NewWeights::Path(model())).await.unwrap();
    let part = control.write_version(directory.path().to_owned(), 2).await;
    refused(&part, "it is not known which of them are there");
}

#[tokio::test]
async fn an_update_of_nothing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let control = trained().await;
    let (before, version) = (control.checksums().await.unwrap(), control.weights());
    let empty = directory.path().join("model.safetensors");
    write(&empty, &json!({}), &[]);
    let unused = directory.path().join("unused.safetensors");
    let frequencies = "model.layers.0.self_attn.rotary_emb.inv_freq";
    let header = json!({ frequencies: { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } });
    write(&unused, &header, &[0; 4]);
    let delta = publish(&directory, 1, (BEFORE, None));
    for (path, what) in [(&empty, "tensor"), (&unused, "no tensor of the model"), (&delta, "no tensor")] {
        refused(&update(&control, path, Some("new")).await, what);
        refused(&streamed(&control, &fs::read(if *path == delta { &empty } else { path }).unwrap(), 7).await, "tensor");
        control.start_update().await.unwrap();
        let part = control.write_weights(NewWeights::Path(path.clone())).await;
        let finished = control.finish_update(Some("new".into())).await;
        assert!(part.is_err() || finished.is_err(), "{part:?}, {finished:?}");
        assert!(!control.status().updating);
    }
    for empty in [NewWeights::Tensors(Vec::new()), NewWeights::Changes(Vec::new())] {
        control.start_update().await.unwrap();
        refused(&control.write_weights(empty).await, "no tensor");
    }
    control.start_update().await.unwrap();
    refused(&control.finish_update(Some("new".into())).await, "no tensor of the model was sent");
    assert_eq!((control.checksums().await.unwrap(), control.weights()), (before, version));
}

async fn norm_of(control: &Served) -> Vec<f32> {
    control.tensor_rows(NORM, 1).await.unwrap().numbers
}

/// A client that lost the answer sends the same update again, and so does one whose deltas were away for a moment.
#[tokio::test]
async fn what_was_pulled_stands_for_its_version_until_somebody_writes_to_it() {
    let (published, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let delta = publish(&published, 1, (BEFORE, Some(0.5)));
    let (local, absent) = (directory.path().join("local"), directory.path().join("absent"));
    fs::create_dir(&local).unwrap();
    fs::write(local.join("model.safetensors"), norm_file(NORM, 3.0)).unwrap();
    for path in [&local, &absent] {
        let control = trained().await;
        control.pull(path.clone(), published.path().to_owned(), 1).await.unwrap();
        let away = directory.path().join("away");
        fs::rename(&delta, &away).unwrap();
        refused(&update(&control, path, Some("1")).await, "version 1 is not there");
        fs::rename(&away, &delta).unwrap();
        let again = directory.path().join("../").join(directory.path().file_name().unwrap());
        for (spelling, tensors) in [(path, 1), (path, 0), (&again.join(path.file_name().unwrap()), 0)] {
            let updated = update(&control, spelling, Some("1")).await.unwrap();
            assert_eq!((updated.written.tensors, &*updated.version.label), (tensors, "1"));
            assert_eq!(norm_of(&control).await, [0.5]);
        }
        control.start_update().await.unwrap();
        control.write_paths(vec![path.clone()]).await.unwrap();
        control.finish_update(None).await.unwrap();
        // Whoever writes a checkpoint there has it read.
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("model.safetensors"), norm_file(NORM, 4.0)).unwrap();
        fs::write(path.join("config.json"), "{}").unwrap();
        let updated = update(&control, path, Some("2")).await.unwrap();
        assert_eq!((updated.written.tensors, norm_of(&control).await), (1, vec![4.0]));
    }
}

#[tokio::test]
async fn version_0_of_a_directory_is_what_the_server_was_started_with() {
    let control = control(ControlPolicy::default());
    control.pull(model(), model(), 0).await.unwrap();
    for _ in 0..2 {
        assert_eq!(update(&control, &model(), Some("0")).await.unwrap().written.tensors, 0);
    }
    // Neither a look at the deltas nor a part of an update that names their version is remembered.
    let control = super::control::control(ControlPolicy::default());
    control.check_version(model(), 0).await.unwrap();
    let updated = update(&control, &model(), Some("0")).await.unwrap();
    assert_eq!(updated.written.tensors, updated.tensors);
    // But what is called version 0 need not be what the server was started with.
    control.start_update().await.unwrap();
    let unproven = control.write_version(model(), 0).await;
    assert!(matches!(unproven, Err(ControlError::Update(UpdateError::Refused(_)))), "{unproven:?}");
    control.start_update().await.unwrap();
    assert_eq!(control.write_weights(NewWeights::Path(model())).await.unwrap().tensors, updated.tensors);
    control.cancel_update(None).await.unwrap();
}

/// A checkpoint among published versions that lacks tensors: those would stay as they are, without the deltas before it.
#[tokio::test]
async fn a_chain_does_not_go_on_from_a_checkpoint_that_lacks_tensors() {
    let directory = tempfile::tempdir().unwrap();
    publish(&directory, 1, (BEFORE, Some(0.5)));
    let partial = directory.path().join("weight_v000002");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("model.safetensors"), norm_file(NORM, 0.25)).unwrap();
    let delta = publish(&directory, 3, (0.25, Some(0.75)));
    let control = trained().await;
    let before = (control.checksums().await.unwrap(), control.weights());
    let published = || directory.path().to_owned();
    let reason = "weight_v000002 cannot stand for its version: the weights lack `model.";
    for version in [2, 3] {
        refused(&control.check_version(published(), version).await, reason);
        refused(&control.pull(published().join("local"), published(), version).await, reason);
        control.start_update().await.unwrap();
        refused(&control.write_version(published(), version).await, reason);
    }
    refused(&update(&control, &delta, None).await, reason);
    assert_eq!((control.checksums().await.unwrap(), control.weights()), before);
    // Who names it wants just its tensors.
    assert_eq!(update(&control, &partial, None).await.unwrap().written.tensors, 1);
    // A whole one is where a chain begins.
    let control = trained().await;
    let whole = model().join("model.safetensors");
    fs::copy(whole, partial.join("model.safetensors")).unwrap();
    control.pull(published().join("local"), published(), 2).await.unwrap();
    let updated = update(&control, &published().join("local"), None).await.unwrap();
    assert_eq!((updated.written.tensors, &*updated.version.label), (updated.tensors, "2"));
}
