//! The file of `--config`: one YAML mapping of flags to values.

use std::{collections::BTreeSet, ffi::OsString, path::Path};

use saphyr::{ScalarOwned, YamlLoader, YamlOwned};
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::foreign::inverse;

/// Flags whose lists are written as one JSON value.
const JSON_LISTS: [&str; 3] = ["allowed-headers", "allowed-methods", "allowed-origins"];

/// Each key with the arguments that it stands for; `names` are all flags, with their dashes.
pub(super) fn read(path: &OsString, names: &BTreeSet<String>) -> Result<Vec<(String, Vec<OsString>)>, String> {
    let path = Path::new(path);
    let shown = path.display();
    if !path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
        return Err(format!("--config needs a .yaml or .yml file, not {shown}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let document = only_document(&text).map_err(|error| format!("{shown} {error}"))?;
    let mapping = match document.map(Written::of) {
        None | Some(Written { value: YamlOwned::Value(ScalarOwned::Null), .. }) => return Ok(Vec::new()),
        Some(Written { value: YamlOwned::Mapping(mapping), .. }) => mapping,
        Some(_) => return Err(format!("{shown} must map names of flags to values")),
    };
    let mut flags: Vec<(String, Vec<OsString>)> = Vec::new();
    for (key, value) in mapping {
        let YamlOwned::Value(ScalarOwned::String(key)) = Written::of(key).value else {
            return Err(format!("{shown}: a key is not the name of a flag"));
        };
        let key = key.trim_start_matches("--").replace('_', "-");
        if flags.iter().any(|(named, _)| *named == key) {
            return Err(format!("{shown}: {key}: the flag is there twice"));
        }
        let arguments = arguments(&key, value, names).map_err(|error| format!("{shown}: {key}: {error}"))?;
        flags.push((key, arguments));
    }
    Ok(flags)
}

/// The only document of a file, whose scalars are as they are written.
fn only_document(text: &str) -> Result<Option<YamlOwned>, String> {
    let invalid = |error| format!("is not valid YAML: {error}");
    let mut loader = YamlLoader::default();
    loader.early_parse(false);
    Parser::new_from_str(text).load(&mut loader, true).map_err(invalid)?;
    if let Some(error) = loader.error() {
        return Err(invalid(error.clone()));
    }
    for event in Parser::new_from_str(text) {
        check_tag(&event.map_err(invalid)?.0)?;
    }
    let mut documents = loader.into_documents().into_iter();
    let first = documents.next();
    if documents.next().is_some() {
        return Err("has more than one YAML document: write all flags above the second `---`".to_owned());
    }
    Ok(first)
}

/// Refuses a tag that says something else than what is read, as Python does. The loader reads on as if it were not there.
fn check_tag(event: &Event<'_>) -> Result<(), String> {
    let (tag, known): (&Option<_>, &[&str]) = match event {
        Event::Scalar(_, _, _, tag) => (tag, &["null", "bool", "int", "float", "str"]),
        Event::SequenceStart(_, tag) => (tag, &["seq"]),
        Event::MappingStart(_, tag) => (tag, &["map"]),
        _ => return Ok(()),
    };
    let is_known = |tag: &Tag| tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str());
    match tag.as_deref().filter(|tag| !is_known(tag)) {
        None => Ok(()),
        Some(tag) => Err(format!("has the YAML tag {tag:?}, which means nothing here: leave it out", tag = spelt(tag))),
    }
}

fn spelt(tag: &Tag) -> String {
    let handle = if tag.is_yaml_core_schema() { "!!" } else { &tag.handle };
    format!("{handle}{}", tag.suffix)
}

/// A value, and how the file spells it.
struct Written {
    value: YamlOwned,
    /// Empty for lists and mappings.
    text: String,
    /// Whether it has neither quotes nor a tag that says that it is a text.
    is_bare: bool,
}

impl Written {
    fn of(mut value: YamlOwned) -> Self {
        let (text, is_bare) = match &value {
            YamlOwned::Representation(text, style, tag) => {
                (text.clone(), *style == ScalarStyle::Plain && tag.as_ref().is_none_or(|tag| tag.suffix == "int"))
            }
            _ => return Self { value, text: String::new(), is_bare: false },
        };
        value.parse_representation();
        Self { value, text, is_bare }
    }

    /// As an argument: strings and numbers as they are written, since a key such as `12e3` is a number for YAML.
    fn argument(self) -> Result<String, String> {
        self.check_digits()?;
        match self.value {
            YamlOwned::Value(ScalarOwned::Integer(_) | ScalarOwned::FloatingPoint(_)) => Ok(self.text),
            value => json(value).map(text),
        }
    }

    /// Refuses numbers that YAML 1.1, which Python reads, and YAML 1.2 read in different ways: of another base than ten, with
    /// zeros before them (`0100` is 64 in Python), with `_` in them, and in sixties (`1:30` is 90).
    fn check_digits(&self) -> Result<(), String> {
        let number = matches!(self.value, YamlOwned::Value(ScalarOwned::Integer(_) | ScalarOwned::FloatingPoint(_)));
        let other_base = number && self.text.contains(['x', 'o']);
        if other_base || self.is_bare && is_another_number_in_python(&self.text) {
            let text = &self.text;
            return Err(format!("write {text} in decimal digits if it is a number, and in quotes if it is not"));
        }
        Ok(())
    }
}

/// Whether Python reads a scalar without quotes as a number that these characters are not in decimal digits.
fn is_another_number_in_python(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return false;
    }
    let only = |others: &[char]| digits.chars().all(|digit| digit.is_ascii_digit() || others.contains(&digit));
    let zeros = digits.len() > 1 && digits.starts_with('0') && only(&['_']);
    let binary = digits.strip_prefix("0b").is_some_and(|digits| digits.chars().all(|digit| "01_".contains(digit)));
    let apart = digits.contains('_') && only(&['_', '.']);
    zeros || binary || apart || digits.contains(':') && only(&['_', '.', ':'])
}

