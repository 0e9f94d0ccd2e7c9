//! Models of the Hugging Face hub and their adapters, in the cache that all its clients share.

mod fault;
mod file_names;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::tokio::{Api, ApiBuilder, ApiError, Progress},
};

use self::file_names::{ADAPTER, has_extension};
use super::ModelError;

/// How the hub is reached.
#[derive(Clone)]
pub struct HubOptions {
    /// Use the local cache only.
    pub offline: bool,
    /// The cache: `hub` below `HF_HOME`.
    pub cache_dir: PathBuf,
    /// The access token; without one, that of the cache is used.
    pub token: Option<String>,
    /// The hub's address, if it is not the public one.
    pub endpoint: Option<String>,
    /// Branch, tag or commit; `main` if unset.
    pub revision: Option<String>,
    /// Leave the weights out.
    pub without_weights: bool,
    /// Is told how downloads go on.
    pub progress: DownloadProgress,
}

/// A function that is told how downloads go on.
pub type DownloadProgress = Arc<dyn Fn(DownloadEvent<'_>) + Send + Sync>;

/// What happened to a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadEvent<'a> {
    /// A file is about to be fetched.
    Started {
        /// Its name in the repository.
        file: &'a str,
        /// Its size.
        size_bytes: usize,
    },
    /// This many more bytes of it are there.
    Received {
        /// The number of bytes.
        bytes: usize,
    },
    /// It is complete.
    Finished,
}

/// Reports the progress of one file.
#[derive(Clone)]
struct Reporter(DownloadProgress);

impl Progress for Reporter {
    async fn init(&mut self, size: usize, filename: &str) {
        (self.0)(DownloadEvent::Started { file: filename, size_bytes: size });
    }

    async fn update(&mut self, size: usize) {
        (self.0)(DownloadEvent::Received { bytes: size });
    }

    async fn finish(&mut self) {
        (self.0)(DownloadEvent::Finished);
    }
}

/// Returns whether a model argument can be a hub id: `organisation/name`.
pub(super) fn is_id(model: &str) -> bool {
    let valid = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    let gguf = Path::new(model).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    !gguf && model.split_once('/').is_some_and(|(organisation, name)| valid(organisation) && valid(name))
}

/// What is fetched of a repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// A model.
    Model,
    /// A model without its weights; a tokenizer may lie alone.
    WithoutWeights,
    /// An adapter as PEFT writes it.
    Adapter,
}

impl Contents {
    /// The file without which a repository is none of these.
    fn mark(self) -> &'static str {
        match self {
            Self::Model | Self::WithoutWeights => "config.json",
            Self::Adapter => ADAPTER[0],
        }
    }

    /// Refuses a repository that has something else, before any of its files is fetched.
    fn check(self, files: &[&str]) -> Result<(), String> {
        match self {
            Self::WithoutWeights if files.contains(&"tokenizer.json") => Ok(()),
            Self::Model | Self::WithoutWeights => fault::check_files(files),
            Self::Adapter => fault::check_adapter(files),
        }
    }

    fn has(self, file: &str) -> bool {
        match self {
            Self::Model => is_wanted(file),
            Self::WithoutWeights => is_wanted(file) && !has_extension(file, &["safetensors"]),
            Self::Adapter => ADAPTER.contains(&file),
        }
    }
}

/// Returns the directory of a model in the cache, after fetching what is missing.
pub(super) async fn directory(model: &str, options: &HubOptions) -> Result<PathBuf, ModelError> {
    let contents = if options.without_weights { Contents::WithoutWeights } else { Contents::Model };
    directory_with(contents, model, options).await
}

/// Returns the directory of an adapter in the cache, after fetching what is missing.
pub(super) async fn adapter_directory(adapter: &str, options: &HubOptions) -> Result<PathBuf, ModelError> {
    directory_with(Contents::Adapter, adapter, options).await
}

async fn directory_with(contents: Contents, name: &str, options: &HubOptions) -> Result<PathBuf, ModelError> {
    let revision = options.revision.as_deref().unwrap_or("main");
    if options.offline {
        let what = if contents == Contents::Adapter { "adapter" } else { "model" };
        let missing = || ModelError::NotCached { name: name.to_owned(), what };
        return cached(contents, name, revision, options).ok_or_else(missing);
    }
    let fetched = download(contents, name, revision, options).await;
    fetched.map_err(|reason| ModelError::Hub { model: name.to_owned(), reason })
}

fn repo(model: &str, revision: &str) -> Repo {
    Repo::with_revision(model.to_owned(), RepoType::Model, revision.to_owned())
}

fn snapshot(model: &str, commit: &str, options: &HubOptions) -> PathBuf {
    options.cache_dir.join(repo(model, commit).folder_name()).join("snapshots").join(commit)
}

fn cached(contents: Contents, model: &str, revision: &str, options: &HubOptions) -> Option<PathBuf> {
    let by_name = Cache::new(options.cache_dir.clone()).repo(repo(model, revision)).get(contents.mark());
    let by_commit = snapshot(model, revision, options).join(contents.mark());
    let config = by_name.or_else(|| if by_commit.exists() { Some(by_commit) } else { None })?;
    config.parent().map(Path::to_owned)
}

async fn download(contents: Contents, model: &str, revision: &str, options: &HubOptions) -> Result<PathBuf, String> {
    let hub = fault::shown(options.endpoint.as_deref().unwrap_or("https://huggingface.co"));
    let told = |error: ApiError| fault::in_words(&error, model, &hub);
    let api = api(options).map_err(told)?;
    let info = api.repo(repo(model, revision)).info().await.map_err(told)?;
    let files: Vec<&str> = info.siblings.iter().map(|sibling| sibling.rfilename.as_str()).collect();
    contents.check(&files)?;
    // Pinned to the commit, the files fit together even if the branch moves on meanwhile.
    let pinned = api.repo(repo(model, &info.sha));
    let directory = snapshot(model, &info.sha, options);
    for file in files.into_iter().filter(|file| contents.has(file)) {
        if directory.join(file).exists() {
            continue;
        }
        let reporter = Reporter(Arc::clone(&options.progress));
        let path = pinned.download_with_progress(file, reporter).await;
        let path = path.map_err(|error| format!("{file}: {}", told(error)))?;
        if path != directory.join(file) {
            return Err(format!("{file}: the hub answered with another commit than {}; try again", info.sha));
        }
    }
    if contents == Contents::WithoutWeights {
        return Ok(directory);
    }
    // Only now does the revision count as cached.
    Cache::new(options.cache_dir.clone())
        .repo(repo(model, revision))
        .create_ref(&info.sha)
        .map_err(|error| error.to_string())?;
    Ok(directory)
}

fn api(options: &HubOptions) -> Result<Api, ApiError> {
    let mut builder = ApiBuilder::from_cache(Cache::new(options.cache_dir.clone())).with_progress(false);
    if let Some(token) = &options.token {
        builder = builder.with_token(Some(token.clone()));
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    builder.build()
}

/// Weights, configuration, tokenizer and chat templates; `consolidated` weights repeat the others in another layout.
fn is_wanted(file: &str) -> bool {
    if let Some(template) = file.strip_prefix("additional_chat_templates/") {
        return !template.contains('/') && has_extension(template, &["jinja"]);
    }
    !file.contains(['/', '\\'])
        && !file.starts_with("consolidated")
        && (file == "chat_template.jinja" || has_extension(file, &["json", "safetensors"]))
}

#[cfg(test)]
mod tests;
