//! Which instructions compute, chosen when the process starts.

use std::fmt;

/// A set of kernels. Each gives its own last bits; within one, results never differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelSet {
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

impl KernelSet {
    /// All sets, the fastest first.
    pub const ALL: [Self; 5] = [Self::Amx, Self::Avx512Bf16, Self::Avx512, Self::Avx2, Self::Portable];

    /// The sets that this machine can run, the fastest first; [`KernelSet::Portable`] is always among them.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|set| set.runs_here()).collect()
    }

    /// The set of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// The set that processor and system have, but that the system does not let this process use, if there is one.
    pub fn denied() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if super::amx::denied() {
            return Some(Self::Amx);
        }
        None
    }

    /// The sets to test: all that run here, of which unoptimised builds, where each takes its time, try the first and the
    /// last.
    #[cfg(test)]
    pub(crate) fn tested() -> Vec<Self> {
        let mut sets = Self::available();
        if cfg!(debug_assertions) {
            sets.drain(1..sets.len() - 1);
        }
        sets
    }

    /// Its name, as `--kernels` takes it.
    pub fn name(self) -> &'static str {
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

impl fmt::Display for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
            match self {
                // SAFETY: a set exists only where `runs_here` found its instructions.
                Self::Amx | Self::Avx512Bf16 | Self::Avx512 => unsafe { avx512(work) },
                // SAFETY: as above.
                Self::Avx2 => unsafe { avx2(work) },
                Self::Portable => work.run(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        work.run()
    }
}
