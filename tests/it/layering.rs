//! Which module may use which, and the rules of the house that rustc does not check.
//!
//! Every rule has a test that shows it failing on a bad sample, so that none is true by accident.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use crate::it::rooms::{self, CODE, CRATES, MAY_USE, PROGRAM, home, place};

/// Names that only some files may write, by the beginning of their paths.
const OWNED: [(&str, &[&str]); 23] = [
    // A filter of log lines names it.
    ("mistralrs_core", &["crates/tito-mistralrs/src/", "src/config/http.rs"]),
    ("mistralrs_paged_attn", &["crates/tito-engine/src/engine/native/cuda/kernels/"]),
    ("redb", &["src/store/"]),
    ("redis::", &["src/continuity_store/"]),
    ("rmp::", &["src/kv_events/", "src/media/mm_kwargs.rs"]),
    ("fastcdc", &["src/store/"]),
    ("parquet::", &["src/wire/trajectories/table.rs"]),
    ("zstd", &["crates/tito-engine/src/weights/delta/"]),
    ("twox_hash", &["crates/tito-engine/src/weights/delta/"]),
    (
        "candle_core",
        &[
            "crates/tito-engine/src/engine/gpu.rs",
            "crates/tito-mistralrs/src/",
            "crates/tito-engine/src/engine/native/",
            "crates/tito-model/src/gguf/",
        ],
    ),
    // A test of the mistralrs engine needs a tokenizer of the library's own.
    ("tokenizers::", &["crates/tito-model/src/tokenizer/", "crates/tito-mistralrs/src/alphabet.rs"]),
    ("llguidance", &["crates/tito-text/src/structured/"]),
    (
        "StatusCode",
        &[
            "src/admin/error.rs",
            "src/http/error.rs",
            "src/api/about/health.rs",
            "src/server/auth.rs",
            // Browsers take nothing else for an answer to a preflight request.
            "src/server/cors.rs",
            "crates/tito-model/src/model/hub/tests.rs",
        ],
    ),
    // Settings come from the environment in one place; where temporary files go is none, and tests ask where the model
    // is and whether there is a GPU.
    ("env::var", &["src/config/", "crates/tito-mistralrs/src/tests/real_model.rs"]),
    ("env::var_os", &["src/config/", "crates/tito-engine/src/engine/native/cuda/tests/mod.rs"]),
    ("env::vars", &["src/config/"]),
    ("env::home_dir", &["src/config/"]),
    ("process::exit", &["src/server/stop_signal.rs"]),
    (
        "axum",
        &[
            "src/admin/",
            "src/api/",
            "src/http/",
            "src/inspect/",
            "src/request_fields/",
            "src/server/",
            "src/sglang/",
            "src/tinker/",
            "crates/tito-model/src/model/hub/tests.rs",
        ],
    ),
    ("clap", &["src/config/", "crates/tito-text/src/prompt/request.rs"]),
    // Flags become settings in one place.
    ("ServeArgs", &["src/config/", "src/launch/settings/", "src/launch/mod.rs"]),
    ("HttpArgs", &["src/config/", "src/launch/settings/"]),
    ("AdminArgs", &["src/config/", "src/launch/settings/"]),
];

/// Where instructions that the language does not know are written, a GPU's memory, and a call of the C library that has
/// no safe name; the allocators of tests. rustc denies unsafe code elsewhere.
const UNSAFE: [&str; 5] = [
    "crates/tito-engine/src/engine/native/cpu/kernels/",
    "crates/tito-engine/src/engine/native/cuda/kernels/",
    "crates/tito-engine/src/engine/native/tests/allocated.rs",
    "src/trajectory/tests/size.rs",
    "src/turn/memory.rs",
];
const MOST_LINES: usize = 500;
/// Names that say nothing.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "helpers", "helper", "common", "misc"];

/// A file of the repository.
pub(super) struct Source {
    /// From the repository's root, with `/`.
    pub(super) path: String,
    text: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// `api` of `src/api/error.rs`, `telemetry` of `src/telemetry.rs`; `None` outside of the crates' code.
    fn part(&self) -> Option<&str> {
        let (home, inner) = place(&self.path)?;
        let only = CRATES.iter().find_map(|(name, parts)| (*name == home && parts.len() == 1).then_some(parts[0]));
        only.or_else(|| Some(inner.split('/').next()?.trim_end_matches(".rs")))
    }

