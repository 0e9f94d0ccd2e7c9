//! Which names adapters can have, and where they may lie.

use std::path::Path;

use super::AdapterError;
use crate::files::Directory;

/// No name is longer.
const MOST_NAME_BYTES: usize = 512;

/// Refuses names that are none, or that would break a line of a log or of metrics.
pub(super) fn check_name(name: &str) -> Result<(), AdapterError> {
    if name.is_empty() {
        Err(AdapterError::Incomplete)
    } else if name.len() > MOST_NAME_BYTES {
        Err(AdapterError::Name("has more than 512 bytes"))
    } else if name.chars().any(char::is_control) {
        Err(AdapterError::Name("has control characters"))
    } else {
        Ok(())
    }
}

/// The directory of a path. Where there is a root, whatever is not in it is refused, links and all; so are files of the
/// directory that lead out, once they are read.
pub(super) fn directory(path: &str, root: Option<&Path>) -> Result<Directory, AdapterError> {
    if path.is_empty() {
        return Err(AdapterError::Incomplete);
    }
    match root {
        None => Ok(Directory::anywhere(path)),
        // A path that does not exist, or that nobody may look at, is not told from one that leads elsewhere.
        Some(root) => Directory::within(root, Path::new(path)).map_err(|_| AdapterError::Outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lines() {
        for name in ["a", "org/name-v1", "Ä ö", "../a"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_name(""), Err(AdapterError::Incomplete));
        assert!(matches!(check_name("a\nb"), Err(AdapterError::Name(_))));
        assert!(matches!(check_name(&"a".repeat(513)), Err(AdapterError::Name(_))));
    }

    #[test]
    fn paths_stay_within_the_root() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::create_dir_all(outer.path().join("b")).unwrap();
        std::os::unix::fs::symlink(outer.path().join("b"), root.join("link")).unwrap();
        let within = |path: &str| directory(path, Some(&root)).map(|directory| directory.path().to_owned());
        let real = root.join("a").canonicalize().unwrap();
        assert_eq!(within("a"), Ok(real.clone()));
        assert_eq!(within(root.join("a").to_str().unwrap()), Ok(real.clone()));
        assert_eq!(within("a/../a"), Ok(real));
        let outside = outer.path().join("b");
        for path in ["..", "../b", "link", "missing", "/", outside.to_str().unwrap()] {
            assert_eq!(within(path), Err(AdapterError::Outside), "{path}");
        }
        assert_eq!(within(""), Err(AdapterError::Incomplete));
        assert_eq!(directory("../b", None), Ok(Directory::anywhere("../b")));
    }
}
