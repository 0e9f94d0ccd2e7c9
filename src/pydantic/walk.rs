//! One pass over a document: it complains about values that do not fit their schema, and rewrites values that fit only
//! laxly.

use std::borrow::Cow;

use super::{
    issue::{Complaint, Context, Issues},
    scalar,
    schema::{Branch, Field, Rule, Schema, Shape},
};
use crate::json::{Items, Node, NodeKind, Path, Rewrite, Segment, float_repr, member};

/// A number that is not finite, in a place where such a number is allowed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NotFinite {
    /// The path to the number.
    pub(crate) path: Path,
    pub(crate) value: f64,
}

/// The state of the pass.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    text: &'a str,
    path: Path,
    pub(crate) issues: Issues,
    pub(crate) rewrites: Vec<Rewrite>,
    pub(crate) not_finite: Vec<NotFinite>,
    /// Present while only the question matters whether there is an issue: the flag says whether one was found.
    trial: Option<bool>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let (issues, rewrites, not_finite) = (Issues::default(), Vec::new(), Vec::new());
        Self { text, path: Path::default(), issues, rewrites, not_finite, trial: None }
    }

    /// Notes a complaint; its words are only made where somebody will read them.
    fn complain(&mut self, node: &Node<'_>, complaint: impl FnOnce() -> Complaint) {
        match &mut self.trial {
            Some(failed) => *failed = true,
            None if self.issues.is_full() => self.issues.count(),
            None => self.issues.add(&self.path, complaint(), node),
        }
    }

    /// Whether nothing that could still be found would change the result.
    fn is_decided(&self) -> bool {
        self.trial == Some(true)
    }

    fn settle(&mut self, node: &Node<'_>, outcome: scalar::Lax) {
        match outcome {
            Ok(None) => {}
            Ok(Some(text)) => self.rewrite(node, text),
            Err(complaint) => self.complain(node, || complaint),
        }
    }

    fn rewrite(&mut self, node: &Node<'_>, text: String) {
        self.rewrites.push(Rewrite::new(self.text, node, text));
    }

    pub(crate) fn check(&mut self, schema: &'static Schema, node: &Node<'_>) {
        match schema {
            Schema::Any => {}
            Schema::Str => self.settle(node, scalar::string(node)),
            Schema::Text(least, most) => self.settle(node, scalar::text(node, *least, *most)),
            Schema::Bool => self.settle(node, scalar::boolean(node)),
            Schema::Int => self.settle(node, scalar::integer(node, None, None)),
            Schema::IntIn(least, most) => self.settle(node, scalar::integer(node, Some(*least), *most)),
            Schema::Float => self.float(node),
            Schema::Literal(values) => self.literal("literal_error", values, node),
            Schema::Member(values) => self.literal("enum", values, node),
            Schema::Bytes if node.as_str().is_some() => {}
            Schema::Bytes => self.complain(node, || Complaint::new("bytes_type", "Input should be a valid bytes")),
            Schema::Nullable(_) if node.is_null() => {}
            Schema::Nullable(schema) => self.check(schema, node),
            Schema::List(item) => self.list(item, usize::MAX, node),
            Schema::ShortList(item, most) => self.list(item, *most, node),
            Schema::Listed(item) => self.listed(item, node),
            Schema::Iterable if matches!(node.kind, NodeKind::List(_) | NodeKind::Object(_) | NodeKind::String(_)) => {}
            Schema::Iterable => self.complain(node, || Complaint::new("iterable_type", "Input should be iterable")),
            Schema::Dict(value) => self.dict(value, node),
            Schema::Object(shape, fields) => self.object(*shape, fields, node),
            Schema::Union(branches) => self.union(branches, node),
            Schema::Tagged(kinds) => self.tagged(kinds, node),
            Schema::Checked(schema, rule) => self.checked(schema, *rule, node),
        }
    }

    fn float(&mut self, node: &Node<'_>) {
        match scalar::float(node) {
            Ok(None) => {}
            Ok(Some(value)) if value.is_finite() => self.rewrite(node, float_repr(value)),
            Ok(Some(value)) => {
                self.not_finite.push(NotFinite { path: self.path.clone(), value });
                self.rewrite(node, if value < 0.0 { "-1e300" } else { "1e300" }.to_owned());
            }
            Err(complaint) => self.complain(node, || complaint),
        }
    }

    fn literal(&mut self, kind: &'static str, values: &'static [&'static str], node: &Node<'_>) {
        if node.as_str().is_some_and(|text| values.contains(&text)) {
            return;
        }
        self.complain(node, || {
            let quoted: Vec<_> = values.iter().map(|value| format!("'{value}'")).collect();
            let expected = match quoted.as_slice() {
                [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
                all => all.join(", "),
            };
            let message = format!("Input should be {expected}");
            Complaint::new(kind, message).with("expected", Context::Text(expected))
        });
    }

    fn list(&mut self, item: &'static Schema, most: usize, node: &Node<'_>) {
        let NodeKind::List(items) = &node.kind else {
            return self.complain(node, || Complaint::new("list_type", "Input should be a valid list"));
        };
        if items.len() > most {
            return self.complain(node, || too_long(most, items.len()));
        }
        if matches!(items, Items::Ids(..)) && takes_ids(item) {
            return;
        }
        for (index, node) in items.nodes().enumerate() {
            self.step(Segment::Index(index), item, &node);
            if self.is_decided() {
                return;
            }
        }
    }

    /// Checks a list, or what Python's `list` makes of another value.
    fn listed(&mut self, item: &'static Schema, node: &Node<'_>) {
        let Some(items) = python_list(node) else { return self.list(item, usize::MAX, node) };
        for (index, node) in items.enumerate() {
            self.step(Segment::Index(index), item, &node);
            if self.is_decided() {
                return;
            }
        }
    }

    fn step(&mut self, segment: Segment, schema: &'static Schema, node: &Node<'_>) {
        self.path.push(segment);
        self.check(schema, node);
        self.path.pop();
    }

    fn dict(&mut self, value: &'static Schema, node: &Node<'_>) {
        let NodeKind::Object(entries) = &node.kind else {
            return self.complain(node, || Complaint::new("dict_type", "Input should be a valid dictionary"));
        };
        if matches!(value, Schema::Any) {
            return;
        }
        for (key, node) in entries {
            self.step(Segment::Key(key.clone()), value, node);
            if self.is_decided() {
                return;
            }
        }
    }

    fn object(&mut self, shape: Shape, fields: &'static [Field], node: &Node<'_>) {
        let NodeKind::Object(entries) = &node.kind else {
            return self.complain(node, || no_object(shape));
        };
        // Most fields of a request are absent, so nothing is looked for once all members are found.
        debug_assert!(
            fields.iter().enumerate().all(|(at, field)| fields[..at].iter().all(|other| other.name != field.name))
        );
        let mut left = entries.len();
        for field in fields {
            let value = if left == 0 { None } else { member(entries, field.name) };
            left -= usize::from(value.is_some());
            match value {
                Some(value) => self.step(Segment::Name(field.name), &field.schema, value),
                None if field.required => {
                    self.path.push(Segment::Name(field.name));
                    self.complain(node, || Complaint::new("missing", "Field required"));
                    self.path.pop();
                }
                None => {}
            }
            if self.is_decided() {
                return;
            }
        }
    }

    /// Checks a value as the object that its key `type` names.
    fn tagged(&mut self, kinds: &'static [(&'static str, Schema)], node: &Node<'_>) {
        const TAG: &str = "type";

        if !matches!(node.kind, NodeKind::Object(_)) {
            return self.complain(node, || no_object(Shape::Model));
        }
        let quoted = || Context::Text(format!("'{TAG}'"));
        let Some(tag) = node.get(TAG) else {
            return self.complain(node, || {
                let message = format!("Unable to extract tag using discriminator '{TAG}'");
                Complaint::new("union_tag_not_found", message).with("discriminator", quoted())
            });
        };
        match kinds.iter().find(|(name, _)| tag.as_str() == Some(name)) {
            Some((name, schema)) => self.step(Segment::Name(name), schema, node),
            None => self.complain(node, || {
                let expected = kinds.iter().map(|(name, _)| format!("'{name}'")).collect::<Vec<_>>().join(", ");
                let tag = tag.python_str();
                let message = format!(
                    "Input tag '{tag}' found using '{TAG}' does not match any of the expected tags: {expected}"
                );
                Complaint::new("union_tag_invalid", message)
                    .with("discriminator", quoted())
                    .with("tag", Context::Text(tag))
                    .with("expected_tags", Context::Text(expected))
            }),
        }
    }

    /// Checks a value, and asks the rule only where the value passed.
    fn checked(&mut self, schema: &'static Schema, rule: Rule, node: &Node<'_>) {
        let before = self.issues.len();
        self.check(schema, node);
        if self.is_decided() || self.issues.len() > before {
            return;
        }
        if let Some(reason) = rule(node) {
            self.complain(node, || Complaint::broken(reason));
        }
    }

    /// Takes the first branch that accepts the value as it is, or else the first that accepts it at all, as pydantic's
    /// smart mode does; where no branch does, each of them complains.
    fn union(&mut self, branches: &'static [Branch], node: &Node<'_>) {
        let mut rewritten = None;
        for branch in branches {
            let (before, numbers) = (self.rewrites.len(), self.not_finite.len());
            let outer = self.trial.replace(false);
            self.check(&branch.schema, node);
            let failed = std::mem::replace(&mut self.trial, outer) == Some(true);
            let rewrites = self.rewrites.split_off(before);
            let not_finite = self.not_finite.split_off(numbers);
            match (failed, rewrites.is_empty()) {
                (true, _) => {}
                (false, true) => return,
                (false, false) => {
                    rewritten.get_or_insert((rewrites, not_finite));
                }
            }
        }
        if let Some((rewrites, not_finite)) = rewritten {
            self.rewrites.extend(rewrites);
            self.not_finite.extend(not_finite);
            return;
        }
        if let Some(failed) = &mut self.trial {
            *failed = true;
            return;
        }
        for branch in branches {
            match branch.label {
                Some(label) => self.step(Segment::Name(label), &branch.schema, node),
                None => self.check(&branch.schema, node),
            }
        }
    }

    /// Whether a check of the value would find nothing to complain about.
    pub(crate) fn fits(&mut self, schema: &'static Schema, node: &Node<'_>) -> bool {
        let (before, numbers) = (self.rewrites.len(), self.not_finite.len());
        let outer = self.trial.replace(false);
        self.check(schema, node);
        let failed = std::mem::replace(&mut self.trial, outer) == Some(true);
        self.rewrites.truncate(before);
        self.not_finite.truncate(numbers);
        !failed
    }

    /// Replaces a value by null.
    pub(crate) fn blank(&mut self, node: &Node<'_>) {
        self.rewrite(node, "null".to_owned());
    }

    /// Checks items one by one, as Python does with an iterator, and stops after the first that fails.
    pub(crate) fn iterate(&mut self, item: &'static Schema, node: &Node<'_>) {
        for (index, node) in python_list(node).into_iter().flatten().enumerate() {
            self.step(Segment::Index(index), item, &node);
            if !self.issues.is_empty() {
                return;
            }
        }
    }
}

