//! Tinker's sessions, the sampling sessions in them, and the results that their clients come for later.
//!
//! Owns what is kept for how long, and what is refused where too much is kept: results live in memory only. Knows no
//! request and no answer: a result is bytes.

pub(crate) mod awaited;
pub(crate) mod ids;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use self::{
    awaited::{Kept, Outcome, Request},
    ids::{RequestId, SamplerId},
};
use crate::{
    engine::AdapterId,
    wire::error::{ApiError, ErrorKind},
};

/// What is kept at most, and for how long.
#[derive(Debug, Clone)]
pub struct TinkerBounds {
    /// Sessions of all clients.
    pub sessions: usize,
    /// Sampling sessions of all clients.
    pub samplers: usize,
    /// Requests whose results are awaited, or were until lately.
    pub requests: usize,
    /// Bytes of results.
    pub bytes: usize,
    /// How long a session lives of which nothing is heard.
    pub session_ttl: Duration,
    /// How long a result waits for its client.
    pub result_ttl: Duration,
    /// How long a result is kept that was handed out, for a client whom it did not reach.
    pub retrieved_ttl: Duration,
    /// How long a client is left waiting for a result; it gives up after 45 seconds.
    pub long_poll: Duration,
}

impl Default for TinkerBounds {
    fn default() -> Self {
        Self {
            sessions: 4096,
            samplers: 16_384,
            requests: 65_536,
            bytes: 1 << 28,
            session_ttl: Duration::from_mins(5),
            result_ttl: Duration::from_mins(30),
            retrieved_ttl: Duration::from_mins(2),
            long_poll: Duration::from_secs(40),
        }
    }
}

/// Who owns a session; `None` where all clients are one.
pub(crate) type Owner = Option<Arc<str>>;

/// What a sampling session samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampledModel {
    /// The name of the model.
    pub(crate) base_model: String,
    /// The adapter by its name, and which of those that ever had the name it is.
    pub(crate) adapter: Option<(String, AdapterId)>,
    /// How the client names the adapter.
    pub(crate) model_path: Option<String>,
}

struct Sampler {
    model: SampledModel,
    requests: HashMap<u64, Request>,
}

struct Session {
    owner: Owner,
    /// When something was last heard of its client.
    heard: Instant,
    samplers: HashMap<u64, Sampler>,
}

/// The sessions of Tinker's clients.
#[derive(Default)]
pub struct Tinker {
    bounds: TinkerBounds,
    sessions: Mutex<Sessions>,
    kept: Arc<Kept>,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<String, Session>,
    swept: Option<Instant>,
}

/// A request that was entered, and is not sampled yet. Dropping it takes it out again.
pub(crate) struct Promise {
    tinker: Arc<Tinker>,
    id: RequestId,
    outcome: watch::Sender<Outcome>,
}

impl Promise {
    /// Says what samples it: that ends with the request.
    pub(crate) fn sampled_by(tinker: &Tinker, id: &RequestId, task: AbortHandle) {
        let mut sessions = tinker.sessions.lock();
        match sessions.request(id) {
            Some(request) => *request.task.lock() = Some(task),
            // It has been given up already.
            None => task.abort(),
        }
    }

    /// Says what came of it.
    pub(crate) fn keep(self, outcome: Outcome) {
        let mut sessions = self.tinker.sessions.lock();
        if let Some(request) = sessions.request(&self.id).filter(|request| request.outcome.same_channel(&self.outcome))
        {
            request.changed = Instant::now();
            request.task.lock().take();
            request.set(outcome);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut sessions = self.tinker.sessions.lock();
        let is_own = |request: &Request| {
            request.outcome.same_channel(&self.outcome) && *request.outcome.borrow() == Outcome::Pending
        };
        if let Some(sampler) = sessions.sampler(&self.id.sampler)
            && sampler.requests.get(&self.id.number).is_some_and(is_own)
        {
            sampler.requests.remove(&self.id.number);
        }
    }
}

/// What a request is that a client sends.
pub(crate) enum Entered {
    /// It is new, and is to be sampled.
    New(Promise),
    /// It was sent before.
    Known,
}

impl Sessions {
    /// The session of this id and owner.
    fn of(&mut self, id: &str, owner: &Owner) -> Option<&mut Session> {
        self.by_id.get_mut(id).filter(|session| session.owner == *owner)
    }

    fn sampler(&mut self, id: &SamplerId) -> Option<&mut Sampler> {
        self.by_id.get_mut(&id.session)?.samplers.get_mut(&id.number)
    }

    fn request(&mut self, id: &RequestId) -> Option<&mut Request> {
        self.sampler(&id.sampler)?.requests.get_mut(&id.number)
    }

