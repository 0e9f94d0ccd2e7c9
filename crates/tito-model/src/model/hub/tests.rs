use axum::{
    Json, Router,
    extract::Path as UrlPath,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use parking_lot::Mutex;
use serde_json::json;

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one small repository, at an address of its own.
async fn serve() -> String {
    serve_files(&[".gitattributes", "config.json", "model.safetensors", "onnx/model.json", "../evil.json"]).await
}

async fn serve_files(files: &[&str]) -> String {
    let siblings: Vec<_> = files.iter().map(|file| json!({"rfilename": file})).collect();
    let router = Router::new()
        .route(
            "/api/models/org/name/revision/main",
            get(move || async move { Json(json!({"sha": COMMIT, "siblings": siblings})) }),
        )
        .route("/org/name/resolve/{revision}/{file}", get(resolve));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn resolve(
    UrlPath((revision, file)): UrlPath<(String, String)>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, StatusCode> {
    if revision != COMMIT {
        return Err(StatusCode::NOT_FOUND);
    }
    let content = format!("content of {file}");
    let range = headers[header::RANGE].to_str().unwrap().strip_prefix("bytes=").unwrap().to_owned();
    let (start, end) = range.split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
    let end = end.min(content.len() - 1);
    let range = format!("bytes {start}-{end}/{}", content.len());
    let headers = [("x-repo-commit", COMMIT.to_owned()), ("etag", format!("\"{file}\"")), ("content-range", range)];
    Ok((StatusCode::PARTIAL_CONTENT, headers, content[start..=end].to_owned()))
}

fn options(cache: &Path, endpoint: &str) -> HubOptions {
    HubOptions {
        offline: false,
        without_weights: false,
        cache_dir: cache.to_owned(),
        token: None,
        endpoint: Some(endpoint.to_owned()),
        revision: None,
        progress: Arc::new(|_| ()),
    }
}

#[test]
fn ids_are_told_from_paths() {
    assert!(is_id("Qwen/Qwen3-0.6B") && is_id("org/a_b.c"));
    for path in ["gpt2", "./org/name", "/org/name", "a/b/c", "../name", "org/..", "org/model.gguf", "org/", "a b/c"] {
        assert!(!is_id(path), "{path}");
    }
}

#[test]
fn only_files_that_are_read_are_fetched() {
    for file in ["config.json", "model-00001-of-00002.safetensors", "chat_template.jinja"] {
        assert!(is_wanted(file), "{file}");
    }
    assert!(is_wanted("additional_chat_templates/rag.jinja"));
    for file in ["pytorch_model.bin", "onnx/config.json", "consolidated.safetensors", "../config.json", "README.md"] {
        assert!(!is_wanted(file), "{file}");
    }
}

#[tokio::test]
async fn a_model_is_downloaded_once_and_then_found_offline() {
    let cache = tempfile::tempdir().unwrap();
    let endpoint = serve().await;
    let started = Arc::new(Mutex::new(Vec::new()));
    let mut options = options(cache.path(), &endpoint);
    let sink = Arc::clone(&started);
    options.progress = Arc::new(move |event| {
        if let DownloadEvent::Started { file, .. } = event {
            sink.lock().push(file.to_owned());
        }
    });
    let online = directory("org/name", &options).await.unwrap();
    assert_eq!(std::fs::read_to_string(online.join("config.json")).unwrap(), "content of config.json");
    assert_eq!(directory("org/name", &options).await.unwrap(), online);
    assert_eq!(*started.lock(), ["config.json", "model.safetensors"]);

    options.offline = true;
    assert_eq!(directory("org/name", &options).await.unwrap(), online);
    options.revision = Some(COMMIT.to_owned());
    assert_eq!(directory("org/name", &options).await.unwrap(), online);
    options.revision = Some("other".to_owned());
    assert!(matches!(directory("org/name", &options).await, Err(ModelError::NotCached { .. })));
}

#[tokio::test]
async fn an_adapter_is_found_as_a_model_is_with_nothing_but_its_two_files() {
    let cache = tempfile::tempdir().unwrap();
    let mut found =
        options(cache.path(), &serve_files(&["config.json", ADAPTER[0], "model.safetensors", ADAPTER[1]]).await);
    let online = adapter_directory("org/name", &found).await.unwrap();
    let mut files: Vec<_> = online.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ADAPTER);
    found.offline = true;
    assert_eq!(adapter_directory("org/name", &found).await.unwrap(), online);
    let missing = adapter_directory("org/other", &found).await.unwrap_err().to_string();
    assert!(missing.contains("unset it to download the adapter, or pass a directory"), "{missing}");
    // It is no model, and a model is no adapter.
    assert!(matches!(directory("org/name", &found).await, Err(ModelError::NotCached { .. })));
    let other = tempfile::tempdir().unwrap();
    let error = adapter_directory("org/name", &options(other.path(), &serve().await)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot download org/name: it has no adapter_config.json, so it is no adapter as PEFT's save_pretrained writes it; pass another"
    );
}

#[tokio::test]
async fn a_model_that_the_hub_lacks_is_named() {
    let cache = tempfile::tempdir().unwrap();
    let error = directory("org/other", &options(cache.path(), &serve().await)).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot download org/other") && error.contains("404"), "{error}");
}
