//! The signals that end the process, and one that must not.

use std::{future::Future, io};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a write beyond `ulimit -f` an error of whoever writes, as a full disk is: the signal that comes with it ends a process
/// that does not catch it. Python ignores it too, and so does vLLM.
pub fn survive_full_files() -> io::Result<()> {
    // tokio keeps its handler after the stream of signals is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

/// Resolves on the first SIGTERM or SIGINT; a second one ends the process at once.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("second signal: stopping at once");
            #[expect(clippy::disallowed_methods, reason = "a person who asks twice does not want requests to drain")]
            std::process::exit(1);
        });
    })
}
