//! The minijinja environment: jinja2's sandbox as transformers sets it up, and nothing that is minijinja's own.

use indexmap::IndexMap;
use minijinja::value::{Kwargs, Rest};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, functions};

use super::error::Raised;
use super::{filters, methods, predicates, print, rewrite, value};

/// How many instructions one render may run, so that no template runs forever. A message takes some hundreds.
const FUEL: u64 = 50_000_000;

pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(false);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(print::format);
    environment.set_unknown_method_callback(methods::call);
    environment.set_fuel(Some(FUEL));
    filters::register(&mut environment);
    predicates::register(&mut environment);

    environment.add_function("range", functions::range);
    environment.add_function("dict", |entries: Option<Value>, named: Kwargs| dict(entries.as_ref(), &named));
    environment.add_function("namespace", |entries: Option<Value>, named: Kwargs| namespace(entries.as_ref(), &named));
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function(rewrite::LIST, |items: Rest<Value>| value::list(items.0));
    environment.add_function(rewrite::TUPLE, |items: Rest<Value>| value::tuple(items.0));
    environment.add_function(rewrite::DICT, |literal: &Value| pairs(Some(literal)).map(value::dict));
    environment
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = print::to_str(message)?;
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn dict(entries: Option<&Value>, named: &Kwargs) -> Result<Value, Error> {
    let mut dict = pairs(entries)?;
    for name in named.args() {
        dict.insert(Value::from(name), named.peek(name)?);
    }
    Ok(value::dict(dict))
}

// What Python's `dict` makes of its argument.
fn pairs(entries: Option<&Value>) -> Result<IndexMap<Value, Value>, Error> {
    let Some(entries) = entries else { return Ok(IndexMap::new()) };
    if let Some(entries) = value::entries(entries) {
        return Ok(entries.into_iter().collect());
    }
    let pairs = value::items(entries)?.into_iter().map(|pair| match &value::items(&pair)?[..] {
        [key, value] => Ok((key.clone(), value.clone())),
        _ => Err(value::error("a dict is made of pairs")),
    });
    pairs.collect()
}

fn namespace(entries: Option<&Value>, named: &Kwargs) -> Result<Value, Error> {
    let entries = dict(entries, named)?;
    let stored = value::items(&entries)?;
    if let Some(name) = stored.iter().find(|name| name.as_str().is_some_and(|name| name.starts_with('_'))) {
        return Err(value::error(format!("namespaces cannot store the underscore-prefixed attribute '{name}'")));
    }
    functions::namespace(Some(entries))
}
