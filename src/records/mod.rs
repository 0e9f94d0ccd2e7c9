//! Responses that can be retrieved and continued: what their records say, whose they are, and which of them are being
//! generated.
//!
//! `store` keeps the records and does not look into them. This module does not know how a response is generated, nor how
//! it is asked for.

mod context;
mod ended;
mod fingerprint;
mod key;
mod reservations;
mod running;
mod turn_ids;

pub(crate) use context::ConversationContext;
pub(crate) use fingerprint::TextFingerprint;
pub(crate) use key::ResponseKey;
pub(crate) use reservations::IdReservation;
pub(crate) use running::Running;
pub(crate) use turn_ids::{DIGEST_FIELD, ID_FIELDS, TurnIds};

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    store::{RecordState, ResponseStore, StoreError},
    wire::{
        error::ApiError,
        responses::types::{OutputItem, ResponseObject, Status},
    },
};
use ended::EndedStreams;
use reservations::IdReservations;
use turn_ids::without_ids;

/// The responses of a server.
pub struct Responses {
    store: Arc<dyn ResponseStore>,
    reservations: IdReservations,
    ended: EndedStreams,
    /// That of this server; `None` where no other server's records can be in the store.
    fingerprint: Option<TextFingerprint>,
}

/// The record of a response, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// The response as its client gets it.
    response: Box<RawValue>,
    /// What the ids were made with; records of earlier versions do not say it.
    #[serde(default)]
    fingerprint: Option<TextFingerprint>,
    /// The context with which the conversation starts.
    pub context: ConversationContext,
    /// The items that it answers, from the first of the conversation; they have no ids, since those of the output cover
    /// them.
    pub input: Vec<Box<RawValue>>,
    /// The items of the response; the last one carries the ids whether or not they were asked for.
    pub output: Vec<Box<RawValue>>,
}

/// The fields of a stored response that are looked at.
#[derive(Deserialize)]
struct Outline {
    status: Status,
    background: bool,
}

impl Record {
    /// Updates the record with the response as it is now, and with its items.
    pub fn updated(&mut self, response: &ResponseObject, items: &[OutputItem]) -> Result<&Self, ApiError> {
        self.response = serde_json::value::to_raw_value(response).map_err(ApiError::internal)?;
        let raw = |item| serde_json::value::to_raw_value(item).map_err(ApiError::internal);
        self.output = items.iter().map(raw).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Returns the response.
    pub fn response(&self) -> &str {
        self.response.get()
    }

    /// Whether the response was generated in the background.
    pub fn is_background(&self) -> Result<bool, ApiError> {
        self.outline().map(|outline| outline.background)
    }

    fn outline(&self) -> Result<Outline, ApiError> {
        serde_json::from_str(self.response.get()).map_err(ApiError::internal)
    }
}

impl Responses {
    /// Keeps records in `store`, with the fingerprint of this server if other servers' records may be there too.
    pub fn new(store: Arc<dyn ResponseStore>, fingerprint: Option<TextFingerprint>) -> Self {
        Self { store, reservations: IdReservations::default(), ended: EndedStreams::default(), fingerprint }
    }

    /// Makes the record of a response that is not there yet, and that answers `new_items` after a stored conversation.
    pub fn record(
        &self,
        context: ConversationContext,
        stored: Option<Record>,
        new_items: Vec<Box<RawValue>>,
    ) -> Record {
        let earlier = stored.into_iter().flat_map(|stored| stored.input.into_iter().chain(stored.output));
        let input = earlier.chain(new_items).map(without_ids).collect();
        let fingerprint = self.fingerprint.clone();
        Record { response: RawValue::NULL.to_owned(), fingerprint, context, input, output: Vec::new() }
    }

    /// Whether the ids of a record say here what they said where they were made.
    pub fn reads_ids_of(&self, record: &Record) -> bool {
        record.fingerprint == self.fingerprint
    }

    /// Resolves when no response is generated in the background.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.reservations.settled()
    }