/// Returns the items that Python's `list` makes of a value, if it accepts the value.
fn python_list<'n, 'a>(node: &'n Node<'a>) -> Option<Box<dyn Iterator<Item = Cow<'n, Node<'a>>> + 'n>> {
    let made = |text: String| Cow::Owned(Node { text: node.text, kind: NodeKind::String(Cow::Owned(text)) });
    match &node.kind {
        NodeKind::List(items) => Some(items.nodes()),
        NodeKind::Object(entries) => Some(Box::new(entries.keys().map(move |key| made(key.clone())))),
        NodeKind::String(text) => Some(Box::new(text.chars().map(move |c| made(c.to_string())))),
        _ => None,
    }
}

fn too_long(most: usize, length: usize) -> Complaint {
    let message = format!("List should have at most {most} items after validation, not {length}");
    let int = |value: usize| Context::Int(i128::try_from(value).unwrap_or(i128::MAX));
    Complaint::new("too_long", message)
        .with("field_type", Context::Text("List".to_owned()))
        .with("max_length", int(most))
        .with("actual_length", int(length))
}

/// Whether every plain list of token ids passes.
fn takes_ids(schema: &Schema) -> bool {
    matches!(schema, Schema::Any | Schema::Int | Schema::IntIn(..=0, None | Some(i64::MAX)))
}

fn no_object(shape: Shape) -> Complaint {
    match shape {
        Shape::TypedDict => Complaint::new("dict_type", "Input should be a valid dictionary"),
        Shape::Model => {
            let message = "Input should be a valid dictionary or object to extract fields from";
            Complaint::new("model_attributes_type", message)
        }
        Shape::Dataclass(name) => {
            let message = format!("Input should be a dictionary or an instance of {name}");
            Complaint::new("dataclass_type", message).with("class_name", Context::Text(name.to_owned()))
        }
    }
}
