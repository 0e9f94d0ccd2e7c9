//! Flags of the hub, and the variables that `huggingface_hub` reads.

use std::{fs, path::PathBuf};

use clap::Args;

/// Where models of the hub come from, and where they are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct HubArgs {
    /// Never reach for the hub.
    #[arg(long, env = "HF_HUB_OFFLINE", value_parser = clap::builder::FalseyValueParser::new(), hide = true,
          action = clap::ArgAction::Set, default_value = "false")]
    pub hub_offline: bool,

    /// The hub's cache and its token lie under it.
    #[arg(long, env = "HF_HOME", hide = true)]
    hub_home: Option<PathBuf>,

    /// The hub's cache, if it does not lie in `hub` under the home.
    #[arg(long, env = "HF_HUB_CACHE", hide = true)]
    hub_cache: Option<PathBuf>,

    /// The address of another hub than Hugging Face.
    #[arg(long, env = "HF_ENDPOINT", hide = true)]
    pub hub_endpoint: Option<String>,

    /// The branch, tag or commit of a model on the hub [default: main]
    #[arg(long)]
    pub revision: Option<String>,

    /// The token for private and gated models on the hub.
    ///
    /// Without a value, this is the token that `hf auth login` stored.
    #[arg(long = "hf-token", alias = "hub-token", env = "HF_TOKEN", hide_env_values = true, num_args = 0..=1,
          default_missing_value = "", value_name = "TOKEN")]
    hub_token: Option<String>,

    /// Where models of the hub are stored [default: the hub's own cache]
    #[arg(long, value_name = "DIR")]
    download_dir: Option<PathBuf>,
}

impl HubArgs {
    /// Where models of the hub are kept, as `huggingface_hub` finds it: `HF_HUB_CACHE`, or else `hub` under `HF_HOME`.
    pub fn cache_dir(&self) -> PathBuf {
        let given = self.download_dir.clone().or_else(|| filled(self.hub_cache.clone()));
        given.unwrap_or_else(|| self.home().join("hub"))
    }

    /// The token that was given, or else the one that `hf auth login` stored under `HF_HOME`.
    pub fn token(&self) -> Option<String> {
        let stored = || Some(fs::read_to_string(self.home().join("token")).ok()?.trim().to_owned());
        // A file of a secret ends with a line break, as a rule.
        let given = self.hub_token.as_deref().map(|token| token.trim().to_owned());
        let is_token = |token: &String| !token.is_empty();
        given.filter(is_token).or_else(|| stored().filter(is_token))
    }

    /// `HF_HOME`, which is a directory of the user's caches by default.
    fn home(&self) -> PathBuf {
        let caches = || {
            let named = filled(std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from));
            named.or_else(|| Some(std::env::home_dir()?.join(".cache")))
        };
        filled(self.hub_home.clone()).unwrap_or_else(|| caches().unwrap_or_default().join("huggingface"))
    }
}

/// A variable that is there and empty says nothing.
fn filled(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> HubArgs {
        HubArgs {
            hub_offline: false,
            hub_home: Some("/home".into()),
            hub_cache: None,
            hub_endpoint: None,
            revision: None,
            hub_token: None,
            download_dir: None,
        }
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let at = |change: fn(&mut HubArgs)| {
            let mut args = args();
            change(&mut args);
            args.cache_dir()
        };
        assert_eq!(at(|_| ()), PathBuf::from("/home/hub"));
        assert_eq!(at(|args| args.hub_cache = Some("/cache".into())), PathBuf::from("/cache"));
        assert_eq!(at(|args| args.hub_cache = Some("".into())), PathBuf::from("/home/hub"));
        let both =
            |args: &mut HubArgs| (args.hub_cache, args.download_dir) = (Some("/cache".into()), Some("/here".into()));
        assert_eq!(at(both), PathBuf::from("/here"));
        assert!(at(|args| args.hub_home = Some("".into())).ends_with("huggingface/hub"));
    }

    /// The directory of models has nothing to do with where the token is.
    #[test]
    fn the_token_that_was_stored_is_found_wherever_models_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let mut args = HubArgs { hub_home: Some(home.path().to_owned()), download_dir: Some("/here".into()), ..args() };
        assert_eq!(args.token(), None);
        fs::write(home.path().join("token"), "hf_stored\n").unwrap();
        for nothing in [None, Some(String::new())] {
            args.hub_token = nothing;
            assert_eq!(args.token().as_deref(), Some("hf_stored"));
        }
        for given in ["hf_given", "hf_given\n", " hf_given\r\n"] {
            args.hub_token = Some(given.to_owned());
            assert_eq!(args.token().as_deref(), Some("hf_given"));
        }
    }
}
