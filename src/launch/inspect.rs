//! A capture file in a page, without a model that answers.

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow};

use super::{
    listen,
    progress::Progress,
    settings::{Address, Listener},
};
use crate::{
    files::without_panics,
    inspect::Captured,
    model::TokenizerFiles,
    server::{self, Port, Ports, ServerConfig, Work},
    store::{Purpose, ReadOnlyStore},
    tokenizer::Tokenizer,
    trajectory::Trajectories,
};

/// Shows the trajectories of a file until the process is asked to stop. Nothing in the file is changed, and nothing of it
/// is too old or too large.
///
/// # Errors
///
/// If the file or the tokenizer cannot be read, or the address is taken.
pub async fn inspect(file: &Path, model: Option<&Path>, host: &str, port: u16) -> anyhow::Result<()> {
    let address = Address::Tcp { host: host.to_owned(), port };
    let bound = listen::bind(Listener { address, tls: None }, &["--host", "--port"]).await?;
    let progress = Progress::new();
    let reading = progress.step("reading the trajectory store");
    let store = ReadOnlyStore::open(Purpose::Trajectories, file)?;
    let trajectories = Trajectories::open_to_look(Arc::new(store))
        .with_context(|| format!("the trajectories of {} cannot be read", file.display()))?;
    reading.done();
    let tokenizer = model.map(|model| tokenizer(model).map(Arc::new)).transpose()?;
    let captured = Captured {
        trajectories: Some(Arc::new(trajectories)),
        tokenizer,
        // A model may have more ids than its tokenizer, and the file does not say how many.
        vocab_size: usize::MAX,
        api: None,
    };
    server::raise_open_files();
    let app = server::inspect_app(captured);
    let address = bound.shown.clone();
    if !bound.is_local {
        progress.say("whoever reaches this address can read the whole file");
    }
    let (endpoint, _) = bound.listen()?;
    progress.banner(&format!("tito {} | {} | {address}/inspect", env!("CARGO_PKG_VERSION"), file.display()));
    let stop = server::stop_signal()?;
    let ports = Ports { main: Port { endpoint, app }, admin: None };
    server::serve(ports, Work::nothing(), &ServerConfig::default(), stop).await.context("the server failed")
}

fn tokenizer(model: &Path) -> anyhow::Result<Tokenizer> {
    let read = || -> anyhow::Result<Tokenizer> { Ok(TokenizerFiles::open(model)?.tokenizer()?) };
    let read = without_panics(read).unwrap_or_else(|reason| Err(anyhow!(reason)));
    read.with_context(|| format!("the tokenizer of {} cannot be used", model.display()))
}
