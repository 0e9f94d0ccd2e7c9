//! Weights whose files somebody writes to, or puts others in the place of, while they are read.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{
    super::*,
    engine, settings,
    weights::{all_bytes, replace_by},
};
use crate::engine::{NewWeights, UpdateError, native::weights::open_any};

/// A directory with the files of a model of the tests.
fn copied(model: &str, directory: &Path) {
    let WeightsSource::Directory(source) = settings(model).source else { unreachable!("a directory") };
    fs::create_dir_all(directory).unwrap();
    for file in fs::read_dir(source).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, directory.join(path.file_name().unwrap())).unwrap();
    }
}

/// Writes to a file in place, the same bytes again and again, until it is dropped.
struct Writing {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    fn begin(path: PathBuf) -> Self {
        let first = fs::read(&path).unwrap()[..1].to_vec();
        let file = File::options().write(true).open(path).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let write = move || {
            while !ends.load(Ordering::Acquire) {
                file.write_all_at(&first, 0).unwrap();
                thread::yield_now();
            }
        };
        Self { is_over, thread: Some(thread::spawn(write)) }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[tokio::test]
async fn weights_that_are_written_while_they_are_read_are_refused_and_the_old_ones_stay() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().canonicalize().unwrap().join("new");
    copied("llama", &new);
    let engine = engine(&settings("llama"));
    let before = all_bytes(&engine).await;
    for name in ["model.safetensors", "config.json"] {
        let writing = Writing::begin(new.join(name));
        // A writer that gets no time writes nothing.
        let refused = loop {
            if let Err(refused) = replace_by(&engine, NewWeights::Path(new.clone())).await {
                break refused;
            }
        };
        let says = format!(
            "{} was changed while it was read, so that what was read may be of two versions; read weights again once nobody writes \
             to them",
            new.join(name).display()
        );
        assert_eq!(refused, UpdateError::NotNow(says));
        drop(writing);
        assert_eq!(all_bytes(&engine).await, before);
        assert_eq!(engine.lacking(), 0);
    }
    replace_by(&engine, NewWeights::Path(new)).await.unwrap();
}

#[test]
fn a_start_refuses_weights_that_somebody_writes_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    copied("llama", &path);
    let load = || {
        let source = WeightsSource::Directory(path.clone());
        NativeEngine::load(&NativeSettings { source, ..settings("llama") }, &mut |_, _| ())
    };
    let writing = Writing::begin(path.join("model.safetensors"));
    let error = (0..).find_map(|_| load().err()).unwrap().to_string();
    assert!(error.starts_with(&format!("{}/model.safetensors was changed", path.display())), "{error}");
    drop(writing);
    load().unwrap();
}

/// A trainer may turn a link to its latest weights at any moment: those are read that it led to at first.
#[test]
fn a_link_that_is_turned_while_weights_are_read_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().canonicalize().unwrap().join(name);
    for name in ["first", "second"] {
        copied("llama", &place(name));
    }
    symlink(place("first"), place("latest")).unwrap();
    let opened = [open_any(&place("latest")), open_any(&place("latest").join("model.safetensors"))];
    fs::remove_file(place("latest")).unwrap();
    symlink(place("second"), place("latest")).unwrap();
    for weights in opened {
        weights.unwrap().check_unchanged().unwrap();
    }
    // The directory itself is another one.
    let weights = open_any(&place("latest")).unwrap();
    fs::rename(place("second"), place("third")).unwrap();
    fs::rename(place("first"), place("second")).unwrap();
    let error = weights.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("/second/") && error.contains(" was replaced while it was read"), "{error}");
}
