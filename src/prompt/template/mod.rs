//! Chat templates: jinja2 as transformers' `apply_chat_template` runs it, byte for byte, on minijinja. The source is
//! respelled where minijinja reads it differently (`rewrite`), and filters, tests, methods and printing are Python's.
//!
//! Known deviations, none met in the templates of released models:
//! - An error where jinja2 renders: filters that need HTML, word or locale tables; `str.format` and `%` on strings;
//!   named characters; `isdigit`, `isalnum`, `isalpha` of non-ASCII text; arithmetic beyond 128 bits; `autoescape`,
//!   `print` and template inheritance; `varargs` and `kwargs` of macros; the address of a function or method.
//! - Text where jinja2 fails: `<` and its kin order unlike types and undefined values; `in` on a string takes what is
//!   no string for its text; division by zero is infinite; a filter that no executed line uses need not exist.
//! - Other text: `//` and `%` of negative divisors round as Euclid did; joined by `~`, floats from 1e16 or below 1e-4
//!   print in full and sums of lists print with double quotes; a range prints as a list; what went through `safe` or
//!   `escape` is a plain string; the separators U+001C to U+001F are not stripped by `-%}`.

mod arguments;
mod content_format;
mod environment;
mod error;
mod filters;
mod literal;
mod methods;
mod predicates;
mod print;
mod rewrite;
mod scan;
mod slice;
mod strftime;
mod text;
mod tokens;
mod value;

use indexmap::IndexMap;
use minijinja::{Environment, Value};
use time::OffsetDateTime;

use crate::json;

pub use content_format::ContentFormat;
pub use error::TemplateError;
pub(super) use text::{strip_spaces, strip_spaces_at_end};

const NAME: &str = "chat_template";

/// A compiled chat template with the special tokens it may print.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
    special_tokens: IndexMap<String, Value>,
    content_format: ContentFormat,
    /// What the operator says instead of the template.
    given_format: Option<ContentFormat>,
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

    fn compile(source: &str, special_tokens: IndexMap<String, Value>) -> Result<Self, TemplateError> {
        let normalised = source.replace("\r\n", "\n").replace('\r', "\n");
        let tags = scan::scan(&normalised)?;
        let rewritten = rewrite::rewrite(&normalised, &tags)?;
        let content_format = content_format::detect(&tags);

        let mut environment = environment::environment();
        environment.add_template_owned(NAME, rewritten).map_err(|error| TemplateError::from_compiling(&error))?;
        Ok(Self { source: source.to_owned(), environment, special_tokens, content_format, given_format: None })
    }

    /// Takes a message's content for what the operator says, whatever the template looks like.
    #[must_use]
    pub fn with_content_format(mut self, format: Option<ContentFormat>) -> Self {
        self.content_format = format.unwrap_or(self.content_format);
        self.given_format = format;
        self
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
    /// reads `now`, so that all renders of one request agree.
    pub fn render(
        &self,
        variables: impl IntoIterator<Item = (impl AsRef<str>, impl Into<Variable>)>,
        now: OffsetDateTime,
    ) -> Result<String, TemplateError> {
        let strftime_now =
            Value::from_function(move |format: &str| strftime::strftime(now, format).map_err(value::error));
        let given = variables.into_iter().map(|(name, value)| (Value::from(name.as_ref()), value.into().0));
        let variables = [(Value::from("strftime_now"), strftime_now)]
            .into_iter()
            .chain(self.special_tokens.iter().map(|(name, token)| (Value::from(name.as_str()), token.clone())))
            .chain(given);
        let render = || self.environment.get_template(NAME)?.render(variables.collect::<Value>());
        render().map_err(|error| TemplateError::from_rendering(&error))
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
