//! What becomes of the file itself: removed, replaced, or left half made.

use std::{fs, path::PathBuf};

use super::*;

fn a_file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store").join("responses");
    fs::create_dir(path.parent().unwrap()).unwrap();
    (directory, path)
}

fn put(store: &DiskStore, id: &str) -> Result<(), StoreError> {
    store.put(id, RecordState::Done, b"record")
}

const GONE: &str = "; what it has is lost when the server ends";

#[test]
fn nothing_is_accepted_once_the_file_was_removed() {
    let (_directory, path) = a_file();
    let store = DiskStore::open(&path, MOST).unwrap();
    put(&store, "a").unwrap();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let says = |error: StoreError| {
        assert_eq!(
            error.to_string(),
            format!("the response store failed: its file was removed while it was in use{GONE}")
        );
    };
    says(put(&store, "b").unwrap_err());
    says(ResponseStore::delete(&store, "a").unwrap_err());
    says(store.write(&[], &[("c", b"record")]).unwrap_err());
    // What it has can be read as long as the process runs.
    assert!(store.get("a").unwrap().is_some() && store.get("b").unwrap().is_none());
    // A fault meanwhile does not lead to a new file either.
    store.close(0);
    says(store.get("a").map(|_| ()).unwrap_err());
}

#[test]
fn nothing_is_accepted_once_another_file_is_in_its_place() {
    let (_directory, path) = a_file();
    let store = DiskStore::open(&path, MOST).unwrap();
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).unwrap();
    let second = DiskStore::open(&path, MOST).unwrap();
    put(&second, "a").unwrap();
    let error = put(&store, "b").unwrap_err().to_string();
    assert_eq!(
        error,
        format!("the response store failed: its file was replaced by another one while it was in use{GONE}")
    );
    store.close(0);
    assert!(store.get("a").is_err(), "a store is not read whose file is another one");
    drop(second);
    // It is the same file again.
    fs::rename(&aside, &path).unwrap();
    put(&store, "b").unwrap();
}

#[test]
fn a_start_removes_what_an_earlier_one_left_half_made_and_nothing_else() {
    let (_directory, path) = a_file();
    let beside = |name: &str| path.with_file_name(name);
    let (mine, others) =
        (".responses.aB3xYz.new", [".responses.new", ".other.aB3xYz.new", ".responses.aB3xYz.news", ".tmpaB3xYz"]);
    for name in others.into_iter().chain([mine]) {
        fs::write(beside(name), []).unwrap();
    }
    let store = DiskStore::open(&path, MOST).unwrap();
    assert!(!beside(mine).exists());
    assert!(others.iter().all(|name| beside(name).exists()));
    put(&store, "a").unwrap();
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1 + others.len());
}
