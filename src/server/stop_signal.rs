//! The signals that end the process.

use std::{future::Future, io};

use tokio::signal::unix::{SignalKind, signal};

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
