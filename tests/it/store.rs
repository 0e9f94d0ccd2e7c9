//! What the disk's store keeps when processes are killed and disks are full or read-only.
//!
//! The processes are this binary again, with one of the ignored tests and a file to work on.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use tito::store::{DiskStore, OpenError, RecordState, ResponseStore, StoreError};

const FILE_OF_CHILD: &str = "TITO_TEST_RESPONSE_STORE";
const ROOM: u64 = 1 << 30;
/// A shell that could not set the scene.
const NO_SCENE: i32 = 77;

fn a_file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("responses.redb");
    (directory, path)
}

/// A record that shares nothing with the others.
fn record(id: usize) -> Vec<u8> {
    noise(id, 500 + id * 37 % 20_000)
}

/// Bytes that look random, the same ones for the same id.
fn noise(id: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&id.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// The name of a test, as the binary knows it.
fn child(test: &str, path: &Path, scene: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{scene}exec \"$0\" \"$@\"")).arg(env::current_exe().unwrap());
    command.args(["--exact", &format!("it::store::{test}"), "--ignored", "--nocapture"]);
    command.env(FILE_OF_CHILD, path).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// In a child: what it works on.
fn file_of_child() -> Option<PathBuf> {
    env::var_os(FILE_OF_CHILD).map(PathBuf::from)
}

fn say(what: &str) {
    // Not what libtest captures, and at once.
    let mut out = std::io::stdout().lock();
    writeln!(out, "said {what}").unwrap();
    out.flush().unwrap();
}

fn hear(out: &mut BufReader<ChildStdout>) -> Option<String> {
    out.lines().map(Result::unwrap).find_map(|line| Some(line.split_once("said ")?.1.to_owned()))
}

/// Everything that a child says, or `None` where the system does not let us set the scene, which is then said.
fn heard(mut command: Command, what: &str) -> Option<Vec<String>> {
    let mut process: Child = command.spawn().unwrap();
    let mut out = BufReader::new(process.stdout.take().unwrap());
    let said = std::iter::from_fn(|| hear(&mut out)).collect();
    let status = process.wait().unwrap();
    if status.code() == Some(NO_SCENE) {
        say(&format!("SKIPPED: {what} cannot be set up here"));
        return None;
    }
    assert!(status.success(), "{status}: {said:?}");
    Some(said)
}

#[test]
#[ignore = "a process of the test below"]
fn writes_until_it_is_killed() {
    let Some(path) = file_of_child() else { return };
    let store = DiskStore::open(&path, ROOM).unwrap();
    let first = (0..1_000_000_usize).find(|id| store.get(&id.to_string()).unwrap().is_none()).unwrap();
    for id in first.. {
        store.put(&id.to_string(), RecordState::InProgress, b"begun").unwrap();
        say(&format!("begun {id}"));
        store.put(&id.to_string(), RecordState::Done, &record(id)).unwrap();
        say(&format!("done {id}"));
    }
}

#[test]
fn what_was_accepted_before_a_kill_is_there_after_it_and_what_was_begun_is_marked() {
    let (_directory, path) = a_file();
    let (mut done, mut begun, mut marked) = (0, 0, BTreeSet::new());
    for round in 0..6 {
        let mut process = child("writes_until_it_is_killed", &path, "").spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut note = |line: String| {
            let (what, id) = line.split_once(' ').unwrap();
            let count = id.parse::<usize>().unwrap() + 1;
            *(if what == "done" { &mut done } else { &mut begun }) = count;
        };
        // An odd number of lines ends with a response that is begun; the process goes on meanwhile, to anywhere.
        for _ in 0..=11 + round {
            note(hear(&mut out).unwrap());
        }
        process.kill().unwrap();
        process.wait().unwrap();
        // What it said before it died counts.
        while let Some(line) = hear(&mut out) {
            note(line);
        }
        let store = DiskStore::open(&path, ROOM).unwrap();
        for id in 0..done {
            let found = store.get(&id.to_string()).unwrap();
            let interrupted = matches!(found, Some((RecordState::Interrupted, _)));
            marked.extend(interrupted.then_some(id));
            assert!(interrupted || found == Some((RecordState::Done, record(id))), "{id}");
        }
        for id in done..begun {
            let (state, found) = store.get(&id.to_string()).unwrap().expect("it was begun");
            match state {
                RecordState::Interrupted => assert_eq!(found, b"begun"),
                RecordState::Done => assert_eq!(found, record(id)),
                RecordState::InProgress => panic!("nobody generates it"),
            }
        }
        // One that the process could not tell us of may be there.
        if store.get(&begun.to_string()).unwrap().is_some() {
            begun += 1;
        }
        assert!(store.get(&(begun + 1).to_string()).unwrap().is_none());
        // Later rounds count on from here.
        done = done.max(begun);
    }
    assert!(marked.len() <= 6, "{marked:?}: only what was begun when a process died");
}

