//! A store that several servers share, so that a conversation continues from its ids wherever its next turn is served.
//!
//! Owns the connection to a Redis or Valkey server, what is asked of it, and for how long a turn waits for it. Refuses the
//! content of keys and records, which `continuity` makes and judges. The only user of the `redis` crate.
//!
//! A turn waits at most `timeout` before its prompt and at most `timeout` before its last event. Whoever has waited in vain
//! drops the connection, and until there is a new one, which is made in the background, nobody waits at all. Values are
//! read by ranges, so that a stranger's value of any length takes no more memory than a record may.

mod address;
mod link;

use std::{sync::Arc, time::Duration};

use redis::{Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout};

pub use address::StoreAddress;
use link::Link;

use crate::continuity::{MOST_ANSWER_BYTES, MOST_RECORD_BYTES, SEVERAL, SharedTurn, StoreFault, Wanted};

/// By how much longer it is kept that a turn had ids than the ids themselves, as in memory.
const LONGER: u32 = 24;
/// Redis counts milliseconds in a signed number, and adds them to the time of day.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// How a store is used.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// Where it is.
    pub address: StoreAddress,
    /// For how long a turn waits for it, once before its prompt and once before its last event.
    pub timeout: Duration,
    /// How long the ids of a turn are kept.
    pub ttl: Duration,
}

/// The store.
pub struct ContinuityStore {
    link: Arc<Link>,
    timeout: Duration,
    /// How long records are kept, and answers, in milliseconds.
    record_ttl: u64,
    answer_ttl: u64,
}

/// Why the store did not do something.
enum Fault {
    /// There is no connection, or it broke.
    Gone,
    /// The server refused it: it is full, or only read.
    Refused(RedisError),
}

impl ContinuityStore {
    /// Connects to the store in the background. Waits for the first connection, or for the reason why there is none yet.
    pub async fn connect(settings: StoreSettings) -> Self {
        let milliseconds = |time: Duration| u64::try_from(time.min(LONGEST).as_millis()).unwrap_or(u64::MAX);
        Self {
            link: Link::connect(settings.address, settings.timeout).await,
            timeout: settings.timeout,
            record_ttl: milliseconds(settings.ttl),
            answer_ttl: milliseconds(settings.ttl.saturating_mul(LONGER)),
        }
    }

    /// Asks what the store knows of a conversation, and takes it into the memory.
    pub async fn look_up(&self, wanted: &mut Wanted) {
        let begun = Instant::now();
        let asked = self.within(self.ask(wanted)).await;
        let outcome = match asked {
            Ok(Ok(_)) if wanted.refused() => "refused",
            Ok(Ok(true)) => "hit",
            Ok(Ok(false)) => "miss",
            Ok(Err(())) => {
                wanted.missed(StoreFault::Unavailable);
                "unavailable"
            }
            Err(TimedOut) => {
                wanted.missed(StoreFault::TimedOut);
                "timeout"
            }
        };
        metrics::counter!("tito:continuity_store_lookups_total", "outcome" => outcome).increment(1);
        observe("lookup", begun);
    }

    /// Whether the store had something.
    async fn ask(&self, wanted: &mut Wanted) -> Result<bool, ()> {
        let mut pipe = redis::pipe();
        for key in wanted.keys() {
            pipe.getrange(name(&key), 0, as_index(MOST_ANSWER_BYTES));
        }
        let answers: Vec<Vec<u8>> = self.query(&pipe).await.map_err(|fault| fault.say("read"))?;
        // What is not there is read as nothing.
        let answers: Vec<_> = answers.into_iter().map(|answer| (!answer.is_empty()).then_some(answer)).collect();
        let knows = answers.iter().any(Option::is_some);
        if let Some(key) = wanted.learn(&answers) {
            let mut pipe = redis::pipe();
            pipe.getrange(name(&key), 0, as_index(MOST_RECORD_BYTES));
            let [record]: [Vec<u8>; 1] = self.query(&pipe).await.map_err(|fault| fault.say("read"))?;
            wanted.take(Some(&record).filter(|record| !record.is_empty()).map(Vec::as_slice));
        }
        Ok(knows)
    }

