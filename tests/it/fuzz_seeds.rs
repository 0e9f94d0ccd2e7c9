//! The seeds of the fuzz targets, and what they have found, replayed without a fuzzer.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use files::Kind;
use proptest::test_runner::Config as ProptestConfig;
use tito::parser::ToolParser;

#[path = "../../fuzz/src/body.rs"]
mod body;
#[path = "../../fuzz/src/files.rs"]
pub(crate) mod files;
#[path = "../../fuzz/src/image.rs"]
mod image;
#[path = "../../fuzz/src/parser.rs"]
mod parser;
#[path = "../../fuzz/src/splice.rs"]
mod splice;
#[path = "../../fuzz/src/template.rs"]
mod template;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let paths = fs::read_dir(&seeds).unwrap().map(|seed| seed.unwrap().path());
    let seeds: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(seeds.len() > 5, "{target} has only {} seeds", seeds.len());
    seeds
}

#[test]
fn seeds_of_bodies_are_answered_and_one_of_each_path_is_served() {
    let mut served = BTreeSet::new();
    for (path, seed) in seeds("body") {
        eprintln!("{}", path.display());
        served.extend(body::check(&seed).filter(|&(_, status)| status == 200).map(|(path, _)| path));
    }
    assert_eq!(served, body::PATHS.into());
}

#[test]
fn seeds_of_splices_are_exact_or_refused() {
    for (path, seed) in seeds("splice") {
        eprintln!("{}", path.display());
        splice::check(&seed);
    }
}

#[test]
fn seeds_of_files_are_loaded_or_refused_with_one_line() {
    for (target, kind) in [
        ("config", Kind::Config),
        ("gguf", Kind::Gguf),
        ("safetensors", Kind::Safetensors),
        ("store", Kind::Store),
        ("tokenizer", Kind::Tokenizer),
    ] {
        let mut loaded = 0;
        for (path, seed) in seeds(target) {
            let outcome = files::check(kind, &seed);
            eprintln!("{}: {outcome:?}", path.display());
            let sound = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("whole"));
            assert!(outcome.is_ok() || !sound, "{}: {outcome:?}", path.display());
            loaded += usize::from(sound);
        }
        assert!(loaded > 0, "{target} has no seed that is loaded");
    }
}

#[test]
fn seeds_of_images_are_seen_or_refused_with_a_reason() {
    for (path, seed) in seeds("image") {
        let outcome = image::check(&seed);
        eprintln!("{}: {outcome:?}", path.display());
        let sound = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("whole"));
        assert_eq!(outcome.is_ok(), sound, "{}: {outcome:?}", path.display());
    }
}

#[test]
fn seeds_of_answers_are_read_and_one_of_each_format_has_a_call() {
    let mut called = BTreeSet::new();
    for (path, seed) in seeds("parser") {
        eprintln!("{}", path.display());
        called.extend(parser::check(&seed));
    }
    let without: Vec<_> = ToolParser::names().filter(|name| !called.contains(*name)).collect();
    assert!(
        without.is_empty(),
        "add a file to fuzz/seeds/parser, as the others are, with a call of each of {without:?}"
    );
}

/// What a model may write as a value.
const VALUES: [&[u8]; 8] = [b"3", b"3.0", b"true", b"null", b"None", b"[1]", b"{'k': True}", b"\"3\""];

/// Seeds of answers with their parts in another order, values among them and any schema, as many as a few seconds make;
/// `PROPTEST_CASES` asks for more.
#[test]
fn parts_of_answers_in_any_order_lose_nothing() {
    let seeds: Vec<_> = seeds("parser").into_iter().map(|(_, seed)| seed).collect();
    let parts: Vec<&[u8]> = seeds.iter().flat_map(|seed| seed.split_inclusive(|&byte| byte == b'>')).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut number = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..ProptestConfig::default().cases * 4 {
        let mut bytes = seeds[number(seeds.len())].clone();
        let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place);
        if let Some(schema) = ends.nth(1).and_then(|end| bytes.get_mut(end + 1)) {
            *schema = b'0' + u8::try_from(number(parser::SCHEMA_COUNT)).unwrap();
        }
        for place in (0..bytes.len()).rev() {
            if bytes[place] == b'W' && number(3) == 0 {
                bytes.splice(place..=place, VALUES[number(VALUES.len())].iter().copied());
            }
        }
        for _ in 0..number(5) {
            let (one, other) = (number(bytes.len() + 1), number(bytes.len() + 1));
            let part = if number(3) == 0 { b"W" } else { parts[number(parts.len())] };
            match number(3) {
                0 => drop(bytes.splice(one..one, part.iter().copied())),
                1 => drop(bytes.splice(one.min(other)..one.max(other), part.iter().copied())),
                _ => bytes.truncate(one.max(other)),
            }
        }
        parser::check(&bytes);
    }
}

#[test]
fn seeds_of_templates_are_rendered_or_refused() {
    let rendered = seeds("template").iter().filter(|(_, seed)| template::check(seed)).count();
    assert!(rendered >= 3, "{rendered}");
}

/// As many inputs as a second makes, from a fixed stream of numbers: the fuzzer's seeds alone say little.
#[test]
fn random_bytes_make_no_wrong_splice() {
    let mut spliced = 0;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..3_000 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(80)
        .collect();
        spliced += usize::from(splice::check(&bytes));
    }
    assert!(spliced > 500, "{spliced}");
}
