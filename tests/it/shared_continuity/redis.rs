//! A Redis server of a test's own, and what may stand between it and the servers that use it.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::{Client, IntoConnectionInfo};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf},
    sync::Notify,
};

use crate::it::patience::until;

/// A server at a socket in a directory.
pub(super) struct Redis {
    process: Child,
    directory: TempDir,
}

impl Redis {
    /// Starts one; `None`, and a line that says so, where the program is not installed.
    pub(super) async fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("SKIPPED: redis-server is not installed, so that nothing is known of --continuity-store");
            return None;
        };
        let server = Self { process, directory };
        until("redis answers", async || server.ask(&["PING"]).await.is_some()).await;
        Some(server)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub(super) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The answer to a command, as bytes; nothing where there is none.
    pub(super) async fn ask(&self, command: &[&str]) -> Option<redis::Value> {
        let client = Client::open(self.url().into_connection_info().ok()?).ok()?;
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.ok()
    }

    /// All keys with what is kept under them.
    pub(super) async fn entries(&self) -> Vec<(String, Vec<u8>)> {
        let client = Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
        let mut entries = Vec::new();
        for key in keys {
            let value = redis::cmd("GET").arg(&key).query_async(&mut connection).await.unwrap();
            entries.push((key, value));
        }
        entries
    }

    /// Keeps something under a key.
    pub(super) async fn set(&self, key: &str, value: &[u8]) {
        let client = Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("SET").arg(key).arg(value).exec_async(&mut connection).await.unwrap();
    }

    /// Ends the server at once.
    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A socket that passes on what comes, until it is cut: then it takes everything and passes nothing on, as a network does
/// that has lost one side.
pub(super) struct Wire {
    is_cut: Arc<AtomicBool>,
    mended: Arc<Notify>,
    socket: PathBuf,
}

impl Wire {
    pub(super) fn to(redis: &Redis) -> Self {
        let (is_cut, mended) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (socket, server) = (redis.directory.path().join("wire.sock"), redis.socket());
        let listener = UnixListener::bind(&socket).unwrap();
        let (cut, mend) = (Arc::clone(&is_cut), Arc::clone(&mended));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&server).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(pass_on(from_client, to_server, Arc::clone(&cut), Arc::clone(&mend)));
                tokio::spawn(pass_on(from_server, to_client, Arc::clone(&cut), Arc::clone(&mend)));
            }
        });
        Self { is_cut, mended, socket }
    }

    pub(super) fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(super) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
        self.mended.notify_waiters();
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: Arc<AtomicBool>, mended: Arc<Notify>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let mend = mended.notified();
        if cut.load(Ordering::SeqCst) {
            mend.await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
