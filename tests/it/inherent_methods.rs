//! Uses that no `use` line shows: methods that a file gives to a type of another file.

use std::collections::{BTreeMap, BTreeSet};

use crate::it::layering::{is_name, name_at};

/// What of a file's code is about methods.
#[derive(Default)]
pub(super) struct Methods {
    /// Those that it gives to types of other files, with the type.
    given: BTreeMap<String, String>,
    /// Names of all its functions.
    defined: Vec<String>,
    /// Names of what it calls.
    called: BTreeSet<String>,
    /// All words of it that begin as types do.
    types: BTreeSet<String>,
}

impl Methods {
    pub(super) fn of(code: &str) -> Self {
        let words = code.split(|c| !is_name(c)).filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned);
        let mut methods = Self { called: called(code), types: words.collect(), ..Self::default() };
        let mut foreign = None;
        for line in code.lines() {
            if let Some(header) = line.strip_prefix("impl") {
                foreign = Some(type_of(header)).filter(|name| is_inherent(header) && !declares(code, name));
            } else if line.starts_with('}') {
                foreign = None;
            }
            let Some((_, rest)) = line.split_once("fn ") else { continue };
            let name = name_at(rest).to_owned();
            if let Some(owner) = foreign.filter(|_| line.starts_with("    ") && !line.starts_with("     ")) {
                methods.given.insert(name.clone(), owner.to_owned());
            }
            methods.defined.push(name);
        }
        methods
    }
}

/// A method of a type, and the file that gives it.
pub(super) struct Given<'c, K> {
    owner: &'c str,
    pub(super) file: K,
}

/// The methods by their names, where no other function of the crate has the same name.
pub(super) fn givers<'c, K: Copy>(
    files: impl Iterator<Item = (K, &'c Methods)> + Clone,
) -> BTreeMap<&'c str, Given<'c, K>> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for name in files.clone().flat_map(|(_, methods)| &methods.defined) {
        *times.entry(name).or_default() += 1;
    }
    let given = files.flat_map(|(file, methods)| {
        methods.given.iter().map(move |(name, owner)| (name.as_str(), Given { owner: owner.as_str(), file }))
    });
    given.filter(|(name, _)| times[name] == 1).collect()
}

/// The givers of what a file calls of types that it names: of others, the method may be one of the standard library.
pub(super) fn called_of<'c, K: Copy>(
    methods: &'c Methods,
    givers: &'c BTreeMap<&str, Given<'_, K>>,
) -> impl Iterator<Item = K> {
    let given = methods.called.iter().filter_map(|name| givers.get(name.as_str()));
    given.filter(|given| methods.types.contains(given.owner)).map(|given| given.file)
}

/// Names before `(` that follow `.` or `::`.
fn called(code: &str) -> BTreeSet<String> {
    let calls = code.match_indices('(').filter_map(|(at, _)| {
        let before = &code[..at];
        let name = before.rsplit(|c| !is_name(c)).next().filter(|name| !name.is_empty())?;
        let before = &before[..before.len() - name.len()];
        (before.ends_with('.') || before.ends_with("::")).then(|| name.to_owned())
    });
    calls.collect()
}

/// Whether what follows `impl` gives methods to a type of its own accord, and no trait does.
fn is_inherent(header: &str) -> bool {
    !header.contains(" for ") && header.trim_end().ends_with('{')
}

/// `File` of `<'a> super::File<'a> {`.
fn type_of(header: &str) -> &str {
    let mut depth = 0;
    let after = header.char_indices().find(|(_, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        depth == 0 && *c == ' '
    });
    let path = after.map_or("", |(at, _)| header[at..].trim_start());
    let path = path.split(|c| !is_name(c) && c != ':').next().unwrap_or_default();
    path.rsplit("::").next().unwrap_or_default()
}

fn declares(code: &str, name: &str) -> bool {
    ["struct ", "enum ", "trait ", "union "]
        .into_iter()
        .any(|kind| code.match_indices(kind).any(|(at, _)| name_at(&code[at + kind.len()..]) == name))
}

#[test]
fn methods_of_types_of_other_files_are_found() {
    let code = "impl<'a> File<'a> {\n    pub fn named(&self) {}\n    fn other() {}\n}\nimpl Own {\n    fn own(&self) {}\n}\n\
                impl Trait for File<'_> {\n    fn of_trait(&self) {}\n}\nstruct Own;\nfn free() { a.called(1); B::made(2); free(); }";
    let methods = Methods::of(code);
    assert_eq!(methods.given.keys().collect::<Vec<_>>(), ["named", "other"]);
    assert_eq!(methods.called, BTreeSet::from(["called".to_owned(), "made".to_owned()]));
    let caller = Methods::of("fn f(file: &File) { file.named(); file.own(); }");
    let files = [("giver", &methods), ("caller", &caller)];
    let givers = givers(files.into_iter());
    assert_eq!(called_of(&caller, &givers).collect::<Vec<_>>(), ["giver"]);
    let other = Methods::of("fn f() { text.named(); }");
    assert_eq!(called_of(&other, &givers).count(), 0, "the type is not named");
    // A name that two functions have says nothing.
    let same = Methods::of("fn named() {}");
    assert!(super::inherent_methods::givers([("giver", &methods), ("same", &same)].into_iter()).len() < givers.len());
}