    /// Lines with their numbers, without comments.
    pub(super) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        numbered.map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
    }

    /// The crate's own parts that the file names, with the lines.
    fn uses(&self) -> Vec<(usize, String)> {
        let mut code = String::new();
        for (_, line) in self.code() {
            code.push_str(line);
            code.push('\n');
        }
        let mut found = Vec::new();
        for root in ["crate::", "tito::"] {
            for (at, _) in code.match_indices(root) {
                let starts_a_name = code[..at].chars().next_back().is_none_or(|c| !is_name(c) && c != ':');
                if starts_a_name {
                    let line = code[..at].matches('\n').count() + 1;
                    named_after(&code[at + root.len()..], line, &mut found);
                }
            }
        }
        found
    }
}

pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub(super) fn name_at(text: &str) -> &str {
    text.split(|c| !is_name(c)).next().unwrap_or_default()
}

/// The first names of what follows `crate::`: one, or those of a group.
fn named_after(rest: &str, line: usize, found: &mut Vec<(usize, String)>) {
    if !rest.starts_with('{') {
        found.push((line, name_at(rest).to_owned()));
        return;
    }
    let (mut depth, mut expects, mut line) = (0, true, line);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => expects = true,
            '\n' => line += 1,
            c if depth == 1 && expects && is_name(c) => {
                found.push((line, name_at(&rest[at..]).to_owned()));
                expects = false;
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

fn parts() -> BTreeMap<&'static str, &'static [&'static str]> {
    MAY_USE.into_iter().collect()
}

/// Uses that the table does not allow.
fn wrong_uses(source: &Source) -> Vec<String> {
    let parts = parts();
    let Some(part) = source.part().filter(|part| *part != "lib") else { return Vec::new() };
    let Some(allowed) = parts.get(part) else {
        return vec![format!("{}: the part `{part}` is not in the table of tests/it/rooms.rs", source.path)];
    };
    let wrong = |(line, used): (usize, String)| {
        let is_part = parts.contains_key(used.as_str()) && used != part;
        let is_ours = home(part) == PROGRAM || home(part) == home(&used);
        (is_part && is_ours && !allowed.contains(&used.as_str()))
            .then(|| format!("{}:{line}: `{part}` may not use `{used}`", source.path))
    };
    let mut complaints: Vec<_> = source.uses().into_iter().filter_map(wrong).collect();
    // From a part's root, `super::` is the crate: an edge that the table would not see.
    let (_, inner) = place(&source.path).unwrap_or_default();
    let root = inner == format!("{part}.rs") || inner == format!("{part}/mod.rs");
    let upward = |(number, line): (usize, &str)| {
        let hidden = root && !line.starts_with(' ') && line.contains("super::");
        hidden.then(|| format!("{}:{number}: write `crate::` for a part of the crate", source.path))
    };
    complaints.extend(source.code().filter_map(upward));
    complaints
}

/// Names that belong to other files.
fn foreign_names(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, owners) in OWNED {
        if place(&source.path).is_none() || owners.iter().any(|owner| source.path.starts_with(owner)) {
            continue;
        }
        for (number, line) in source.code() {
            let names = line.match_indices(name).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + name.len()..].chars().next();
                let whole = name.ends_with(':') || after.is_none_or(|c| !is_name(c));
                before.is_none_or(|c| !is_name(c)) && whole
            });
            if names {
                complaints.push(format!("{}:{number}: only {owners:?} may name `{name}`", source.path));
            }
        }
    }
    complaints
}

/// Size, name and safety.
fn bad_shape(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = source.text.lines().count();
    if lines > MOST_LINES {
        complaints.push(format!("{}: {lines} lines, more than {MOST_LINES}", source.path));
    }
    let names = source.path.split('/').map(|name| name.trim_end_matches(".rs"));
    for name in names.filter(|name| EMPTY_NAMES.contains(name)) {
        complaints.push(format!("{}: `{name}` says nothing", source.path));
    }
    if UNSAFE.iter().any(|folder| source.path.starts_with(folder)) {
        return complaints;
    }
    // rustc denies it too, but for the crate's own code only.
    let unsafe_code = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
    for (number, line) in source.code() {
        if unsafe_code.iter().any(|code| line.trim_start().starts_with(code) || line.contains(&format!(" {code}"))) {
            complaints.push(format!("{}:{number}: no `unsafe`", source.path));
        }
    }
    complaints
}

