//! Directories whose files may not lie elsewhere.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::Watched;

/// A directory whose files are read, and the root that none of them may lead out of, where there is one.
///
/// Links that stay under the root are followed: the cache of Hugging Face consists of them. A hard link is no link here, as
/// nothing tells it from the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
    root: Option<PathBuf>,
}

impl Directory {
    /// A directory of the operator's choice: its links may lead anywhere.
    pub fn anywhere(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), root: None }
    }

    /// A directory that others have named, which is the root or in it. An error where it is not, or where there is none.
    pub fn within(root: &Path, path: &Path) -> io::Result<Self> {
        let (path, root) = (root.join(path).canonicalize()?, root.canonicalize()?);
        if path.starts_with(&root) { Ok(Self { path, root: Some(root) }) } else { Err(outside()) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something in it has this name, wherever it leads.
    pub fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    /// Reads a file in it as [`super::read`] does.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        super::read_from(&self.open(name)?, most)
    }

    /// The same, and watches the file from before that on.
    pub fn read_watched(&self, name: &str, most: u64) -> io::Result<(Vec<u8>, Watched)> {
        super::read_watched_from(&self.path.join(name), &self.open(name)?, most)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let path = self.path.join(name);
        match &self.root {
            Some(root) => open_within(root, &path),
            None => super::open(&path),
        }
    }
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it leads out of the directory that files may be read from")
}

/// Opens a file that is under a root whose path has no links.
fn open_within(root: &Path, path: &Path) -> io::Result<File> {
    let real = path.canonicalize().map_err(|error| {
        // Whether there is something at the other end of a link is nobody's business.
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_link { outside() } else { error }
    })?;
    let inside = real.strip_prefix(root).map_err(|_| outside())?;
    super::check_is_file(&real)?;
    let file = open_beneath(root, inside)?;
    // Another one may have its name by now.
    if file.metadata()?.is_file() { Ok(file) } else { Err(super::invalid("it is not a file".to_owned())) }
}

/// Opens a file by a path from the root that had no links when it was looked at. One that was put there since is refused.
#[cfg(target_os = "linux")]
fn open_beneath(root: &Path, inside: &Path) -> io::Result<File> {
    use rustix::{
        fs::{Mode, ResolveFlags, open, openat2},
        io::Errno,
    };

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|opened| openat2(opened, inside, FLAGS | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), resolve));
    match opened {
        Ok(file) => Ok(file.into()),
        Err(Errno::XDEV | Errno::LOOP) => Err(outside()),
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_compared(root, inside),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
use open_compared as open_beneath;

/// A pipe that has the name by now is not waited for.
const FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// The same where the system cannot be told to stay beneath a directory: whoever changes directories above the file in
/// the moment of the opening, and changes them back, is not noticed.
fn open_compared(root: &Path, inside: &Path) -> io::Result<File> {
    let path = root.join(inside);
    let flags = (FLAGS | OFlags::NOFOLLOW).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
    if path.canonicalize()? == path { Ok(file) } else { Err(outside()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A root with an adapter in it, and a file beside the root.
    fn root() -> (tempfile::TempDir, PathBuf) {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap().join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/plain"), "plain").unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        (outer, root)
    }

    #[test]
    fn a_link_that_leads_out_of_the_root_is_not_followed() {
        let (outer, root) = root();
        let secret = outer.path().join("secret");
        symlink(&secret, root.join("a/absolute")).unwrap();
        symlink("../../secret", root.join("a/relative")).unwrap();
        symlink("absolute", root.join("a/twice")).unwrap();
        symlink(outer.path().join("none"), root.join("a/broken")).unwrap();
        symlink("/proc/self/environ", root.join("a/proc")).unwrap();
        let within = Directory::within(&root, Path::new("a")).unwrap();
        assert_eq!(within.read("plain", 9).unwrap(), b"plain");
        for name in ["absolute", "relative", "twice", "broken", "proc", "../../secret"] {
            assert_eq!(within.read(name, 9).unwrap_err().to_string(), outside().to_string(), "{name}");
        }
        assert_eq!(within.read("none", 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(Directory::anywhere(root.join("a")).read("absolute", 9).unwrap(), b"secret");
        assert!(Directory::within(&root, outer.path()).is_err());
    }

    #[test]
    fn a_link_that_stays_under_the_root_is_followed_as_in_a_hub_cache() {
        let (_outer, root) = root();
        let snapshot = root.join("models--a/snapshots/1");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(root.join("models--a/blobs")).unwrap();
        fs::write(root.join("models--a/blobs/f00"), "blob").unwrap();
        symlink("../../blobs/f00", snapshot.join("relative")).unwrap();
        symlink(root.join("models--a/blobs/f00"), snapshot.join("absolute")).unwrap();
        symlink(&root, root.parent().unwrap().join("alias")).unwrap();
        for root in [root.clone(), root.parent().unwrap().join("alias")] {
            let within = Directory::within(&root, Path::new("models--a/snapshots/1")).unwrap();
            for name in ["relative", "absolute"] {
                assert_eq!(within.read(name, 9).unwrap(), b"blob", "{name}");
            }
        }
    }

    #[test]
    fn a_link_that_comes_after_the_look_is_refused_by_the_opening() {
        let (outer, root) = root();
        symlink(outer.path(), root.join("away")).unwrap();
        symlink("a", root.join("near")).unwrap();
        symlink("plain", root.join("a/link")).unwrap();
        for open in [open_beneath, open_compared] {
            assert!(open(&root, Path::new("a/plain")).is_ok());
            for path in ["away/secret", "near/plain", "a/link"] {
                assert!(open(&root, Path::new(path)).is_err(), "{path}");
            }
        }
        assert!(open_beneath(&root, Path::new("../secret")).is_err());
    }
}
