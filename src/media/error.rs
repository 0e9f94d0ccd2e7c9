//! Why an image cannot be had.

use std::time::Duration;

use super::mm_kwargs::MmKwargsError;
use crate::images::{ImageError, TensorError};

/// Why an image cannot be had. The texts say nothing of the server's files.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The URL is none of those that are read.
    #[error("images come as `data:` URLs{}, and this one is `{scheme}:`", if *.files { " or `file:` URLs" } else { "" })]
    Scheme {
        /// What the URL begins with.
        scheme: String,
        /// Whether files are read.
        files: bool,
    },
    /// It is no URL.
    #[error("it is no URL; an image comes as `data:image/png;base64,…`")]
    NoUrl,
    /// The data are written in another way than base64.
    #[error("only base64 data URLs are supported for now.")]
    NotBase64,
    /// The data are no base64.
    #[error("the data are not valid base64")]
    InvalidBase64,
    /// Files are not read.
    #[error("`file:` URLs are read only below the directory of --allowed-local-media-path, which is not set")]
    NoFiles,
    /// The file is elsewhere, or not there; a client is not told which.
    #[error("there is no such file below the directory of --allowed-local-media-path")]
    NoSuchFile,
    /// The file is too large.
    #[error("the file has more than {most} bytes")]
    FileTooLarge {
        /// The most bytes that are read.
        most: u64,
    },
    /// Other requests hold too many images.
    #[error("the images of the requests that wait and run take up the {most} bytes that are for them: try again later")]
    ImagesHeld {
        /// The most bytes.
        most: u64,
    },
    /// The tensors of the images of a request would take up more than all of the memory for images.
    #[error(
        "the tensors of these images take up {bytes} bytes while they are written, more than the {most} that are for images: \
         pass `mm_payload` \"none\", or fewer images"
    )]
    TensorsTooLarge {
        /// What they would take up.
        bytes: u64,
        /// The most bytes.
        most: u64,
    },
    /// A text is not the tensors of an image.
    #[error(transparent)]
    MmKwargs(#[from] MmKwargsError),
    /// Tensors are not those of an image that the model can see.
    #[error(transparent)]
    Tensors(#[from] TensorError),
    /// Counts of an image are not those of the image that its hash names.
    #[error("`{name}` is not that of the image that `mm_hashes` names")]
    OtherCounts {
        /// The tensor that counts.
        name: String,
    },
    /// Two tensors of one name count the same image.
    #[error("`{name}` of `mm_metadata` is another one than that of `kwargs_data`")]
    TwoCounts {
        /// The tensor that counts.
        name: String,
    },
    /// An image that a hash names is not kept.
    #[error(
        "the image is not kept here, or not any more; send its tensors in `kwargs_data`, or its file in `content_parts`"
    )]
    UnknownImage,
    /// The file of another host is too large.
    #[error("Failed to fetch media from URL: the file has more than {most} bytes")]
    FetchedTooLarge {
        /// The most bytes that are read.
        most: u64,
    },
    /// No other host is asked.
    #[error("images come as `data:` URLs; this server asks other hosts only if --allowed-media-domains names them")]
    NoHosts,
    /// Another host than those that are asked.
    #[error("`{host}` is none of the hosts of --allowed-media-domains")]
    OtherHost {
        /// The host of the URL, or of a redirect.
        host: String,
    },
    /// The host sends the question where no host is.
    #[error("the host redirects to a `{scheme}:` URL, and only `http:` and `https:` are followed")]
    RedirectScheme {
        /// What the URL begins with.
        scheme: String,
    },
    /// A name that leads into the server's own network, or to itself.
    #[error(
        "the host has no public address; if it may be asked all the same, --allowed-media-domains and the URL must have its \
         address in the place of its name"
    )]
    NotPublic,
    /// The URL has a user or a password.
    #[error("a URL with a user or a password is not asked")]
    Credentials,
    /// It is no URL of a host.
    #[error("Failed to fetch media from URL: Invalid URL")]
    InvalidUrl,
    /// The host redirects to what is no URL.
    #[error("Failed to fetch media from URL: it redirects to an invalid URL")]
    InvalidRedirect,
    /// The host redirects again and again.
    #[error("Failed to fetch media from URL: it redirects more than {most} times")]
    TooManyRedirects {
        /// The number that is followed.
        most: usize,
    },
    /// The host has no such file, or has failed.
    #[error("Failed to fetch media from URL: HTTP {status} error")]
    HostStatus {
        /// Its status.
        status: u16,
    },
    /// The host did not send all of the file in time.
    #[error("Failed to fetch media from URL: the host took more than {} seconds", .most.as_secs_f32())]
    HostTooSlow {
        /// The time that it had.
        most: Duration,
    },
    /// The host cannot be reached, or ended the connection.
    #[error("Failed to fetch media from URL: {cause}")]
    HostFailed {
        /// What the system, or TLS, says.
        cause: String,
    },
    /// Other requests' files fill the memory for them.
    #[error("too many bytes of images are being fetched; send the request again")]
    NoRoom,
    /// What the URL names is not an image, or not one that the model can see.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Whose fault it is that an image cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaFault {
    /// The request asks for what is refused.
    Request,
    /// A server that does more could do it.
    Unsupported,
    /// What the URL names is not there, or is not to be had.
    Source,
    /// Another host failed, and may do better later.
    Host,
    /// The server is busy.
    Busy,
}

impl MediaError {
    /// Whose fault it is; as vLLM sorts errors, a status of 408 or 429 may be another one later.
    pub fn fault(&self) -> MediaFault {
        match self {
            Self::NotBase64 => MediaFault::Unsupported,
            Self::InvalidUrl | Self::InvalidRedirect | Self::TooManyRedirects { .. } | Self::FetchedTooLarge { .. } => {
                MediaFault::Source
            }
            Self::HostStatus { status: 408 | 429 | 500.. } | Self::HostTooSlow { .. } | Self::HostFailed { .. } => {
                MediaFault::Host
            }
            Self::HostStatus { .. } => MediaFault::Source,
            Self::NoRoom | Self::ImagesHeld { .. } => MediaFault::Busy,
            _ => MediaFault::Request,
        }
    }
}