#[test]
#[ignore = "a process of the tests below"]
fn writes_until_the_disk_is_full() {
    let Some(path) = file_of_child() else { return };
    let store = DiskStore::open(&path, ROOM).unwrap();
    let put = |id: usize| store.put(&id.to_string(), RecordState::Done, &noise(id, 9000));
    let (full, error) = (0..10_000).find_map(|id| Some((id, put(id).err()?))).expect("a disk that does not fill up");
    assert!(matches!(error, StoreError::DiskFull(_)), "{error:?}");
    assert!(full > 10, "{full}");
    // What is there can be read, and making room is possible or refused in so many words.
    for id in 0..full {
        assert!(store.get(&id.to_string()).unwrap().is_some(), "{id}");
    }
    match store.delete("0") {
        Ok(deleted) => assert!(deleted),
        Err(error) => assert!(matches!(error, StoreError::DiskFull(_)), "{error:?}"),
    }
    for id in 1..full {
        assert!(store.get(&id.to_string()).unwrap().is_some(), "{id}");
    }
    drop(store);
    let store = DiskStore::open(&path, ROOM).unwrap();
    assert_eq!(store.get("1").unwrap(), Some((RecordState::Done, noise(1, 9000))), "after a restart on the full disk");
    say(&format!("full after {full}: {error}"));
}

#[test]
#[cfg(unix)]
fn a_file_that_may_not_grow_is_an_error_and_loses_nothing() {
    let (_directory, path) = a_file();
    // Half a kilobyte each; without the trap the system would kill the process.
    let scene = format!("trap '' XFSZ && ulimit -f 8192 || exit {NO_SCENE}; ");
    let Some(said) = heard(child("writes_until_the_disk_is_full", &path, &scene), "a limit of file sizes") else {
        return;
    };
    assert!(said[0].contains("the disk of the response store is full"), "{said:?}");
    let store = DiskStore::open(&path, ROOM).unwrap();
    store.put("later", RecordState::Done, b"there is room again").unwrap();
    assert!(store.get("1").unwrap().is_some());
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let (directory, path) = a_file();
    let mount = format!("mount -t tmpfs -o size=4m none {} || exit {NO_SCENE}; ", directory.path().display());
    let mut command = child("writes_until_the_disk_is_full", &path, &mount);
    in_a_mount_namespace(&mut command);
    let Some(said) = heard(command, "a full disk") else { return };
    assert!(said[0].contains("the disk of the response store is full"), "{said:?}");
}

/// Mounts end with the process.
#[cfg(target_os = "linux")]
fn in_a_mount_namespace(command: &mut Command) {
    let mut outer = Command::new("sh");
    outer.arg("-c").arg(format!("unshare -rm true || exit {NO_SCENE}; exec unshare -rm \"$0\" \"$@\""));
    outer.arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.stdin(Stdio::null()).stdout(Stdio::piped());
    *command = outer;
}

