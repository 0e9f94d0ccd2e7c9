//! Whose turn it is to take much memory.

use parking_lot::Mutex;

/// Only one text at a time has more than this many bytes encoded at once.
pub(super) const LARGE: usize = 1 << 20;

/// Lets only one text at a time take much memory.
pub(super) type Turn = Mutex<()>;
