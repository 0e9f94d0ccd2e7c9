//! tito against recordings of Python: what vLLM's side of a chat renders, and which ids the tokenizers library gives.
//!
//! The recording is made outside the repository (`tests/fidelity/README.md`), since it takes templates and tokenizers
//! that are fetched. Without it these tests pass and say that they did nothing.

/// Vocabularies of GGUF files.
mod gguf;
/// Ids and texts of real tokenizers.
mod ids;
/// Long texts, in pieces and whole.
mod long_texts;
/// Real chat templates.
mod renders;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use serde_json::Value;

/// How many differences a failing test shows.
const SHOWN: usize = 12;

/// The directory that `tests/fidelity/record.py` wrote.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where the recording is")]
pub(crate) fn recording() -> Option<PathBuf> {
    let path = std::env::var("TITO_TEST_FIDELITY").ok();
    let required = std::env::var("TITO_REQUIRE_FIDELITY").is_ok_and(|value| value == "1");
    assert!(path.is_some() || !required, "TITO_TEST_FIDELITY is not set");
    if path.is_none() {
        eprintln!("SKIPPED: TITO_TEST_FIDELITY is not set; scripts/test makes the recording and sets it");
    }
    path.map(Into::into)
}

/// The lines of a recorded file.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(ToOwned::to_owned).collect()
}

/// The lines of a recorded file, read.
fn values(path: &Path) -> Vec<Value> {
    lines(path).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names of a directory's files without their extension, in order.
fn stems(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut stems: Vec<String> =
        entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    stems.sort_unstable();
    stems
}

/// Does the jobs on all processors.
fn in_parallel<T: Send>(jobs: Vec<T>, work: impl Fn(T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let jobs = Mutex::new(jobs);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = jobs.lock().unwrap().pop();
                    let Some(job) = job else { break };
                    work(job);
                }
            });
        }
    });
}

/// Fails with the first of the differences, if there are any.
fn assert_none(differences: &[String]) {
    let shown = differences.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), shown.join("\n\n"));
}

/// Two texts from where they part, in short.
fn parting(expected: &str, got: &str) -> String {
    let same = expected.bytes().zip(got.bytes()).take_while(|(left, right)| left == right).count();
    let from = |text: &str| {
        let start = (0..=same.saturating_sub(30)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text[start..].chars().take(120).collect::<String>()
    };
    format!("  expected …{:?}\n  got      …{:?}", from(expected), from(got))
}
