//! Who publishes tito: `repository` and `maintainer` in Cargo.toml. Everything else that names a publisher follows them, and no
//! other placeholder is left.

use std::{
    fs,
    path::{Path, PathBuf},
};

use expect_test::expect_file;

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// What stands for a publisher as long as there is none: in Cargo.toml, and in the page that follows it.
const PLACEHOLDERS: [&str; 2] = ["OWNER", "@localhost>"];
const PAGE: &str = "docs/installing.md";
/// What people and machines read who install tito.
const READ: [&str; 12] = [
    ".ci",
    ".github",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "README.md",
    "docs",
    "examples",
    "mkdocs.yml",
    "pyproject.toml",
    "python",
    "scripts",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `OWNER/tito`.
fn name() -> &'static str {
    REPOSITORY.strip_prefix("https://github.com/").expect("releases are GitHub's, see .github/workflows/release.yml")
}

/// The text with `name` after each `before`, in the place of what is there up to the first character that no name has.
fn with_name(text: &str, before: &str, name: &str) -> String {
    let mut parts = text.split(before);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let end = part.find(|c| !is_of_name(c)).unwrap_or(part.len());
        written.extend([before, name, &part[end..]]);
    }
    written
}

#[test]
fn the_page_about_installing_names_the_repository_of_cargo_toml() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    // Names of images have no capitals, as the workflow knows.
    let image = if name().starts_with(PLACEHOLDERS[0]) { name().to_owned() } else { name().to_lowercase() };
    let written = with_name(&with_name(&page, "ghcr.io/", &image), "--repo ", name());
    assert!(written.contains(&format!("ghcr.io/{image}:")) && written.contains(&format!("--repo {}", name())));
    expect_file![root().join(PAGE)].assert_eq(&written);
    assert_eq!(with_name("a ghcr.io/A/b:1 and `ghcr.io/c/d`", "ghcr.io/", "x/y"), "a ghcr.io/x/y:1 and `ghcr.io/x/y`");
}

fn files(path: PathBuf) -> Vec<PathBuf> {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        return entries.flat_map(files).collect();
    }
    vec![path]
}

#[test]
fn no_other_file_has_a_placeholder_of_the_publisher() {
    let found: Vec<String> = READ
        .iter()
        .flat_map(|name| files(root().join(name)))
        .filter_map(|path| Some((fs::read_to_string(&path).ok()?, path)))
        .filter(|(text, _)| PLACEHOLDERS.iter().any(|placeholder| is_in(text, placeholder)))
        .map(|(_, path)| path.strip_prefix(root()).unwrap().display().to_string())
        .filter(|path| path != PAGE && path != "CONTRIBUTING.md")
        .collect();
    assert_eq!(found, Vec::<String>::new());
    let is_published = !PLACEHOLDERS.iter().any(|placeholder| REPOSITORY.contains(placeholder));
    assert!(!is_published || !is_in(&fs::read_to_string(root().join(PAGE)).unwrap(), PLACEHOLDERS[0]));
}

/// Whether a text has a placeholder as a word of its own: `CODEOWNERS` is none.
fn is_in(text: &str, placeholder: &str) -> bool {
    text.match_indices(placeholder).any(|(at, _)| {
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let (before, after) = (&text[..at], &text[at + placeholder.len()..]);
        placeholder.starts_with('@') || !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}
