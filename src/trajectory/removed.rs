//! What is said and counted of trajectories that leave, so that nobody misses rollouts without a word.

use std::time::Duration;

/// Why trajectories leave.
#[derive(Debug, Clone, Copy)]
pub(super) enum Removal {
    /// All of them took more than there is room for.
    Size,
    /// Nothing was added to them for too long.
    Ttl,
    /// A client deleted them.
    Deleted,
}

impl Removal {
    /// Counts those that left.
    pub(super) fn count(self, trajectories: usize) {
        let reason = match self {
            Self::Size => "size",
            Self::Ttl => "ttl",
            Self::Deleted => "deleted",
        };
        metrics::counter!("tito:trajectories_removed_total", "reason" => reason).increment(trajectories as u64);
    }
}

/// Says which of the trajectories of earlier processes a start removed. One forgotten flag may empty a file.
///
/// `all` is how many there were, and `ttl` and `bytes` are the bounds on their age and on what they may take together.
pub(super) fn warn_at_start(ttl: Option<Duration>, bytes: u64, all: usize, too_old: usize, too_many: usize) {
    if let (Some(ttl), 1..) = (ttl, too_old) {
        tracing::warn!(
            "{too_old} of {all} captured trajectories of earlier processes were removed: nothing was added to them for \
             longer than --capture-ttl {}",
            ttl.as_secs_f64()
        );
    }
    if too_many > 0 {
        tracing::warn!(
            "{too_many} of {all} captured trajectories of earlier processes were removed, the oldest first: all of them take \
             more than --capture-size {bytes}"
        );
    }
}
