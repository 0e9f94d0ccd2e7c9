//! Files that were damaged, thousands of them: a model or a store is loaded, or refused with one line.
//!
//! Most are read in processes of this binary with little memory, so that a length that was believed ends the process
//! instead of going unnoticed, and some by the binary of the server. `TITO_TEST_DAMAGED_FILES` says how many there are
//! of each kind.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{
    cli::tito,
    fuzz_seeds::files::{Kind, Place},
};

/// What a child reads, and where it says how far it has come.
const KIND_OF_CHILD: &str = "TITO_TEST_DAMAGED_KIND";
const PROGRESS: &str = "TITO_TEST_DAMAGED_PROGRESS";
const COUNT: &str = "TITO_TEST_DAMAGED_FILES";
/// Of each kind, unless said otherwise; a tenth of it by each way of damaging.
const FILES: usize = 1_000;
/// Addresses of a child, in KiB.
const ADDRESSES: usize = 2_500_000;

const KINDS: [Kind; 8] = [
    Kind::Gguf,
    Kind::Safetensors,
    Kind::Index,
    Kind::Tokenizer,
    Kind::TokenizerConfig,
    Kind::Config,
    Kind::GenerationConfig,
    Kind::Store,
];

/// What a child uses at most, in kB: most of it is for the test itself.
const MOST_MEMORY: usize = 400_000;

/// Numbers that lengths are replaced with.
const LENGTHS: [u64; 8] = [0, 1 << 20, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 60, i64::MAX.cast_unsigned(), u64::MAX];
/// What numbers in texts are replaced with.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1000000000000000",
    "18446744073709551615",
    "1152921504606846976",
    "4294967295",
    "1e400",
    "0.5",
    "null",
    "\"7\"",
];

/// A fixed stream of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    /// A part of a file of this length: mostly of its beginning, where headers are.
    fn place(&mut self, length: usize) -> usize {
        let end = if self.below(4) == 0 { length } else { length.min(6000) };
        self.below(end)
    }
}

/// Damages a file in one of ten ways.
fn damaged(sound: &[u8], number: usize, is_text: bool) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    random.next();
    let mut file = sound.to_vec();
    let at = random.place(file.len());
    let some = random.below(40).min(file.len() - at);
    match number % 10 {
        0 => file[at] ^= 1 << random.below(8),
        1 => (0..16).for_each(|_| {
            let at = random.place(sound.len());
            file[at] ^= 1 << random.below(8);
        }),
        2 => file.truncate(at),
        3 => drop(file.drain(at..at + some)),
        4 => drop(file.splice(at..at, (0..=some).map(|_| random.byte()))),
        5 => file[at..at + some].fill(0),
        6 if is_text => replace_value(&mut file, &mut random),
        6 => file[at..at + some].fill(0xff),
        7 if is_text => replace_number(&mut file, at, NUMBERS[random.below(NUMBERS.len())]),
        7 => replace_length(&mut file, at, LENGTHS[random.below(LENGTHS.len())]),
        8 => {
            let from = random.place(file.len() - some);
            file.copy_within(from..from + some, at);
        }
        _ if is_text => {
            drop(file.splice(at..at, ["[", "{\"a\":", "\"", "1"][random.below(4)].repeat(20_000).into_bytes()));
        }
        _ => file[at..].iter_mut().take(4096).for_each(|byte| *byte = random.byte()),
    }
    file
}

/// Any value of a JSON file, by one that does not belong there.
fn replace_value(file: &mut Vec<u8>, random: &mut Random) {
    let mut json: serde_json::Value = serde_json::from_slice(file).unwrap();
    let mut value = &mut json;
    loop {
        let count = match &value {
            serde_json::Value::Array(values) => values.len(),
            serde_json::Value::Object(values) => values.len(),
            _ => 0,
        };
        if count == 0 || random.below(4) == 0 {
            break;
        }
        let index = random.below(count);
        value = match value {
            serde_json::Value::Array(values) => &mut values[index],
            serde_json::Value::Object(values) => values.values_mut().nth(index).unwrap(),
            _ => unreachable!("it has values"),
        };
    }
    let others = [json!([]), json!({}), json!(""), json!(true), json!(null), json!([[0]]), json!("\u{1f642}\n")];
    let number = serde_json::from_str(NUMBERS[random.below(6)]).unwrap();
    *value = others.into_iter().nth(random.below(14)).unwrap_or(number);
    *file = serde_json::to_vec(&json).unwrap();
}

