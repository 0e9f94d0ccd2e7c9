//! The adapters that are loaded, by name.
//!
//! Owns names: which are taken, what replaces what, and the *version* of a name, which counts how often it was given. Calls
//! that change something are done one after the other. It knows no HTTP, and leaves the arithmetic to the engine.
//!
//! An adapter is read when it is loaded, and kept in memory from then on: files that a trainer overwrites or deletes later
//! change nothing. Requests hold the adapter itself, so that one whose name is given to another, or taken away, goes on as
//! it began.
//!
//! If there is a limit, the adapter that was asked for longest ago is evicted for the next one, as in vLLM. An adapter
//! that a request uses, or that flags name, is never evicted. Unlike in vLLM, an evicted adapter is not read again when
//! a request names it, because its files may have changed. Such a request is told that the adapter is not there. Only a
//! directory in which adapters are found by name is looked into anew, see [`AdapterDirectory`]; what is read again is
//! another version of the name.

mod base;
mod error;
mod found;
mod place;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use indexmap::IndexMap;
use parking_lot::RwLock;

use base::Compared;
pub use error::AdapterError;
pub use found::{AdapterDirectory, Found};

use crate::{
    engine::{Adapter, AdapterLimits, Engine, EngineAdapters},
    weights::peft::PeftAdapter,
};

/// How often a load looks for an adapter that may leave, and how long it waits in between. A request has its adapter for a
/// moment longer than its client waits for the answer, so that whoever loads one right after an answer finds it in use.
const LOOKS_FOR_ROOM: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The decisions of the server, rather than of a call.
#[derive(Debug, Clone, Default)]
pub struct AdapterPolicy {
    /// The names of the base model, which no adapter can have.
    pub base_names: Vec<String>,
    /// The only directory from which adapters are loaded; `None` for any.
    pub root: Option<PathBuf>,
    /// The most adapters that are loaded at a time; `None` for as many as there is memory for. Where one more is loaded, the
    /// one that was asked for longest ago leaves, of those that no request is using and that need not stay.
    pub most: Option<usize>,
    /// Where adapters are found by name that a request asks for, and that are not loaded.
    pub found_in: Option<AdapterDirectory>,
}

/// The adapters of a server.
pub struct Adapters {
    engine: Arc<dyn Engine>,
    policy: AdapterPolicy,
    /// In the order in which the names came.
    named: RwLock<IndexMap<String, Named>>,
    /// Counts how often any adapter was asked for.
    asked: AtomicU64,
    /// How often each name was given; names that are gone stay here, so that no version comes twice. Held while a call is
    /// done that changes something.
    versions: tokio::sync::Mutex<HashMap<String, u64>>,
}

/// An adapter under its name.
#[derive(Debug, Clone)]
pub struct Named {
    /// The adapter.
    pub adapter: Arc<Adapter>,
    /// The tensors of the base that it was compared with, if it has some with it.
    base: Option<Arc<Compared>>,
    /// Where it came from, as whoever loaded it says: a path, or `memory`.
    pub source: String,
    /// The name of the base model, as whoever loaded it says.
    pub base_model: Option<String>,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// Whether it stays however many are loaded.
    stays: bool,
    /// When it was asked for last, or loaded: a number of [`Adapters::asked`].
    used: Arc<AtomicU64>,
}

impl Named {
    /// Whether it may leave: no request has it, and none gets it while `named` is locked.
    fn may_leave(&self) -> bool {
        !self.stays && Arc::strong_count(&self.adapter) == 1
    }
}

/// Where an adapter is to come from.
#[derive(Debug, Clone)]
pub enum AdapterSource {
    /// A directory as PEFT writes it.
    Directory(String),
    /// One that was found by its name.
    Found(Found),
    /// Safetensors with the settings in their metadata.
    Memory(Bytes),
}

/// An adapter to load.
#[derive(Debug, Clone)]
pub struct Load {
    /// The name under which requests ask for it.
    pub name: String,
    /// See [`AdapterSource`].
    pub source: AdapterSource,
    /// Whether it may take the place of one of this name.
    pub replaces: bool,
    /// The name of the base model, if it is said.
    pub base_model: Option<String>,
    /// Whether it stays loaded until it is unloaded by name, however many more are loaded.
    pub stays: bool,
}

/// An adapter that was loaded.
struct Loaded {
    adapter: Arc<Adapter>,
    /// The adapter that had its name before.
    before: Option<Arc<Adapter>>,
}

/// What an adapter displaced that was loaded.
struct Displaced {
    /// The adapter that had its name before.
    before: Option<Arc<Adapter>>,
    /// The one that left to make room.
    left: Option<Arc<Adapter>>,
}

impl Adapters {
    /// Makes the adapters of a server, none yet.
    pub fn new(engine: Arc<dyn Engine>, policy: AdapterPolicy) -> Self {
        let (named, asked, versions) = (RwLock::default(), AtomicU64::new(0), tokio::sync::Mutex::default());
        Self { engine, policy, named, asked, versions }
    }

