//! What readers of files with unknown content need: size limits, failed allocations and panics of libraries as errors,
//! files that must be inside a directory, and directories that are written atomically.
//!
//! Refuses to know any format.

mod directory;
mod new_directory;
mod watched;

pub use directory::Directory;
pub use new_directory::NewDirectory;
pub use watched::{Changed, Watched};

use std::{
    any::Any,
    cell::Cell,
    collections::TryReserveError,
    fs::File,
    io::{self, Read},
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    path::Path,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Reads a file of at most `most` bytes. A longer one, and what is not a file, is an error of kind `InvalidData`.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(&open(path)?, most)
}

fn read_from(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > most {
        return Err(invalid(format!("it has {length} bytes, more than the {most} that such a file may have")));
    }
    let mut bytes = zeros(usize::try_from(length).unwrap_or(usize::MAX)).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.clear();
    // The file may grow meanwhile.
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of at most `most` bytes of UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|_| invalid("it is not UTF-8".to_owned()))
}

/// Reads a file as [`read`] does, and watches it from before that on.
pub fn read_watched(path: &Path, most: u64) -> io::Result<(Vec<u8>, Watched)> {
    read_watched_from(path, &open(path)?, most)
}

fn read_watched_from(path: &Path, file: &File, most: u64) -> io::Result<(Vec<u8>, Watched)> {
    let watched = Watched::begin(path, file)?;
    Ok((read_from(file, most)?, watched))
}

/// Reads a file as [`read_text`] does, and watches it from before that on.
pub fn read_text_watched(path: &Path, most: u64) -> io::Result<(String, Watched)> {
    let (bytes, watched) = read_watched(path, most)?;
    Ok((String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8".to_owned()))?, watched))
}

/// Opens a file to be read. Whatever else has a name, such as a directory or a pipe, is an error of kind `InvalidData`.
pub fn open(path: &Path) -> io::Result<File> {
    check_is_file(path)?;
    File::open(path)
}

/// To be asked before anything is opened, as opening a pipe waits for its other end.
fn check_is_file(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_file() { Ok(()) } else { Err(invalid("it is not a file".to_owned())) }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A vector of `len` zeros, or an error where the system has no memory for them.
pub fn zeros<T: Default + Clone>(len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len)?;
    zeros.resize(len, T::default());
    Ok(zeros)
}

thread_local! {
    /// How many [`without_panics`] this thread is in.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
}

/// How many [`Silence`]s there are.
static SILENCED: AtomicUsize = AtomicUsize::new(0);

/// Runs `action` and makes an error of a panic, with its message. Nothing is printed. What the action worked on should
/// be thrown away after an error.
pub fn without_panics<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    CATCHING.set(CATCHING.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(action));
    CATCHING.set(CATCHING.get() - 1);
    outcome.map_err(|panic| one_line(panic_text(panic.as_ref())))
}

/// While it exists, panics of any thread are logged for debugging only, not printed: whoever holds it makes errors of them.
#[derive(Debug)]
pub struct Silence(());

impl Silence {
    /// Begins the silence.
    pub fn begin() -> Self {
        install_hook();
        SILENCED.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        SILENCED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Installs the hook once for the process. A hook that was there before still gets all other panics.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    // A thread that panics may not change hooks.
    if thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
            let caught = CATCHING.try_with(|catching| catching.get() > 0).unwrap_or(false);
            if caught || SILENCED.load(Ordering::SeqCst) > 0 {
                tracing::debug!("a panic is made an error: {panic}");
            } else {
                others(panic);
            }
        }));
    });
}

/// What a panic says. A text without arguments is a `str` in it, and another one a `String`.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message")
}

/// The text on one line. Errors quote what files say, and a file may say line breaks and commands for a terminal.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        for character in part.chars() {
            if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound_and_nothing_else_is_read_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!(error.to_string(), "it has 5 bytes, more than the 4 that such a file may have");
        assert_eq!(read(directory.path(), 5).unwrap_err().to_string(), "it is not a file");
        #[cfg(unix)]
        assert_eq!(read(Path::new("/dev/zero"), 5).unwrap_err().to_string(), "it is not a file");
        assert_eq!(read(&directory.path().join("none"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().to_string(), "it is not UTF-8");
    }

    #[test]
    fn a_panic_says_why_with_arguments_and_without() {
        for (panics, why) in [
            (catch_unwind(|| panic!("a block is written twice")), "a block is written twice"),
            (catch_unwind(|| panic!("block {} is written twice", 1)), "block 1 is written twice"),
            (catch_unwind(|| panic::panic_any(1)), "a panic without a message"),
        ] {
            assert_eq!(panic_text(&*panics.unwrap_err()), why);
        }
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        assert!(zeros::<f32>(usize::MAX / 8).is_err());
        assert_eq!(zeros::<u8>(3).unwrap(), [0; 3]);
    }

    #[test]
    fn a_panic_is_an_error_of_one_line() {
        assert_eq!(without_panics(|| 7), Ok(7));
        let failed: Result<(), String> = without_panics(|| panic!("two\n  lines, {}", 1));
        assert_eq!(failed, Err("two lines, 1".to_owned()));
        let nested = without_panics(|| without_panics(|| panic!("inner")).unwrap_or(3));
        assert_eq!(nested, Ok(3));
    }

    #[test]
    fn what_a_file_says_stays_on_its_line() {
        assert_eq!(one_line("no version \"a\n\n  b\u{1b}[2J\tc\" 🙂"), "no version \"a b\\u{1b}[2J\\tc\" 🙂");
    }
}
