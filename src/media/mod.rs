//! Images that requests name: their bytes, and what a model sees of them.
//!
//! Owns `data:` and `file:` URLs, those of hosts that are allowed, tensors of images as texts, the limits of all, and a cache of
//! prepared images, which clients send again with every turn. Leaves to others: messages, prompts, and what the server says over HTTP. It asks no host
//! that the server was not told to ask.

mod error;
mod held;
mod hosts;
mod mm_kwargs;
mod source;
mod tensors;

use std::{fmt, path::PathBuf, sync::Arc, thread};

use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::images::{DecodedImage, ImageError, ImageIdentity, ImageLimits, ImageProcessor, PreparedImage, decode};

use held::HeldImages;
use hosts::Hosts;

pub(crate) use error::{MediaError, MediaFault};
pub(crate) use held::Hold;
pub(crate) use hosts::{FetchedFile, HostPolicy};
pub(crate) use tensors::{ImageTexts, SentImage};

/// An image of more pixels is a large one.
const LARGE_PIXELS: u64 = 1 << 24;
/// More threads than this decode no more images: models are many times slower.
const MOST_TURNS: usize = 4;

/// What the server decides about images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPolicy {
    /// The most images of one prompt.
    pub images_per_prompt: usize,
    /// The directory below which `file:` URLs may name files; without, they are refused.
    pub local_path: Option<PathBuf>,
    /// Which other hosts are asked.
    pub hosts: HostPolicy,
    /// The most bytes of prepared images that are kept.
    pub cache_bytes: u64,
    /// The most bytes of images that requests may wait and run with.
    pub held_bytes: u64,
    /// Whether prepared images keep their files, for captures.
    pub keeps_files: bool,
}

/// Reads the images of requests for one model.
#[derive(Clone)]
pub struct MediaReader {
    processor: Arc<ImageProcessor>,
    policy: Arc<MediaPolicy>,
    /// None where no host is allowed.
    hosts: Option<Arc<Hosts>>,
    prepared: Cache<ImageIdentity, PreparedImage>,
    /// Decoding takes up to 18 bytes for each pixel, so few images are decoded at a time.
    turns: Arc<Semaphore>,
    /// And of large ones, one.
    large: Arc<Mutex<()>>,
    held: Arc<HeldImages>,
}

/// What can be read without waiting for another host.
#[derive(Debug)]
pub enum Nearby {
    /// What this URL names.
    Url(String),
    /// The file that another host sent.
    Fetched(FetchedFile),
}

/// An image that may be decoded now.
pub struct MediaTurn(#[expect(dead_code, reason = "it is given back when it is dropped")] OwnedSemaphorePermit);

impl MediaReader {
    /// Reads images as a model's processor does.
    ///
    /// # Errors
    ///
    /// If hosts are allowed, and there is no client to ask them.
    pub fn new(processor: ImageProcessor, policy: MediaPolicy) -> Result<Self, reqwest::Error> {
        let weight = |_: &ImageIdentity, image: &PreparedImage| u32::try_from(image.bytes()).unwrap_or(u32::MAX);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let hosts = match policy.hosts.allowed.as_slice() {
            [] => None,
            _ => Some(Arc::new(Hosts::new(policy.hosts.clone())?)),
        };
        Ok(Self {
            processor: Arc::new(processor),
            prepared: Cache::builder().max_capacity(policy.cache_bytes).weigher(weight).build(),
            turns: Arc::new(Semaphore::new((cores / 2).clamp(1, MOST_TURNS))),
            large: Arc::default(),
            held: HeldImages::new(policy.held_bytes),
            policy: Arc::new(policy),
            hosts,
        })
    }

    /// The most images of one prompt.
    pub fn images_per_prompt(&self) -> usize {
        self.policy.images_per_prompt
    }

    /// Holds the images of a request, for as long as it waits or runs.
    ///
    /// # Errors
    ///
    /// If the requests that wait and run hold too many already.
    pub fn hold<'i>(&self, images: impl IntoIterator<Item = &'i PreparedImage>) -> Result<Hold, MediaError> {
        self.held.hold(images)
    }

    /// Decodes an image; a large one waits until no other large one is decoded.
    fn decode(&self, encoded: &[u8]) -> Result<DecodedImage, MediaError> {
        // What an image claims to be is known before anything is allocated for it.
        match decode(encoded, &ImageLimits { pixels: LARGE_PIXELS }) {
            Err(ImageError::TooManyPixels { .. }) => {
                let _alone = self.large.lock();
                Ok(decode(encoded, &ImageLimits::default())?)
            }
            decoded => Ok(decoded?),
        }
    }

    /// Waits until an image may be decoded.
    pub async fn turn(&self) -> MediaTurn {
        let turns = Arc::clone(&self.turns);
        MediaTurn(turns.acquire_owned().await.expect("nobody closes the semaphore"))
    }

    /// An image that was read before, if it is still kept. Its identity is a hash of its bytes, which nobody knows who does
    /// not have them.
    pub fn known(&self, identity: ImageIdentity) -> Option<PreparedImage> {
        self.prepared.get(&identity)
    }

    /// Asks the host of a URL for the file that it names; other URLs are left to [`MediaReader::read`].
    ///
    /// # Errors
    ///
    /// If the host is not allowed, or does not send the file.
    pub async fn fetch(&self, url: String) -> Result<Nearby, MediaError> {
        if !hosts::is_remote(&url) {
            return Ok(Nearby::Url(url));
        }
        let hosts = self.hosts.as_ref().ok_or(MediaError::NoHosts)?;
        Ok(Nearby::Fetched(hosts.fetch(&url).await?))
    }

    /// Reads an image, or finds it prepared. Blocks for as long as decoding takes.
    ///
    /// # Errors
    ///
    /// If a URL is not allowed, names nothing, or names what is no image that the model can see.
    pub fn read(&self, image: &Nearby) -> Result<PreparedImage, MediaError> {
        match image {
            Nearby::Url(url) => self.prepare(&source::bytes(url, self.policy.local_path.as_deref())?),
            Nearby::Fetched(file) => self.prepare(file.bytes()),
        }
    }

    /// Prepares a file, or finds it prepared. Blocks for as long as decoding takes.
    ///
    /// # Errors
    ///
    /// If it is no image that the model can see.
    pub fn prepare(&self, encoded: &[u8]) -> Result<PreparedImage, MediaError> {
        let identity = self.processor.identity(encoded);
        if let Some(prepared) = self.prepared.get(&identity) {
            return Ok(prepared);
        }
        let decoded = self.decode(encoded)?;
        let mut prepared = self.processor.prepare(identity, &decoded)?;
        if self.policy.keeps_files {
            prepared = prepared.with_file(encoded.into());
        }
        self.prepared.insert(identity, prepared.clone());
        Ok(prepared)
    }
}

impl fmt::Debug for MediaReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MediaReader").field("policy", &self.policy).finish_non_exhaustive()
    }
}
