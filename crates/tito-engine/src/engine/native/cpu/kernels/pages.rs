//! Memory for weights and caches: zero, taken from the system as it is touched, and in huge pages where there are any.
//!
//! A product with one row reads all weights once. In pages of 4 KiB the processor looks up an address for every 4 KiB
//! and fetches nothing ahead beyond it, which cost a third of the memory's speed here.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut, Range},
};

use bytemuck::Pod;
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{MmapMut, MmapOptions};

use super::{precision::Precision, units::Unit};
use crate::engine::native::backend::NoRoom;

/// Numbers of one type; zero at first.
#[derive(Debug)]
pub(super) struct Pages<T> {
    mapping: MmapMut,
    /// The bytes of the mapping that the numbers are in; large ones begin at an address that is a multiple of a huge page.
    bytes: Range<usize>,
    numbers: PhantomData<T>,
}

/// Numbers of either precision, in pages.
#[derive(Debug)]
pub(super) enum Stored {
    /// The bits of bfloat16.
    Bf16(Pages<u16>),
    /// float32.
    F32(Pages<f32>),
}

/// Some numbers of either precision.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slice<'a> {
    /// The bits of bfloat16.
    Bf16(&'a [u16]),
    /// float32.
    F32(&'a [f32]),
}

impl Slice<'_> {
    /// One of them.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> f32 {
        match self {
            Self::Bf16(numbers) => f32::from_bits(u32::from(numbers[index]) << 16),
            Self::F32(numbers) => numbers[index],
        }
    }
}

impl Stored {
    /// Memory for `len` zeros.
    pub(super) fn zeros(precision: Precision, len: usize) -> Result<Self, NoRoom> {
        match precision {
            Precision::Bf16 => Pages::zeros(len).map(Self::Bf16),
            Precision::F32 => Pages::zeros(len).map(Self::F32),
        }
    }

    /// How many numbers there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bf16(numbers) => numbers.len(),
            Self::F32(numbers) => numbers.len(),
        }
    }

    /// Some of the numbers.
    pub(super) fn slice(&self, range: Range<usize>) -> Slice<'_> {
        match self {
            Self::Bf16(numbers) => Slice::Bf16(&numbers[range]),
            Self::F32(numbers) => Slice::F32(&numbers[range]),
        }
    }

    /// The numbers four bytes by four, whatever they are.
    pub(super) fn units(&self) -> &[Unit] {
        match self {
            Self::Bf16(numbers) => bytemuck::cast_slice(numbers),
            Self::F32(numbers) => bytemuck::cast_slice(numbers),
        }
    }

    /// The same, to be overwritten.
    pub(super) fn units_mut(&mut self) -> &mut [Unit] {
        match self {
            Self::Bf16(numbers) => bytemuck::cast_slice_mut(numbers),
            Self::F32(numbers) => bytemuck::cast_slice_mut(numbers),
        }
    }

    /// Has `len` numbers from each of some places on fetched into the caches: a line of each, then the next line of each.
    /// Memory gives half as much again as for one place after the other.
    pub(super) fn prefetch_side_by_side(&self, places: &[usize], len: usize) {
        match self {
            Self::Bf16(numbers) => prefetch_side_by_side(numbers, places, len),
            Self::F32(numbers) => prefetch_side_by_side(numbers, places, len),
        }
    }
}

fn prefetch_side_by_side<T>(numbers: &[T], places: &[usize], len: usize) {
    // There are often four, which need no loop then.
    if let Ok(four) = <[usize; 4]>::try_from(places) {
        prefetch_lines_of_each(numbers, four, len);
    } else {
        for place in places {
            prefetch_lines_of_each(numbers, [*place], len);
        }
    }
}

#[inline(always)]
fn prefetch_lines_of_each<T, const PLACES: usize>(numbers: &[T], places: [usize; PLACES], len: usize) {
    let starts = places.map(|place| numbers.as_ptr().wrapping_add(place).cast::<u8>());
    for offset in (0..len * size_of::<T>()).step_by(LINE) {
        for start in starts {
            prefetch_line(start.wrapping_add(offset));
        }
    }
}

/// The bytes that a processor fetches at once.
pub(super) const LINE: usize = 64;

/// Has the line around an address fetched into the caches, where a processor can be asked for it.
#[inline(always)]
pub(super) fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The size of a huge page.
const HUGE: usize = 2 << 20;

impl<T: Pod> Pages<T> {
    /// Memory for `len` zeros, if the system has addresses for them.
    pub(super) fn zeros(len: usize) -> Result<Self, NoRoom> {
        let wanted = len.checked_mul(size_of::<T>()).ok_or(NoRoom)?;
        // Small buffers would waste most of a huge page, which some systems give to whatever has room for one.
        if wanted < HUGE / 2 {
            let mapping = MmapOptions::new().len(wanted.max(1)).no_reserve_swap().map_anon().map_err(|_| NoRoom)?;
            return Ok(Self { mapping, bytes: 0..wanted, numbers: PhantomData });
        }
        // Room to begin at a huge page and to end with one.
        let whole = wanted.checked_next_multiple_of(HUGE).ok_or(NoRoom)?;
        let room = whole.checked_add(HUGE).ok_or(NoRoom)?;
        let mapping = MmapOptions::new().len(room).no_reserve_swap().map_anon().map_err(|_| NoRoom)?;
        let start = mapping.as_ptr().addr().next_multiple_of(HUGE) - mapping.as_ptr().addr();
        // Where huge pages are refused, nothing changes but the speed.
        #[cfg(target_os = "linux")]
        let _ = mapping.advise_range(Advice::HugePage, start, whole);
        Ok(Self { mapping, bytes: start..start + wanted, numbers: PhantomData })
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.mapping[self.bytes.clone()])
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.mapping[self.bytes.clone()])
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
