//! What a schema says in keywords, formats and patterns that the compiler does not know, or reads otherwise, in words that
//! it knows. A schema that cannot be said so keeps its word, and the compiler refuses it by name.

use serde_json::{Map, Value, json};

use super::{classes, formats, lark::escaped, references::target, schemas::each_schema};

/// Keywords that describe a value by further schemas, so that what they leave to others is known only together with them.
const COMBINING: [&str; 10] =
    ["$dynamicRef", "$ref", "allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"];
/// Keywords that say nothing of what a value may be.
const ANNOTATIONS: [&str; 6] = ["$comment", "default", "deprecated", "description", "examples", "title"];

/// Spells everything as the compiler reads it.
pub(super) fn spell(schema: &mut Value) {
    spell_items(schema);
    spell_keywords(schema);
    each_schema(schema, &mut formats::spell);
    each_schema(schema, &mut spell_patterns);
}

/// Spells keywords that the compiler does not know where others say the same, and leaves out those that say nothing.
pub(super) fn spell_keywords(schema: &mut Value) {
    let whole = schema.clone();
    each_schema(schema, &mut |entries| {
        spell_unevaluated(entries);
        spell_names(entries, &whole);
        if entries.get("uniqueItems") == Some(&Value::Bool(false)) {
            entries.shift_remove("uniqueItems");
        }
    });
}

/// Says of the items after those of `prefixItems` what `additionalItems` says of them. The compiler takes the latter for a sign of
/// an old draft, in which the former says nothing; in a new one, the latter does not.
fn spell_items(schema: &mut Value) {
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    if draft.contains("draft-0") || draft.contains("2019-09") {
        return;
    }
    each_schema(schema, &mut |entries| {
        if entries.contains_key("prefixItems")
            && !matches!(entries.get("items"), Some(Value::Array(_)))
            && let Some(additional) = entries.shift_remove("additionalItems")
        {
            entries.entry("items").or_insert(additional);
        }
    });
}

/// Says by `patternProperties` what names the properties of a map have, as pydantic's `dict[Literal["a", "b"], int]` says it by
/// `propertyNames`.
fn spell_names(entries: &mut Map<String, Value>, whole: &Value) {
    let Some(names) = entries.get("propertyNames") else { return };
    match pattern_of_names(names, whole) {
        Some(Names::Any) => {
            entries.shift_remove("propertyNames");
        }
        Some(Names::Pattern(pattern)) if !entries.contains_key("properties") => {
            if entries.contains_key("patternProperties") {
                return;
            }
            entries.shift_remove("propertyNames");
            let values = entries.insert("additionalProperties".to_owned(), Value::Bool(false));
            if values != Some(Value::Bool(false)) {
                let values = values.unwrap_or(Value::Bool(true));
                entries.insert("patternProperties".to_owned(), json!({ pattern: values }));
            }
        }
        _ => {}
    }
}

/// What the names of properties are.
enum Names {
    Any,
    /// Those that a pattern finds something in.
    Pattern(String),
}

/// What a schema of names says, where a pattern can say it.
fn pattern_of_names(names: &Value, whole: &Value) -> Option<Names> {
    let entries = match names {
        Value::Bool(true) => return Some(Names::Any),
        Value::Object(entries) => entries,
        _ => return None,
    };
    let says_nothing =
        |key: &str, value: &Value| ANNOTATIONS.contains(&key) || (key == "type" && value.as_str() == Some("string"));
    let mut said: Vec<(&String, &Value)> = entries.iter().filter(|(key, value)| !says_nothing(key, value)).collect();
    said.sort_unstable_by_key(|(key, _)| *key);
    let pattern = match said.as_slice() {
        [] => return Some(Names::Any),
        [(key, Value::String(pattern))] if *key == "pattern" => pattern.clone(),
        [(key, Value::String(name))] if *key == "const" => one_of(std::slice::from_ref(&name.as_str())),
        [(key, Value::Array(all))] if *key == "enum" && !all.is_empty() => {
            one_of(&all.iter().map(Value::as_str).collect::<Option<Vec<&str>>>()?)
        }
        [(key, Value::String(reference))] if *key == "$ref" => {
            let names = target(whole, reference)?;
            // One step, so that this comes to an end.
            return if names.get("$ref").is_some() { None } else { pattern_of_names(names, whole) };
        }
        [(key, least)] if *key == "minLength" => format!(r"^(.|\n){{{},}}$", least.as_u64()?),
        [(key, most)] if *key == "maxLength" => format!(r"^(.|\n){{0,{}}}$", most.as_u64()?),
        [(key, most), (other, least)] if *key == "maxLength" && *other == "minLength" => {
            format!(r"^(.|\n){{{},{}}}$", least.as_u64()?, most.as_u64()?)
        }
        _ => return None,
    };
    Some(Names::Pattern(pattern))
}

/// A pattern of exactly these texts.
fn one_of(texts: &[&str]) -> String {
    // A slash stands for itself in the pattern of a schema.
    let texts: Vec<String> = texts.iter().map(|text| escaped(text).replace(r"\/", "/")).collect();
    format!("^({})$", texts.join("|"))
}

/// Says of further properties and items what `unevaluatedProperties` and `unevaluatedItems` say of them, where the schema is not
/// joined with others: then these are all that nothing else describes.
fn spell_unevaluated(entries: &mut Map<String, Value>) {
    let stands_alone = COMBINING.iter().all(|keyword| !entries.contains_key(*keyword));
    for (unevaluated, further) in [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")] {
        let says_nothing = entries.get(unevaluated) == Some(&Value::Bool(true));
        let is_said = says_nothing || (stands_alone && !entries.contains_key("contains"));
        let is_tuple = further == "items" && matches!(entries.get("items"), Some(Value::Array(_)));
        if is_said
            && !is_tuple
            && let Some(value) = entries.shift_remove(unevaluated)
            && (further != "items" || !says_nothing)
        {
            entries.entry(further).or_insert(value);
        }
    }
}

/// Spells the white space of patterns in ASCII, as that of regular expressions is: the compiler has Unicode's for them. Their
/// classes are read as those of regular expressions are, too.
fn spell_patterns(entries: &mut Map<String, Value>) {
    if let Some(Value::String(pattern)) = entries.get_mut("pattern") {
        *pattern = spelled_pattern(pattern);
    }
    if let Some(Value::Object(properties)) = entries.get_mut("patternProperties") {
        *properties = std::mem::take(properties)
            .into_iter()
            .map(|(pattern, schema)| (spelled_pattern(&pattern), schema))
            .collect();
    }
}

fn spelled_pattern(pattern: &str) -> String {
    llguidance::regex_to_lark(&classes::plain(pattern), "s")
}