/// The next number from a place on.
fn replace_number(file: &mut Vec<u8>, at: usize, by: &str) {
    let Some(start) = file[at..].iter().position(u8::is_ascii_digit).map(|digit| at + digit) else { return };
    let digits = file[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    file.splice(start..start + digits, by.bytes());
}

/// The next eight bytes from a place on that may be a length.
fn replace_length(file: &mut [u8], at: usize, by: u64) {
    let is_length = |bytes: &[u8]| (1..10_000).contains(&u64::from_le_bytes(bytes.try_into().unwrap()));
    if let Some(next) = file[at..].windows(8).position(is_length) {
        file[at + next..][..8].copy_from_slice(&by.to_le_bytes());
    }
}

fn is_text(kind: Kind) -> bool {
    !matches!(kind, Kind::Gguf | Kind::Safetensors | Kind::Store)
}

#[test]
#[ignore = "a process of the tests below"]
fn reads_damaged_files() {
    let Some(name) = env::var_os(KIND_OF_CHILD) else { return };
    let kind = *KINDS.iter().find(|kind| name == *format!("{kind:?}")).unwrap();
    let progress = env::var_os(PROGRESS).unwrap();
    let files = env::var_os(COUNT).map_or(FILES, |count| count.to_str().unwrap().parse().unwrap());
    let place = Place::new(kind);
    let sound = place.sound();
    place.check(&sound).unwrap();
    let (mut loaded, mut refused) = (0, 0);
    for number in 0..files {
        fs::write(&progress, number.to_string()).unwrap();
        match catch_unwind(AssertUnwindSafe(|| place.check(&damaged(&sound, number, is_text(kind))))) {
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
    child.args(["--exact", "damage::reads_damaged_files", "--ignored", "--nocapture"]);
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

/// Runs the server until it serves or ends; whether it served, or the one line with which it ended.
fn run(arguments: &[&str]) -> Result<(), String> {
    let program = tito(arguments);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"")).arg(program.get_program());
    command.args(program.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn().unwrap();
    let mut seen = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(" | http") {
            child.kill().unwrap();
            child.wait().unwrap();
            return Ok(());
        }
        seen.push(line);
    }
    let status = child.wait().unwrap();
    if status.success() {
        return Ok(());
    }
    assert_eq!(status.code(), Some(1), "{arguments:?}: {status}, {seen:#?}");
    let errors: Vec<&String> = seen.iter().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors[..] else { panic!("{arguments:?}: {seen:#?}") };
    assert_eq!(seen.last(), Some(error), "the reason is the last line: {seen:#?}");
    assert!(!seen.iter().any(|line| line.contains("panicked") || line.contains("RUST_BACKTRACE")), "{seen:#?}");
    Err(error.clone())
}

const ON_A_FREE_PORT: [&str; 4] = ["--host", "127.0.0.1", "--port", "0"];

/// Kernels that need no trial, which takes its time where nothing is optimised.
const NATIVE: [&str; 6] = ["--engine", "native", "--threads", "1", "--kernels", "portable"];

fn serve(model: &Path, more: &[&str]) -> Result<(), String> {
    run(&[&["serve", model.to_str().unwrap()], &NATIVE[..], &ON_A_FREE_PORT[..], more].concat())
}

#[test]
fn the_server_and_the_converter_end_with_one_line_and_1_where_they_cannot_load() {
    for kind in KINDS {
        let place = Place::new(kind);
        let sound = place.sound();
        for number in 0..10 {
            fs::write(place.path(), damaged(&sound, number, is_text(kind))).unwrap();
            let outcome = if kind == Kind::Store {
                let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");
                let store = place.path();
                let scripted = ["serve", model, "--engine", "scripted", "--response-store", store.to_str().unwrap()];
                run(&[&scripted, &ON_A_FREE_PORT[..]].concat())
            } else {
                serve(&place.model(), &["--kv-cache-memory", "1M"])
            };
            println!("{kind:?} {number}: {outcome:?}");
            if kind == Kind::Gguf {
                let directory = place.path().with_extension(format!("{number}"));
                let converted = run(&["convert", place.path().to_str().unwrap(), directory.to_str().unwrap()]);
                assert_eq!(converted.is_ok(), directory.exists(), "{converted:?}");
            }
        }
    }
}

#[test]
fn a_line_break_of_a_file_does_not_break_the_line_that_quotes_it() {
    let place = Place::new(Kind::Tokenizer);
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&place.sound()).unwrap();
    tokenizer["version"] = json!("7\nerror: \u{1b}[2J");
    fs::write(place.path(), tokenizer.to_string()).unwrap();
    let line = serve(&place.model(), &["--kv-cache-memory", "1M"]).unwrap_err();
    assert!(line.contains("Unknown tokenizer version '7 error: \\u{1b}[2J'"), "{line}");
}

#[test]
fn memory_that_is_not_there_is_one_line() {
    let place = Place::new(Kind::Config);
    let refusal = |arguments: &[&str]| serve(&place.model(), arguments).unwrap_err();
    let line = refusal(&["--kv-cache-memory", "900T"]);
    assert!(line.contains("--kv-cache-memory") && line.contains("of memory that there are"), "{line}");
    // More than the process may address, whether or not the machine has as much.
    let line = refusal(&["--kv-cache-memory", "3G"]);
    assert!(line.contains("KV cache of 3221225472 bytes is too large") || line.contains("that there are"), "{line}");

    // A sparse file of 2 GB, of which nothing need be read to know that there is no room for it.
    let config: serde_json::Value = serde_json::from_slice(&place.sound()).unwrap();
    let wide = serde_json::json!({ "vocab_size": 1 << 24, "eos_token_id": 2 });
    let mut wider = config;
    wider.as_object_mut().unwrap().extend(wide.as_object().unwrap().clone());
    fs::write(place.path(), wider.to_string()).unwrap();
    widen_embeddings(&place.model().join("model.safetensors"), 1 << 24);
    let line = refusal(&["--kv-cache-memory", "1M", "--dtype", "bfloat16"]);
    assert!(line.contains("no room for the model's weights") || line.contains("that there are"), "{line}");
}

/// Makes the embeddings and the head of a file of tensors that many rows long, by a hole at its end.
fn widen_embeddings(path: &Path, rows: usize) {
    let file = fs::read(path).unwrap();
    let length = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let mut header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&file[8..8 + length]).unwrap();
    header.remove("__metadata__");
    let mut end = 0;
    for (name, tensor) in &mut header {
        if name == "model.embed_tokens.weight" || name == "lm_head.weight" {
            tensor["shape"][0] = rows.into();
            tensor["dtype"] = "BF16".into();
        }
        let numbers: u64 = tensor["shape"].as_array().unwrap().iter().map(|len| len.as_u64().unwrap()).product();
        let bytes = numbers * if tensor["dtype"] == "F32" { 4 } else { 2 };
        tensor["data_offsets"] = serde_json::json!([end, end + bytes]);
        end += bytes;
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    fs::write(path, &bytes).unwrap();
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes.len() as u64 + end).unwrap();
}
