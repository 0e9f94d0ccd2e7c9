//! Captured trajectories.

use clap::{ArgAction, Args};

use super::number::store_size;

/// Whether and how generations are captured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trajectories")]
pub struct CaptureArgs {
    /// Capture every generation as a turn of a trajectory: in `memory`, or in this file, so that a restart loses none.
    /// [default: nothing is captured]
    #[arg(long, value_name = "memory|FILE")]
    pub capture: Option<String>,

    /// Room for trajectories; those that were added to longest ago leave first. [default: 512M, or 4G in a file]
    #[arg(long, value_name = "BYTES", value_parser = store_size, requires = "capture")]
    pub capture_size: Option<u64>,

    /// Seconds that a trajectory is kept to which nothing is added. [default: 86400 in memory; in a file it stays]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), requires = "capture")]
    pub capture_ttl: Option<u64>,

    /// Keep messages, tools and stop strings beside the ids.
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set, requires = "capture")]
    pub capture_texts: bool,
}
