//! `tito replay`: a capture, sampled again, and the exit code that says how much of it is proven.

use std::{fs, path::Path};

use serde_json::json;

use crate::program::{Run, Server, TINY_MODEL, run};

/// Captures a completion for each of these fields, all of whose tokens are the letter a.
fn captured(file: &Path, flags: &[&str], requests: &[serde_json::Value]) {
    let capture = ["--capture", file.to_str().unwrap()];
    let server = Server::start(&[&capture[..], flags].concat());
    for fields in requests {
        let mut body = json!({ "prompt": [5, 6, 7], "max_tokens": 4, "allowed_token_ids": [67], "ignore_eos": true });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body);
        assert!(answer["choices"].is_array(), "{answer}");
    }
    server.stop("-TERM");
}

fn replayed(file: &Path, flags: &[&str]) -> Run {
    run(&[&["replay", file.to_str().unwrap(), TINY_MODEL, "--engine", "scripted"], flags].concat())
}

#[test]
fn the_exit_code_says_how_much_is_proven() {
    let directory = tempfile::tempdir().unwrap();
    let [whole, part] = ["whole", "part"].map(|name| directory.path().join(name));
    captured(&whole, &[], &[json!({}), json!({ "stop": "aa" })]);
    let all = replayed(&whole, &[]);
    let line = "2 turns equal to the bit (6 tokens), 0 in part (0 tokens), 0 differ, 0 not repeatable\n";
    assert_eq!((all.code, &*all.out), (Some(0), line), "{}", all.err);

    // Of what was sampled, all is the same, and nobody knows any more what ended it.
    captured(&part, &["--capture-texts", "false"], &[json!({}), json!({ "stop": "aa" })]);
    let some = replayed(&part, &[]);
    let (named, last) = some.out.split_once('\n').unwrap();
    assert!(
        named.ends_with(
            ": all 2 tokens are equal to the bit; its stop strings were not kept (--capture-texts false), so its end is \
             not compared"
        ),
        "{named}"
    );
    let counted = "1 turns equal to the bit (4 tokens), 1 in part (2 tokens), 0 differ, 0 not repeatable\n";
    assert_eq!((some.code, last), (Some(3), counted), "{}", some.err);
    assert!(!some.err.contains("error: "), "{}", some.err);

    // What is proven is proven of the flags in the file, which are read.
    let missing = replayed(&whole, &["--config", "/no/such.yaml"]);
    assert!(missing.code != Some(0) && missing.err.contains("/no/such.yaml"), "{}", missing.err);
    let flags = directory.path().join("flags.yaml");
    fs::write(&flags, "max-model-len: 2\n").unwrap();
    let shorter = replayed(&whole, &["--config", flags.to_str().unwrap()]);
    assert_ne!(shorter.code, Some(0), "{}", shorter.out);

    // A difference counts for more than a part.
    let script = directory.path().join("script");
    fs::write(&script, "[67, 67, 68, 68]\n[67, 67]\n").unwrap();
    let other = replayed(&whole, &["--script", script.to_str().unwrap()]);
    assert_eq!(other.code, Some(1), "{}", other.out);
    assert!(
        other.err.ends_with("error: some turns are not the same as in the file, or cannot be replayed\n"),
        "{}",
        other.err
    );
}

#[test]
fn its_help_has_the_exit_codes() {
    let help = run(&["replay", "--help"]);
    assert_eq!(help.code, Some(0));
    let (_, codes) = help.out.split_once("Exit codes:\n").unwrap();
    let numbers: Vec<&str> = codes.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(numbers, ["0", "1", "2", "3"], "{codes}");
}
