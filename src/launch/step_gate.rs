//! The socket by which a test lets the native engine compute single steps.
//!
//! A test that connects holds the engine between two steps until it hangs up. It writes `s` for a step, and `?` for
//! nothing but an answer. Each of them, and the connection itself, is answered with a line: how many sequences the engine
//! has. The line for a step comes when the step was computed, which waits for something to compute.

use std::{io, path::Path};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use crate::engine::{EngineError, native::StepGate};

/// Listens until the process ends; one connection is served at a time.
pub(super) fn listen(path: &Path, gate: StepGate) -> anyhow::Result<()> {
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let served = serve(stream, &gate).await;
            if served.is_err() || gate.open().await.is_err() {
                // The engine's thread has ended.
                return;
            }
        }
    });
    Ok(())
}

/// Serves a test until it hangs up; the error is the engine's.
async fn serve(mut stream: UnixStream, gate: &StepGate) -> Result<(), EngineError> {
    gate.shut().await?;
    loop {
        let sequences = gate.sequences().await?;
        let Ok(asked) = exchange(&mut stream, sequences).await else { return Ok(()) };
        if asked == b's' {
            let mut more = [0];
            tokio::select! {
                stepped = gate.step() => stepped?,
                // Nothing is asked before an answer, so this is the end of the connection.
                _ = stream.read(&mut more) => return Ok(()),
            }
        }
    }
}

/// Answers, and reads what is asked next.
async fn exchange(stream: &mut UnixStream, sequences: usize) -> io::Result<u8> {
    stream.write_all(format!("{sequences}\n").as_bytes()).await?;
    stream.read_u8().await
}
