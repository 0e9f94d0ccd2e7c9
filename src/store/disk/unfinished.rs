//! Files that are being made, under names by which a later start knows them: a process that was killed leaves its own.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// What their names end with.
const SUFFIX: &str = ".new";
/// How many letters and digits are between the two parts of a name.
const RANDOM: usize = 6;

/// The directory of the file at `path`.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What the names begin with of those that become the file at `path`.
fn prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// Begins a file that becomes the one at `path`.
pub(super) fn begin(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix(path)).suffix(SUFFIX).rand_bytes(RANDOM).tempfile_in(directory(path))
}

/// Removes what earlier processes began and left, for whoever has the file at `path` alone. Where that fails, they stay.
pub(super) fn remove(path: &Path) {
    for left in left(path) {
        match fs::remove_file(&left) {
            Ok(()) => tracing::info!("{} was removed: a process ended while it made it", left.display()),
            Err(error) => {
                tracing::warn!("{} was left by another process, and cannot be removed: {error}", left.display());
            }
        }
    }
}

fn left(path: &Path) -> Vec<PathBuf> {
    let prefix = prefix(path);
    let is_left = |name: &[u8]| {
        let random = name.strip_prefix(prefix.as_encoded_bytes()).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        random.is_some_and(|random| random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric))
    };
    let Ok(entries) = fs::read_dir(directory(path)) else { return Vec::new() };
    let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.filter(|entry| is_left(entry.file_name().as_encoded_bytes())).map(|entry| entry.path()).collect()
}
