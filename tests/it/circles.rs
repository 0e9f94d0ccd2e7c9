//! Files that import each other, directly or by way of others: none can be read, moved or tested without the rest.
//!
//! What the module of a folder defines itself is above its children where it uses them. A child that uses it is in a circle with
//! it: what both need belongs in a file of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::it::{
    layering::{Source, sources},
    rooms::CODE,
    uses_of_files::Crate,
};

/// Files that use what the module of a folder around them defines, while that module uses them: the module, why, and the
/// files of its folder. The list may only get shorter.
///
/// The filters `map` and `select` of jinja2 look other filters up by their names, and are in the table of these names
/// themselves: what is recursive in the language is so here.
const KNOWN_UPWARD: &[(&str, &str, &[&str])] =
    &[("crates/tito-text/src/prompt/template/filters/mod.rs", "a filter that applies filters by name", &["select"])];

/// What each room of a part may use of the others. Nothing points up, and only the part itself knows all of its rooms.
type Rooms = &'static [(&'static str, &'static [&'static str])];

/// The parts that have such a table.
const PARTS: [(&str, Rooms); 2] = [("api", ROOMS_OF_API), ("wire", ROOMS_OF_WIRE)];

const ROOMS_OF_API: Rooms = &[
    ("about", &[]),
    ("chat_completions", &[]),
    ("completions", &[]),
    ("messages", &[]),
    ("responses", &[]),
    ("tokenize", &[]),
    ("token_io", &["chat_completions", "completions", "messages", "responses"]),
    ("invocations", &["chat_completions", "completions"]),
];

const ROOMS_OF_WIRE: Rooms = &[
    ("error", &[]),
    ("routed_experts", &["error"]),
    ("said", &[]),
    ("answer", &["error"]),
    ("fields", &["error"]),
    ("body", &["error", "fields", "said"]),
    ("sglang", &["answer", "body", "error", "fields"]),
    ("chat_completions", &["answer", "body", "error", "fields", "said", "sglang"]),
    ("completions", &["answer", "body", "error", "fields"]),
    ("messages", &["answer", "body", "error", "fields", "said"]),
    ("responses", &["answer", "body", "error", "fields", "said"]),
    ("tokenize", &["answer", "body", "error", "fields"]),
    ("tinker", &["body", "error", "fields"]),
    ("trajectories", &["body"]),
    ("token_io", &["answer", "body", "chat_completions", "completions", "error", "fields"]),
];

#[test]
fn no_files_import_each_other() {
    let crates = CODE.map(|folder| Crate::of(&sources(&[folder])));
    let found: BTreeSet<_> = crates.iter().flat_map(Crate::circles).collect();
    assert!(found.is_empty(), "files that import each other: {found:#?}");
}

#[test]
fn no_module_defines_what_a_file_below_it_needs_but_those_on_the_list() {
    let crates = CODE.map(|folder| Crate::of(&sources(&[folder])));
    let found: BTreeSet<_> = crates.iter().flat_map(Crate::upward).collect();
    let found: BTreeSet<_> = found.iter().map(|(module, file)| ((*module).to_owned(), (*file).to_owned())).collect();
    let known = KNOWN_UPWARD.iter().flat_map(|(module, _, files)| {
        let folder = module.rsplit_once('/').map_or("", |(folder, _)| folder);
        files.iter().map(move |file| ((*module).to_owned(), format!("{folder}/{file}.rs")))
    });
    let known: BTreeSet<_> = known.collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "modules that use files which use what is defined in them: {new:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "no circles any more, to be taken off the list: {gone:#?}");
}

/// `messages` of `src/api/messages/blocks.rs`, for the part `api`; `None` outside of its rooms.
fn room_of<'p>(path: &'p str, part: &str) -> Option<&'p str> {
    let inner = path.strip_prefix("src/")?.strip_prefix(part)?.strip_prefix('/')?;
    let room = inner.split('/').next()?.trim_end_matches(".rs");
    (room != "mod").then_some(room)
}

/// Uses of one room of a part by another that its table does not allow.
fn wrong_uses_within(part: &str, rooms: Rooms, code: &Crate) -> Vec<String> {
    let rooms: BTreeMap<_, _> = rooms.iter().copied().collect();
    let mut complaints = Vec::new();
    for (file, used) in code.uses() {
        let Some(room) = room_of(file, part) else { continue };
        let Some(allowed) = rooms.get(room) else {
            let table = part.to_uppercase();
            complaints.push(format!("{file}: `{room}` is not in ROOMS_OF_{table} of tests/it/circles.rs"));
            continue;
        };
        for used in used {
            let wrong = room_of(used, part).filter(|used| *used != room && !allowed.contains(used));
            complaints.extend(wrong.map(|wrong| format!("{file}: `{room}` may not use `{wrong}` ({used})")));
        }
    }
    complaints
}