    /// Keeps a turn, before its client has its end: the next one may come at once, and elsewhere.
    pub async fn keep(&self, turn: SharedTurn) {
        let begun = Instant::now();
        let written = self.within(self.write(&turn)).await;
        let outcome = match written {
            Ok(Ok(false)) => "kept",
            Ok(Ok(true)) => "ambiguous",
            Ok(Err(Fault::Gone)) => "unavailable",
            Ok(Err(fault @ Fault::Refused(_))) => {
                fault.say("written");
                "refused"
            }
            Err(TimedOut) => "timeout",
        };
        metrics::counter!("tito:continuity_store_writes_total", "outcome" => outcome).increment(1);
        observe("write", begun);
    }

    /// Whether other ids were there. The record comes first, so that an answer leads to one; and the first answer stays, so
    /// that of two servers one finds out that there are two.
    async fn write(&self, turn: &SharedTurn) -> Result<bool, Fault> {
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(name(&turn.record_key)).arg(&turn.record).arg("PX").arg(self.record_ttl).ignore();
        for key in &turn.keys {
            let key = name(key);
            pipe.cmd("SET").arg(&key).arg(&turn.answer).arg("NX").arg("PX").arg(self.answer_ttl).ignore();
            pipe.getrange(&key, 0, as_index(MOST_ANSWER_BYTES));
        }
        let kept: Vec<Vec<u8>> = self.query(&pipe).await?;
        // What was evicted in between is no other answer.
        let is_other = |kept: &[u8]| !kept.is_empty() && *kept != turn.answer;
        let others = turn.keys.iter().zip(&kept).filter(|(_, kept)| is_other(kept));
        let others: Vec<_> = others.map(|(key, _)| key).collect();
        if others.is_empty() {
            return Ok(false);
        }
        let mut pipe = redis::pipe();
        for key in others {
            pipe.cmd("SET").arg(name(key)).arg(SEVERAL).arg("PX").arg(self.answer_ttl).ignore();
        }
        self.query::<Value>(&pipe).await?;
        Ok(true)
    }

    async fn query<T: redis::FromRedisValue>(&self, pipe: &Pipeline) -> Result<T, Fault> {
        let Some((number, mut connection)) = self.link.connection() else { return Err(Fault::Gone) };
        let result: Result<T, RedisError> = pipe.query_async::<T>(&mut connection as &mut MultiplexedConnection).await;
        result.map_err(|error| {
            if error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error() {
                self.link.lose(number, &error.to_string());
                Fault::Gone
            } else {
                Fault::Refused(error)
            }
        })
    }

    /// What comes of some work within the time. Where nothing does, the connection is not waited for again.
    async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, TimedOut> {
        let number = self.link.number();
        timeout(self.timeout, work).await.map_err(|_| {
            self.link.lose(number, &format!("nothing came within {} ms", self.timeout.as_millis()));
            TimedOut
        })
    }
}

/// Nothing came in time.
struct TimedOut;

impl Fault {
    /// Logs what the server refused.
    fn say(self, what: &str) {
        if let Self::Refused(error) = self {
            tracing::warn!(%error, "the continuity store refused what was to be {what}");
        }
    }
}

/// The name of a key, as a person finds it with `SCAN`.
fn name(key: &[u8; 32]) -> String {
    format!("tito:continuity:1:{}", blake3::Hash::from_bytes(*key).to_hex())
}

/// The last index of a range that has one byte more than `most`: whatever is longer shows itself as that.
fn as_index(most: usize) -> isize {
    isize::try_from(most).unwrap_or(isize::MAX)
}

fn observe(operation: &'static str, begun: Instant) {
    metrics::histogram!("tito:continuity_store_seconds", "operation" => operation)
        .record(begun.elapsed().as_secs_f64());
}
