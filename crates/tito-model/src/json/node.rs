//! A document that points into its own text: what a request's checks look at before any of it is copied.
//!
//! Lists of token ids are most of a long request, so they are recognised and passed over, and read again only where
//! someone wants to see an item.

use std::{borrow::Cow, fmt::Write as _};

use super::{
    Integer, Members, ParseError, float_repr, ids, member,
    parse::{Oddities, parse, parse_noting},
    string_repr,
    tree::Tree,
};

/// A value, and how it was written.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// The value's own text; empty for one that no client sent, which no reader sees.
    pub text: &'a str,
    /// What it is.
    pub kind: NodeKind<'a>,
}

/// What a value is.
#[derive(Debug, Clone)]
pub enum NodeKind<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without fraction and exponent.
    Int(Integer),
    /// Any other number.
    Float(f64),
    /// A string.
    String(Cow<'a, str>),
    /// A list.
    List(Items<'a>),
    /// An object: keys in order of first appearance, the last value of each.
    Object(Members<Node<'a>>),
}

/// The items of a list.
#[derive(Debug, Clone)]
pub enum Items<'a> {
    /// Non-negative integers below 10^18, in the text between the brackets, and how many.
    Ids(&'a str, usize),
    /// Anything.
    Nodes(Vec<Node<'a>>),
}

/// A whole text, and what a strict reader would stumble over.
#[derive(Debug)]
pub struct Document<'a> {
    /// The value.
    pub root: Node<'a>,
    oddities: Oddities,
}

impl<'a> Document<'a> {
    /// Reads a text as Python's `json.loads` does.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        let (root, oddities) = parse_noting(text)?;
        Ok(Self { root, oddities })
    }

    /// Whether an object has a key twice; Python takes the last, serde refuses.
    pub fn repeats_keys(&self) -> bool {
        self.oddities.repeated_keys
    }

    /// Where in the text `NaN` and `Infinity` stand.
    pub fn not_finite(&self) -> &[usize] {
        &self.oddities.not_finite
    }
}

impl<'a> Node<'a> {
    /// The value under a key; none if there is none, or this is no object.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        match &self.kind {
            NodeKind::Object(entries) => member(entries, key),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    /// Whether Python takes it for true.
    pub fn is_truthy(&self) -> bool {
        match &self.kind {
            NodeKind::Null => false,
            NodeKind::Bool(value) => *value,
            NodeKind::Int(value) => value.to_i128() != Some(0),
            NodeKind::Float(value) => *value != 0.0,
            NodeKind::String(text) => !text.is_empty(),
            NodeKind::List(items) => !items.is_empty(),
            NodeKind::Object(entries) => !entries.is_empty(),
        }
    }

    /// Python's name of its type.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "NoneType",
            NodeKind::Bool(_) => "bool",
            NodeKind::Int(_) => "int",
            NodeKind::Float(_) => "float",
            NodeKind::String(_) => "str",
            NodeKind::List(_) => "list",
            NodeKind::Object(_) => "dict",
        }
    }

    /// Python's `str` of it.
    pub fn python_str(&self) -> String {
        self.as_str().map_or_else(|| self.python_repr(), str::to_owned)
    }

    /// Python's `repr` of it.
    pub fn python_repr(&self) -> String {
        match &self.kind {
            NodeKind::Null => "None".to_owned(),
            NodeKind::Bool(true) => "True".to_owned(),
            NodeKind::Bool(false) => "False".to_owned(),
            NodeKind::Int(value) => value.to_string(),
            NodeKind::Float(value) => float_repr(*value),
            NodeKind::String(text) => string_repr(text),
            NodeKind::List(items) => {
                let items: Vec<String> = items.nodes().map(|item| item.python_repr()).collect();
                format!("[{}]", items.join(", "))
            }
            NodeKind::Object(entries) => {
                let entry =
                    |(key, value): (&String, &Node<'_>)| format!("{}: {}", string_repr(key), value.python_repr());
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The text again, each key of an object once.
    pub fn without_repeats(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        match &self.kind {
            NodeKind::Object(entries) => {
                let mut before = '{';
                for (key, value) in entries {
                    let key = serde_json::Value::from(key.as_str());
                    write!(out, "{before}{key}:").expect("a string takes any text");
                    value.write(out);
                    before = ',';
                }
                out.push_str(if entries.is_empty() { "{}" } else { "}" });
            }
            NodeKind::List(Items::Nodes(items)) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            _ => out.push_str(self.text),
        }
    }
}

impl<'a> Items<'a> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Ids(_, count) => *count,
            Self::Nodes(nodes) => nodes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items; those that were passed over are read.
    pub fn nodes(&self) -> Box<dyn Iterator<Item = Cow<'_, Node<'a>>> + '_> {
        match self {
            Self::Nodes(nodes) => Box::new(nodes.iter().map(Cow::Borrowed)),
            Self::Ids(text, _) => {
                Box::new(text.split(',').filter_map(|id| parse(id.trim_ascii()).ok()).map(Cow::Owned))
            }
        }
    }
}

impl<'a> Tree<'a> for Node<'a> {
    fn word(value: Option<bool>, text: &'a str) -> Self {
        Self { text, kind: value.map_or(NodeKind::Null, NodeKind::Bool) }
    }

    fn integer(text: &'a str) -> Option<Self> {
        Some(Self { text, kind: NodeKind::Int(Integer::from_decimal(text)?) })
    }

    fn float(value: f64, text: &'a str) -> Self {
        Self { text, kind: NodeKind::Float(value) }
    }

    fn string(value: Cow<'a, str>, text: &'a str) -> Self {
        Self { text, kind: NodeKind::String(value) }
    }

    fn array(items: Vec<Self>, text: &'a str) -> Self {
        Self { text, kind: NodeKind::List(Items::Nodes(items)) }
    }

    fn object(entries: Members<Self>, text: &'a str) -> Self {
        Self { text, kind: NodeKind::Object(entries) }
    }

    fn whole_list(text: &'a str) -> Option<(Self, usize)> {
        let (length, count) = ids::list_at_start(text.as_bytes())?;
        let ids = Items::Ids(&text[1..length - 1], count);
        Some((Self { text: &text[..length], kind: NodeKind::List(ids) }, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Option<usize> {
        match Document::parse(text).unwrap().root.kind {
            NodeKind::List(Items::Ids(_, count)) => Some(count),
            _ => None,
        }
    }

    #[test]
    fn lists_of_ids_are_passed_over_and_others_are_not() {
        for (text, count) in [("[1]", 1), ("[ 1 ,23,\n 456 ]", 3), ("[123456789012345678, 0]", 2), ("[12345678,1]", 2)]
        {
            assert_eq!(ids(text), Some(count), "{text}");
        }
        for text in ["[]", "[-1]", "[1.0]", "[1,\"2\"]", "[1234567890123456789]", "[[1]]", "[1,null]"] {
            assert_eq!(ids(text), None, "{text}");
        }
        for text in ["[01]", "[1,]", "[1 2]", "[1", "[,1]"] {
            assert!(Document::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn items_are_read_on_demand() {
        let document = Document::parse("[7, 89 ]").unwrap();
        let NodeKind::List(items) = &document.root.kind else { unreachable!() };
        let texts: Vec<_> = items.nodes().map(|item| item.text.to_owned()).collect();
        assert_eq!(texts, ["7", "89"]);
    }

    #[test]
    fn repeats_are_noticed_and_the_last_value_stays_in_the_first_place() {
        let document = Document::parse(r#"{"a": {"x":1}, "b\n": [2, {}], "a": {"y": "\u00e9", "y": NaN}}"#).unwrap();
        assert!(document.repeats_keys());
        assert_eq!(document.not_finite().len(), 1);
        assert_eq!(document.root.without_repeats(), r#"{"a":{"y":NaN},"b\n":[2,{}]}"#);
        assert!(!Document::parse(r#"{"a":{"b":1},"b":1}"#).unwrap().repeats_keys());
    }

    #[test]
    fn values_are_written_as_python_prints_them() {
        let document = Document::parse(r#"{"a": [1, -0, 2.50, true, null, "it's", [3,4]]}"#).unwrap();
        assert_eq!(document.root.python_str(), r#"{'a': [1, 0, 2.5, True, None, "it's", [3, 4]]}"#);
    }
}
