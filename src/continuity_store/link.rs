//! The connection to a store, which is made anew in the background whenever it is lost.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::StoreAddress;

/// The pause before another try; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Names are resolved, and keys are checked.
const TO_CONNECT: Duration = Duration::from_secs(1);

/// A connection, or none at the moment.
pub(super) struct Link {
    state: Arc<State>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What those who use the connection share with the task that makes it.
struct State {
    address: StoreAddress,
    current: Mutex<Current>,
    lost: Notify,
}

/// The connection, and how many there were before, so that whoever lost an old one does not lose the new one.
struct Current {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    /// Tries once, and then goes on in the background.
    pub(super) async fn connect(address: StoreAddress, patience: Duration) -> Arc<Self> {
        let current = Mutex::new(Current { number: 0, connection: None });
        let state = Arc::new(State { address, current, lost: Notify::new() });
        match state.try_to_connect(patience).await {
            Ok(()) => tracing::info!("the continuity store at {} is connected", state.address),
            Err(reason) => tracing::warn!(
                "the continuity store at {} cannot be reached: {reason}; turns that it would know are tokenized from text, \
                 and it is tried again",
                state.address
            ),
        }
        let keeper = tokio::spawn(keep_connected(Arc::clone(&state), patience));
        Arc::new(Self { state, keeper: Mutex::new(Some(keeper)) })
    }

    /// The connection and its number, if there is one.
    pub(super) fn connection(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.state.current.lock();
        current.connection.clone().map(|connection| (current.number, connection))
    }

    /// The number of the connection that there is, or of the last one.
    pub(super) fn number(&self) -> u64 {
        self.state.current.lock().number
    }

    /// Drops the connection of this number, for a reason.
    pub(super) fn lose(&self, number: u64, reason: &str) {
        let mut current = self.state.current.lock();
        if current.number == number && current.connection.take().is_some() {
            tracing::warn!("the continuity store at {} is lost: {reason}", self.state.address);
            self.state.lost.notify_one();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.lock().take() {
            keeper.abort();
        }
    }
}

impl State {
    async fn try_to_connect(&self, patience: Duration) -> Result<(), String> {
        let slow = |limit: Duration| format!("it did not answer within {} ms", limit.as_millis());
        let limit = patience.max(TO_CONNECT);
        let made = timeout(limit, connected(&self.address)).await;
        let mut connection = made.map_err(|_| slow(limit))?.map_err(|error| error.to_string())?;
        // A store that is too slow for turns is none.
        let ping = redis::cmd("PING");
        let answered = timeout(patience, ping.exec_async(&mut connection)).await;
        answered.map_err(|_| slow(patience))?.map_err(|error| error.to_string())?;
        let mut current = self.current.lock();
        current.number += 1;
        current.connection = Some(connection);
        Ok(())
    }
}

/// A new connection.
async fn connected(address: &StoreAddress) -> Result<MultiplexedConnection, RedisError> {
    // Whoever uses it counts the time.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = Client::open(address.info())?;
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn keep_connected(state: Arc<State>, patience: Duration) {
    loop {
        let mut pause = FIRST_PAUSE;
        while state.current.lock().connection.is_none() {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if state.try_to_connect(patience).await.is_ok() {
                tracing::info!("the continuity store at {} is connected", state.address);
            }
        }
        state.lost.notified().await;
    }
}
