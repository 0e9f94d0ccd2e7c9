//! What a person is told when the hub does not give a model.

use std::error::Error;

use hf_hub::api::tokio::ApiError;

use super::file_names::{ADAPTER, has_extension};

/// Why `hub` did not give `model`, and what to do about it.
pub(super) fn in_words(error: &ApiError, model: &str, hub: &str) -> String {
    let error = match error {
        ApiError::TooManyRetries(last) => &**last,
        error => error,
    };
    let ApiError::RequestError(request) = error else {
        return error.to_string();
    };
    match request.status() {
        Some(status) if matches!(status.as_u16(), 401 | 403 | 404) => format!(
            "{hub} answers {status}: it has no such model or revision, or shows it only to those who may see it; check the \
             name, and pass --hf-token for a private or gated model"
        ),
        Some(status) => format!("{hub} answers {status}; try again later, or pass a directory"),
        None => format!(
            "{hub} cannot be reached ({}), and there is no directory {model} here; check the network, or pass a directory \
             with the model",
            first_cause(request)
        ),
    }
}

/// An address without the name and the password that it may have.
pub(super) fn shown(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

/// What happened in the end: what is said above it is that a request was sent, and its address.
fn first_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Refuses a repository that cannot be served, before any of its files is fetched.
pub(super) fn check_files(files: &[&str]) -> Result<(), String> {
    if files.contains(&"config.json") {
        return Ok(());
    }
    let gguf = files.iter().find(|file| has_extension(file, &["gguf"]));
    Err(match gguf {
        Some(file) => {
            format!("it has GGUF files and no config.json; download one of them, such as {file}, and pass its path")
        }
        None => "it has no config.json, so it is no model as Transformers' save_pretrained writes it; pass another"
            .to_owned(),
    })
}

/// Refuses a repository that is no adapter, before any of its files is fetched.
pub(super) fn check_adapter(files: &[&str]) -> Result<(), String> {
    match ADAPTER.iter().find(|file| !files.contains(file)) {
        None => Ok(()),
        Some(file) => {
            Err(format!("it has no {file}, so it is no adapter as PEFT's save_pretrained writes it; pass another"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_a_password() {
        assert_eq!(shown("https://user:secret@hub.example:8443/a@b"), "https://hub.example:8443/a@b");
        assert_eq!(shown("https://a@b:c@hub.example"), "https://hub.example");
        assert_eq!(shown("user:secret@hub.example"), "hub.example");
        for same in ["https://huggingface.co", "http://127.0.0.1:1/x", "hub", ""] {
            assert_eq!(shown(same), same);
        }
    }

    #[test]
    fn a_repository_without_a_config_is_refused_with_what_it_has() {
        assert_eq!(check_files(&["config.json", "a.gguf"]), Ok(()));
        let refused = |files: &[&str]| check_files(files).unwrap_err();
        assert!(
            refused(&["README.md", "a.Q4_0.gguf"])
                .contains("download one of them, such as a.Q4_0.gguf, and pass its path")
        );
        assert!(refused(&["README.md"]).starts_with("it has no config.json"));
        assert_eq!(check_adapter(&["adapter_config.json", "adapter_model.safetensors", "README.md"]), Ok(()));
        let refused = |files: &[&str]| check_adapter(files).unwrap_err();
        assert!(refused(&["config.json"]).starts_with("it has no adapter_config.json"));
        assert!(
            refused(&["adapter_config.json", "adapter_model.bin"]).starts_with("it has no adapter_model.safetensors")
        );
    }
}