#[test]
fn no_room_uses_one_above_it() {
    let code = Crate::of(&sources(&["src"]));
    let complaints: Vec<_> = PARTS.iter().flat_map(|(part, rooms)| wrong_uses_within(part, rooms, &code)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_use_of_a_higher_room_is_found() {
    let sources = [
        Source::new("src/api/mod.rs", "mod messages;\nmod token_io;"),
        Source::new("src/api/messages/mod.rs", "mod error;"),
        Source::new("src/api/messages/error.rs", "use crate::api::token_io::Ids;"),
        Source::new("src/api/token_io/mod.rs", "use super::messages::error::Error;"),
        Source::new("src/api/attic.rs", ""),
    ];
    assert_eq!(
        wrong_uses_within("api", ROOMS_OF_API, &Crate::of(&sources)),
        [
            "src/api/attic.rs: `attic` is not in ROOMS_OF_API of tests/it/circles.rs",
            "src/api/messages/error.rs: `messages` may not use `token_io` (src/api/token_io/mod.rs)",
        ]
    );
}

fn upward_of(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
    let code = Crate::of(&sources);
    code.upward().iter().map(|(module, file)| ((*module).to_owned(), (*file).to_owned())).collect()
}

#[test]
fn a_file_that_needs_what_the_module_above_it_defines_is_found_however_it_is_written() {
    let circle = [("src/b/mod.rs".to_owned(), "src/b/c.rs".to_owned())];
    for (module, child) in [
        ("mod c;\npub struct B;\nuse c::C;", "use super::B;"),
        ("mod c;\npub struct B;\nfn f() {\n    c::g();\n}", "fn g() -> crate::b::B {}"),
        ("mod c;\npub struct B;\npub use c::C;\nfn f(c: C) {}", "use crate::b::{self, B};"),
        ("mod c;\npub struct B;\nfn f(b: &B) {\n    b.named();\n}", "impl super::B {\n    fn named(&self) {}\n}"),
        ("mod c;\nmod d;\npub struct B;\nuse d::D;", "use super::B;"),
    ] {
        let other = ("src/b/d.rs", "use super::c::C;");
        assert_eq!(upward_of(&[("src/b/mod.rs", module), ("src/b/c.rs", child), other]), circle, "{module} {child}");
    }
    let deep = [
        ("src/b/mod.rs", "mod c;\nuse c::C;\nfn f() {}"),
        ("src/b/c/d.rs", "use super::super::f;"),
        ("src/b/c/mod.rs", "mod d;\nuse d::D;"),
    ];
    assert_eq!(upward_of(&deep), [("src/b/mod.rs".to_owned(), "src/b/c/d.rs".to_owned())]);
}

#[test]
fn what_a_module_only_passes_on_is_not_its_own() {
    for (module, child) in [
        // The module does not use the child.
        ("mod c;\npub use c::C;\npub struct B;", "use super::B;"),
        // The module does not define what the child uses.
        ("mod c;\nmod d;\nuse self::{c::C, d::D};", "use super::D;"),
        ("mod c;\nmod d;\nuse std::sync::Arc;\nuse c::C;", "use super::{Arc, d};\npub(in super::super) struct C;"),
    ] {
        assert_eq!(upward_of(&[("src/b/mod.rs", module), ("src/b/c.rs", child), ("src/b/d.rs", "")]), [], "{module}");
    }
}

fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
    let code = Crate::of(&sources);
    code.circles().iter().map(|circle| circle.iter().map(|file| (*file).to_owned()).collect()).collect()
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let both = [["src/a/x.rs".to_owned(), "src/a/y.rs".to_owned()].to_vec()];
    let of = |x: &str, y: &str| {
        let root = "mod x;\nmod y;\npub use x::{self as ex, X};\npub(crate) use y::Y;";
        circles_of(&[
            ("src/lib.rs", "pub mod a;\npub use a::X;"),
            ("src/a/mod.rs", root),
            ("src/a/x.rs", x),
            ("src/a/y.rs", y),
        ])
    };
    for (x, y) in [
        ("use super::y::Y;", "use super::x::X;"),
        ("use super::{\n    Other,\n    y::{Y, Z},\n};", "use crate::X;"),
        ("use super::Y;", "fn f() -> super::X {}"),
        ("use crate::a::{y};", "fn f() {\n    let a = crate::a::ex::X::new(1);\n}"),
    ] {
        assert_eq!(of(x, y), both, "{x} {y}");
    }
    let three = circles_of(&[
        ("src/a.rs", "use crate::b::B;"),
        ("src/b/mod.rs", "mod c;\nuse self::c::C;"),
        ("src/b/c.rs", "use crate::a::A;"),
    ]);
    assert_eq!(three, [["src/a.rs", "src/b/c.rs", "src/b/mod.rs"]]);
}

#[test]
fn what_is_no_circle_is_not_complained_about() {
    let lines = [("src/a.rs", "use crate::b::B;"), ("src/b.rs", "// use crate::a::A;\nuse std::sync::Arc;")];
    assert!(circles_of(&lines).is_empty());
    let reexport = [
        ("src/a/mod.rs", "mod x;\nmod y;\npub use self::{x::X, y::Y};"),
        ("src/a/x.rs", "use super::Y;"),
        ("src/a/y.rs", ""),
    ];
    assert!(circles_of(&reexport).is_empty());
    let tests = [
        ("src/a.rs", "#[cfg(test)]\nmod a_tests;\nuse crate::b::B;"),
        ("src/a/a_tests.rs", "use crate::b::B;"),
        (
            "src/b.rs",
            "fn f() {}\n\n#[cfg(test)]\n#[expect(lint)]\nmod tests {\n    use crate::a::A;\n\n    fn g() {}\n}\n",
        ),
        (
            "src/c.rs",
            "use crate::a::A;\n\nimpl C {\n    #[cfg(test)]\n    fn f(&self) {\n        crate::c::d();\n    }\n}",
        ),
    ];
    assert!(circles_of(&tests).is_empty());
}
