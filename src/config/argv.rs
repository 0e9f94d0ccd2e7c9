//! A command line of `vllm serve`, respelt for the parser: `--a_b`, abbreviations, `-tp 2`, `--json.key value`, and the
//! file of `--config`, whose flags go in front of those of the command line.
//!
//! Owns spellings, which are argparse's as vLLM bends it. Refuses to know what a flag means.

use std::{collections::BTreeSet, ffi::OsString, ops::Range};

use serde_json::{Map, Value};

use super::{config_file, other_servers, vllm_flags};

/// Respells what follows a command that serves a model, or computes it as one that serves it does; other commands stay as they
/// are. `names` are all flags, with their dashes.
pub(super) fn rewrite(arguments: Vec<OsString>, names: &BTreeSet<String>) -> Result<Vec<OsString>, String> {
    let Some((at, before_model)) = command_at(&arguments) else { return Ok(arguments) };
    let mut rest = arguments;
    let mut rewritten: Vec<OsString> = rest.drain(..=at).collect();
    let mut rest = spelt(rest, names)?;
    if let Some(path) = take_config(&mut rest)? {
        let given: BTreeSet<String> = rest.iter().filter_map(|argument| flag(argument)).map(bare).collect();
        let is_word = |argument: &&OsString| !argument.to_string_lossy().starts_with('-');
        let words = rest.iter().take(before_model + 1).take_while(is_word).count();
        let model_given = given.contains("model") || words > before_model;
        let mut from_file = Vec::new();
        for (key, arguments) in config_file::read(&path, names)? {
            let arguments = spelt(arguments, names)?;
            let key = arguments.first().and_then(|first| flag(first)).map_or(key, bare);
            if key == "config" {
                let path = path.display();
                return Err(format!("{path}: config: a file of flags names no other one: write all flags in one file"));
            }
            let whole = key.split('.').next().unwrap_or(&key);
            if !(given.contains(&key) || given.contains(whole) || key == "model" && model_given) {
                from_file.extend(arguments);
            }
        }
        // A list of the file must not swallow the model.
        rest.splice(words..words, from_file);
    }
    rewritten.extend(json_joined(without_empty(rest))?);
    Ok(rewritten)
}

/// Flags whose default in vLLM is an empty text, which is what charts pass on.
const EMPTY_BY_DEFAULT: [&str; 2] = ["--allowed-local-media-path", "--reasoning-parser"];

/// Leaves out flags whose last value is that.
fn without_empty(mut arguments: Vec<OsString>) -> Vec<OsString> {
    for name in EMPTY_BY_DEFAULT {
        let places = places_of(name, &arguments);
        let is_empty = |place: &Range<usize>| match &arguments[place.clone()] {
            [_, value] => value.is_empty(),
            [joined] => joined.len() == name.len() + 1,
            _ => false,
        };
        if places.last().is_some_and(is_empty) {
            for place in places.into_iter().rev() {
                _ = arguments.drain(place);
            }
        }
    }
    arguments
}

/// Where a flag is given, each with the arguments that it takes: the next one is its value, whatever it is.
fn places_of(name: &str, arguments: &[OsString]) -> Vec<Range<usize>> {
    let (mut places, mut at) = (Vec::new(), 0);
    while let Some(argument) = arguments.get(at) {
        let end = if argument == name { (at + 2).min(arguments.len()) } else { at + 1 };
        if flag(argument) == Some(name) {
            places.push(at..end);
        }
        at = end;
    }
    places
}

/// The index of the command, which may follow flags that all commands have, and how many words it has before the model.
fn command_at(arguments: &[OsString]) -> Option<(usize, usize)> {
    let mut at = 1;
    while let Some(argument) = arguments.get(at)?.to_str() {
        match argument {
            "serve" | "doctor" => return Some((at, 0)),
            "replay" => return Some((at, 1)),
            "--log" => at += 2,
            flag if flag.starts_with('-') => at += 1,
            _ => return None,
        }
    }
    None
}

/// The flag that an argument is, without a value: `--a-b` of `--a-b=c`.
fn flag(argument: &OsString) -> Option<&str> {
    let text = argument.to_str().filter(|text| text.starts_with("--") && text.len() > 2)?;
    Some(text.split('=').next().unwrap_or(text))
}

