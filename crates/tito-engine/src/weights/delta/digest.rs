//! The checksums that trainers take of a tensor's bytes.

use twox_hash::XxHash3_128;

/// A way of computing a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// XXH3 with 128 bits.
    Xxh3,
    Blake3,
    Adler32,
}

impl Algorithm {
    /// The one that trainers call so; an error of one sentence for all others.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let known = [Self::Xxh3, Self::Blake3, Self::Adler32];
        let found = known.into_iter().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| "its checksums are not computed here; xxh3-128, blake3 and adler32 are".to_owned())
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3-128",
            Self::Blake3 => "blake3",
            Self::Adler32 => "adler32",
        }
    }

    pub(super) fn hasher(self) -> Hasher {
        match self {
            Self::Xxh3 => Hasher::Xxh3(Box::new(XxHash3_128::new())),
            Self::Blake3 => Hasher::Blake3(Box::default()),
            Self::Adler32 => Hasher::Adler32(adler2::Adler32::new()),
        }
    }
}

/// A checksum of the bytes that came until now.
pub(super) enum Hasher {
    Xxh3(Box<XxHash3_128>),
    Blake3(Box<blake3::Hasher>),
    Adler32(adler2::Adler32),
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh3(hasher) => hasher.write(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Adler32(hasher) => hasher.write_slice(bytes),
        }
    }

    /// Hexadecimal digits in lower case, the most significant first.
    pub(super) fn finish(&self) -> String {
        match self {
            Self::Xxh3(hasher) => format!("{:032x}", hasher.finish_128()),
            Self::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
            Self::Adler32(hasher) => format!("{:08x}", hasher.checksum()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_pythons_packages() {
        let digest = |name: &str| {
            let mut hasher = Algorithm::named(name).unwrap().hasher();
            hasher.update(b"Wiki");
            hasher.update(b"pedia");
            hasher.finish()
        };
        assert_eq!(digest("adler32"), "11e60398");
        assert_eq!(digest("xxh3-128"), "33d468536730462c812e3ed6c425b7ea");
        assert_eq!(digest("blake3"), "6072e64cd9a49de275172611aee2d3555bdc72d047a8d99f4e2be1b19370095c");
        assert!(Algorithm::named("sha256").unwrap_err().starts_with("its checksums are not computed here; "));
    }
}
