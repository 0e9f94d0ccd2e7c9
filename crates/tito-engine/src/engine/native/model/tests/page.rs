//! docs/models.md, whose lists are what tests found.

use std::{fs::File, path::Path};

use expect_test::expect_file;

/// A list of the page, between two comments.
#[derive(Debug, Clone, Copy)]
pub(super) enum ComparedTable {
    Native,
    Gguf,
}

impl ComparedTable {
    /// The comments before and after it.
    fn marks(self) -> [&'static str; 2] {
        match self {
            Self::Native => ["<!-- native -->\n", "<!-- end of native -->"],
            Self::Gguf => ["<!-- gguf -->\n", "<!-- end of gguf -->"],
        }
    }
}

/// Compares a list with what it should be, which `wanted` makes of what it is; or writes it, with `UPDATE_EXPECT=1`.
pub(super) fn compare(part: ComparedTable, wanted: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    // Other tests, in processes of their own, write other parts of it.
    let locked = File::open(&path).unwrap();
    locked.lock().unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    let [begin, end] = part.marks();
    let (before, rest) = page.split_once(begin).unwrap();
    let (table, after) = rest.split_once(end).unwrap();
    expect_file![path].assert_eq(&format!("{before}{begin}{}{end}{after}", wanted(table)));
}
