//! Files that import each other, directly or by way of others: none can be read, moved or tested without the rest.
//!
//! A file uses what its `use` lines and its paths name, and the files that give the methods which it calls to types of other files; a
//! re-export is followed to where the name comes from. What the
//! modules that a file stands in define is its own vocabulary, so that a use of an ancestor does not count. Tests do not
//! count either.

use std::collections::{BTreeMap, BTreeSet};

use crate::it::{
    inherent_methods::{Methods, called_of, givers},
    layering::{Source, is_name, name_at, sources},
    rooms::{CODE, place},
};

/// Circles that are still there. The list may only get shorter.
const KNOWN: &[&[&str]] = &[
    // An expression calls a macro, whose body loops over an expression: what is recursive in the language is so here.
    &[
        "crates/tito-text/src/prompt/template/render/calls.rs",
        "crates/tito-text/src/prompt/template/render/expressions.rs",
        "crates/tito-text/src/prompt/template/render/loops.rs",
    ],
];

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
    ("npy", &[]),
    ("routed_experts", &["error", "npy"]),
    ("answer", &["error"]),
    ("fields", &["error"]),
    ("body", &["error", "fields"]),
    ("sglang", &["answer", "body", "error", "fields"]),
    ("chat_completions", &["answer", "body", "error", "fields", "sglang"]),
    ("completions", &["answer", "body", "error", "fields"]),
    ("messages", &["answer", "body", "error", "fields"]),
    ("responses", &["answer", "body", "error", "fields"]),
    ("tokenize", &["answer", "body", "error", "fields"]),
    ("tinker", &["body", "error", "fields"]),
    ("trajectories", &["body"]),
    ("token_io", &["answer", "body", "chat_completions", "completions", "error", "fields"]),
];

/// The path of a module, or of a name in it, from the crate's root.
type Path = Vec<String>;

/// One name that a file imports.
struct Import {
    /// As it is written: `super::error::Error`.
    path: String,
    /// What it is called here.
    name: String,
    is_reexport: bool,
}

/// The files of a crate, and what they import.
struct Crate {
    files: BTreeMap<Path, File>,
    reexports: BTreeMap<Path, Path>,
}

struct File {
    path: String,
    imports: Vec<Import>,
    /// Paths that stand in the code itself, of two names or more.
    mentions: Vec<String>,
    methods: Methods,
}

/// `["api", "error"]` of `src/api/error.rs`.
fn module_of(path: &str) -> Option<Path> {
    let inner = place(path)?.1.strip_suffix(".rs")?;
    let mut names: Path = inner.split('/').map(str::to_owned).collect();
    names.pop_if(|name| name == "mod" || name == "lib");
    Some(names)
}

/// The code of a file without comments and tests, and the modules of it that are tests in files of their own.
fn product_code(source: &Source) -> (String, Vec<String>) {
    let (mut code, mut test_modules) = (String::new(), Vec::new());
    let mut lines = source.code().map(|(_, line)| line);
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") && !line.trim_start().starts_with("#[cfg(all(test") {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        // The item that the attribute is of, to its last line, which is not indented further.
        let mut item = lines.by_ref().skip_while(|line| line.trim_start().starts_with("#["));
        let first = item.next().unwrap_or_default();
        test_modules.extend(declared_module(first));
        let ends = |line: &str| line.trim_end().ends_with([';', '}']);
        if !ends(first) {
            let _ = item
                .find(|line| !line.trim().is_empty() && line.len() - line.trim_start().len() == indent && ends(line));
        }
    }
    (code, test_modules)
}

/// `a` of `pub(super) mod a;`.
fn declared_module(line: &str) -> Option<String> {
    let name = line.trim().strip_suffix(';')?.rsplit_once("mod ")?.1;
    name.chars().all(is_name).then(|| name.to_owned())
}

/// Takes the `use` items out of code: what they import, and the rest.
fn take_imports(code: &str) -> (Vec<Import>, String) {
    let (mut imports, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        let (visibility, tree) = match item.split_once("use ") {
            Some((visibility, tree)) if visibility.is_empty() || visibility.starts_with("pub") => (visibility, tree),
            _ => {
                rest.push_str(line);
                rest.push('\n');
                continue;
            }
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            let Some(line) = lines.next() else { break };
            tree.push_str(line.trim());
        }
        let tree = tree.split(';').next().unwrap_or_default();
        for path in flattened(tree) {
            let (path, name) = match path.split_once(" as ") {
                Some((path, name)) => (path.to_owned(), name.to_owned()),
                None => (path.clone(), path.rsplit("::").next().unwrap_or_default().to_owned()),
            };
            imports.push(Import { path, name: name.trim().to_owned(), is_reexport: !visibility.is_empty() });
        }
    }
    (imports, rest)
}

/// `a::b` and `a::c` of `a::{b, c}`; `a` of `a::{self}`.
fn flattened(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start, mut branches) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&group[start..]);
    let branches = branches.into_iter().map(str::trim).filter(|branch| !branch.is_empty());
    let whole = branches.map(|branch| match branch {
        "self" => before.trim_end_matches("::").to_owned(),
        branch => format!("{before}{branch}"),
    });
    whole.flat_map(|tree| flattened(&tree)).collect()
}

