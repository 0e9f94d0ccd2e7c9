//! Python's values as templates see them, and the way there from JSON and back.
//!
//! Values never refer to what a render changes (scopes, namespaces, loops): they hold the place of it in the render's
//! tables. So no value can contain itself, and all are gone with the render.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use indexmap::IndexMap;
use parking_lot::Mutex;

use super::bounds::{self, Charge};
use super::error::Error;
use crate::json::{self, KeyedHash};

/// The methods of a dict; each hides a key of its name from attribute access.
pub(super) const DICT_METHODS: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

/// What an item of a list, or an entry of a dict, takes at least.
const ITEM: usize = size_of::<Value>();

/// A value. Clones share what they hold.
#[derive(Clone, Debug, Default)]
pub(super) enum Value {
    #[default]
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    /// An integer beyond 128 bits: it can be printed and written as JSON, but not calculated with.
    Big(Arc<json::Integer>),
    Float(f64),
    String(Arc<Text>),
    Sequence(Arc<Sequence>),
    Dict(Arc<Dict>),
    /// What Python's lazy filters return: always true, without length, without subscripts, and used up by one run.
    Generator(Arc<Generator>),
    Function(Function),
    /// A method that is not called.
    Method(Arc<Method>),
    Cycler(Arc<Cycler>),
    Joiner(Arc<Joiner>),
    /// A macro, by its place among the macros of the render.
    Macro(usize),
    /// A namespace, by its place among the namespaces of the render.
    Namespace(usize),
    /// A loop, by its number among the loops of the render.
    Loop(usize),
}

#[derive(Debug)]
pub(super) struct Text {
    text: String,
    _charge: Charge,
}

/// A Python list or tuple, or a view of a dict.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) items: Vec<Value>,
    pub(super) kind: SequenceKind,
    depth: usize,
    _charge: Charge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceKind {
    List,
    Tuple,
    /// A view, by the name of its type: it has a length, but no subscripts.
    View(&'static str),
    /// A range, by its start, end and step.
    Range(i64, i64, i64),
}

/// A value that can be a key of a dict; `key` says which of them are equal.
#[derive(Clone, Debug)]
pub(super) struct Key(Value);

/// The entries of a dict, in order.
pub(super) type Entries = IndexMap<Key, Value, KeyedHash>;

/// A Python dict.
#[derive(Debug)]
pub(super) struct Dict {
    pub(super) entries: Entries,
    depth: usize,
    _charge: Charge,
}

#[derive(Debug)]
pub(super) struct Generator {
    items: Mutex<Vec<Value>>,
    depth: usize,
    _charge: Charge,
}

#[derive(Debug)]
pub(super) struct Method {
    pub(super) receiver: Value,
    pub(super) name: Box<str>,
    _charge: Charge,
}

#[derive(Debug)]
pub(super) struct Cycler {
    pub(super) items: Vec<Value>,
    pub(super) at: AtomicUsize,
    _charge: Charge,
}

#[derive(Debug)]
pub(super) struct Joiner {
    pub(super) separator: Value,
    pub(super) is_used: std::sync::atomic::AtomicBool,
}

/// A function that every template may call; `globals` says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
}

/// What a value is, where the differences within do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Undefined,
    None,
    Bool,
    Number,
    String,
    Seq,
    Iterable,
    Map,
    Plain,
}

impl Value {
    pub(super) const UNDEFINED: Self = Self::Undefined;

    pub(super) fn kind(&self) -> ValueKind {
        match self {
            Self::Undefined => ValueKind::Undefined,
            Self::None => ValueKind::None,
            Self::Bool(_) => ValueKind::Bool,
            Self::Int(_) | Self::Float(_) => ValueKind::Number,
            Self::String(_) => ValueKind::String,
            Self::Sequence(_) => ValueKind::Seq,
            Self::Dict(_) => ValueKind::Map,
            Self::Generator(_) => ValueKind::Iterable,
            _ => ValueKind::Plain,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined)
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined | Self::None => false,
            Self::Bool(flag) => *flag,
            Self::Int(integer) => *integer != 0,
            Self::Float(float) => *float != 0.0,
            Self::String(text) => !text.text.is_empty(),
            Self::Sequence(sequence) => !sequence.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            _ => true,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(&text.text),
            _ => None,
        }
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        as_integer(self).and_then(|integer| i64::try_from(integer).ok())
    }

    /// How many lists and dicts are nested in it, itself included.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Sequence(sequence) => sequence.depth,
            Self::Dict(dict) => dict.depth,
            Self::Generator(generator) => generator.depth,
            Self::Method(method) => 1 + method.receiver.depth(),
            Self::Cycler(cycler) => 1 + deepest(&cycler.items),
            Self::Joiner(joiner) => 1 + joiner.separator.depth(),
            _ => 0,
        }
    }

    /// How many bytes there are to look through in it alone, without what it contains.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.text.len(),
            Self::Sequence(sequence) => sequence.items.len() * ITEM,
            Self::Dict(dict) => dict.entries.len() * 2 * ITEM,
            _ => 0,
        }
    }
}

