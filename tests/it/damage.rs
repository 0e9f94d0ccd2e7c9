//! Files that were damaged, thousands of them: a model or a store is loaded, or refused with one line.
//!
//! Most are read in processes of this binary with little memory, so that a length that was believed ends the process
//! instead of going unnoticed. `TITO_TEST_DAMAGED_FILES` says how many there are of each kind. What the program says of some
//! of them is tested in `tests/program/damage.rs`.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
};

use crate::it::{
    damaged::{ADDRESSES, damaged},
    fuzz_seeds::files::{self, Kind},
};

/// What a child reads, and where it says how far it has come.
const KIND_OF_CHILD: &str = "TITO_TEST_DAMAGED_KIND";
const PROGRESS: &str = "TITO_TEST_DAMAGED_PROGRESS";
const COUNT: &str = "TITO_TEST_DAMAGED_FILES";
/// Of each kind, unless said otherwise; a tenth of it by each way of damaging.
const FILES: usize = 1_000;

/// What a child uses at most, in kB: most of it is for the test itself.
const MOST_MEMORY: usize = 400_000;

#[test]
#[ignore = "a process of the tests below"]
fn reads_damaged_files() {
    let Some(name) = env::var_os(KIND_OF_CHILD) else { return };
    let kind = *Kind::ALL.iter().find(|kind| name == *format!("{kind:?}")).unwrap();
    let progress = env::var_os(PROGRESS).unwrap();
    let files = env::var_os(COUNT).map_or(FILES, |count| count.to_str().unwrap().parse().unwrap());
    let specimen = files::specimen(kind);
    let sound = specimen.sound();
    specimen.check(&sound).unwrap();
    let (mut loaded, mut refused) = (0, 0);
    for number in 0..files {
        fs::write(&progress, number.to_string()).unwrap();
        match catch_unwind(AssertUnwindSafe(|| specimen.check(&damaged(&sound, number, kind.is_text())))) {
            Ok(Ok(())) => loaded += 1,
            Ok(Err(reason)) => {
                eprintln!("{number}: {reason}");
                refused += 1;
            }
            Err(panic) => panic!("file {number} of {kind:?} made a panic: {panic:?}"),
        }
    }
    println!("{kind:?}: {loaded} of {files} damaged files were loaded, {refused} refused; {} MB", peak() / 1000);
    assert!(refused > files / 4, "{refused}");
    assert!(peak() < MOST_MEMORY, "{} kB of memory were used", peak());
}

/// The memory that this process had at most, in kB; 0 where the system does not say.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Has a child read them; what it says at the end.
fn reads_all(kind: Kind) -> String {
    let directory = tempfile::tempdir().unwrap();
    let progress = directory.path().join("progress");
    let mut child = Command::new("sh");
    child.arg("-c").arg(format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"")).arg(env::current_exe().unwrap());
    child.args(["--exact", "it::damage::reads_damaged_files", "--ignored", "--nocapture"]);
    child.env(KIND_OF_CHILD, format!("{kind:?}")).env(PROGRESS, &progress);
    let output = child.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = fs::read_to_string(&progress).unwrap_or_default();
    assert!(output.status.success(), "{kind:?}, file {last}: {}\n{out}\n{err}", output.status);
    assert!(!err.contains("panicked at"), "{kind:?}: {err}");
    out.lines().find(|line| line.contains(" damaged files ")).unwrap_or_else(|| panic!("{out}")).to_owned()
}

#[test]
fn damaged_gguf_files_are_loaded_or_refused_with_one_line() {
    println!("{}", reads_all(Kind::Gguf));
}

#[test]
fn damaged_weights_are_loaded_or_refused_with_one_line() {
    println!("{}", reads_all(Kind::Safetensors));
    println!("{}", reads_all(Kind::Quantized));
    println!("{}", reads_all(Kind::Index));
}

#[test]
fn damaged_tokenizers_are_loaded_or_refused_with_one_line() {
    println!("{}", reads_all(Kind::Tokenizer));
    println!("{}", reads_all(Kind::TokenizerConfig));
}

#[test]
fn damaged_configurations_are_loaded_or_refused_with_one_line() {
    println!("{}", reads_all(Kind::Config));
    println!("{}", reads_all(Kind::GenerationConfig));
}

#[test]
fn damaged_stores_are_refused_or_have_what_was_written() {
    println!("{}", reads_all(Kind::Store));
}
