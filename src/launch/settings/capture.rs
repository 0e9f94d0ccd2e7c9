//! What flags say of trajectories.

use std::{path::PathBuf, time::Duration};

use super::policies::{STORE_BYTES_IN_MEMORY, STORE_BYTES_ON_DISK};
use crate::{config::ServeArgs, trajectory::CapturePolicy};

/// For how long trajectories are kept in memory to which nothing is added, unless the flags say otherwise.
const TTL_IN_MEMORY: Duration = Duration::from_hours(24);

/// Where generations are captured.
pub(in crate::launch) struct CaptureSettings {
    /// The file; `None` for memory.
    pub(in crate::launch) path: Option<PathBuf>,
    /// What is kept, and for how long.
    pub(in crate::launch) policy: CapturePolicy,
}

/// Whether and how generations are captured.
pub(super) fn settings(args: &ServeArgs) -> Option<CaptureSettings> {
    let args = &args.capture;
    let path = args.capture.as_deref()?;
    let path = (path != "memory").then(|| PathBuf::from(path));
    let ttl = args.capture_ttl.map(Duration::from_secs);
    let (bytes, ttl) = match path {
        None => (STORE_BYTES_IN_MEMORY, ttl.or(Some(TTL_IN_MEMORY))),
        Some(_) => (STORE_BYTES_ON_DISK, ttl),
    };
    let bytes = args.capture_size.unwrap_or(bytes);
    Some(CaptureSettings {
        path,
        policy: CapturePolicy { bytes, ttl, texts: args.capture_texts, images: args.capture_images },
    })
}
