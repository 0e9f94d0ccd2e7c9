//! Which files of a crate use which.
//!
//! A file uses what its `use` lines and its paths name, and the files that give the methods which it calls to types of
//! other files. A name is followed through the imports of others to the file that defines it, so that what a module
//! takes from one child is there for another child. To declare a child, and to pass its names on, is no use of it. Tests
//! do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::it::{
    inherent_methods::{Methods, called_of, givers},
    layering::{Source, is_name, name_at},
    rooms::place,
};

/// The path of a module, or of a name in it, from the crate's root.
type Path = Vec<String>;

/// What each file uses.
pub(super) type Uses<'s> = BTreeMap<&'s str, BTreeSet<&'s str>>;

/// One name that a file imports.
struct Import {
    /// As it is written: `super::error::Error`.
    path: String,
    /// What it is called here.
    name: String,
    is_reexport: bool,
}

/// The files of a crate, and what they import.
pub(super) struct Crate {
    files: BTreeMap<Path, File>,
    /// Where the names come from that files import, which others may take from there; `None` is another crate.
    imported: BTreeMap<Path, Option<Path>>,
}

struct File {
    path: String,
    imports: Vec<Import>,
    /// Paths that stand in the code itself, of two names or more.
    mentions: Vec<String>,
    methods: Methods,
    /// All words of the code itself.
    words: BTreeSet<String>,
}

impl File {
    /// The imports that its own code uses. Others are for whoever takes the names from here.
    fn used_imports(&self) -> impl Iterator<Item = &String> {
        let used = self.imports.iter().filter(|import| !import.is_reexport || self.words.contains(&import.name));
        used.map(|import| &import.path)
    }
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
    pub(super) fn of(sources: &[Source]) -> Self {
        let mut files = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for source in sources {
            let Some(module) = module_of(&source.path) else { continue };
            let (code, test_modules) = product_code(source);
            tests.extend(test_modules.into_iter().map(|name| child(&module, &name)));
            let (imports, rest) = take_imports(&code);
            let (mentions, methods) = (mentions(&rest), Methods::of(&rest));
            let words = rest.split(|c| !is_name(c)).map(str::to_owned).collect();
            files.insert(module, File { path: source.path.clone(), imports, mentions, methods, words });
        }
        files.retain(|module, _| !(1..=module.len()).any(|length| tests.contains(&module[..length])));
        let mut this = Self { files, imported: BTreeMap::new() };
        let imported = this.files.iter().flat_map(|(module, file)| {
            let names = file.imports.iter();
            names.map(|import| (child(module, &import.name), this.absolute(module, &import.path)))
        });
        this.imported = imported.collect();
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

    /// The module of the file that defines what `path` names; `None` for a name of another crate.
    fn definer(&self, mut path: Path) -> Option<&[String]> {
        // No chain of imports is longer.
        for _ in 0..8 {
            let imported = (1..=path.len()).find_map(|length| Some((self.imported.get(&path[..length])?, length)));
            match imported {
                Some((target, length)) => {
                    let target = [target.as_ref()?, &path[length..]].concat();
                    if target == path {
                        break;
                    }
                    path = target;
                }
                None => break,
            }
        }
        let prefixes = (0..=path.len()).rev().find_map(|length| self.files.get_key_value(&path[..length]));
        prefixes.map(|(module, _)| module.as_slice())
    }

    /// What each file uses, but for itself.
    pub(super) fn uses(&self) -> Uses<'_> {
        let givers = givers(self.files.iter().map(|(module, file)| (module, &file.methods)));
        let uses = self.files.iter().map(|(module, file)| {
            let named = file.used_imports().chain(&file.mentions).filter_map(|path| self.absolute(module, path));
            // The path of a folder around the file is where names are, and none of them.
            let named = named.filter(|path| !module.starts_with(path)).filter_map(|path| self.definer(path));
            let used = named.chain(called_of(&file.methods, &givers).map(Vec::as_slice));
            let used = used.filter(|used| module != used);
            (&*file.path, used.map(|used| &*self.files[used].path).collect())
        });
        uses.collect()
    }

    /// Groups of files of which each uses each, directly or by way of others, without what they use of the modules around
    /// them.
    pub(super) fn circles(&self) -> BTreeSet<Vec<&str>> {
        let mut uses = self.uses();
        for (file, used) in &mut uses {
            used.retain(|used| !is_around(used, file));
        }
        let reached = all_reached(&uses);
        let circles = reached.iter().map(|(file, others)| {
            let circle = others.iter().copied().filter(|other| reached[other].contains(file));
            circle.collect::<Vec<&str>>()
        });
        circles.filter(|circle| circle.len() > 1).collect()
    }

    /// Modules of folders, and files in them that use what they define, where the module uses the file too, directly or by
    /// way of others.
    pub(super) fn upward(&self) -> BTreeSet<(&str, &str)> {
        let uses = self.uses();
        let reached = all_reached(&uses);
        let all = uses.iter().flat_map(|(file, used)| used.iter().map(|used| (*used, *file)));
        all.filter(|(used, file)| is_around(used, file) && reached[used].contains(file)).collect()
    }
}

/// Whether a file is the module of a folder in which another one is.
fn is_around(outer: &str, inner: &str) -> bool {
    let modules = module_of(outer).zip(module_of(inner));
    outer != inner && modules.is_some_and(|(outer, inner)| inner.starts_with(&outer))
}

fn all_reached<'s>(uses: &Uses<'s>) -> Uses<'s> {
    uses.keys().map(|file| (*file, reached(file, uses))).collect()
}

/// What a file uses, directly or by way of others.
fn reached<'s>(from: &'s str, uses: &Uses<'s>) -> BTreeSet<&'s str> {
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