    /// Returns the bounds of the engine; `None` where it serves no adapters.
    pub fn limits(&self) -> Option<AdapterLimits> {
        self.engine.adapters().map(EngineAdapters::limits)
    }

    /// Returns how many adapters may be loaded at a time; `None` for as many as there is memory for.
    pub fn most(&self) -> Option<usize> {
        self.policy.most
    }

    /// Returns the adapter of this name, for a request.
    pub fn get(&self, name: &str) -> Option<Arc<Adapter>> {
        let named = self.named.read();
        let found = named.get(name)?;
        found.used.store(self.now(), Ordering::Relaxed);
        Some(Arc::clone(&found.adapter))
    }

    /// Returns the adapter of this name, for a request, if it is loaded and fits the base that is served now.
    ///
    /// # Errors
    ///
    /// If it has weights of the base with it, and an update has changed those that are served, or is about to.
    pub async fn fitting(&self, name: &str) -> Result<Option<Arc<Adapter>>, AdapterError> {
        let Some(Named { adapter, base, .. }) = self.named.read().get(name).cloned() else { return Ok(None) };
        if let Some(base) = base {
            base.check(&*self.engine).await?;
        }
        Ok(Some(adapter))
    }

    /// A number that is greater than all before it.
    fn now(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns all names with their adapters, in the order in which the names came.
    pub fn all(&self) -> Vec<(String, Named)> {
        self.named.read().iter().map(|(name, named)| (name.clone(), named.clone())).collect()
    }

    /// Loads an adapter, and gives it its name once the engine has agreed to it; another one leaves where there is no room
    /// for both. Returns the one that had the name before.
    ///
    /// # Errors
    ///
    /// If it cannot be loaded; names are as they were then.
    pub async fn load(&self, load: Load) -> Result<Option<Arc<Adapter>>, AdapterError> {
        let mut versions = self.versions.lock().await;
        Ok(self.load_alone(load, &mut versions).await?.before)
    }

    /// Returns the adapter of this name, for a request, and loads it first where it is found by its name. However many
    /// requests ask for it at a time, it is loaded once.
    ///
    /// # Errors
    ///
    /// If it is found, and cannot be loaded.
    pub async fn find(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Adapter>>, AdapterError> {
        if let Some(adapter) = self.get(name) {
            return Ok(Some(adapter));
        }
        let Some(directory) = self.policy.found_in.clone() else { return Ok(None) };
        let (adapters, name) = (Arc::clone(self), name.to_owned());
        // Loaded to its end, even if the client goes away.
        let loading = tokio::spawn(async move {
            let asked = name.clone();
            let found = in_background(move || directory.find(&asked)).await?;
            let Some(found) = found else { return Ok(None) };
            let loaded = adapters.load_found(&name, found).await;
            if let Err(error) = &loaded {
                tracing::warn!(name, %error, "an adapter was found by its name, and could not be loaded");
            }
            loaded.map(Some)
        });
        loading.await.map_err(|error| AdapterError::Unusable(error.to_string()))?
    }

    async fn load_found(&self, name: &str, found: Found) -> Result<Arc<Adapter>, AdapterError> {
        let mut versions = self.versions.lock().await;
        // Another request may have loaded it meanwhile.
        if let Some(adapter) = self.get(name) {
            return Ok(adapter);
        }
        let (name, source) = (name.to_owned(), AdapterSource::Found(found));
        let load = Load { name, source, replaces: false, base_model: None, stays: false };
        Ok(self.load_alone(load, &mut versions).await?.adapter)
    }

    /// Loads an adapter while no other call changes something.
    async fn load_alone(&self, load: Load, versions: &mut HashMap<String, u64>) -> Result<Loaded, AdapterError> {
        let engine = self.engine.adapters().ok_or(AdapterError::Off)?;
        self.wait_for_room(&load.name).await;
        self.check_name(&load)?;
        let Load { name, source, base_model, stays, .. } = load;
        let said = match &source {
            AdapterSource::Directory(path) => path.clone(),
            AdapterSource::Found(found) => found.path().display().to_string(),
            AdapterSource::Memory(_) => "memory".to_owned(),
        };
        let mut weights = self.read(&name, source).await?;
        let (rank, most) = (weights.rank(), engine.limits().max_lora_rank);
        if rank > most {
            return Err(AdapterError::Rank { rank, most });
        }
        let tensors = engine.check(&weights).map_err(AdapterError::Model)?;
        let base = Compared::of(&*self.engine, &mut weights, tensors).await?.map(Arc::new);
        let version = versions.get(&name).map_or(1, |version| version + 1);
        let bytes = weights.bytes();
        let adapter = Adapter::new(&name, version, weights);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let used = Arc::new(AtomicU64::new(self.now()));
        let (kept, shown) = (Arc::clone(&adapter), said.clone());
        let named = Named { adapter: kept, base, source: said, base_model, created, stays, used };
        // While it was read, others may have been taken into use, or listed.
        self.wait_for_room(&name).await;
        let Displaced { before, left } = self.put(&name, named)?;
        tracing::info!(name, version, source = shown, rank, bytes, "an adapter was loaded");
        versions.insert(name, version);
        for gone in before.iter().chain(&left) {
            engine.forget(gone.id());
        }
        Ok(Loaded { adapter, before })
    }

    /// Gives an adapter its name, and returns those that it displaced.
    fn put(&self, name: &str, mut adapter: Named) -> Result<Displaced, AdapterError> {
        let mut named = self.named.write();
        if let Some(before) = named.get_mut(name) {
            adapter.stays |= before.stays;
            let before = std::mem::replace(before, adapter).adapter;
            return Ok(Displaced { before: Some(before), left: None });
        }
        let mut left = None;
        if self.is_full(&named) {
            let leaves = leaving(&named).ok_or(AdapterError::TooMany(named.len()))?.to_owned();
            tracing::info!(name = leaves, "an adapter left, to make room for another one");
            left = named.shift_remove(&leaves).map(|named| named.adapter);
        }
        named.insert(name.to_owned(), adapter);
        Ok(Displaced { before: None, left })
    }

    /// Takes a name away, and returns its adapter. Requests that run with it go on.
    ///
    /// # Errors
    ///
    /// If there is no such name.
    pub async fn unload(&self, name: &str) -> Result<Arc<Adapter>, AdapterError> {
        let _changing = self.versions.lock().await;
        let removed = self.named.write().shift_remove(name);
        let Some(Named { adapter, .. }) = removed else { return Err(AdapterError::Unknown(name.to_owned())) };
        if let Some(engine) = self.engine.adapters() {
            engine.forget(adapter.id());
        }
        tracing::info!(name, "an adapter was unloaded");
        Ok(adapter)
    }

    /// Waits until an adapter may leave for one of this name, if only requests are in the way; a second at most.
    async fn wait_for_room(&self, name: &str) {
        for _ in 0..LOOKS_FOR_ROOM {
            if !self.waits_for_requests(name) {
                return;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Whether there is no room for one more name only because of requests that have adapters.
    fn waits_for_requests(&self, name: &str) -> bool {
        let named = self.named.read();
        let all_stay = named.values().all(|named| named.stays);
        !self.has_room(&named, name) && !all_stay
    }

    /// Whether this name is there, may be one more, or another one may leave for it.
    fn has_room(&self, named: &IndexMap<String, Named>, name: &str) -> bool {
        named.contains_key(name) || !self.is_full(named) || leaving(named).is_some()
    }

    /// Whether one more name needs another one to leave.
    fn is_full(&self, named: &IndexMap<String, Named>) -> bool {
        self.policy.most.is_some_and(|most| named.len() >= most)
    }

    fn check_name(&self, Load { name, replaces, .. }: &Load) -> Result<(), AdapterError> {
        place::check_name(name)?;
        if self.policy.base_names.contains(name) {
            return Err(AdapterError::IsBase(name.clone()));
        }
        let named = self.named.read();
        if named.contains_key(name) && !replaces {
            return Err(AdapterError::Taken(name.clone()));
        }
        // Told before the adapter is read.
        if self.has_room(&named, name) { Ok(()) } else { Err(AdapterError::TooMany(named.len())) }
    }

    async fn read(&self, name: &str, source: AdapterSource) -> Result<PeftAdapter, AdapterError> {
        let root = self.policy.root.clone();
        let shown = name.to_owned();
        let read = move || match source {
            AdapterSource::Directory(path) => {
                let directory = place::directory(&path, root.as_deref())?;
                PeftAdapter::open(&directory).map_err(|error| AdapterError::of_directory(&shown, &path, error))
            }
            AdapterSource::Found(found) => {
                let path = found.path().display().to_string();
                PeftAdapter::open(found.directory()).map_err(|error| AdapterError::of_directory(&shown, &path, error))
            }
            AdapterSource::Memory(bytes) => {
                PeftAdapter::parse(bytes).map_err(|error| AdapterError::Unusable(error.to_string()))
            }
        };
        in_background(read).await
    }
}

/// Reads files where nothing else waits for them.
async fn in_background<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, AdapterError> + Send + 'static,
) -> Result<T, AdapterError> {
    match tokio::task::spawn_blocking(move || crate::files::without_panics(read)).await {
        Ok(Ok(read)) => read,
        Ok(Err(panic)) => Err(AdapterError::Unusable(panic)),
        Err(error) => Err(AdapterError::Unusable(error.to_string())),
    }
}

/// Returns the name of the adapter that leaves where one more is loaded, if one may.
fn leaving(named: &IndexMap<String, Named>) -> Option<&str> {
    let may_leave = named.iter().filter(|(_, named)| named.may_leave());
    may_leave.min_by_key(|(_, named)| named.used.load(Ordering::Relaxed)).map(|(name, _)| name.as_str())
}
