//! The wire shapes of Tinker's calls that sample, as the package `tinker` 0.38.0 has them (`types/`, `proto/`).

pub(crate) mod protobuf;
pub(crate) mod sample;
pub(crate) mod sessions;
pub(crate) mod targets;