#[test]
#[ignore = "a process of the test below"]
fn opens_what_may_not_be_written() {
    let Some(path) = file_of_child() else { return };
    for path in [path.clone(), path.with_extension("new")] {
        match DiskStore::open(&path, ROOM) {
            Err(error @ OpenError::Io { .. }) => say(&error.to_string()),
            Err(error) => panic!("{error:?}"),
            Ok(_) => panic!("{} can be written", path.display()),
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_only_disk_is_an_error_at_start_up() {
    let (directory, path) = a_file();
    drop(DiskStore::open(&path, ROOM).unwrap());
    let at = directory.path().display();
    let scene = format!("{{ mount --bind {at} {at} && mount -o remount,bind,ro {at}; }} || exit {NO_SCENE}; ");
    let mut command = child("opens_what_may_not_be_written", &path, &scene);
    in_a_mount_namespace(&mut command);
    let Some(said) = heard(command, "a read-only disk") else { return };
    assert_eq!(said.len(), 2);
    assert!(said.iter().all(|line| line.contains("Read-only file system")), "{said:?}");
}

#[test]
fn a_store_is_private_and_nothing_is_left_beside_it() {
    let (directory, path) = a_file();
    drop(DiskStore::open(&path, ROOM).unwrap());
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["responses.redb"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn files_that_are_no_stores_are_refused_as_they_are() {
    let (directory, path) = a_file();
    let refused = |path: &Path| DiskStore::open(path, ROOM).err().unwrap().to_string();
    assert!(refused(directory.path()).ends_with("is not a response store"));
    fs::write(&path, "not a database").unwrap();
    assert!(refused(&path).ends_with("is not a response store"));
    assert_eq!(fs::read(&path).unwrap(), b"not a database");
    assert!(refused(&directory.path().join("no/such/directory")).contains("cannot be opened"));
}

#[test]
fn a_file_that_was_cut_or_changed_is_refused() {
    let (_directory, path) = a_file();
    let store = DiskStore::open(&path, ROOM).unwrap();
    for id in 0..50 {
        store.put(&id.to_string(), RecordState::Done, &record(id)).unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    let refused = || DiskStore::open(&path, ROOM).err().map(|error| error.to_string());
    fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    let cut = refused().expect("two thirds are missing");
    assert!(cut.contains("is corrupted: "), "{cut}");
    // In the middle of a record.
    let needle = &record(49)[..400];
    let at = whole.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut changed = whole.clone();
    changed[at + 200] ^= 1;
    fs::write(&path, changed).unwrap();
    let changed = refused().expect("a record is not what was written");
    assert!(changed.contains("is corrupted: "), "{changed}");
    fs::write(&path, "").unwrap();
    let empty = refused().expect("nothing is left");
    assert!(empty.ends_with("is corrupted: it has 0 bytes; move it away to begin a new one"), "{empty}");
    assert_eq!(fs::read(&path).unwrap(), b"", "it is left as it is");
    fs::write(&path, whole).unwrap();
    assert_eq!(refused(), None);
}

#[test]
fn a_bit_that_would_bring_back_the_commit_before_is_noticed() {
    let (_directory, path) = a_file();
    let store = DiskStore::open(&path, ROOM).unwrap();
    for id in 0..4 {
        store.put(&id.to_string(), RecordState::Done, b"accepted").unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    let opened = |bit: u8| {
        let mut changed = whole.clone();
        changed[9] ^= 1 << bit;
        fs::write(&path, changed).unwrap();
        DiskStore::open(&path, ROOM).map_err(|error| error.to_string())
    };
    for bit in 0..8 {
        match opened(bit) {
            Err(error) => assert!(error.contains("is corrupted: "), "{error}"),
            Ok(store) => {
                for id in 0..4 {
                    let found = store.get(&id.to_string()).unwrap();
                    assert_eq!(found, Some((RecordState::Done, b"accepted".to_vec())), "bit {bit}, record {id}");
                }
            }
        }
    }
    assert!(opened(0).is_err());
}

#[test]
fn churn_keeps_the_file_near_its_bound() {
    const MOST: u64 = 4 << 20;
    let (_directory, path) = a_file();
    let store = DiskStore::open(&path, MOST).unwrap();
    for id in 0..600 {
        store.put(&id.to_string(), RecordState::Done, &record(id * 7)).unwrap();
    }
    assert!(store.get("599").unwrap().is_some());
    assert!(store.get("0").unwrap().is_none());
    let size = fs::metadata(&path).unwrap().len();
    assert!(size < 3 * MOST, "{size}");
}
