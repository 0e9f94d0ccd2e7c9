//! Formats of texts in JSON schemas: those that the compiler does not know as patterns, and the days and seconds that
//! its own allow and no calendar has.
//!
//! Sources: RFC 3339 (dates and times), 3986 (references), 6570 (templates), 6901 (pointers). A pattern may allow less than its
//! source, never more.

use serde_json::{Map, Value, json};

/// The formats that the compiler knows itself (`llguidance`'s `lookup_format`).
const COMPILED: [&str; 11] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid"];

/// A date whose February has 29 days in leap years only; the rest of it is the compiler's.
const DATE: &str = concat!(
    "(([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29",
    "|[0-9]{4}-(02-([01][0-9]|2[0-8])|(0[13-9]|1[0-2])-[0-9]{2}))"
);
/// A time whose seconds are no leap second: few libraries read those, and it depends on the time of day whether there is one.
const TIME: &str = "[0-9]{2}:[0-9]{2}:[0-5]";
const POINTER: &str = "(/([^/~]|~[01])*)*";
/// A character of a path, and one of a path's first segment where no scheme comes before it.
const PATH: &str = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const FIRST: &str = "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})";
/// A character of a query or of a fragment.
const QUERY: &str = "([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})";
const SCHEME: &str = "[A-Za-z][A-Za-z0-9+.-]*:";
/// A host that is a name or an IPv4 address, with what may stand around it.
const AUTHORITY: &str =
    "//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*(:[0-9]*)?";
/// A variable of a template.
const VARIABLE: &str = r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(:[1-9][0-9]{0,3}|\*)?";

/// Whether grammars hold a text to this format.
pub(super) fn is_known(format: &str) -> bool {
    COMPILED.contains(&format) || as_pattern(format).is_some()
}

/// Says in a pattern what the compiler does not know of the schema's format.
pub(super) fn spell(entries: &mut Map<String, Value>) {
    let Some(format) = entries.get("format").and_then(Value::as_str) else { return };
    let (pattern, is_whole) = match (as_pattern(format), format) {
        (Some(pattern), _) => (pattern, true),
        (None, "date") => (format!("^{DATE}$"), false),
        (None, "time") => (format!("^{TIME}"), false),
        (None, "date-time") => (format!("^{DATE}[Tt]{TIME}"), false),
        _ => return,
    };
    if is_whole {
        entries.shift_remove("format");
    }
    demand(entries, pattern);
}

/// Adds a pattern to a schema, which may have one already.
fn demand(entries: &mut Map<String, Value>, pattern: String) {
    if !entries.contains_key("pattern") {
        entries.insert("pattern".to_owned(), Value::String(pattern));
        return;
    }
    let all = entries.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({ "pattern": pattern }));
    }
}

/// The pattern of a format that the compiler does not know.
fn as_pattern(format: &str) -> Option<String> {
    Some(match format {
        "json-pointer" => format!("^{POINTER}$"),
        "relative-json-pointer" => format!("^(0|[1-9][0-9]*)(#|{POINTER})$"),
        "uri-reference" => {
            let rooted = format!("/({PATH}+(/{PATH}*)*)?");
            let path = format!(
                "(({SCHEME})?{AUTHORITY}(/{PATH}*)*|({SCHEME})?{rooted}|{SCHEME}({PATH}+(/{PATH}*)*)?|{FIRST}+(/{PATH}*)*)?"
            );
            format!(r"^{path}(\?{QUERY}*)?(#{QUERY}*)?$")
        }
        "uri-template" => {
            let expression = format!(r"\{{[+#./;?&]?{VARIABLE}(,{VARIABLE})*\}}");
            format!(r"^([A-Za-z0-9!#$&()*+,./:;=?@\[\]_~-]|%[0-9A-Fa-f]{{2}}|{expression})*$")
        }
        _ => return None,
    })
}
