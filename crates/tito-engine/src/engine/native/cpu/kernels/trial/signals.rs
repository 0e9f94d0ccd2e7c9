//! The trial while signals arrive, for a process that exists for nothing else.

use std::{
    os::unix::thread::JoinHandleExt,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{Mismatch, compare_with_portable};
use crate::engine::native::cpu::kernels::{KernelSet, Pool, Processor};

/// The time between two signals: the thread must get something done between them.
const BETWEEN_SIGNALS: Duration = Duration::from_micros(50);

/// Tries a set `rounds` times while signals interrupt the thread that computes: what its registers hold, tiles above all, has to be
/// saved and restored by the system.
///
/// The process ends by a signal if the processor refuses an instruction. It is a process made for this, since the
/// handler of SIGUSR1 is replaced.
pub(crate) fn try_under_signals(set: KernelSet, rounds: usize) -> std::io::Result<Result<(), Mismatch>> {
    install_handler()?;
    let mut processor = Processor { set, pool: Pool::new(1)? };
    let compute = move || (0..rounds).try_for_each(|_| compare_with_portable(&mut processor));
    let computing = thread::Builder::new().spawn(compute)?;
    while !computing.is_finished() {
        interrupt(&computing);
        thread::sleep(BETWEEN_SIGNALS);
    }
    Ok(computing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

extern "C" fn do_nothing(_: libc::c_int) {}

fn install_handler() -> std::io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = do_nothing;
    // SAFETY: an all-zero `sigaction` is one without flags and mask, and the handler has the type that goes with that.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Sends a signal to the thread.
fn interrupt<T>(thread: &JoinHandle<T>) {
    // SAFETY: a thread that was not joined yet has a valid number, even when it has ended.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
}
