//! The files of a model's processor.

/// The file of what turns texts and images into what a model reads.
pub(super) const PROCESSOR_CONFIG: &str = "processor_config.json";

/// The file of its part for images, in older checkpoints.
pub(super) const IMAGE_PROCESSOR_CONFIG: &str = "preprocessor_config.json";