/// What a flag sets, whether it is switched on or off. Keys of `--speculative-config` are set one by one.
fn bare(flag: &str) -> String {
    let name = flag.trim_start_matches("--");
    let name = if name.starts_with("speculative-config.") { name } else { name.split('.').next().unwrap_or(name) };
    name.strip_prefix("no-").unwrap_or(name).to_owned()
}

/// Every flag in its full spelling.
fn spelt(arguments: Vec<OsString>, names: &BTreeSet<String>) -> Result<Vec<OsString>, String> {
    let mut result = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else {
            result.push(argument);
            continue;
        };
        if text == "--" {
            result.push(argument);
            result.extend(arguments);
            break;
        }
        match text.strip_prefix("-O").filter(|level| !level.starts_with('.')) {
            Some("") => result.push("--optimization-level".into()),
            Some(level) => {
                let level = level.strip_prefix('=').unwrap_or(level);
                result.extend(["--optimization-level".into(), level.into()]);
            }
            None => result.push(spelt_one(text, names)?.into()),
        }
    }
    Ok(result)
}

fn spelt_one(text: &str, names: &BTreeSet<String>) -> Result<String, String> {
    if !text.starts_with('-') || text.len() < 2 {
        return Ok(text.to_owned());
    }
    if text.starts_with("--help=") {
        // Groups of vLLM's help.
        return Ok("--help".to_owned());
    }
    let end = text.find(['=', '.']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if !name.starts_with("--") {
        let long = vllm_flags::long(name);
        // `-O.key value` is the compilation's.
        let long = long.or_else(|| (name == "-O" && rest.starts_with('.')).then_some("--compilation-config"));
        return Ok(long.map_or_else(|| text.to_owned(), |long| format!("{long}{rest}")));
    }
    let name = in_full(&name.replace('_', "-"), names)?;
    Ok(match vllm_flags::key(&name) {
        Some(key) => format!("--{key}{rest}"),
        None => format!("{name}{rest}"),
    })
}

/// The only flag that begins so; what no flag begins with is left to the parser.
fn in_full(name: &str, names: &BTreeSet<String>) -> Result<String, String> {
    // A flag of another server is not taken for the beginning of one that is known.
    if names.contains(name) || name == "--" || other_servers::is_known(name) {
        return Ok(name.to_owned());
    }
    let matches: Vec<&str> = names.iter().filter(|full| full.starts_with(name)).map(String::as_str).collect();
    match matches.as_slice() {
        [] => Ok(name.to_owned()),
        [only] => Ok((*only).to_owned()),
        several => Err(format!("ambiguous option: {name} could match {}", several.join(", "))),
    }
}

/// Takes `--config FILE` out.
fn take_config(arguments: &mut Vec<OsString>) -> Result<Option<OsString>, String> {
    let is_config = |argument: &OsString| flag(argument) == Some("--config");
    let Some(at) = arguments.iter().position(is_config) else { return Ok(None) };
    let joined = arguments[at].to_str().and_then(|text| text.split_once('=')).map(|(_, path)| path.into());
    let path = match joined {
        Some(path) => {
            arguments.remove(at);
            path
        }
        // The parser says what is missing.
        None if at + 1 >= arguments.len() => return Ok(None),
        None => arguments.drain(at..=at + 1).next_back().expect("two arguments were drained"),
    };
    if arguments.iter().any(is_config) {
        return Err("--config is given more than once".to_owned());
    }
    Ok(Some(path))
}

/// vLLM joins what this flag says as a whole and by its keys; of other flags, the keys alone count there.
const SPECULATIVE: &str = "--speculative-config";

/// `--json.key value`, `--json.list+ a,b`: all keys of one flag become one JSON object.
fn json_joined(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut result = Vec::with_capacity(arguments.len());
    let mut objects: Vec<(String, Map<String, Value>)> = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let dotted = flag(&argument).filter(|flag| flag.contains('.')).map(str::to_owned);
        let Some(dotted) = dotted else {
            result.push(argument);
            continue;
        };
        let joined = argument.to_str().and_then(|text| text.split_once('=')).map(|(_, value)| value.to_owned());
        let value = joined.or_else(|| arguments.next()?.into_string().ok());
        let value = value.ok_or_else(|| format!("a value is required for {dotted}"))?;
        let (path, value) = match dotted.strip_suffix('+') {
            Some(path) => (path, Value::from(value.split(',').collect::<Vec<_>>())),
            None => (dotted.as_str(), serde_json::from_str(&value).unwrap_or(Value::String(value))),
        };
        let mut keys = path.split('.');
        let name = keys.next().unwrap_or_default().to_owned();
        let at = objects.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            objects.push((name, Map::new()));
            objects.len() - 1
        });
        insert_at(&mut objects[at].1, &keys.collect::<Vec<_>>(), value);
    }
    for (name, object) in objects {
        if name == SPECULATIVE && result.iter().any(|argument| flag(argument) == Some(SPECULATIVE)) {
            return Err(format!("{name} is given as a whole and by its keys: write all keys in it"));
        }
        result.push(name.into());
        result.push(Value::Object(object).to_string().into());
    }
    Ok(result)
}

