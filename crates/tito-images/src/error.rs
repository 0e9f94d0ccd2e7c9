//! Why an image cannot be read, or a processor cannot be followed.

/// Why no pixels, or no patches, come of an image. The texts are for whoever sent it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ImageError {
    /// The bytes do not begin as those of any kind of image that can be read.
    #[error("cannot identify image file: it is none of {KINDS}")]
    NotAnImage,
    /// The bytes end before the image does.
    #[error("image file is truncated")]
    Truncated,
    /// The bytes contradict their kind.
    #[error("broken {kind} file: {what}")]
    Broken {
        /// The kind of file.
        kind: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// There are more pixels than [`ImageLimits`](crate::ImageLimits) lets through.
    #[error("image dimensions {width}x{height} ({} pixels) exceed the maximum of {limit} pixels", u64::from(*width) * u64::from(*height))]
    TooManyPixels {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
        /// How many may be decoded.
        limit: u64,
    },
    /// There are no pixels.
    #[error("image dimensions {width}x{height}: the image has no pixels")]
    NoPixels {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
    },
    /// One side is too long for the other; in transformers' words.
    #[error("absolute aspect ratio must be smaller than 200, got {0:?}")]
    AspectRatio(f64),
    /// The image is so long and narrow that it cannot be made a square, or squares, in bounded memory.
    #[error("image dimensions {width}x{height}: the image is too high to be resized to {}x{}", to.0, to.1)]
    TooLong {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
        /// The width and the height that it would get.
        to: (u32, u32),
    },
    /// One side would become so short that its weights may be rounded in another way than torch rounds them.
    #[error(
        "image dimensions {width}x{height}: the image is too large to be resized to {}x{}, which is {times} times as small or more along one side",
        to.0, to.1
    )]
    TooLarge {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
        /// The width and the height that it would get.
        to: (u32, u32),
        /// How many times as small a side must not become.
        times: u32,
    },
    /// One side is so short for the other one that it would vanish.
    #[error("image dimensions {width}x{height}: one side would have no pixels if the other one had {edge}")]
    Vanishing {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
        /// The longest edge.
        edge: u32,
    },
    /// The file may be good, but what it asks for is not done.
    #[error("{kind} file not supported: {what}")]
    Unsupported {
        /// The kind of file.
        kind: &'static str,
        /// What is not supported.
        what: String,
    },
}

/// The kinds of files that are read, for messages.
pub(crate) const KINDS: &str = "PNG, JPEG, WebP and GIF";

impl ImageError {
    pub(crate) fn broken(kind: &'static str, what: impl Into<String>) -> Self {
        Self::Broken { kind, what: what.into() }
    }

    pub(crate) fn unsupported(kind: &'static str, what: impl Into<String>) -> Self {
        Self::Unsupported { kind, what: what.into() }
    }
}

/// Why the processor of a checkpoint cannot be followed exactly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedProcessor {
    /// Images of this type of model are not known.
    #[error("images of models of the type {0:?} are not supported")]
    ModelType(String),
    /// A setting asks for what is not done.
    #[error("preprocessor_config.json: {setting} is {value}, but {wanted}")]
    Setting {
        /// Its name.
        setting: String,
        /// What it is, as JSON.
        value: String,
        /// What can be done instead.
        wanted: &'static str,
    },
    /// A setting of the model asks for what is not done.
    #[error("config.json: {setting} is {value}, but {wanted}")]
    Model {
        /// Its name.
        setting: &'static str,
        /// What it is, as JSON.
        value: String,
        /// What can be done instead.
        wanted: &'static str,
    },
    /// The processor and the tower of the model do not fit each other.
    #[error("preprocessor_config.json has {setting} {processor}, but vision_config of config.json has {model}")]
    Disagreement {
        /// The setting's name in config.json.
        setting: &'static str,
        /// What the processor has.
        processor: usize,
        /// What the model has, as JSON.
        model: String,
    },
}
