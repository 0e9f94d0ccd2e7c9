//! Function tools as Harmony shows them to the model: a namespace of TypeScript, whose types are those of the JSON schemas.
//!
//! The words and the white space are those of `oss-harmony` 0.0.11, oddities and all: what it does not know is `any`,
//! descriptions are not broken into comments of their own lines, and members are not indented below their object.

use crate::{
    chat::FunctionTool,
    json::{Object, Value},
};

/// The section of the developer message that shows function tools.
pub(super) fn tools_section(tools: &[FunctionTool]) -> String {
    let mut lines = vec!["namespace functions {\n".to_owned()];
    for tool in tools {
        lines.extend(tool.description.as_deref().unwrap_or_default().lines().map(|line| format!("// {line}")));
        lines.push(match &tool.parameters {
            Some(schema) => format!("type {} = (_: {}) => any;\n", tool.name, type_of(schema, "")),
            None => format!("type {} = () => any;\n", tool.name),
        });
    }
    lines.push("} // namespace functions".to_owned());
    format!("# Tools\n\n## functions\n\n{}", lines.join("\n"))
}

/// The type of a schema; lines that it begins are indented by `indent`.
fn type_of(schema: &Value, indent: &str) -> String {
    if let Some(variants) = list(schema, "oneOf") {
        let variants = variants.iter().map(|variant| format!("\n{indent} | {}", variant_of(variant, indent)));
        return variants.collect::<Vec<_>>().concat();
    }
    match schema.get("type") {
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).map(several_named).collect();
            if names.is_empty() { "any".to_owned() } else { names.join(" | ") }
        }
        Some(Value::String(name)) => type_text(name, schema, indent),
        _ => "any".to_owned(),
    }
}

/// The name of a type that stands beside others, which is the schema's own.
fn several_named(name: &str) -> &str {
    if name == "integer" { "number" } else { name }
}

fn type_text(name: &str, schema: &Value, indent: &str) -> String {
    match name {
        "object" => object(schema, indent),
        "string" => {
            let names = list(schema, "enum").unwrap_or_default().iter().filter_map(Value::as_str);
            let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
            if names.is_empty() { name.to_owned() } else { names.join(" | ") }
        }
        "number" | "integer" => "number".to_owned(),
        "boolean" => name.to_owned(),
        "array" => match schema.get("items") {
            Some(items) => format!("{}[]", type_of(items, indent)),
            None => "Array<any>".to_owned(),
        },
        _ => "any".to_owned(),
    }
}

/// One of several types that a value may have, with what is said of it.
fn variant_of(variant: &Value, indent: &str) -> String {
    let mut remarks: Vec<String> = text(variant, "description").map(str::to_owned).into_iter().collect();
    remarks.extend(variant.get("default").map(|default| match default {
        Value::String(text) if !is_enum(variant) => format!("default: \"{text}\""),
        default => format!("default: {}", json(default)),
    }));
    format!("{}{}", nullable_type(variant, &format!("{indent}   ")), trailing(&remarks))
}

fn trailing(remarks: &[String]) -> String {
    if remarks.is_empty() { String::new() } else { format!(" // {}", remarks.join(" ")) }
}

/// The type of a schema that may allow null by the keyword of OpenAPI.
fn nullable_type(schema: &Value, indent: &str) -> String {
    let mut shown = type_of(schema, indent);
    if schema.get("nullable").and_then(Value::as_bool).unwrap_or(false) && !shown.contains("null") {
        shown.push_str(" | null");
    }
    shown
}

fn object(schema: &Value, indent: &str) -> String {
    let description = text(schema, "description").map(|text| format!("{indent}// {text}\n")).unwrap_or_default();
    let required: Vec<&str> = list(schema, "required").unwrap_or_default().iter().filter_map(Value::as_str).collect();
    let none = Object::default();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let members = properties.iter().map(|(name, member)| {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        member_of(&format!("{indent}{name}{mark}"), member, indent)
    });
    format!("{description}{{\n{}{indent}}}", members.collect::<String>())
}

/// A member of an object, of which `head` is the indented name.
fn member_of(head: &str, member: &Value, indent: &str) -> String {
    let mut lines = Vec::new();
    if let Some(title) = text(member, "title") {
        lines.extend([format!("{indent}// {title}"), format!("{indent}//")]);
    }
    let description = text(member, "description");
    let has_variants = member.get("oneOf").is_some();
    lines.extend(description.filter(|_| !has_variants).map(|text| format!("{indent}// {text}")));
    if let Some(examples) = list(member, "examples").filter(|examples| !examples.is_empty()) {
        lines.push(format!("{indent}// Examples:"));
        lines.extend(examples.iter().filter_map(Value::as_str).map(|text| format!("{indent}// - \"{text}\"")));
    }
    if let Some(variants) = list(member, "oneOf") {
        lines.extend(variants_of_member(head, member, variants, indent));
    } else {
        let default = member.get("default").filter(|_| !has_variants);
        let remark = default.map(|default| format!(" // {}", default_of(default, member))).unwrap_or_default();
        lines.push(format!("{head}: {},{remark}", nullable_type(member, &format!("{indent}    "))));
    }
    lines.join("\n") + "\n"
}

/// The lines of a member that may be of several types.
fn variants_of_member(head: &str, member: &Value, variants: &[Value], indent: &str) -> Vec<String> {
    let description = text(member, "description");
    // What the member says of itself is not said again of its first type.
    let first = variants.first().and_then(|variant| text(variant, "description"));
    let above = description.filter(|description| first != Some(description));
    let mut lines: Vec<String> = above.map(|text| format!("{indent}// {text}")).into_iter().collect();
    lines.extend(member.get("default").map(|default| format!("{indent}// {}", default_of(default, member))));
    lines.push(format!("{head}:"));
    for (number, variant) in variants.iter().enumerate() {
        let own = text(variant, "description").filter(|own| Some(*own) != description);
        let own = own.filter(|_| number > 0 || above.is_none());
        let mut remarks: Vec<String> = own.map(str::to_owned).into_iter().collect();
        remarks.extend(variant.get("default").map(|default| default_of(default, variant)));
        let shown_type = nullable_type(variant, &format!("{indent}   "));
        lines.push(format!("{indent} | {shown_type}{}", trailing(&remarks)));
    }
    lines.push(format!("{indent},"));
    lines
}

/// The default of a schema, which is quoted unless it is one of an enum.
fn default_of(default: &Value, schema: &Value) -> String {
    match default {
        Value::String(text) if is_enum(schema) => format!("default: {text}"),
        Value::String(text) => format!("default: \"{text}\""),
        default => format!("default: {}", json(default)),
    }
}

fn is_enum(schema: &Value) -> bool {
    list(schema, "enum").is_some_and(|values| !values.is_empty())
}

fn list<'v>(schema: &'v Value, key: &str) -> Option<&'v [Value]> {
    schema.get(key)?.as_array()
}

fn text<'v>(schema: &'v Value, key: &str) -> Option<&'v str> {
    schema.get(key)?.as_str()
}

/// JSON as Harmony prints it, which has read it with numbers of 64 bits.
fn json(value: &Value) -> String {
    let read: Result<serde_json::Value, _> = serde_json::from_str(&value.to_json_string());
    read.map_or_else(|_| value.to_json_string(), |value| value.to_string())
}
