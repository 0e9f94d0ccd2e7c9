//! Files of other hosts: which hosts are asked, for how long, and how much is read.
//!
//! Statuses and limits are those of vLLM 0.33 (`vllm/multimodal/media/connector.py`, `vllm/connections.py`). Deliberately
//! otherwise: no host is asked that is not on the list, also not after a redirect; names must have public addresses; a host is
//! asked once, without proxies of the environment.

mod addresses;
mod room;

use std::{error::Error, fmt, sync::Arc, time::Duration};

use reqwest::{
    Client, Response, Url,
    header::{HeaderValue, LOCATION},
    redirect,
};
use tokio::{sync::Semaphore, time::timeout};

use super::MediaError;
use addresses::{NotPublic, PublicResolver};
use room::Room;

/// How often a host may send the question elsewhere, unless it may not at all.
const MOST_REDIRECTS: usize = 5;
/// How many of the largest files may be in memory at once.
const LARGEST_AT_ONCE: u64 = 4;

/// Which hosts may be asked for images, and how much is taken from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPolicy {
    /// The hosts as they stand in a URL that was parsed: in lower case, IPv6 addresses in brackets. Without one, none is asked.
    pub allowed: Vec<String>,
    /// The time for one image, redirects and all.
    pub timeout: Duration,
    /// How often a host may send the question elsewhere.
    pub redirects: usize,
    /// The largest file that is read.
    pub most_bytes: u64,
}

impl Default for HostPolicy {
    /// Nobody is asked; the limits are vLLM's.
    fn default() -> Self {
        Self { allowed: Vec::new(), timeout: Duration::from_secs(5), redirects: MOST_REDIRECTS, most_bytes: 256 << 20 }
    }
}

/// Asks hosts for files.
pub(super) struct Hosts {
    client: Client,
    policy: HostPolicy,
    room: Arc<Semaphore>,
}

/// A file that a host sent. Its room is free again when it is dropped.
pub struct FetchedFile {
    bytes: Vec<u8>,
    room: Room,
}

impl Hosts {
    pub(super) fn new(policy: HostPolicy) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .user_agent(concat!("tito/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .referer(false)
            .redirect(redirect::Policy::none())
            .dns_resolver(Arc::new(PublicResolver))
            .build()?;
        let room = room::of_bytes(policy.most_bytes.saturating_mul(LARGEST_AT_ONCE));
        Ok(Self { client, policy, room })
    }

    /// The file that an `http:` or `https:` URL names.
    pub(super) async fn fetch(&self, url: &str) -> Result<FetchedFile, MediaError> {
        let url = Url::parse(url).map_err(|_| MediaError::InvalidUrl)?;
        let most = self.policy.timeout;
        timeout(most, self.follow(url)).await.map_err(|_| MediaError::HostTooSlow { most })?
    }

    async fn follow(&self, mut url: Url) -> Result<FetchedFile, MediaError> {
        for _ in 0..=self.policy.redirects {
            self.check(&url)?;
            let response = self.client.get(url.clone()).send().await.map_err(failed)?;
            match response.headers().get(LOCATION).filter(|_| is_redirect(response.status().as_u16())) {
                Some(location) => url = elsewhere(&url, location)?,
                None => return self.file(response).await,
            }
        }
        Err(MediaError::TooManyRedirects { most: self.policy.redirects })
    }

    /// Whether a URL, of a request or of a redirect, may be asked.
    fn check(&self, url: &Url) -> Result<(), MediaError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(MediaError::RedirectScheme { scheme: url.scheme().to_owned() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(MediaError::Credentials);
        }
        let host = url.host_str().ok_or(MediaError::InvalidUrl)?;
        if !self.policy.allowed.iter().any(|allowed| allowed == host) {
            return Err(MediaError::OtherHost { host: host.to_owned() });
        }
        Ok(())
    }

    async fn file(&self, mut response: Response) -> Result<FetchedFile, MediaError> {
        let (status, most) = (response.status(), self.policy.most_bytes);
        if !status.is_success() {
            return Err(MediaError::HostStatus { status: status.as_u16() });
        }
        let too_large = || MediaError::FetchedTooLarge { most };
        if response.content_length().is_some_and(|length| length > most) {
            return Err(too_large());
        }
        let mut file = FetchedFile { bytes: Vec::new(), room: Room::new(&self.room) };
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let length = file.bytes.len() + chunk.len();
            if length as u64 > most {
                return Err(too_large());
            }
            file.room.grow(length).ok_or(MediaError::NoRoom)?;
            file.bytes.extend_from_slice(&chunk);
        }
        Ok(file)
    }
}

impl FetchedFile {
    /// The bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for FetchedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FetchedFile").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Whether another host is needed for what a URL names.
pub(super) fn is_remote(url: &str) -> bool {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn elsewhere(url: &Url, location: &HeaderValue) -> Result<Url, MediaError> {
    let location = location.to_str().map_err(|_| MediaError::InvalidRedirect)?;
    url.join(location).map_err(|_| MediaError::InvalidRedirect)
}

/// What a client is told of a question without an answer: the innermost cause, which does not repeat the URL.
fn failed(error: reqwest::Error) -> MediaError {
    let error = error.without_url();
    let mut cause: &(dyn Error + 'static) = &error;
    loop {
        if cause.is::<NotPublic>() {
            return MediaError::NotPublic;
        }
        match cause.source() {
            Some(source) => cause = source,
            None => return MediaError::HostFailed { cause: cause.to_string() },
        }
    }
}