fn arguments(key: &str, value: YamlOwned, names: &BTreeSet<String>) -> Result<Vec<OsString>, String> {
    let flag = format!("--{key}");
    let off = format!("--no-{key}");
    let has_off = names.contains(&off);
    // An inverse is one too, and what is off by its name; neither has a `--no-…`, and `false` says nothing there, as in vLLM.
    let is_inverse = inverse(key).is_some_and(|other| names.contains(&format!("--no-{other}")));
    let is_off = key.strip_prefix("no-").is_some_and(|on| names.contains(&format!("--{on}")));
    let is_switch = has_off || (is_inverse || is_off) && names.contains(&flag);
    let off = || if has_off { vec![off.into()] } else { Vec::new() };
    // Every switch has a `--no-…`, so that another flag takes a value.
    let takes_value = !is_switch && names.contains(&flag);
    let written = Written::of(value);
    match written.value {
        // Nothing is what the flag is by default, but for this one: it switches off what is on by default.
        YamlOwned::Value(ScalarOwned::Null) if key == "speculative-config" => Ok(vec![flag.into(), "null".into()]),
        YamlOwned::Value(ScalarOwned::Null) => Ok(Vec::new()),
        YamlOwned::Value(ScalarOwned::Boolean(value)) if takes_value => Ok(vec![flag.into(), value.to_string().into()]),
        YamlOwned::Value(ScalarOwned::Boolean(true)) => Ok(vec![flag.into()]),
        YamlOwned::Value(ScalarOwned::Boolean(false)) => Ok(off()),
        // YAML 1.1, which Python reads, has more words for these.
        YamlOwned::Value(ScalarOwned::String(text)) if is_switch => match text.to_ascii_lowercase().as_str() {
            "yes" | "on" => Ok(vec![flag.into()]),
            "no" | "off" => Ok(off()),
            _ => Err(format!("expected true or false, got {text:?}")),
        },
        YamlOwned::Sequence(items) if JSON_LISTS.contains(&key) => {
            let items = items.into_iter().map(json).collect::<Result<_, _>>()?;
            Ok(vec![flag.into(), Value::Array(items).to_string().into()])
        }
        YamlOwned::Sequence(items) if items.is_empty() => Ok(Vec::new()),
        YamlOwned::Sequence(items) => {
            let mut arguments = vec![flag.into()];
            for item in items {
                arguments.push(Written::of(item).argument()?.into());
            }
            Ok(arguments)
        }
        value => Ok(vec![flag.into(), Written { value, ..written }.argument()?.into()]),
    }
}

