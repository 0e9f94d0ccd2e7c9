//! Files that nobody may write to while somebody reads them: what is read of them would be of two versions.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A file that is being read, and what the system said of it before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    path: PathBuf,
    state: State,
    /// Whether somebody wrote to it all the time before, so that its times prove nothing.
    restless: bool,
}

/// A file is another one than it was when its reader opened it.
#[derive(Debug, thiserror::Error)]
#[error("{} {how} while it was read, so that what was read may be of two versions", path.display())]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// What became of it.
    how: String,
}

/// What the system says of a file, by which it is seen that somebody replaced it or wrote to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds of the last change of what is in it, and of what is said of it. The latter cannot be set.
    times: [(i64, i64); 2],
}

/// Systems count times of files in steps of 10 ms at the most: two changes in one step are seen as one.
const STEP: Duration = Duration::from_millis(20);
/// How often it is waited for a step to end, where somebody writes without a break.
const MOST_WAITS: usize = 5;

impl Watched {
    /// Begins to watch a file that was opened by its path, before anything of it is read. Waits for a moment where somebody
    /// has just written to it, so that whatever is written after this is seen. A file that does not come to rest is refused
    /// [later](Self::check).
    pub fn begin(path: &Path, file: &File) -> io::Result<Self> {
        let mut found = file.metadata()?;
        for _ in 0..MOST_WAITS {
            if !is_in_step(&found) {
                break;
            }
            thread::sleep(STEP);
            found = file.metadata()?;
        }
        Ok(Self { path: path.to_owned(), state: State::of(&found), restless: is_in_step(&found) })
    }

    /// Refuses a file that was written to, replaced or removed since. To be asked once all of it is read.
    pub fn check(&self) -> Result<(), Changed> {
        let changed = |how: &str| Changed { path: self.path.clone(), how: how.to_owned() };
        let found = match fs::metadata(&self.path) {
            Ok(found) => State::of(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(changed("was removed")),
            Err(error) => return Err(changed(&format!("was lost ({error})"))),
        };
        if (found.device, found.inode) != (self.state.device, self.state.inode) {
            return Err(changed("was replaced"));
        }
        if found == self.state && !self.restless { Ok(()) } else { Err(changed("was changed")) }
    }
}

impl State {
    fn of(found: &Metadata) -> Self {
        let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
        Self { device: found.dev(), inode: found.ino(), length: found.len(), times }
    }
}

/// Whether a file was changed within the present step.
fn is_in_step(found: &Metadata) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = u64::try_from(found.ctime()).unwrap_or_default();
    let changed = Duration::new(seconds, u32::try_from(found.ctime_nsec()).unwrap_or_default());
    now.abs_diff(changed) < STEP
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::PermissionsExt};

    use super::*;

    fn begun(path: &Path) -> Watched {
        Watched::begin(path, &File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_file_that_somebody_writes_to_while_it_is_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let of = |how: &str| {
            format!("{} {how} while it was read, so that what was read may be of two versions", path.display())
        };
        let write = || fs::write(&path, b"12345678").unwrap();
        let refusal = |change: &dyn Fn()| {
            write();
            let watched = begun(&path);
            watched.check().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"12345678");
            watched.check().expect("reading is no change");
            change();
            watched.check().map_err(|error| error.to_string()).unwrap_err()
        };
        // In place, with the same length, and however soon.
        let in_place = || File::options().write(true).open(&path).unwrap().write_all(b"8").unwrap();
        for _ in 0..20 {
            assert_eq!(refusal(&in_place), of("was changed"));
        }
        assert_eq!(refusal(&write), of("was changed"));
        let set_back = || {
            let file = File::options().write(true).open(&path).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            in_place();
            file.set_modified(before).unwrap();
        };
        assert_eq!(refusal(&set_back), of("was changed"));
        assert_eq!(
            refusal(&|| fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap()),
            of("was changed")
        );
        let replace = || {
            fs::write(directory.path().join("b"), b"12345678").unwrap();
            fs::rename(directory.path().join("b"), &path).unwrap();
        };
        assert_eq!(refusal(&replace), of("was replaced"));
        assert_eq!(refusal(&|| fs::remove_file(&path).unwrap()), of("was removed"));
    }
}
