//! Memory for weights and caches: zero, taken from the system as it is touched, and in huge pages where there are any.
//!
//! A product with one row reads all weights once. In pages of 4 KiB the processor looks up an address for every 4 KiB
//! and fetches nothing ahead beyond it, which cost a third of the memory's speed here.

use std::ops::{Deref, DerefMut, Range};

use super::Precision;
use crate::engine::native::backend::NoRoom;

/// Numbers of one type, all of whose bit patterns are valid; zero at first.
#[derive(Debug)]
pub(super) struct Pages<T: 'static> {
    numbers: &'static mut [T],
    /// What was mapped, from an address that is a multiple of the system's pages.
    #[cfg(target_os = "linux")]
    mapping: Mapping,
}

/// Numbers of either precision, in pages.
#[derive(Debug)]
pub(super) enum Stored {
    /// The bits of bfloat16.
    Bf16(Pages<u16>),
    /// float32.
    F32(Pages<f32>),
}

impl Stored {
    /// As many zeros.
    pub(super) fn zeros(precision: Precision, len: usize) -> Result<Self, NoRoom> {
        match precision {
            Precision::Bf16 => Pages::zeros(len).map(Self::Bf16),
            Precision::F32 => Pages::zeros(len).map(Self::F32),
        }
    }

    /// Has some of them fetched into the caches.
    pub(super) fn prefetch(&self, range: Range<usize>) {
        match self {
            Self::Bf16(numbers) => prefetch(&numbers[range]),
            Self::F32(numbers) => prefetch(&numbers[range]),
        }
    }
}

fn prefetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in numbers.chunks((64 / size_of::<T>()).max(1)) {
        // SAFETY: a hint, which reads nothing.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

/// A number.
pub(super) trait Number: Copy + Send + Sync {}
impl Number for u16 {}
impl Number for f32 {}

#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Mapping {
    address: usize,
    bytes: usize,
}

/// The size of a huge page.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

impl<T: Number> Pages<T> {
    /// As many zeros, if the system has addresses for them.
    #[cfg(target_os = "linux")]
    pub(super) fn zeros(len: usize) -> Result<Self, NoRoom> {
        let wanted = len.checked_mul(size_of::<T>()).ok_or(NoRoom)?;
        // Room to begin at a huge page and to end with one.
        let bytes = wanted.checked_next_multiple_of(HUGE).and_then(|whole| whole.checked_add(HUGE)).ok_or(NoRoom)?;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a mapping of its own.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(NoRoom);
        }
        let address = mapped as usize;
        let start = address.next_multiple_of(HUGE);
        // Small buffers would waste most of a huge page.
        if wanted >= HUGE / 2 {
            // SAFETY: inside of the mapping. That it is refused changes nothing but the speed.
            unsafe { libc::madvise(start as *mut libc::c_void, wanted.next_multiple_of(HUGE), libc::MADV_HUGEPAGE) };
        }
        // SAFETY: `len` numbers from `start` on are inside of the mapping, zero, and nobody else's until it is dropped.
        let numbers = unsafe { std::slice::from_raw_parts_mut(start as *mut T, len) };
        Ok(Self { numbers, mapping: Mapping { address, bytes } })
    }

    /// As many zeros.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn zeros(len: usize) -> Result<Self, NoRoom> {
        std::alloc::Layout::array::<T>(len).map_err(|_| NoRoom)?;
        // SAFETY: zero is a number of either type.
        let zeros = unsafe { Box::<[T]>::new_zeroed_slice(len).assume_init() };
        Ok(Self { numbers: Box::leak(zeros) })
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: mapped by `zeros`, and not used any more.
        unsafe {
            libc::munmap(self.mapping.address as *mut libc::c_void, self.mapping.bytes);
        }
        #[cfg(not(target_os = "linux"))]
        // SAFETY: leaked by `zeros`, and not used any more.
        drop(unsafe { Box::from_raw(std::ptr::from_mut(self.numbers)) });
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.numbers
    }
}

impl<T> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_hold_what_is_written() {
        for len in [0, 1, 1_000, 3_000_000] {
            let mut pages = Pages::<u16>::zeros(len).unwrap();
            assert_eq!(pages.len(), len);
            assert!(pages.iter().all(|number| *number == 0));
            pages.fill(7);
            assert!(pages.iter().all(|number| *number == 7));
        }
    }

    #[test]
    fn room_that_is_not_touched_is_not_taken() {
        // As much as large machines have.
        let mut pages = Pages::<f32>::zeros(1 << 36).unwrap();
        pages[1 << 35] = 1.0;
        assert_eq!(pages[(1 << 35) - 1].to_bits(), 0);
    }
}
