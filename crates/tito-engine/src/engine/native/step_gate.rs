//! A gate before the engine's steps, for tests: what must not end before a call comes cannot end.

use std::sync::mpsc::Sender;

use tokio::sync::oneshot;

use super::{
    executor::{Command, Controlled},
    status::thread_is_gone,
};
use crate::engine::EngineError;

/// Holds the engine between two steps. Commands are obeyed all the same, so that requests come, pauses begin and weights
/// are replaced while nothing is sampled.
#[derive(Clone)]
pub struct StepGate {
    commands: Sender<Command>,
}

impl StepGate {
    pub(super) fn new(commands: Sender<Command>) -> Self {
        Self { commands }
    }

    /// Shuts the gate; no step is computed once this has returned.
    ///
    /// # Errors
    ///
    /// If the engine's thread has ended, as for all calls.
    pub async fn shut(&self) -> Result<(), EngineError> {
        self.ask(|thread, done| {
            thread.steps().hold();
            let _ = done.send(());
        })
        .await
    }

    /// Lets one step through, and returns when it was computed. It waits for something to compute.
    pub async fn step(&self) -> Result<(), EngineError> {
        self.ask(|thread, computed| thread.steps().allow(computed)).await
    }

    /// Opens the gate for good.
    pub async fn open(&self) -> Result<(), EngineError> {
        self.ask(|thread, done| {
            thread.steps().release();
            let _ = done.send(());
        })
        .await
    }

    /// How many sequences the thread has, running ones and waiting ones.
    pub async fn sequences(&self) -> Result<usize, EngineError> {
        self.ask(|thread, count| _ = count.send(thread.sequences())).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Controlled, oneshot::Sender<T>) + Send + 'static,
    ) -> Result<T, EngineError> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Control(Box::new(move |thread| call(thread, answer)));
        self.commands.send(command).map_err(|_| thread_is_gone())?;
        answered.await.map_err(|_| thread_is_gone())
    }
}
