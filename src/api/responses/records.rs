//! Responses that can be asked for again: what is kept of them, and those that are generated in the background.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    background::Running,
    types::{OutputItem, ResponseObject, Status},
};
use crate::{
    api::error::ApiError,
    json::Value,
    store::{RecordState, ResponseStore, StoreError},
};

/// The responses of a server.
pub struct Records {
    store: Arc<dyn ResponseStore>,
    /// Those that are generated in the background, until the store has the whole of them.
    running: Mutex<HashMap<String, Arc<Running>>>,
}

/// What is kept of a response.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// As its client gets it.
    response: Box<RawValue>,
    /// What the conversation starts with.
    pub(super) instructions: Option<String>,
    /// The items that it answers, from the first of the conversation; without ids, which are those of the output.
    pub(super) input: Vec<Box<RawValue>>,
    /// Its own items, whose last one carries the ids whether or not they were asked for.
    pub(super) output: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Progress {
    status: Status,
}

/// The fields of ids on an item.
pub(super) const ID_FIELDS: [&str; 3] = ["prompt_token_ids", "generation_token_ids", "generation_log_probs"];

impl Record {
    /// Of a response that is not there yet, to `new_items` behind a stored conversation.
    pub(super) fn new(instructions: Option<String>, stored: Option<Self>, new_items: Vec<Box<RawValue>>) -> Self {
        let earlier = stored.map(|stored| [stored.input, stored.output].concat()).unwrap_or_default();
        let input = earlier.into_iter().chain(new_items).map(without_ids).collect();
        Self { response: RawValue::NULL.to_owned(), instructions, input, output: Vec::new() }
    }

    /// With the response as it is now, and its items.
    pub(super) fn of(mut self, response: &ResponseObject, items: &[OutputItem]) -> Result<Self, ApiError> {
        self.response = serde_json::value::to_raw_value(response).map_err(ApiError::internal)?;
        let raw = |item| serde_json::value::to_raw_value(item).map_err(ApiError::internal);
        self.output = items.iter().map(raw).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The response.
    pub(super) fn response(&self) -> &str {
        self.response.get()
    }

    fn status(&self) -> Result<Status, ApiError> {
        serde_json::from_str::<Progress>(self.response.get())
            .map(|progress| progress.status)
            .map_err(ApiError::internal)
    }
}

/// An item without its ids. What is no JSON object has none.
fn without_ids(item: Box<RawValue>) -> Box<RawValue> {
    if !ID_FIELDS.iter().any(|field| item.get().contains(field)) {
        return item;
    }
    let Ok(Value::Object(mut fields)) = Value::parse(item.get()) else { return item };
    fields.retain(|key, _| !ID_FIELDS.contains(&key.as_str()));
    serde_json::value::to_raw_value(&Value::Object(fields)).unwrap_or(item)
}

impl Records {
    /// Kept in `store`.
    pub fn new(store: Arc<dyn ResponseStore>) -> Self {
        Self { store, running: Mutex::default() }
    }

    /// Does something with the store where a thread may wait.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn ResponseStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || work(store.as_ref())).await;
        Ok(done.map_err(ApiError::internal)??)
    }

    /// Keeps a response.
    pub(super) async fn put(&self, id: &str, state: RecordState, record: &Record) -> Result<(), ApiError> {
        let id = id.to_owned();
        let record = serde_json::to_vec(record).map_err(ApiError::internal)?;
        self.with_store(move |store| store.put(&id, state, &record)).await
    }

    /// Whether there is a response of this id.
    pub(super) async fn has(&self, id: &str) -> Result<bool, ApiError> {
        if self.running(id).is_some() {
            return Ok(true);
        }
        let id = id.to_owned();
        Ok(self.with_store(move |store| store.get(&id)).await?.is_some())
    }

    /// What is kept of a response.
    pub(super) async fn get(&self, id: &str) -> Result<(RecordState, Record), ApiError> {
        let key = id.to_owned();
        let found = self.with_store(move |store| store.get(&key)).await?;
        let (state, bytes) = found.ok_or_else(|| ApiError::response_not_found(id))?;
        let record = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        Ok((state, record))
    }

    /// Forgets a response; one that is being generated is ended.
    pub(super) async fn delete(&self, id: &str) -> Result<(), ApiError> {
        let running = self.running.lock().remove(id);
        let ended = running.is_some_and(|running| running.cancel());
        let key = id.to_owned();
        let deleted = self.with_store(move |store| store.delete(&key)).await?;
        if deleted || ended { Ok(()) } else { Err(ApiError::response_not_found(id)) }
    }

    /// The conversation up to a response, which must be whole.
    pub(super) async fn continued(&self, id: &str) -> Result<Record, ApiError> {
        let refuse = |what: &str| {
            let message = format!("the response '{id}' {what}, and cannot be continued");
            Err(ApiError::invalid_response("previous_response_id", message))
        };
        if self.running(id).is_some_and(|running| !running.has_ended()) {
            return refuse("is still being generated");
        }
        let (state, record) = self.get(id).await?;
        match (state, record.status()?) {
            (RecordState::Interrupted, _) => refuse("was interrupted when the server stopped"),
            (RecordState::InProgress, _) => refuse("is still being generated"),
            (RecordState::Done, Status::Cancelled) if record.output.is_empty() => refuse("was cancelled"),
            (RecordState::Done, Status::Failed) => refuse("failed"),
            (RecordState::Done, _) => Ok(record),
        }
    }

    /// A response that is generated in the background.
    pub(super) fn running(&self, id: &str) -> Option<Arc<Running>> {
        self.running.lock().get(id).cloned()
    }

    /// Has a response be found before the store has the whole of it.
    pub(super) fn enter(&self, id: &str, running: Arc<Running>) {
        self.running.lock().insert(id.to_owned(), running);
    }

    /// The store has the whole of a response.
    pub(super) fn leave(&self, id: &str) {
        self.running.lock().remove(id);
    }
}
