//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but connections.
const FILES: u64 = 128;
/// Connections where the system knows no limit.
const NO_LIMIT: u64 = 1 << 20;

/// Takes as many descriptors as the system grants: the limit that a process starts with is often 1024, for the sake of
/// programs that cannot name more, and each connection takes one.
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, ?current, "cannot raise the number of files that may be open");
    }
}

/// The connections that there is room for, at least one.
pub(super) fn most_connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(NO_LIMIT);
    let most = limit.saturating_sub(FILES).max(limit / 2).max(1);
    usize::try_from(most).unwrap_or(usize::MAX)
}