pub(super) fn sources(folders: &[&str]) -> Vec<Source> {
    fn collect(folder: &Path, root: &Path, out: &mut Vec<Source>) {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                collect(&path, root, out);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                out.push(Source { path: name, text: fs::read_to_string(&path).unwrap() });
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = Vec::new();
    for folder in folders {
        collect(&root.join(folder), root, &mut out);
    }
    assert!(out.len() > 2);
    out
}

fn assert_clean(folders: &[&str], rule: impl Fn(&Source) -> Vec<String>) {
    let mut report = String::new();
    for complaint in sources(folders).iter().flat_map(rule) {
        let _ = writeln!(report, "{complaint}");
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn no_part_uses_one_above_it() {
    assert_clean(&CODE, wrong_uses);
}

#[test]
fn dependencies_are_named_where_they_belong() {
    assert_clean(&CODE, foreign_names);
}

#[test]
fn files_are_short_aptly_named_and_safe() {
    assert_clean(&["src", "crates", "tests", "benches"], bad_shape);
}

/// Parts with more lines than they may have.
fn too_large(sources: &[Source]) -> Vec<String> {
    let lines = |part| {
        let of_part = sources.iter().filter(|source| source.part() == Some(part));
        of_part.map(|source| source.text.lines().count()).sum::<usize>()
    };
    let too_large = rooms::MOST_LINES.iter().filter(|(part, most)| lines(*part) >= *most);
    too_large
        .map(|(part, most)| format!("`{part}` has {} lines, and may have fewer than {most}", lines(*part)))
        .collect()
}

#[test]
fn parts_with_a_bound_keep_to_it() {
    assert_eq!(too_large(&sources(&CODE)), [] as [&str; 0]);
}

#[test]
fn a_part_that_is_too_large_is_found() {
    let halves =
        |lines: usize| ["src/api/mod.rs", "src/api/messages/mod.rs"].map(|path| Source::new(path, &"\n".repeat(lines)));
    assert_eq!(too_large(&halves(4_499)), [] as [&str; 0]);
    assert_eq!(too_large(&halves(4_500)), ["`api` has 9000 lines, and may have fewer than 9000"]);
}

#[test]
fn the_table_has_every_part_and_no_circle() {
    let parts = parts();
    for folder in CODE {
        let lib = format!("{folder}/lib.rs");
        let (name, _) = place(&lib).unwrap();
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&lib)).unwrap();
        let declared: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
            .filter(|part| *part != "it")
            .collect();
        match CRATES.iter().find(|(other, _)| *other == name) {
            Some((_, [only])) => assert!(parts.contains_key(only), "{only}"),
            Some((_, several)) => assert_eq!(declared, several.iter().copied().collect(), "{name}"),
            None => assert!(declared.iter().all(|part| parts.contains_key(part)), "{declared:?}"),
        }
    }
    // Parts whose dependencies are all known to lead nowhere back.
    let mut settled: Vec<&str> = Vec::new();
    while settled.len() < parts.len() {
        let before = settled.len();
        for (part, uses) in &parts {
            if !settled.contains(part) && uses.iter().all(|used| settled.contains(used)) {
                settled.push(part);
            }
        }
        assert!(settled.len() > before, "a circle among {:?}", parts.keys().filter(|part| !settled.contains(part)));
    }
}

#[test]
fn a_use_that_is_not_in_the_table_is_found_however_it_is_written() {
    let bad = [
        ("crates/tito-engine/src/weights/mod.rs", "use crate::engine::Engine;", 1),
        (
            "crates/tito-text/src/chat/said.rs",
            "use crate::{\n    TokenId,\n    json::{A, B},\n    prompt::Tail,\n};",
            4,
        ),
        ("crates/tito-model/src/json/node.rs", "fn a() {\n    let b = crate::files::Silence;\n}", 2),
        ("src/telemetry.rs", "use crate::{engine::EngineLoad, server};", 1),
        ("src/api/error.rs", "use crate::{prompt::{A, B}, server::X};", 1),
        ("src/main.rs", "use tito::{\n    program,\n    prompt,\n};", 3),
        ("crates/tito-model/src/json/mod.rs", "use super::chat::Message;", 1),
    ];
    for (path, text, line) in bad {
        let complaints = wrong_uses(&Source::new(path, text));
        assert_eq!(complaints.len(), 1, "{path}: {complaints:?}");
        assert!(complaints[0].starts_with(&format!("{path}:{line}:")), "{complaints:?}");
    }
    assert_eq!(wrong_uses(&Source::new("src/novel/mod.rs", "")).len(), 1);
}

#[test]
fn allowed_uses_and_comments_are_not_complained_about() {
    let good = [
        ("crates/tito-engine/src/engine/scripted/mod.rs", "use crate::{TokenId, engine::Gate, sampling::Sampler};"),
        (
            "crates/tito-engine/src/engine/mod.rs",
            "//! See [`crate::api`].\nuse crate::TokenId; // crate::server\npub(super) fn a() {}",
        ),
        ("crates/tito-model/src/json/mod.rs", "mod tests {\n    use super::*;\n}"),
        ("src/lib.rs", "pub mod api;\npub mod json;"),
        ("crates/tito-text/src/prompt/mod.rs", "use crate::{chat::{FunctionTool, Message}, json::{Object, api}};"),
    ];
    for (path, text) in good {
        assert_eq!(wrong_uses(&Source::new(path, text)), [] as [&str; 0], "{path}");
    }
}

#[test]
fn a_name_in_the_wrong_place_is_found() {
    let bad = [
        ("src/api/mod.rs", "use mistralrs_core::Request;"),
        ("crates/tito-model/src/model/config.rs", "use candle_core::Device;"),
        ("crates/tito-text/src/prompt/mod.rs", "let a = tokenizers::Tokenizer::new(model);"),
        ("src/api/models.rs", "use axum::http::StatusCode;"),
        ("src/launch/mod.rs", "let home = std::env::home_dir();"),
        ("src/server/mod.rs", "let key = env::var_os(\"KEY\");"),
        ("crates/tito-engine/src/engine/mod.rs", "fn a() { std::process::exit(1) }"),
        ("src/generation/mod.rs", "use axum::Json;"),
        ("crates/tito-sampling/src/params.rs", "#[derive(clap::ValueEnum)]"),
        ("src/launch/listen.rs", "fn bind(args: &HttpArgs) {}"),
    ];
    for (path, text) in bad {
        assert_eq!(foreign_names(&Source::new(path, text)).len(), 1, "{path}: {text}");
    }
    for (path, text) in [
        ("crates/tito-model/src/tokenizer/mod.rs", "use tokenizers::Tokenizer;"),
        ("src/api/mod.rs", "// StatusCode is for error.rs\nlet axum_like = tokenizer;"),
        ("src/launch/weights.rs", "let directory = std::env::temp_dir();"),
        ("src/api/models.rs", "let version = env!(\"CARGO_PKG_VERSION\");"),
    ] {
        assert_eq!(foreign_names(&Source::new(path, text)), [] as [&str; 0], "{path}");
    }
}

#[test]
fn long_nameless_and_unsafe_files_are_found() {
    let long = "\n".repeat(MOST_LINES + 1);
    for (path, text) in [
        ("src/api/mod.rs", long.as_str()),
        ("src/api/utils.rs", ""),
        ("tests/it/common/mod.rs", ""),
        ("crates/tito-model/src/json/parse.rs", concat!("fn a() {\n    uns", "afe { b() }\n}")),
    ] {
        assert_eq!(bad_shape(&Source::new(path, text)).len(), 1, "{path}");
    }
    for (path, text) in [
        ("crates/tito-model/src/json/parse.rs", "// unsafe {\nlet unsafe_code = \"it is unsafe\";"),
        (
            "crates/tito-engine/src/engine/native/cpu/kernels/amx/panel.rs",
            concat!("fn a() {\n    uns", "afe { b() }\n}"),
        ),
    ] {
        assert_eq!(bad_shape(&Source::new(path, text)), [] as [&str; 0], "{path}");
    }
}
