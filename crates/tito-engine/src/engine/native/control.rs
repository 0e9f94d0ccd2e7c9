//! The engine's side of what a training loop asks: each call goes to the thread and is answered between two steps.

use std::{path::PathBuf, sync::Arc};

use futures::FutureExt;
use tokio::sync::oneshot;

use super::{
    NativeEngine,
    backend::NoRoom,
    executor::{Command, Controlled},
    status::thread_is_gone,
};
use crate::{
    engine::{
        AdapterId, AdapterLimits, AdapterLoad, Answer, EngineAdapters, EngineControl, EngineError, Memory, NewWeights,
        OnWeightsChange, TensorInfo, UndoPolicy, UpdateError, Visit, WeightVersion, Written,
    },
    weights::peft::PeftAdapter,
};

/// Has the thread do something, and answers with what came of it.
fn ask<'a, T: Send + 'static, E: From<EngineError> + Send + 'static>(
    engine: &NativeEngine,
    call: impl FnOnce(&mut dyn Controlled) -> Result<T, E> + Send + 'static,
) -> Answer<'a, T, E> {
    let (answer, answered) = oneshot::channel();
    // Whoever asked may have gone; what was asked is done all the same.
    let command = Command::Control(Box::new(move |thread| _ = answer.send(call(thread))));
    let sent = engine.commands.send(command);
    async move {
        sent.map_err(|_| thread_is_gone())?;
        answered.await.map_err(|_| thread_is_gone())?
    }
    .boxed()
}

impl EngineAdapters for NativeEngine {
    fn limits(&self) -> AdapterLimits {
        self.adapters.as_ref().map_or(AdapterLimits { max_loras: 0, max_lora_rank: 0 }, |(_, limits)| *limits)
    }

    fn asked_for(&self) -> AdapterLoad {
        self.status.adapters()
    }

    fn check(&self, adapter: &PeftAdapter) -> Result<Vec<String>, String> {
        match &self.adapters {
            Some((sites, _)) => sites.check(adapter),
            None => Err("the server was started without --enable-lora".to_owned()),
        }
    }

    fn forget(&self, id: AdapterId) {
        // A thread that is gone keeps nothing.
        let _ = self.commands.send(Command::Control(Box::new(move |thread| thread.forget_adapter(id))));
    }
}

impl EngineControl for NativeEngine {
    fn hold(&self) -> Answer<'_, ()> {
        ask(self, |thread| {
            thread.hold();
            Ok(())
        })
    }

    fn release(&self) -> Answer<'_, ()> {
        ask(self, |thread| {
            thread.release();
            Ok(())
        })
    }

    fn reset_prefix_cache(&self, running: bool) -> Answer<'_, bool> {
        ask(self, move |thread| Ok(thread.reset_prefix_cache(running)))
    }

    fn weights(&self) -> Arc<WeightVersion> {
        self.status.weights()
    }

    fn relabel(&self, label: Arc<str>) -> Answer<'_, ()> {
        ask(self, |thread| {
            thread.relabel(label);
            Ok(())
        })
    }

    fn tensors(&self) -> Arc<[TensorInfo]> {
        Arc::clone(&self.tensors)
    }

    fn read_weights(&self, names: Vec<String>, visit: Visit) -> Answer<'_, (), UpdateError> {
        ask(self, move |thread| thread.read_weights(&names, visit))
    }

    fn read_weights_amid_update(&self, names: Vec<String>, visit: Visit) -> Answer<'_, (), UpdateError> {
        ask(self, move |thread| thread.read_weights_amid_update(&names, visit))
    }

    fn begun_updates(&self) -> u64 {
        self.status.begun_updates()
    }

    fn begin_update(&self, undo: UndoPolicy) -> Answer<'_, (), UpdateError> {
        match self.replaces_weights() {
            Ok(()) => ask(self, move |thread| thread.begin_update(undo)),
            Err(refusal) => std::future::ready(Err(refusal)).boxed(),
        }
    }

    fn replaces_weights(&self) -> Result<(), UpdateError> {
        self.irreplaceable.clone().map_or(Ok(()), |reason| Err(UpdateError::Refused(reason)))
    }

    fn lose_weights(&self) -> Answer<'_, ()> {
        ask(self, |thread| {
            thread.lose_weights();
            Ok(())
        })
    }

    fn check_weights(&self, tensors: Vec<TensorInfo>) -> Answer<'_, (), UpdateError> {
        ask(self, |thread| thread.check_weights(tensors))
    }

    fn check_whole(&self, path: PathBuf) -> Answer<'_, (), UpdateError> {
        ask(self, move |thread| thread.check_whole(&path))
    }

    fn write_weights(&self, weights: NewWeights) -> Answer<'_, Written, UpdateError> {
        ask(self, |thread| thread.write_weights(weights))
    }

    fn finish_update(
        &self,
        label: Option<Arc<str>>,
        change: OnWeightsChange,
    ) -> Answer<'_, Arc<WeightVersion>, UpdateError> {
        ask(self, move |thread| thread.finish_update(label, change))
    }

    fn has_draft_model(&self) -> bool {
        self.draft_cost.is_some()
    }

    fn update_draft(&self, path: PathBuf) -> Answer<'_, Written, UpdateError> {
        ask(self, move |thread| thread.update_draft(&path))
    }

    fn cancel_update(&self) -> Answer<'_, (), UpdateError> {
        ask(self, |thread| thread.cancel_update())
    }

    fn discard(&self, memory: Memory) -> Answer<'_, ()> {
        ask(self, move |thread| {
            thread.discard(memory);
            Ok(())
        })
    }

    fn restore(&self, memory: Memory) -> Answer<'_, ()> {
        let no_room =
            |NoRoom| EngineError::Failed("the system has no room for the memory that was given back".to_owned());
        ask(self, move |thread| thread.restore(memory).map_err(no_room))
    }

    fn lacking(&self) -> usize {
        self.status.lacking()
    }
}
