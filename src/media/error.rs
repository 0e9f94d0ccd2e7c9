//! Why an image cannot be had.

use crate::images::ImageError;

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
    NoRoom {
        /// The most bytes.
        most: u64,
    },
    /// What the URL names is not an image, or not one that the model can see.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl MediaError {
    /// Whether it could be done once other requests have ended.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::NoRoom { .. })
    }

    /// Whether it could be done by a server that does more.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NotBase64)
    }
}