    fn samplers(&self) -> impl Iterator<Item = &Sampler> {
        self.by_id.values().flat_map(|session| session.samplers.values())
    }

    /// Ends what has lived its time.
    fn sweep(&mut self, now: Instant, bounds: &TinkerBounds) {
        self.swept = Some(now);
        let age = |since: Instant| now.saturating_duration_since(since);
        self.by_id.retain(|_, session| age(session.heard) < bounds.session_ttl);
        for sampler in self.by_id.values_mut().flat_map(|session| session.samplers.values_mut()) {
            sampler.requests.retain(|_, request| {
                let age = age(request.changed);
                let is_pending = *request.outcome.borrow() == Outcome::Pending;
                if is_pending || request.was_retrieved {
                    return is_pending || age < bounds.retrieved_ttl;
                }
                if age >= bounds.result_ttl {
                    request.set(Outcome::Gone);
                }
                // Its number is remembered for as long again: a request that is sent once more is not sampled twice.
                age < bounds.result_ttl * 2
            });
        }
    }

    /// Forgets requests whose results were handed out.
    fn forget_retrieved(&mut self) {
        for sampler in self.by_id.values_mut().flat_map(|session| session.samplers.values_mut()) {
            sampler.requests.retain(|_, request| !request.was_retrieved);
        }
    }
}

/// How often it is looked for what has lived its time.
const SWEEP: Duration = Duration::from_secs(5);

fn gone(what: &str, id: &str) -> ApiError {
    ApiError::new(ErrorKind::Gone, None, format!("{what} `{id}` has ended, expired, or never was"))
}

impl Tinker {
    /// Keeps no more than these bounds say.
    #[cfg(any(test, feature = "internals"))]
    pub fn new(bounds: TinkerBounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// How long a client is left waiting.
    pub(crate) fn long_poll(&self) -> Duration {
        self.bounds.long_poll
    }

    /// Ends what will have lived its time by then.
    #[cfg(any(test, feature = "internals"))]
    pub fn sweep_after(&self, time: Duration) {
        self.sessions.lock().sweep(Instant::now() + time, &self.bounds);
    }

    /// How many bytes of results are kept.
    #[cfg(any(test, feature = "internals"))]
    pub fn bytes(&self) -> usize {
        self.kept.bytes.load(Ordering::Relaxed)
    }

    /// The sessions, without those that have lived their time.
    fn swept(&self) -> parking_lot::MutexGuard<'_, Sessions> {
        let mut sessions = self.sessions.lock();
        let now = Instant::now();
        if sessions.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
            sessions.sweep(now, &self.bounds);
        }
        sessions
    }

