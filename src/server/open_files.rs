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

/// How many connections each port may have, so that no port takes the files that another needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rooms {
    pub(super) main: usize,
    pub(super) other: usize,
}

impl Rooms {
    /// What each of `others` ports besides the main one has is an eighth: few clients have work for a control plane.
    pub(super) fn of(most: usize, others: usize) -> Self {
        let other = (most / 8).max(1);
        Self { main: most.saturating_sub(other * others).max(1), other }
    }
}

/// The connections that there is room for on all ports together, at least one.
pub(super) fn most_connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(NO_LIMIT);
    let most = limit.saturating_sub(FILES).max(limit / 2).max(1);
    usize::try_from(most).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_port_has_what_others_cannot_take() {
        assert_eq!(Rooms::of(192, 0), Rooms { main: 192, other: 24 });
        assert_eq!(Rooms::of(192, 1), Rooms { main: 168, other: 24 });
        assert_eq!(Rooms::of(1, 1), Rooms { main: 1, other: 1 });
    }
}
