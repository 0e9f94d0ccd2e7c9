//! The chat templates that a model comes with.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    ModelError, json,
    processor_files::{IMAGE_PROCESSOR_CONFIG, PROCESSOR_CONFIG},
};

/// The name of the template that is used unless another is asked for.
const DEFAULT: &str = "default";

/// The name of the template for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// The key of a template in the files that have others, too.
const KEY: &str = "chat_template";

/// Chat templates by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatTemplates {
    by_name: IndexMap<String, Source>,
}

/// A template and the file that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    text: String,
    path: PathBuf,
}

/// What `chat_template` may be in `tokenizer_config.json`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Declared {
    One(String),
    Listed(Vec<Named>),
    Mapped(IndexMap<String, String>),
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl ChatTemplates {
    /// Returns the template that Transformers would choose: `tool_use` if there are tools, else the default one.
    pub fn select(&self, with_tools: bool) -> Option<&str> {
        let tool_use = if with_tools { self.get(TOOL_USE) } else { None };
        tool_use.or_else(|| self.get(DEFAULT))
    }

    /// Returns a template by its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|source| source.text.as_str())
    }

    /// Returns the file that a template stands in.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.by_name.get(name).map(|source| source.path.as_path())
    }

    /// Returns the names of all templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Reads `chat_template` of `tokenizer_config.json`; `path` is the file's.
    pub(super) fn parse(declared: &Value, path: &Path) -> Result<Self, ModelError> {
        let by_name: IndexMap<String, String> = match json::value(declared, KEY, path)? {
            Declared::One(template) => IndexMap::from([(DEFAULT.to_owned(), template)]),
            Declared::Listed(templates) => templates.into_iter().map(|named| (named.name, named.template)).collect(),
            Declared::Mapped(templates) => templates,
        };
        let sources = by_name.into_iter().map(|(name, text)| (name, Source { text, path: path.to_owned() }));
        Ok(Self { by_name: sources.collect() })
    }

    /// Reads the template files of a directory, `None` if it has none.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, ModelError> {
        let mut by_name = IndexMap::new();
        let path = directory.join("chat_template.jinja");
        if let Some(text) = json::read_text(&path)? {
            by_name.insert(DEFAULT.to_owned(), Source { text, path });
        }
        let additional = directory.join("additional_chat_templates");
        let failed = |source| ModelError::Read { path: additional.clone(), source };
        let entries = match std::fs::read_dir(&additional) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(failed)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
        paths.sort_unstable();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "jinja")) {
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            by_name.extend(json::read_text(path)?.map(|text| (name.to_owned(), Source { text, path: path.clone() })));
        }
        Ok(if by_name.is_empty() { None } else { Some(Self { by_name }) })
    }

    /// Reads the templates of the processor of a directory that has one: of `processor_config.json`, or else of
    /// `chat_template.json`. Its template files are those of the tokenizer.
    pub(super) fn of_processor(directory: &Path) -> Result<Option<Self>, ModelError> {
        let path = directory.join(PROCESSOR_CONFIG);
        let config = json::read_object(&path)?;
        if config.is_none() && json::read_object(&directory.join(IMAGE_PROCESSOR_CONFIG))?.is_none() {
            return Ok(None);
        }
        let said = |object: Option<&Map<String, Value>>, path: &Path| {
            let template = object.and_then(|object| object.get(KEY)).filter(|template| !template.is_null());
            template.map(|template| Self::parse(template, path)).transpose()
        };
        if let Some(own) = said(config.as_ref(), &path)? {
            return Ok(Some(own));
        }
        let path = directory.join("chat_template.json");
        said(json::read_object(&path)?.as_ref(), &path)
    }

    /// Puts the template of a processor before these, as vLLM does: conversations without tools have it, and those with tools
    /// have the tokenizer's, if there is one.
    pub(super) fn put_before(&mut self, mut of_processor: Self) {
        let Some(before) = of_processor.by_name.swap_remove(DEFAULT) else { return };
        match self.by_name.get(DEFAULT) {
            Some(after) if after.text == before.text => return,
            Some(after) => {
                let after = after.clone();
                self.by_name.entry(TOOL_USE.to_owned()).or_insert(after);
            }
            None => {}
        }
        self.by_name.insert(DEFAULT.to_owned(), before);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_several_and_mapped_templates_are_understood() {
        let parse = |value: Value| ChatTemplates::parse(&value, Path::new("tokenizer_config.json")).unwrap();
        assert_eq!(parse(json!("D")).select(true), Some("D"));
        let listed = json!([{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]);
        let mapped = json!({"default": "D", "tool_use": "T"});
        assert_eq!(parse(listed.clone()), parse(mapped));
        assert_eq!((parse(listed.clone()).select(true), parse(listed).select(false)), (Some("T"), Some("D")));
        assert_eq!(parse(json!([{"name": "rag", "template": "R"}])).select(false), None);
    }

    #[test]
    fn template_files_are_named_after_themselves() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ChatTemplates::read(dir.path()).unwrap(), None);
        std::fs::create_dir(dir.path().join("additional_chat_templates")).unwrap();
        std::fs::write(dir.path().join("additional_chat_templates/rag.jinja"), "R").unwrap();
        std::fs::write(dir.path().join("chat_template.jinja"), "D").unwrap();
        let templates = ChatTemplates::read(dir.path()).unwrap().unwrap();
        assert_eq!(templates.names().collect::<Vec<_>>(), ["default", "rag"]);
        assert_eq!(templates.get("rag"), Some("R"));
    }
}
