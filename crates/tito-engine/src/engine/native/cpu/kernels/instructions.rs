//! Which instructions compute, chosen when the process starts.

use std::fmt;

/// The name of a set of kernels, which this machine may or may not be able to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelName {
    /// Tiles of bf16 (Sapphire Rapids and later).
    Amx,
    /// Dot products of bf16 pairs in vectors of 512 bits (Cooper Lake, Zen 4 and later).
    Avx512Bf16,
    /// Vectors of 512 bits of f32.
    Avx512,
    /// Vectors of 256 bits with fused multiply-add.
    Avx2,
    /// What every processor has.
    Portable,
}

impl KernelName {
    /// All names, that of the fastest set first.
    pub const ALL: [Self; 5] = [Self::Amx, Self::Avx512Bf16, Self::Avx512, Self::Avx2, Self::Portable];

    /// The name that is spelt like this.
    pub fn parse(spelling: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == spelling)
    }

    /// The set that processor and system have, but that the system does not let this process use, if there is one.
    pub fn denied() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if super::amx::denied() {
            return Some(Self::Amx);
        }
        None
    }

    /// Its spelling, as `--kernels` takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amx => "amx",
            Self::Avx512Bf16 => "avx512_bf16",
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn runs_here(self) -> bool {
        match self {
            // Beside the tiles, everything of the next set is used.
            #[cfg(target_os = "linux")]
            Self::Amx => Self::Avx512Bf16.runs_here() && super::amx::available(),
            #[cfg(not(target_os = "linux"))]
            Self::Amx => false,
            Self::Avx512Bf16 => Self::Avx512.runs_here() && is_x86_feature_detected!("avx512bf16"),
            Self::Avx512 => {
                Self::Avx2.runs_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
            }
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Portable => true,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn runs_here(self) -> bool {
        self == Self::Portable
    }
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of kernels whose instructions this machine has: a value of this type is the proof, which unsafe code relies on.
/// Each set gives its own last bits; within one, results never differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelSet(KernelName);

impl KernelSet {
    /// The set that every machine can run.
    pub const PORTABLE: Self = Self(KernelName::Portable);

    /// The set of this name, if this machine can run it.
    pub fn detect(name: KernelName) -> Option<Self> {
        name.runs_here().then_some(Self(name))
    }

    /// The sets that this machine can run, the fastest first; [`KernelSet::PORTABLE`] is always the last.
    pub fn available() -> Vec<Self> {
        KernelName::ALL.into_iter().filter_map(Self::detect).collect()
    }

    /// The sets to test: all that run here, of which unoptimised builds, where each takes its time, try the first and the
    /// last.
    #[cfg(test)]
    pub(crate) fn tested() -> Vec<Self> {
        let mut sets = Self::available();
        if cfg!(unoptimised) {
            sets.drain(1..sets.len() - 1);
        }
        sets
    }

    /// Its name.
    pub fn name(self) -> KernelName {
        self.0
    }
}

impl fmt::Display for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// A loop to be compiled for several instruction sets. Its `run` must be `#[inline(always)]`, and so must be what it
/// calls. The compiler neither reorders nor fuses arithmetic, so that all of them give the same bits.
pub(super) trait Vectorized {
    /// What it returns.
    type Output;

    /// Runs the loop.
    fn run(self) -> Self::Output;
}

impl KernelSet {
    /// Runs `work` with the widest vectors of this set.
    #[inline]
    pub(super) fn vectorize<W: Vectorized>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
            fn avx512<W: Vectorized>(work: W) -> W::Output {
                work.run()
            }
            #[target_feature(enable = "avx2,fma")]
            fn avx2<W: Vectorized>(work: W) -> W::Output {
                work.run()
            }
            match self.name() {
                // SAFETY: only `detect` makes a set other than the portable one, and only where the processor has all of
                // the set's instructions; those of `avx512` are among them in each of these three.
                KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512 => unsafe { avx512(work) },
                // SAFETY: likewise, AVX2 and FMA were detected.
                KernelName::Avx2 => unsafe { avx2(work) },
                KernelName::Portable => work.run(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        work.run()
    }
}