fn deepest<'v>(items: impl IntoIterator<Item = &'v Value>) -> usize {
    items.into_iter().map(Value::depth).max().unwrap_or(0)
}

impl Key {
    /// Takes a value that Python hashes. A tuple may not contain another one, so that hashing takes no longer than the
    /// tuple is long.
    pub(super) fn new(value: Value) -> Result<Self, Error> {
        let is_plain = |value: &Value| !matches!(value, Value::Sequence(_) | Value::Dict(_));
        let is_hashable = match &value {
            Value::Sequence(tuple) if tuple.kind == SequenceKind::Tuple => tuple.items.iter().all(is_plain),
            value => is_plain(value),
        };
        if is_hashable { Ok(Self(value)) } else { Err(error(format!("unhashable type: '{}'", type_name(&value)))) }
    }

    pub(super) fn value(&self) -> &Value {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(Value::from(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        let charge = Charge::new(size_of::<Text>() + text.capacity());
        Self::String(Arc::new(Text { text, _charge: charge }))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i128> for Value {
    fn from(integer: i128) -> Self {
        Self::Int(integer)
    }
}

impl From<i64> for Value {
    fn from(integer: i64) -> Self {
        Self::Int(integer.into())
    }
}

impl From<usize> for Value {
    fn from(integer: usize) -> Self {
        Self::Int(integer as i128)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

fn sequence(items: Vec<Value>, kind: SequenceKind) -> Value {
    let charge = Charge::new(size_of::<Sequence>() + items.capacity() * ITEM);
    Value::Sequence(Arc::new(Sequence { depth: 1 + deepest(&items), items, kind, _charge: charge }))
}

/// Returns a Python list.
pub(super) fn list(items: Vec<Value>) -> Value {
    sequence(items, SequenceKind::List)
}

/// Returns a Python tuple.
pub(super) fn tuple(items: Vec<Value>) -> Value {
    sequence(items, SequenceKind::Tuple)
}

/// Returns a view of a dict.
pub(super) fn view(type_name: &'static str, items: Vec<Value>) -> Value {
    sequence(items, SequenceKind::View(type_name))
}

/// Returns a Python range of the numbers from `start` up to `end`.
pub(super) fn range(numbers: Vec<Value>, [start, end, step]: [i64; 3]) -> Value {
    sequence(numbers, SequenceKind::Range(start, end, step))
}

/// Returns a Python dict.
pub(super) fn dict(entries: Entries) -> Value {
    // An entry of the map has a hash and a place in its index besides.
    let charge = Charge::new(size_of::<Dict>() + entries.capacity() * (2 * ITEM + 24));
    let depth = 1 + deepest(entries.keys().map(Key::value)).max(deepest(entries.values()));
    Value::Dict(Arc::new(Dict { entries, depth, _charge: charge }))
}

/// Returns a Python generator.
pub(super) fn generator(items: Vec<Value>) -> Value {
    let charge = Charge::new(size_of::<Generator>() + items.capacity() * ITEM);
    let depth = 1 + deepest(&items);
    Value::Generator(Arc::new(Generator { items: Mutex::new(items), depth, _charge: charge }))
}

/// Returns a method of a value, not called yet.
pub(super) fn method(receiver: &Value, name: &str) -> Value {
    let charge = Charge::new(size_of::<Method>() + name.len());
    Value::Method(Arc::new(Method { receiver: receiver.clone(), name: name.into(), _charge: charge }))
}

/// Returns what `cycler` makes.
pub(super) fn cycler(items: Vec<Value>) -> Value {
    let charge = Charge::new(size_of::<Cycler>() + items.capacity() * ITEM);
    Value::Cycler(Arc::new(Cycler { items, at: AtomicUsize::new(0), _charge: charge }))
}

/// Returns an error with a message of its own.
pub(super) fn error(message: impl Into<String>) -> Error {
    Error::new(message)
}

/// Returns the items that Python would iterate over, and counts the steps.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Error> {
    bounds::look_through(value.size())?;
    match value {
        Value::Undefined => Ok(Vec::new()),
        Value::Sequence(sequence) => {
            bounds::reserve(value.size())?;
            Ok(sequence.items.clone())
        }
        Value::Dict(dict) => {
            bounds::reserve(value.size())?;
            Ok(dict.entries.keys().map(|key| key.value().clone()).collect())
        }
        Value::Generator(generator) => Ok(std::mem::take(&mut *generator.items.lock())),
        Value::String(text) => {
            // Each character becomes a string of its own.
            bounds::reserve(text.text.chars().count().saturating_mul(ITEM + size_of::<Text>() + 16))?;
            Ok(text.text.chars().map(|c| Value::from(String::from(c))).collect())
        }
        _ => Err(error(format!("'{}' object is not iterable", type_name(value)))),
    }
}

/// Returns the float a value holds; none for every other type.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(float) => Some(*float),
        _ => None,
    }
}

/// Returns the integer a value holds, a boolean being one; none for every other type.
pub(super) fn as_integer(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(flag) => Some(i128::from(*flag)),
        Value::Int(integer) => Some(*integer),
        _ => None,
    }
}

/// Returns the number that a value holds as a float, rounded to the nearest.
pub(super) fn to_float(value: &Value) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "Python's float() rounds to nearest too")]
    as_float(value).or_else(|| as_integer(value).map(|integer| integer as f64))
}

