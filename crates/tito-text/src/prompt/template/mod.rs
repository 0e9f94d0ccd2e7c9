//! Chat templates: jinja2 as transformers' `apply_chat_template` runs it, byte for byte, within bounds. The source is
//! cut into pieces (`scan`), read into a tree (`syntax`) and run (`render`); values, operators, filters, tests, methods
//! and printing are Python's. What a template may cost is in `bounds`: whatever it says, it neither takes the stack, nor
//! the memory, nor a processor for long.
//!
//! Known deviations, none met in the templates of released models:
//! - An error where jinja2 renders: filters that need HTML, word or locale tables; `str.format` and `%` on strings;
//!   named characters; `isdigit`, `isalnum`, `isalpha` of non-ASCII text; arithmetic beyond 128 bits; `autoescape`,
//!   `print` and template inheritance; keys of dicts that are tuples of tuples; printing functions, methods, macros,
//!   namespaces and loops; attributes of a namespace by a filter; a loop that is asked after its end.
//! - An error where jinja2 never looks: what lazy filters are given is iterated over at once.
//! - Text where jinja2 fails: a filter or test that no executed line uses need not exist; `loop` may be asked for
//!   attributes that it has not.
//! - Other text: what went through `safe` or `escape` is a plain string; views of dicts equal nothing.

mod arguments;
mod bounds;
mod content_format;
mod error;
mod filters;
mod globals;
mod key;
mod literal;
mod lookups;
mod methods;
mod numbers;
mod operators;
mod predicates;
mod print;
mod render;
mod scan;
mod slice;
mod strftime;
mod syntax;
mod text;
mod tokens;
mod value;

use std::sync::OnceLock;

use indexmap::IndexMap;
use time::OffsetDateTime;

use crate::json::{self, Members};

pub use bounds::Patience;
pub use content_format::ContentFormat;
#[cfg(any(test, feature = "internals"))]
pub use error::Limit;
pub use error::TemplateError;
pub(super) use text::{strip_spaces, strip_spaces_at_end};

use bounds::Metered;
use value::Value;

/// A compiled chat template with the special tokens it may print.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    statements: syntax::Block,
    special_tokens: Members<Value>,
    content_format: ContentFormat,
    /// What the operator says instead of the template.
    given_format: Option<ContentFormat>,
    /// Which parts of a conversation it shows, once that was asked.
    shows: [OnceLock<bool>; 3],
}

impl ChatTemplate {
    /// Compiles a template; special tokens are variables by their names, as in `bos_token`.
    pub fn new(source: &str, special_tokens: IndexMap<String, String>) -> Result<Self, TemplateError> {
        let special_tokens = special_tokens.into_iter().map(|(name, token)| (name, Value::from(token))).collect();
        Self::compile(source, special_tokens)
    }

    /// Compiles another template with the same special tokens.
    pub fn with_source(&self, source: &str) -> Result<Self, TemplateError> {
        let other = Self::compile(source, self.special_tokens.clone())?;
        Ok(other.with_content_format(self.given_format))
    }

    fn compile(source: &str, special_tokens: Members<Value>) -> Result<Self, TemplateError> {
        if source.len() > bounds::MAX_SOURCE {
            let (length, most) = (source.len(), bounds::MAX_SOURCE);
            let message = format!("the template has {length} bytes, and {most} are the most that are read");
            return Err(TemplateError::Syntax { message, line: 1 });
        }
        let _metered = Metered::reading();
        let normalised = source.replace("\r\n", "\n").replace('\r', "\n");
        let scanned = scan::scan(&normalised)?;
        let statements = syntax::parse(&normalised, &scanned)?;
        let content_format = content_format::detect(&scanned.tags)?;
        let (source, shows) = (source.to_owned(), Default::default());
        Ok(Self { source, statements, special_tokens, content_format, given_format: None, shows })
    }

    /// Takes a message's content for what the operator says, whatever the template looks like.
    #[must_use]
    pub fn with_content_format(mut self, format: Option<ContentFormat>) -> Self {
        self.content_format = format.unwrap_or(self.content_format);
        self.given_format = format;
        self
    }

    /// Whether it shows the part of a conversation that has this number, which `asked` finds out the first time.
    pub(super) fn known_to_show(&self, part: usize, asked: impl FnOnce() -> bool) -> bool {
        *self.shows[part].get_or_init(asked)
    }

    /// Returns the source as given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns what the template expects a message's content to be.
    pub fn content_format(&self) -> ContentFormat {
        self.content_format
    }

    /// Renders with the given variables, which take precedence over special tokens of the same name. `strftime_now`
    /// reads `now`, so that all renders of one request agree; a render ends with an error when `patience` does.
    pub fn render(
        &self,
        variables: impl IntoIterator<Item = (impl AsRef<str>, impl Into<Variable>)>,
        now: OffsetDateTime,
        patience: &Patience,
    ) -> Result<String, TemplateError> {
        let given = variables.into_iter().map(|(name, value)| (name.as_ref().to_owned(), value.into().0));
        let variables: Members<Value> = given.collect();
        let context = render::Context { variables: &variables, special_tokens: &self.special_tokens, now };
        let _metered = Metered::rendering(patience);
        let rendered = render::render(&self.statements, &context);
        debug_assert_eq!(bounds::held_bytes(), 0, "a render leaves nothing behind");
        Ok(rendered?)
    }
}

/// A value as templates see it. Clones share what they hold, so that several renders cost one conversion.
#[derive(Clone, Debug)]
pub struct Variable(Value);

impl Variable {
    /// A list of other values.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self(value::list(items.into_iter().map(|item| item.0).collect()))
    }
}

impl From<&json::Value> for Variable {
    fn from(value: &json::Value) -> Self {
        Self(value::from_json(value))
    }
}

impl From<&json::Object> for Variable {
    fn from(object: &json::Object) -> Self {
        Self(value::from_object(object))
    }
}

#[cfg(test)]
mod tests;
