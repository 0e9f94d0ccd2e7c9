//! Keys that open ports, as flags and the environment give them.

use anyhow::ensure;

use crate::{config::ServeArgs, server::ApiKeys};

/// The keys of the API.
pub(super) fn of_api(args: &ServeArgs) -> anyhow::Result<ApiKeys> {
    keys("--api-key", "VLLM_API_KEY", &args.http.api_key)
}

/// The keys of the control plane.
pub(super) fn of_admin(args: &ServeArgs) -> anyhow::Result<ApiKeys> {
    keys("--admin-api-key", "TITO_ADMIN_API_KEY", &args.admin.admin_api_key)
}

/// Refuses what cannot be a key: an empty one would leave a server open that was meant to be closed, and one that no header
/// can bring would close it to everybody. No key is repeated in the error.
fn keys(flag: &str, variable: &str, given: &[String]) -> anyhow::Result<ApiKeys> {
    for (place, key) in given.iter().enumerate() {
        let place = place + 1;
        ensure!(
            !key.trim().is_empty(),
            "key {place} of {flag} (or {variable}) is empty: give one, or leave out the flag and the variable where everybody \
             may come in"
        );
        ensure!(
            key.trim() == key && key.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "key {place} of {flag} (or {variable}) cannot be sent in a header: it has to be visible ASCII, without spaces or \
             line breaks around it"
        );
    }
    Ok(ApiKeys::new(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_key_is_refused_and_not_repeated() {
        let refusal = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|key| (*key).to_owned()).collect();
            keys("--api-key", "VLLM_API_KEY", &given).map_err(|error| error.to_string())
        };
        for empty in ["", " ", "\t", "\n", "\u{a0}"] {
            let refused = refusal(&["secret", empty]).unwrap_err();
            assert!(refused.starts_with("key 2 of --api-key (or VLLM_API_KEY) is empty: "), "{refused}");
        }
        for unsent in [" secret", "secret\n", "sec\tret", "sécret"] {
            let refused = refusal(&[unsent]).unwrap_err();
            assert!(refused.starts_with("key 1 of --api-key (or VLLM_API_KEY) cannot be sent"), "{refused}");
            assert!(!refused.contains("ret"), "{refused}");
        }
        assert!(refusal(&[]).unwrap().is_empty());
        assert!(!refusal(&["secret", "a key"]).unwrap().is_empty());
    }
}