/// Returns what Python calls a value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Undefined => "Undefined",
        Value::None => "NoneType",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Big(_) => "int",
        Value::Float(_) => "float",
        Value::String(_) => "str",
        Value::Dict(_) => "dict",
        Value::Generator(_) => "generator",
        Value::Sequence(sequence) => match sequence.kind {
            SequenceKind::List => "list",
            SequenceKind::Tuple => "tuple",
            SequenceKind::View(name) => name,
            SequenceKind::Range(..) => "range",
        },
        Value::Function(_) => "function",
        Value::Method(_) => "builtin_function_or_method",
        Value::Cycler(_) => "Cycler",
        Value::Joiner(_) => "Joiner",
        Value::Macro(_) => "Macro",
        Value::Namespace(_) => "Namespace",
        Value::Loop(_) => "LoopContext",
    }
}

/// Whether a value is an integer beyond 128 bits.
pub(super) fn is_big(value: &Value) -> bool {
    matches!(value, Value::Big(_))
}

/// Whether a value is a list or a tuple.
pub(super) fn is_list_or_tuple(value: &Value) -> bool {
    matches!(value, Value::Sequence(sequence) if matches!(sequence.kind, SequenceKind::List | SequenceKind::Tuple))
}

/// Whether a value is a view of a dict.
pub(super) fn is_view(value: &Value) -> bool {
    matches!(value, Value::Sequence(sequence) if matches!(sequence.kind, SequenceKind::View(_)))
}

/// Whether a value is what a lazy filter returned.
pub(super) fn is_generator(value: &Value) -> bool {
    matches!(value, Value::Generator(_))
}

/// Returns the value as a template sees it.
pub(super) fn from_json(value: &json::Value) -> Value {
    match value {
        json::Value::Null => Value::None,
        json::Value::Bool(flag) => Value::Bool(*flag),
        json::Value::Int(integer) => {
            integer.to_i128().map_or_else(|| Value::Big(Arc::new(integer.clone())), Value::Int)
        }
        json::Value::Float(float) => Value::Float(*float),
        json::Value::Literal(text) => json::Value::parse(text).map_or(Value::None, |number| from_json(&number)),
        json::Value::String(text) => Value::from(text.as_str()),
        json::Value::Array(values) => list(values.iter().map(from_json).collect()),
        json::Value::Object(object) => from_object(object),
    }
}

/// Returns the object as a template sees it.
pub(super) fn from_object(object: &json::Object) -> Value {
    dict(object.iter().map(|(key, value)| (Key::from(key.as_str()), from_json(value))).collect())
}
