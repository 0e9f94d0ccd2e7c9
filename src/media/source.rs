//! The bytes that a URL names without another host.

use std::{
    borrow::Cow,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;

use super::MediaError;

/// The largest file that is read; vLLM reads as much of a request.
const MOST_FILE_BYTES: u64 = 256 << 20;

/// The bytes that a `data:` URL holds, or those of a file below `local_path`.
pub(super) fn bytes(url: &str, local_path: Option<&Path>) -> Result<Vec<u8>, MediaError> {
    let (scheme, rest) = url.split_once(':').ok_or(MediaError::NoUrl)?;
    match scheme.to_ascii_lowercase().as_str() {
        "data" => data(rest),
        "file" => file(rest, local_path.ok_or(MediaError::NoFiles)?),
        known @ ("ftp" | "s3" | "gs") => {
            Err(MediaError::Scheme { scheme: known.to_owned(), files: local_path.is_some() })
        }
        _ => Err(MediaError::NoUrl),
    }
}

/// `[<media type>];base64,<data>`; the media type is not looked at, as in vLLM.
fn data(rest: &str) -> Result<Vec<u8>, MediaError> {
    let (media_type, data) = rest.split_once(',').ok_or(MediaError::NoUrl)?;
    if !media_type.to_ascii_lowercase().ends_with(";base64") {
        return Err(MediaError::NotBase64);
    }
    STANDARD.decode(data).map_err(|_| MediaError::InvalidBase64)
}

fn file(rest: &str, allowed: &Path) -> Result<Vec<u8>, MediaError> {
    let path = local(rest).ok_or(MediaError::NoSuchFile)?;
    // Links and `..` are followed before the path is compared.
    let path = path.canonicalize().map_err(|_| MediaError::NoSuchFile)?;
    let allowed = allowed.canonicalize().map_err(|_| MediaError::NoSuchFile)?;
    if !path.starts_with(allowed) || !path.is_file() {
        return Err(MediaError::NoSuchFile);
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|_| MediaError::NoSuchFile)?;
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|_| MediaError::NoSuchFile)?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        return Err(MediaError::FileTooLarge { most: MOST_FILE_BYTES });
    }
    Ok(bytes)
}

/// The path of a URL without a host, or of one on this machine.
fn local(rest: &str) -> Option<PathBuf> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    let path = path.strip_prefix("localhost").unwrap_or(path);
    let path: Cow<'_, str> = percent_decode_str(path).decode_utf8().ok()?;
    path.starts_with('/').then(|| PathBuf::from(path.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn data_are_base64_of_any_media_type() {
        for url in ["data:image/png;base64,aGk=", "DATA:;BASE64,aGk=", "data:text/plain;charset=x;base64,aGk="] {
            assert_eq!(bytes(url, None).unwrap(), b"hi", "{url}");
        }
        assert!(matches!(bytes("data:image/png,hi", None), Err(MediaError::NotBase64)));
        assert!(matches!(bytes("data:image/png;base64", None), Err(MediaError::NoUrl)));
        for broken in ["aGk", "aGk=\n", "aG k=", "a-_=", "====", "aGk=aGk="] {
            let url = format!("data:image/png;base64,{broken}");
            assert!(matches!(bytes(&url, None), Err(MediaError::InvalidBase64)), "{broken:?}");
        }
    }

    #[test]
    fn other_schemes_are_refused() {
        for url in ["s3://bucket/a", "FTP://a/b", "gs:a"] {
            assert!(matches!(bytes(url, None), Err(MediaError::Scheme { .. })), "{url}");
        }
        for url in ["", "a.png", "httpx://a", "https", "/etc/passwd", "c:\\a.png", "javascript:alert(1)"] {
            assert!(matches!(bytes(url, None), Err(MediaError::NoUrl)), "{url}");
        }
    }

    #[test]
    fn files_are_read_below_the_allowed_directory_only() {
        let directory = tempfile::tempdir().unwrap();
        let allowed = directory.path().join("allowed");
        fs::create_dir_all(allowed.join("a b")).unwrap();
        fs::write(allowed.join("a b/image"), "inside").unwrap();
        fs::write(directory.path().join("secret"), "outside").unwrap();
        std::os::unix::fs::symlink(directory.path().join("secret"), allowed.join("link")).unwrap();
        let root = allowed.to_str().unwrap();
        let read = |url: &str| bytes(url, Some(&allowed));
        for url in [format!("file://{root}/a%20b/image"), format!("file://localhost{root}/a b/../a b/image")] {
            assert_eq!(read(&url).unwrap(), b"inside", "{url}");
        }
        let outside = ["/../secret", "/link", "/%2e%2e/secret", "/a%20b", "/nothing", "/a%00"];
        for url in outside.map(|path| format!("file://{root}{path}")) {
            assert!(matches!(read(&url), Err(MediaError::NoSuchFile)), "{url}");
        }
        for url in ["file:relative", "file://example.org/etc/passwd", "file:///etc/passwd", "file:"] {
            assert!(matches!(read(url), Err(MediaError::NoSuchFile)), "{url}");
        }
        assert!(matches!(bytes("file:///etc/passwd", None), Err(MediaError::NoFiles)));
    }
}