/// As an argument: strings as they are.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn json(value: YamlOwned) -> Result<Value, String> {
    let written = Written::of(value);
    written.check_digits()?;
    match written.value {
        YamlOwned::Value(ScalarOwned::Null) => Ok(Value::Null),
        YamlOwned::Value(ScalarOwned::Boolean(value)) => Ok(Value::Bool(value)),
        YamlOwned::Value(ScalarOwned::Integer(value)) => Ok(Value::from(value)),
        YamlOwned::Value(ScalarOwned::FloatingPoint(value)) => Ok(Value::from(value.into_inner())),
        YamlOwned::Value(ScalarOwned::String(value)) => Ok(Value::String(value)),
        YamlOwned::Sequence(items) => Ok(Value::Array(items.into_iter().map(json).collect::<Result<_, _>>()?)),
        YamlOwned::Mapping(entries) => {
            let mut object = Map::new();
            for (key, value) in entries {
                object.insert(text(json(key)?), json(value)?);
            }
            Ok(Value::Object(object))
        }
        YamlOwned::Tagged(_, _) | YamlOwned::Alias(_) | YamlOwned::BadValue | YamlOwned::Representation(..) => {
            Err("expected a plain value".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(yaml: &str) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yml");
        std::fs::write(&file, yaml).unwrap();
        let names =
            ["--enable-x", "--no-enable-x", "--disable-x", "--port", "--capture-texts"].map(str::to_owned).into();
        let flags = read(&file.into(), &names)?;
        let words = flags.iter().flat_map(|(_, arguments)| arguments).map(|word| word.to_str().unwrap());
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn values_of_every_kind_become_arguments() {
        for (yaml, line) in [
            ("port: 9", "--port 9"),
            ("port: '9'", "--port 9"),
            ("enable_x: true", "--enable-x"),
            ("enable-x: no", "--no-enable-x"),
            ("enable-x: on", "--enable-x"),
            ("disable-x: on", "--disable-x"),
            ("disable_x: false", ""),
            ("some_switch: false", ""),
            ("no-enable-x: true", "--no-enable-x"),
            ("no_enable_x: yes", "--no-enable-x"),
            ("no-enable-x: false", ""),
            ("port: false", "--port false"),
            ("capture-texts: false", "--capture-texts false"),
            ("capture_texts: true", "--capture-texts true"),
            ("speculative-config: null", "--speculative-config null"),
            ("max-model-len: null", ""),
            ("ratio: 0.9", "--ratio 0.9"),
            // As they are written.
            ("ratio: 0.90", "--ratio 0.90"),
            ("api-key: 1234e5", "--api-key 1234e5"),
            ("api-key: ['007', '0x10', \"1_0\", !!str 010]", "--api-key 007 0x10 1_0 010"),
            ("api-key: [0, -1, a_0, 10.0.0.1, localhost:80, '1:30']", "--api-key 0 -1 a_0 10.0.0.1 localhost:80 1:30"),
            ("api-key: 123456789012345678901234567890", "--api-key 123456789012345678901234567890"),
            ("api-key: [a, b]", "--api-key a b"),
            ("api-key: []", ""),
            ("allowed-origins: ['*', 'http://a']", r#"--allowed-origins ["*","http://a"]"#),
            ("speculative-config:\n  model: m\n  n: 3", r#"--speculative-config {"model":"m","n":3}"#),
            ("", ""),
        ] {
            assert_eq!(flags(yaml).as_deref(), Ok(line), "{yaml}");
        }
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for yaml in [
            "- a",
            "port",
            "a: [",
            "1: 2",
            "enable-x: maybe",
            "port: 0x10",
            "api-key: [0o7]",
            "port: 0100",
            "port: -0100",
            "port: !!int 0100",
            "api-key: [007]",
            "port: 0b11",
            "port: 1_000",
            "api-key: 1:30",
            "speculative-config: {n: 010}",
            "speculative-config: {n: 0x10}",
            "a-b: 1\na_b: 2",
            "a: 1\n'a': 2",
        ] {
            assert!(flags(yaml).is_err(), "{yaml}");
        }
        assert!(read(&"config.json".into(), &BTreeSet::new()).unwrap_err().contains(".yaml"));
    }
    #[test]
    fn a_second_document_is_refused() {
        for yaml in ["---\nport: 9\n", "port: 9\n...\n", "# flags\n---\nport: 9\n...\n# no more\n"] {
            assert_eq!(flags(yaml).as_deref(), Ok("--port 9"), "{yaml}");
        }
        // Python's `safe_load` refuses each of these too.
        for yaml in ["port: 9\n---\napi-key: k", "port: 9\n---\n", "---\n---\nport: 9", "port: 9\n...\n---\nport: 8"] {
            let error = flags(yaml).unwrap_err();
            assert!(
                error.ends_with("has more than one YAML document: write all flags above the second `---`"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_tag_that_means_something_else_is_refused_by_name() {
        for yaml in ["port: !!int 9", "port: !!str 9", "port: !!seq [9]", "!!map {port: 9}", "!!str port: 9"] {
            assert_eq!(flags(yaml).as_deref(), Ok("--port 9"), "{yaml}");
        }
        for (yaml, tag) in [
            ("port: !foo 9", "!foo"),
            ("port: !foo [9]", "!foo"),
            ("port: [!foo 9]", "!foo"),
            ("!foo {port: 9}", "!foo"),
            ("!foo port: 9", "!foo"),
            ("speculative-config: !!str {model: m}", "!!str"),
            ("port: !!binary OQ==", "!!binary"),
            ("speculative-config: !!set {model}", "!!set"),
        ] {
            let error = flags(yaml).unwrap_err();
            assert!(error.contains(&format!("has the YAML tag \"{tag}\"")), "{yaml}: {error}");
        }
    }
}
