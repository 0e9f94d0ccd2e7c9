//! Memory that was freed, and that the allocator has kept for itself.

/// Gives the pages of freed memory back to the system, where the allocator can.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library has no safe name for it")]
pub(super) fn give_back() {
    // SAFETY: `malloc_trim` may be called at any time and from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing: this system's allocator gives pages back by itself.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_back() {}