fn insert_at(object: &mut Map<String, Value>, keys: &[&str], value: Value) {
    let Some((first, rest)) = keys.split_first() else { return };
    let entry = object.entry((*first).to_owned()).or_insert(Value::Null);
    if rest.is_empty() {
        match (entry, value) {
            (Value::Array(items), Value::Array(more)) => items.extend(more),
            (entry, value) => *entry = value,
        }
        return;
    }
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    if let Value::Object(inner) = entry {
        insert_at(inner, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> Result<String, String> {
        let names = [
            "--api-key",
            "--compilation-config",
            "--config",
            "--max-log-len",
            "--max-model-len",
            "--model",
            "--no-enforce-eager",
            "--optimization-level",
            "--served-model-name",
            "--tensor-parallel-size",
        ];
        let names = names.map(str::to_owned).into();
        let words = rewrite(line.split_whitespace().map(OsString::from).collect(), &names)?;
        Ok(words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn argparses_spellings_become_the_parsers() {
        for (line, expected) in [
            ("tito serve m --max_model_len=4k", "tito serve m --max-model-len=4k"),
            ("tito serve m --max_model_len a_b", "tito serve m --max-model-len a_b"),
            ("tito serve m -tp 2 -tp=4", "tito serve m --tensor-parallel-size 2 --tensor-parallel-size=4"),
            ("tito serve m --max-mod 7 --no-enforce", "tito serve m --max-model-len 7 --no-enforce-eager"),
            (
                "tito serve m -O3 -O 2 -O=1",
                "tito serve m --optimization-level 3 --optimization-level 2 --optimization-level 1",
            ),
            ("tito serve m --no-such_flag x_y", "tito serve m --no-such-flag x_y"),
            ("tito --log a_b serve m --api_key k_1", "tito --log a_b serve m --api-key k_1"),
            ("tito serve m --help=all", "tito serve m --help"),
            ("tito replay turns m --max_model_len=4k", "tito replay turns m --max-model-len=4k"),
            ("tito serve m -- --api_key", "tito serve m -- --api_key"),
            ("tito convert a_b --c_d", "tito convert a_b --c_d"),
        ] {
            assert_eq!(rewritten(line).as_deref(), Ok(expected), "{line}");
        }
        let error = rewritten("tito serve m --max 1").unwrap_err();
        assert_eq!(error, "ambiguous option: --max could match --max-log-len, --max-model-len");
    }

    #[test]
    fn keys_of_a_json_flag_become_one_object() {
        let line = "tito serve m --compilation_config.mode 3 -cc.pass_config.a_b true -O.list+ x,y -cc.name=some_text";
        let object = r#"{"mode":3,"pass_config":{"a_b":true},"list":["x","y"],"name":"some_text"}"#;
        assert_eq!(rewritten(line), Ok(format!("tito serve m --compilation-config {object}")));
        assert!(rewritten("tito serve m --compilation-config.mode").is_err());
    }

    #[test]
    fn short_forms_of_keys_are_keys() {
        let names: BTreeSet<String> =
            ["--spec-method", "--spec-tokens", "--speculative-config"].map(str::to_owned).into();
        let rewritten = |line: &str| {
            let words = rewrite(line.split_whitespace().map(OsString::from).collect(), &names)?;
            Ok::<_, String>(words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            rewritten("tito serve m --spec_method ngram --spec-tokens=4").as_deref(),
            Ok(r#"tito serve m --speculative-config {"method":"ngram","num_speculative_tokens":4}"#)
        );
        assert!(rewritten("tito serve m --speculative-config {} --spec-tokens 4").is_err());
    }

    #[test]
    fn an_empty_text_that_is_the_default_is_left_out() {
        let words = |arguments: &[&str]| arguments.iter().map(OsString::from).collect::<Vec<_>>();
        for (given, left) in [
            (&["--reasoning-parser", "", "--seed", "1"][..], &["--seed", "1"][..]),
            (&["m", "--reasoning-parser=", "--allowed-local-media-path", ""], &["m"]),
            (&["--reasoning-parser", "qwen3", "--reasoning-parser", ""], &[]),
            (
                &["--reasoning-parser", "", "--reasoning-parser=qwen3"],
                &["--reasoning-parser", "", "--reasoning-parser=qwen3"],
            ),
            (&["--served-model-name", ""], &["--served-model-name", ""]),
            (&["--reasoning-parser"], &["--reasoning-parser"]),
            (&["--reasoning-parser", "--reasoning-parser", ""], &["--reasoning-parser", "--reasoning-parser", ""]),
            (&["--allowed-local-media-path=/day="], &["--allowed-local-media-path=/day="]),
        ] {
            assert_eq!(without_empty(words(given)), words(left), "{given:?}");
        }
    }

    #[test]
    fn keys_of_drafts_in_a_file_stand_beside_others_on_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        let names =
            ["--config", "--model", "--spec-method", "--spec-tokens", "--speculative-config"].map(str::to_owned).into();
        let rewritten = |yaml: &str, line: &str| {
            std::fs::write(&file, yaml).unwrap();
            let line = format!("tito serve m --config {} {line}", file.to_str().unwrap());
            rewrite(line.split_whitespace().map(Into::into).collect(), &names)
        };
        let keys = "spec-method: suffix\nspec-tokens: 8\n";
        for (yaml, line, expected) in [
            (keys, "--spec-method ngram", r#"{"method":"ngram","num_speculative_tokens":8}"#),
            ("spec-method: ngram\n", "--spec-tokens 4", r#"{"method":"ngram","num_speculative_tokens":4}"#),
            (keys, r#"--speculative-config {"method":"ngram"}"#, r#"{"method":"ngram"}"#),
        ] {
            let given = rewritten(yaml, line).unwrap();
            let at = given.iter().position(|argument| argument == "--speculative-config").unwrap();
            let [found, expected] = [given[at + 1].to_str().unwrap(), expected]
                .map(|json| serde_json::from_str::<serde_json::Value>(json).unwrap());
            assert_eq!(found, expected, "{yaml} and {line}");
        }
        let whole = "speculative-config: '{\"method\":\"suffix\"}'\n";
        assert!(rewritten(whole, "--spec-method ngram").is_err(), "nobody says which of them counts");
    }

    #[test]
    fn a_file_gives_what_the_command_line_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        std::fs::write(&file, "model: other\nserved_model_name: [a, b]\nmax-model-len: 8\napi-key: k\n").unwrap();
        let file = file.to_str().unwrap();
        for (line, expected) in [
            (
                format!("tito serve m --config {file} --max_model_len 4"),
                "tito serve m --served-model-name a b --api-key k --max-model-len 4",
            ),
            (
                format!("tito serve --max-mod=4 --config={file}"),
                "tito serve --model other --served-model-name a b --api-key k --max-model-len=4",
            ),
            (
                format!("tito serve --config {file} --model m --api-key z"),
                "tito serve --served-model-name a b --max-model-len 8 --model m --api-key z",
            ),
        ] {
            assert_eq!(rewritten(&line).as_deref(), Ok(expected), "{line}");
        }
        for (line, expected) in [
            (
                format!("tito replay turns m --config {file} --max_model_len 4"),
                "tito replay turns m --served-model-name a b --api-key k --max-model-len 4",
            ),
            (
                format!("tito replay turns --config {file}"),
                "tito replay turns --model other --served-model-name a b --max-model-len 8 --api-key k",
            ),
        ] {
            assert_eq!(rewritten(&line).as_deref(), Ok(expected), "{line}");
        }
        assert!(rewritten(&format!("tito serve m --config {file} --config {file}")).is_err());
        for nested in ["config: other.yaml", "conf: other.yaml", "config: null"] {
            std::fs::write(file, format!("port: 9\n{nested}\n")).unwrap();
            let error = rewritten(&format!("tito serve m --config {file}")).unwrap_err();
            assert!(error.ends_with("config: a file of flags names no other one: write all flags in one file"));
        }
        assert!(rewritten("tito serve m --config no-such.yaml").unwrap_err().contains("no-such.yaml"));
    }
}
