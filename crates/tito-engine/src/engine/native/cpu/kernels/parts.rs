//! A buffer of which several threads write disjoint parts.

use std::marker::PhantomData;

/// A mutable slice that may be shared between the threads of one [`Pool::run`](super::Pool::run).
pub(super) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: all access is through `part` and `address`, whose callers promise that parts do not overlap.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Shares `whole`.
    pub(super) fn new(whole: &'a mut [T]) -> Self {
        Self { start: whole.as_mut_ptr(), len: whole.len(), borrow: PhantomData }
    }

    /// A part of the buffer.
    ///
    /// # Safety
    /// No other part that is alive overlaps it.
    ///
    /// # Panics
    /// If the part is not inside of the buffer.
    #[expect(clippy::mut_from_ref, reason = "the callers keep the parts apart")]
    pub(super) unsafe fn part(&self, from: usize, len: usize) -> &mut [T] {
        assert!(from <= self.len && len <= self.len - from, "a part ends after its buffer");
        // SAFETY: inside of the buffer, and the caller promises that nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }

    /// The address of an element, for kernels that write strided parts.
    ///
    /// # Panics
    /// If there is no such element.
    pub(super) fn address(&self, index: usize) -> *mut T {
        assert!(index < self.len, "an element after its buffer");
        // SAFETY: inside of the buffer.
        unsafe { self.start.add(index) }
    }
}
