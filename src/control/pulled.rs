//! Directories that a trainer had brought up to a version, and whether somebody wrote to them since.
//!
//! Owns what is remembered of them. Such a directory stands for its version as long as its files are those of then, however
//! often it is named; once it has others, it stands for what is in it.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs::Metadata,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// All such directories, each by its only spelling.
#[derive(Debug, Default)]
pub(super) struct Pulled(HashMap<PathBuf, PulledVersion>);

/// What a directory stands for.
#[derive(Debug, Clone)]
pub(super) struct PulledVersion {
    /// Where the deltas are.
    pub(super) published: PathBuf,
    /// To which version they lead.
    pub(super) version: u64,
    files: Files,
}

/// The files of a directory with their lengths and times; `None` where there is no such directory.
pub(super) type Files = Option<BTreeMap<OsString, (u64, Option<SystemTime>)>>;

impl Pulled {
    pub(super) fn insert(&mut self, place: PathBuf, version: PulledVersion) {
        self.0.insert(place, version);
    }

    /// What the directory at a place stood for when it was brought up.
    pub(super) fn get(&self, place: &Path) -> Option<PulledVersion> {
        self.0.get(place).cloned()
    }
}

impl PulledVersion {
    pub(super) fn new(place: &Path, published: PathBuf, version: u64) -> Self {
        Self { published, version, files: files(place) }
    }

    /// Whether nobody wrote to the directory at `place` since it was brought up.
    pub(super) fn is_at(&self, place: &Path) -> bool {
        self.files == files(place)
    }
}

/// The only spelling of a path, whether or not there is something at it.
pub(super) fn place(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    std::fs::canonicalize(path).unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => place(parent).join(name),
        _ => absolute(),
    })
}

/// The files at a place, or the one that is there.
pub(super) fn files(place: &Path) -> Files {
    let of = |metadata: &Metadata| (metadata.len(), metadata.modified().ok());
    let Ok(entries) = std::fs::read_dir(place) else {
        // It may be a file.
        return std::fs::metadata(place).ok().map(|file| [(OsString::new(), of(&file))].into());
    };
    let entry = |entry: std::fs::DirEntry| Some((entry.file_name(), of(&std::fs::metadata(entry.path()).ok()?)));
    Some(entries.filter_map(|there| entry(there.ok()?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_for_its_version_until_somebody_writes_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let local = place(&directory.path().join("local"));
        let absent = PulledVersion::new(&local, "p".into(), 1);
        assert!(absent.is_at(&local));
        std::fs::create_dir(&local).unwrap();
        assert!(!absent.is_at(&local));
        std::fs::write(local.join("a"), "1").unwrap();
        let there = PulledVersion::new(&local, "p".into(), 1);
        assert!(there.is_at(&local));
        std::fs::write(local.join("a"), "12").unwrap();
        assert!(!there.is_at(&local));
        std::fs::write(local.join("a"), "1").unwrap();
        let file = std::fs::File::options().write(true).open(local.join("a")).unwrap();
        let there = PulledVersion::new(&local, "p".into(), 1);
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(!there.is_at(&local));
        let there = PulledVersion::new(&local, "p".into(), 1);
        std::fs::rename(local.join("a"), local.join("b")).unwrap();
        assert!(!there.is_at(&local));
    }

    #[test]
    fn a_path_has_one_spelling_also_where_nothing_is() {
        let directory = tempfile::tempdir().unwrap();
        let (there, linked) = (directory.path().join("there"), directory.path().join("linked"));
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, &linked).unwrap();
        let beside = there.join("../there");
        for name in ["", "none", "none/none"] {
            assert_eq!(place(&linked.join(name)), place(&there.join(name)), "{name}");
            assert_eq!(place(&beside.join(name)), place(&there.join(name)), "{name}");
        }
        let current = std::env::current_dir().unwrap();
        assert_eq!(place(Path::new("no-such-file")), place(&current.join("no-such-file")));
    }
}
