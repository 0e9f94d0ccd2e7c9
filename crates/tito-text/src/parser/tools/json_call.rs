//! Calls that are JSON objects: what is read of one, and what is left.

use crate::{
    json::{Object, Value},
    parser::Piece,
};

/// Keys that say nothing beside the name and the arguments.
const KNOWN: [&str; 2] = ["id", "type"];

/// What an object says beside its name and its arguments, which were taken out of it.
pub(super) fn unread(mut object: Object) -> String {
    object.retain(|key, _| !KNOWN.contains(&key.as_str()));
    if object.is_empty() { String::new() } else { Value::from(object).to_json_string() }
}

/// Adds text that stands outside of calls, unless it is white space.
pub(super) fn outside(text: &str, pieces: &mut Vec<Piece>) {
    if !crate::parser::marker::is_blank(text) {
        pieces.push(Piece::Content(text.to_owned()));
    }
}
