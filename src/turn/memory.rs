//! Memory that was freed and that the allocator keeps for itself.

/// Gives the pages of freed memory back to the system, where the allocator can.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library has no safe name for it")]
pub(super) fn give_back() {
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Nothing: this system's allocator gives pages back by itself.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_back() {}