/// Paths of two names or more.
fn mentions(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let before = &code[..at];
        let first = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
        if first.is_empty() || before[..before.len() - first.len()].ends_with("::") {
            continue;
        }
        let mut path = first.to_owned();
        let mut rest = &code[at..];
        while let Some(name) = rest.strip_prefix("::").map(name_at).filter(|name| !name.is_empty()) {
            path.push_str("::");
            path.push_str(name);
            rest = &rest[2 + name.len()..];
        }
        found.push(path);
    }
    found
}

impl Crate {
    fn of(sources: &[Source]) -> Self {
        let mut files = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for source in sources {
            let Some(module) = module_of(&source.path) else { continue };
            let (code, test_modules) = product_code(source);
            tests.extend(test_modules.into_iter().map(|name| child(&module, &name)));
            let (imports, rest) = take_imports(&code);
            let (mentions, methods) = (mentions(&rest), Methods::of(&rest));
            files.insert(module, File { path: source.path.clone(), imports, mentions, methods });
        }
        files.retain(|module, _| !(1..=module.len()).any(|length| tests.contains(&module[..length])));
        let mut this = Self { files, reexports: BTreeMap::new() };
        let reexports = this.files.iter().flat_map(|(module, file)| {
            let reexported = file.imports.iter().filter(|import| import.is_reexport);
            reexported.filter_map(|import| Some((child(module, &import.name), this.absolute(module, &import.path)?)))
        });
        this.reexports = reexports.collect();
        this
    }

    /// The path from the root of one that `module` names; `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &str) -> Option<Path> {
        let mut names: Vec<&str> = path.split("::").map(str::trim).collect();
        let mut base = match names[0] {
            "crate" | "tito" => Vec::new(),
            "self" | "super" => module.to_vec(),
            name if self.files.contains_key(&child(module, name)) => {
                names.insert(0, "self");
                module.to_vec()
            }
            _ => return None,
        };
        for name in names {
            match name {
                "crate" | "tito" | "self" => {}
                "super" => base.truncate(base.len().saturating_sub(1)),
                name => base.push(name.to_owned()),
            }
        }
        Some(base)
    }

    /// The module of the file that defines what `path` names.
    fn definer(&self, mut path: Path) -> &[String] {
        // No chain of re-exports is longer.
        for _ in 0..8 {
            let reexported = (1..=path.len()).find_map(|length| {
                let target = self.reexports.get(&path[..length])?;
                Some([target, &path[length..]].concat())
            });
            match reexported {
                Some(target) if target != path => path = target,
                _ => break,
            }
        }
        let prefixes = (0..=path.len()).rev().find_map(|length| self.files.get_key_value(&path[..length]));
        prefixes.map_or(&[], |(module, _)| module)
    }

    /// What each file uses, itself and its ancestors left out.
    fn uses(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let givers = givers(self.files.iter().map(|(module, file)| (module, &file.methods)));
        let uses = self.files.iter().map(|(module, file)| {
            let private = file.imports.iter().filter(|import| !import.is_reexport).map(|import| &import.path);
            let used = private.chain(&file.mentions).filter_map(|path| self.absolute(module, path));
            let used = used.map(|path| self.definer(path)).chain(called_of(&file.methods, &givers).map(Vec::as_slice));
            let used = used.filter(|used| !module.starts_with(used));
            (&*file.path, used.map(|used| &*self.files[used].path).collect())
        });
        uses.collect()
    }

    /// Groups of files of which each uses each, directly or by way of others.
    fn circles(&self) -> BTreeSet<Vec<&str>> {
        let uses = self.uses();
        let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|file| (*file, reached(file, &uses))).collect();
        let circles = reached.iter().map(|(file, others)| {
            let circle = others.iter().copied().filter(|other| reached[other].contains(file));
            circle.collect::<Vec<&str>>()
        });
        circles.filter(|circle| circle.len() > 1).collect()
    }
}

/// What a file uses, directly or by way of others.
fn reached<'s>(from: &'s str, uses: &BTreeMap<&'s str, BTreeSet<&'s str>>) -> BTreeSet<&'s str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        left.extend(uses[file].iter().filter(|used| reached.insert(**used)));
    }
    reached
}

fn child(module: &[String], name: &str) -> Path {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

#[test]
fn no_files_import_each_other_but_those_on_the_list() {
    let crates = CODE.map(|folder| Crate::of(&sources(&[folder])));
    let found: BTreeSet<_> = crates.iter().flat_map(Crate::circles).collect();
    let known: BTreeSet<Vec<&str>> = KNOWN.iter().map(|circle| circle.to_vec()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "files that import each other: {new:#?}");
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
            complaints.push(format!("{file}: the room `{room}` is not in the table"));
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
            "src/api/attic.rs: the room `attic` is not in the table",
            "src/api/messages/error.rs: `messages` may not use `token_io` (src/api/token_io/mod.rs)",
        ]
    );
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
    let parent = [("src/b/mod.rs", "mod c;\npub struct B;\nuse c::C;"), ("src/b/c.rs", "use super::B;")];
    assert!(circles_of(&parent).is_empty());
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
