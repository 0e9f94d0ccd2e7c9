//! Adapters that a request finds by their name alone: directories of one directory.
//!
//! Follows `vllm/plugins/lora_resolvers/filesystem_resolver.py` of vLLM 0.33. Unlike vLLM's, a name is one of a directory
//! right there: nothing that a client sends leads elsewhere.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::{AdapterError, place};
use crate::{
    files::Directory,
    weights::peft::{PeftAdapter, PeftError, PeftOrigin},
};

/// The method that an adapter has to name, as PEFT spells it.
const LORA: &str = "LORA";

/// A directory with a directory for each adapter, whose name is the adapter's.
#[derive(Debug, Clone)]
pub struct AdapterDirectory {
    root: PathBuf,
    base_model: String,
}

/// An adapter that was found, and is not read yet.
#[derive(Debug, Clone)]
pub struct Found {
    path: PathBuf,
    directory: Directory,
}

impl Found {
    /// Where it lies, without links being followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, none of which leads out of the directory of all adapters.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }
}

impl AdapterDirectory {
    /// Finds adapters in `root` that say they were trained on `base_model`.
    pub fn new(root: PathBuf, base_model: String) -> Self {
        Self { root, base_model }
    }

    /// Looks for an adapter of the served model by its name.
    ///
    /// # Errors
    ///
    /// If there is one that does not say what it is.
    pub fn find(&self, name: &str) -> Result<Option<Found>, AdapterError> {
        if !is_name(name) {
            return Ok(None);
        }
        let within = Directory::within(&self.root, Path::new(name));
        let Some(directory) = within.ok().filter(|directory| directory.path().is_dir()) else { return Ok(None) };
        let path = self.root.join(name);
        match PeftAdapter::origin(&directory) {
            Ok(origin) if self.serves(name, &origin) => Ok(Some(Found { path, directory })),
            Ok(_) | Err(PeftError::NotFound(_)) => Ok(None),
            // Such is a link that leads out, too.
            Err(PeftError::Read { source, .. }) if source.kind() == ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(AdapterError::Unusable(error.to_string())),
        }
    }

    /// The name exists here, so the operator learns why it is not served.
    fn serves(&self, name: &str, PeftOrigin { peft_type, base_model }: &PeftOrigin) -> bool {
        let fits = peft_type == LORA && base_model.as_deref() == Some(&self.base_model);
        if !fits {
            let served = &self.base_model;
            tracing::warn!(
                name,
                peft_type,
                base_model,
                served,
                "an adapter was found by its name, and is of another model"
            );
        }
        fits
    }
}

/// Whether it names something right in a directory, and nothing that is hidden there.
fn is_name(name: &str) -> bool {
    place::check_name(name).is_ok() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn write(directory: &Path, settings: &str) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("adapter_config.json"), settings).unwrap();
    }

    fn settings(peft_type: &str, base: &str) -> String {
        format!(r#"{{"peft_type": "{peft_type}", "base_model_name_or_path": "{base}"}}"#)
    }

    #[test]
    fn adapters_of_the_model_are_found_and_nothing_else_is() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        let ours = settings(LORA, "org/model");
        for directory in
            [root.join("policy"), root.join("deep/policy"), root.join(".hidden"), outer.path().join("away")]
        {
            write(&directory, &ours);
        }
        write(&root.join("other"), &settings(LORA, "org/another"));
        write(&root.join("method"), &settings("IA3", "org/model"));
        fs::create_dir_all(root.join("empty")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink(root.join("policy"), root.join("inside")).unwrap();
        symlink(outer.path().join("away"), root.join("outside")).unwrap();
        fs::create_dir_all(root.join("linked")).unwrap();
        symlink(outer.path().join("away/adapter_config.json"), root.join("linked/adapter_config.json")).unwrap();
        let adapters = AdapterDirectory::new(root.clone(), "org/model".to_owned());
        let found = |name: &str| adapters.find(name).unwrap().map(|found| found.path);
        for name in ["policy", "inside"] {
            assert_eq!(found(name), Some(root.join(name)));
        }
        let absolute = root.join("policy").display().to_string();
        let long = "a".repeat(400);
        for name in [
            "",
            ".",
            "..",
            "../away",
            "deep/policy",
            "./policy",
            "policy/",
            ".hidden",
            "policy\0",
            "poli\ncy",
            "deep\\policy",
            "none",
            "other",
            "method",
            "empty",
            "file",
            "outside",
            "linked",
            &absolute,
            &long,
        ] {
            assert_eq!(found(name), None, "{name:?}");
        }
        // What is there, and does not say what it is, is not passed over.
        for settings in ["{", "{}", "[]"] {
            write(&root.join("policy"), settings);
            assert!(matches!(adapters.find("policy"), Err(AdapterError::Unusable(_))), "{settings}");
        }
    }
}
