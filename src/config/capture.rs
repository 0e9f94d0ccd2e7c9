//! Captured trajectories.

use clap::{ArgAction, Args};

use super::number::store_size;

/// Whether and how generations are captured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trajectories")]
pub struct CaptureArgs {
    /// Record every generation with its token ids, in `memory` or in this file [default: off]
    ///
    /// Generations of one conversation form a trajectory. A file survives a restart; `tito inspect` and `tito replay`
    /// read it.
    #[arg(long, value_name = "memory|FILE")]
    pub capture: Option<String>,

    /// Room for trajectories [default: 512M, or 4G in a file]
    ///
    /// Those that have not grown for the longest time are removed first.
    #[arg(long, value_name = "BYTES", value_parser = store_size, requires = "capture")]
    pub capture_size: Option<u64>,

    /// How many seconds a trajectory stays after its last turn [default: 86400 in memory; no limit in a file]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), requires = "capture")]
    pub capture_ttl: Option<u64>,

    /// Record messages, tools and stop strings beside the ids.
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set, requires = "capture")]
    pub capture_texts: bool,

    /// Record the files of images, each once; with `false`, only their hashes and sizes.
    ///
    /// Turns whose images were not recorded cannot be replayed.
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set, requires = "capture")]
    pub capture_images: bool,
}