    /// Begins a session, and returns its id.
    pub(crate) fn begin(&self, owner: Owner) -> Result<String, ApiError> {
        let mut sessions = self.swept();
        if sessions.by_id.len() >= self.bounds.sessions {
            let message = format!("there are {} sessions already; finish some, or come again", self.bounds.sessions);
            return Err(ApiError::new(ErrorKind::TooMany, None, message));
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        sessions.by_id.insert(id.clone(), Session { owner, heard: Instant::now(), samplers: HashMap::new() });
        Ok(id)
    }

    /// Hears of a session's client.
    pub(crate) fn hear(&self, id: &str, owner: &Owner) -> Result<(), ApiError> {
        let mut sessions = self.swept();
        let session = sessions.of(id, owner).ok_or_else(|| gone("the session", id))?;
        session.heard = Instant::now();
        Ok(())
    }

    /// Ends a session with all that is sampled in it.
    pub(crate) fn finish(&self, id: &str, owner: &Owner) {
        let mut sessions = self.swept();
        if sessions.of(id, owner).is_some() {
            sessions.by_id.remove(id);
        }
    }

    /// Begins a sampling session, or finds the one that has this number.
    pub(crate) fn begin_sampling(
        &self,
        session_id: &str,
        owner: &Owner,
        number: u64,
        model: SampledModel,
    ) -> Result<SamplerId, ApiError> {
        let mut sessions = self.swept();
        let samplers = sessions.samplers().count();
        let session = sessions.of(session_id, owner).ok_or_else(|| {
            let message = format!("there is no session `{session_id}`: it has ended, expired, or never was");
            ApiError::new(ErrorKind::NotFound, Some("session_id".into()), message)
        })?;
        session.heard = Instant::now();
        match session.samplers.get(&number) {
            Some(known) if known.model != model => {
                let message = format!("sampling session {number} of this session samples another model");
                return Err(ApiError::invalid("sampling_session_seq_id", message));
            }
            Some(_) => {}
            None if samplers >= self.bounds.samplers => {
                let message = format!("there are {samplers} sampling sessions already; finish sessions, or come again");
                return Err(ApiError::new(ErrorKind::TooMany, None, message));
            }
            None => {
                session.samplers.insert(number, Sampler { model, requests: HashMap::new() });
            }
        }
        Ok(SamplerId { session: session_id.to_owned(), number })
    }

    /// Says what a sampling session samples.
    pub(crate) fn model(&self, id: &str, owner: &Owner) -> Result<(SamplerId, SampledModel), ApiError> {
        let unknown = || {
            let message = format!(
                "there is no sampling session `{id}`: it has ended, expired, or never was; create a new sampling client"
            );
            ApiError::new(ErrorKind::NotFound, Some("sampling_session_id".into()), message)
        };
        let at = SamplerId::parse(id).ok_or_else(unknown)?;
        let mut sessions = self.swept();
        let session = sessions.of(&at.session, owner).ok_or_else(unknown)?;
        session.heard = Instant::now();
        let sampler = session.samplers.get(&at.number).ok_or_else(unknown)?;
        Ok((at, sampler.model.clone()))
    }

    /// Enters a request of a sampling session that was found just now, unless it was sent before.
    pub(crate) fn enter(self: &Arc<Self>, id: &RequestId, digest: blake3::Hash) -> Result<Entered, ApiError> {
        let mut sessions = self.swept();
        if let Some(known) = sessions.request(id) {
            if known.digest != digest {
                return Err(ApiError::invalid("seq_id", format!("`seq_id` {} was another request before", id.number)));
            }
            return Ok(Entered::Known);
        }
        self.check_room(&mut sessions)?;
        let sampler =
            sessions.sampler(&id.sampler).ok_or_else(|| gone("the sampling session", &id.sampler.to_string()))?;
        let (outcome, _) = watch::channel(Outcome::Pending);
        let promise = Promise { tinker: Arc::clone(self), id: id.clone(), outcome: outcome.clone() };
        sampler.requests.insert(id.number, Request::new(digest, outcome, &self.kept));
        Ok(Entered::New(promise))
    }

    fn check_room(&self, sessions: &mut Sessions) -> Result<(), ApiError> {
        let kept = || (self.kept.awaited.load(Ordering::Relaxed), self.kept.bytes.load(Ordering::Relaxed));
        let is_full =
            |(requests, bytes): (usize, usize)| requests >= self.bounds.requests || bytes >= self.bounds.bytes;
        if is_full(kept()) {
            sessions.forget_retrieved();
            sessions.sweep(Instant::now(), &self.bounds);
        }
        let (requests, bytes) = kept();
        if !is_full((requests, bytes)) {
            return Ok(());
        }
        let message =
            format!("{requests} results with {bytes} bytes wait for their clients: retrieve some, or come again");
        Err(ApiError::new(ErrorKind::TooMany, None, message))
    }

    /// Waits for what comes of a request, at most as long as a client waits.
    pub(crate) async fn outcome(&self, id: &str, owner: &Owner) -> Result<Outcome, ApiError> {
        let at = RequestId::parse(id).ok_or_else(|| gone("the request", id))?;
        let mut changes = {
            let mut sessions = self.swept();
            let session = sessions.of(&at.sampler.session, owner).ok_or_else(|| gone("the request", id))?;
            session.heard = Instant::now();
            sessions.request(&at).ok_or_else(|| gone("the request", id))?.outcome.subscribe()
        };
        let came = changes.wait_for(|outcome| *outcome != Outcome::Pending);
        let outcome = match tokio::time::timeout(self.long_poll(), came).await {
            Err(_) => Outcome::Pending,
            Ok(Ok(outcome)) => outcome.clone(),
            // The session has ended, or nothing is sampled any more.
            Ok(Err(_)) => Outcome::Gone,
        };
        match outcome {
            Outcome::Gone => Err(gone("the request", id)),
            Outcome::Pending => Ok(outcome),
            Outcome::Done(_) | Outcome::Failed { .. } => {
                if let Some(request) = self.sessions.lock().request(&at) {
                    request.retrieved();
                }
                Ok(outcome)
            }
        }
    }

    /// Ends a request whose result nobody wants.
    pub(crate) fn give_up(&self, id: &str, owner: &Owner) {
        let Some(at) = RequestId::parse(id) else { return };
        let mut sessions = self.swept();
        if sessions.of(&at.sampler.session, owner).is_none() {
            return;
        }
        if let Some(request) = sessions.request(&at) {
            request.set(Outcome::Gone);
            request.retrieved();
            if let Some(task) = request.task.lock().take() {
                task.abort();
            }
        }
    }
}
