//! Memory whose end is the end of what may be touched.

use std::{
    mem::size_of,
    ops::{Deref, DerefMut},
    ptr, slice,
};

const PAGE: usize = 4096;

/// `len` elements right before a page that can be neither read nor written.
pub(super) struct Guarded<T> {
    mapping: *mut libc::c_void,
    mapped: usize,
    first: *mut T,
    len: usize,
}

impl<T: Copy> Guarded<T> {
    pub(super) fn filled(len: usize, value: T) -> Self {
        let usable = (len * size_of::<T>()).next_multiple_of(PAGE);
        let mapped = usable + PAGE;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, of which the last page is taken away again; the elements end where that page starts.
        let (mapping, first) = unsafe {
            let mapping = libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(mapping.byte_add(usable), PAGE, libc::PROT_NONE), 0);
            (mapping, mapping.byte_add(usable).cast::<T>().sub(len))
        };
        let mut guarded = Self { mapping, mapped, first, len };
        guarded.fill(value);
        guarded
    }
}

impl<T> Deref for Guarded<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements lie there, mapped zeroed and then filled.
        unsafe { slice::from_raw_parts(self.first, self.len) }
    }
}

impl<T> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and they are this value's alone.
        unsafe { slice::from_raw_parts_mut(self.first, self.len) }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}