    /// Calls the store on a thread that may wait.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn ResponseStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || work(store.as_ref())).await;
        Ok(done.map_err(ApiError::internal)??)
    }

    /// Reserves an id for a response that is going to be kept, unless there is a response with this id already.
    pub async fn reserve(&self, key: ResponseKey) -> Result<IdReservation, ApiError> {
        let message = format!("a response with the id '{}' is stored or generated already", key.id());
        let taken = || ApiError::invalid_response("request_id", message);
        let stored = key.stored();
        let Some(reservation) = self.reservations.reserve(key) else { return Err(taken()) };
        if self.with_store(move |store| store.get(&stored)).await?.is_some() {
            return Err(taken());
        }
        // The store may have let an earlier response with this id go.
        self.ended.forget(reservation.key());
        Ok(reservation)
    }

    /// Keeps a record; only the task that has reserved its id can do so.
    pub async fn put(&self, of: &IdReservation, state: RecordState, record: &Record) -> Result<(), ApiError> {
        let id = of.key().stored();
        let record = serde_json::to_vec(record).map_err(ApiError::internal)?;
        self.with_store(move |store| store.put(&id, state, &record)).await
    }

    /// Returns the record of a response.
    pub async fn get(&self, key: &ResponseKey) -> Result<(RecordState, Record), ApiError> {
        // This is checked before and after the store is asked, because a response may begin or end meanwhile.
        let was_running = self.running(key).is_some();
        let stored = key.stored();
        let found = self.with_store(move |store| store.get(&stored)).await?;
        let (state, bytes) = found.ok_or_else(|| key.not_found())?;
        let record = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        let is_nobodys = state == RecordState::InProgress && !was_running && self.running(key).is_none();
        Ok((if is_nobodys { RecordState::Interrupted } else { state }, record))
    }

    /// Deletes a response; one that is being generated is ended first.
    pub async fn delete(&self, key: &ResponseKey) -> Result<(), ApiError> {
        let running = self.running(key);
        if let Some(running) = &running {
            running.cancel().await;
        }
        let stored = key.stored();
        self.ended.forget(key);
        let deleted = self.with_store(move |store| store.delete(&stored)).await?;
        if deleted || running.is_some() { Ok(()) } else { Err(key.not_found()) }
    }

    /// Returns the conversation up to a response, which must have ended.
    pub async fn continued(&self, key: &ResponseKey) -> Result<Record, ApiError> {
        let refuse = |what: &str| {
            let message = format!("the response '{}' {what}, and cannot be continued", key.id());
            Err(ApiError::invalid_response("previous_response_id", message))
        };
        if self.running(key).is_some_and(|running| !running.has_ended()) {
            return refuse("is still being generated");
        }
        let (state, record) = self.get(key).await?;
        match (state, record.outline()?.status) {
            (RecordState::Interrupted, _) => refuse("was interrupted before it was whole"),
            (RecordState::InProgress, _) => refuse("is still being generated"),
            (RecordState::Done, Status::Completed | Status::Incomplete) => Ok(record),
            (RecordState::Done, Status::Cancelled) if !record.output.is_empty() => Ok(record),
            (RecordState::Done, Status::Cancelled) => refuse("was cancelled before it said anything"),
            (RecordState::Done, _) => refuse("failed"),
        }
    }

    /// Keeps the events of a response that is about to end for those who ask for them later, in memory and for a while.
    pub fn keep_events(&self, of: &IdReservation, running: &Running) {
        if let Some(frames) = running.frames_so_far() {
            self.ended.keep(of.key().clone(), frames);
        }
    }

    /// Returns the events of a response that was streamed from the background and has ended, as frames of a stream;
    /// `None` if they are not kept, or not any more.
    pub fn events(&self, key: &ResponseKey) -> Option<Arc<[Bytes]>> {
        self.ended.get(key)
    }

    /// Returns a response that is being generated in the background.
    pub fn running(&self, key: &ResponseKey) -> Option<Arc<Running>> {
        self.reservations.running(key)
    }
}
