//! Constraints that ask for too much, and what is said of them.

use serde_json::{Map, Value, json};

use super::{super::*, Model, grammar, regex, schema, tags};
use crate::sampling::TokenMask;

fn compile(model: &Model, constraint: &Constraint) -> Result<(), String> {
    model.grammars.compile(constraint, &Cancellation::default()).map(|_| ()).map_err(|error| error.message)
}

#[test]
fn hostile_constraints_are_refused_or_compiled_and_never_end_the_process() {
    let model = Model::new();
    let mut nested = json!({"type": "string"});
    for _ in 0..120 {
        nested = json!({"type": "object", "properties": {"a": nested}, "required": ["a"]});
    }
    let _ = compile(&model, &schema(nested));
    let chain: Map<String, Value> = (0..5_000)
        .map(|index| (format!("d{index}"), json!({"allOf": [{"$ref": format!("#/$defs/d{}", index + 1)}]})))
        .chain([("d5000".to_owned(), json!({"type": "null"}))])
        .collect();
    let _ = compile(&model, &schema(json!({"$ref": "#/$defs/d0", "$defs": chain})));
    let _ = compile(&model, &schema(json!({"$ref": "#"})));
    let _ = compile(&model, &regex("((a{1,1000}){1,1000}){1,1000}b"));
    let _ = compile(&model, &regex(&"(".repeat(200)));
    assert!(model.error(&regex(&"(".repeat(100_000))).contains("nests"));
    assert!(model.error(&regex(&"a".repeat(2_000_000))).contains("more than"));
    let _ = compile(&model, &grammar(&format!("start: {}\"a\"{}", "(".repeat(300), ")".repeat(300))));
    let long = (0..3_000).map(|index| format!("r{index} ::= r{}", index + 1)).collect::<Vec<_>>().join("\n");
    let _ = compile(&model, &grammar(&format!("root ::= r0\n{long}\nr3000 ::= \"a\"")));
    model.check(&regex("ok"), &["ok"], &["no"]);
}

#[test]
fn white_space_between_tokens_of_json_comes_to_an_end() {
    let model = Model::new();
    let blanks = |count: usize| " \n\t\n".chars().cycle().take(count).collect::<String>();
    let (most, more) = (blanks(MOST_WHITESPACE), blanks(MOST_WHITESPACE + 1));
    let one = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let tagged = tags(&json!({"type": "tag", "begin": "", "content": {"type": "json_schema", "json_schema": one},
        "end": ""}));
    for constraint in [
        Constraint::JsonObject(JsonOptions::default()),
        schema(json!({})),
        schema(one.clone()),
        Constraint::Json(one.clone(), JsonOptions { closed: true, ..JsonOptions::default() }),
        tagged,
        grammar(&format!("start: %json {one}")),
    ] {
        let each = |w: &str| format!("{{{w}\"a\"{w}:{w}1{w}}}");
        model.check(&constraint, &["{\"a\":1}", "{\n    \"a\": 1\n}", &each(&most)], &[&each(&more)]);
        for place in 0..4 {
            let gap = |index: usize| if index == place { more.as_str() } else { "" };
            let text = format!("{{{}\"a\"{}:{}1{}}}", gap(0), gap(1), gap(2), gap(3));
            assert!(!model.accepts(&constraint, &text), "{constraint:?} should refuse {text:?}");
        }
    }
}

#[test]
fn a_model_that_wants_nothing_but_blanks_still_finishes_json() {
    let model = Model::new();
    let person = schema(json!({"type": "object", "properties": {"unit": {"enum": ["C", "F"]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2}},
        "required": ["unit", "days"]}));
    for seed in 0..4 {
        let (text, ended) = model.sample_with(&person, seed, 600, (b" \n\t", 1_000.0));
        assert!(ended, "{text:?}");
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text:?}");
        assert!(text.len() > 2 * MOST_WHITESPACE, "there were blanks: {text:?}");
    }
}

#[test]
fn the_server_may_demand_compact_and_closed_json_of_everything() {
    let model = Model::new();
    let server = JsonOptions { compact: true, closed: true, ..JsonOptions::default() };
    let object =
        schema(json!({"type": "object", "properties": {"a": {"type": "null"}}, "anyOf": [{}]})).within(&server);
    model.check(&object, &["{}", "{\"a\": null}"], &["{ }", "{\"a\":null}", "{\"b\": 1}"]);
    let free = Constraint::JsonObject(JsonOptions::default()).within(&server);
    model.check(&free, &["{\"a\": [1, 2]}"], &["{\n}"]);
    assert_eq!(regex("a").within(&server), regex("a"));
}

#[test]
fn what_no_finite_output_keeps_to_is_refused_with_the_reason() {
    let model = Model::new();
    let endless = |value: Value| {
        let said = model.error(&schema(value.clone()));
        assert!(said.starts_with("Grammar error: `$ref` ") && said.contains("leads back to itself"), "{value}: {said}");
    };
    endless(json!({"$ref": "#"}));
    endless(json!({"allOf": [{"$ref": "#"}]}));
    endless(
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    );
    endless(json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}));
    let tag = json!({"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": {"$ref": "#"}},
        "end": ">"});
    assert!(model.error(&tags(&tag)).contains("leads back to itself"));
    assert!(model.error(&schema(json!({"$ref": "#/$defs/x"}))).contains("leads to nothing in the schema"));
    assert!(model.error(&schema(json!({"$ref": "http://a/b"}))).contains("another document"));
    let said = model.error(&grammar("root ::= \"a\" root"));
    assert_eq!(said, "Invalid grammar specification. rule \"root\" needs itself without an end");
    model.check(&schema(json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]})), &["null"], &["1"]);
    for (value, said) in [
        (json!({"type": "array", "minItems": 3, "maxItems": 2}), "minItems (3) is greater than maxItems (2)"),
        (json!({"enum": []}), "anyOf is empty"),
        (json!(false), "schema is false"),
        (json!({"type": "integer", "minimum": 5, "maximum": 4}), "minimum"),
        (json!({"type": "integer", "multipleOf": 999_983}), "`multipleOf`"),
        (json!({"type": "string", "minLength": 4_294_967_297_u64}), "minLength"),
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"type": "string", "format": "sausage"}), "sausage"),
        (json!({"type": "string", "pattern": "(a"}), "regex"),
    ] {
        let message = model.error(&schema(value.clone()));
        assert!(message.contains(said), "{value}: {message}");
    }
}

#[test]
fn a_grammar_whose_first_token_asks_for_too_much_is_refused_before_anything_is_generated() {
    let model = Model::new();
    let names = (0..600).map(|index| (format!("p{index}"), json!({})));
    let wide = json!({"type": "object", "properties": names.collect::<Map<_, _>>()});
    let said = model.error(&schema(wide));
    assert_eq!(
        said,
        "Grammar error: the grammar cannot be followed: its grammar is too ambiguous: there are too many ways to read \
         one token"
    );
    let rules: Vec<String> = (0..800).map(|index| format!("r{index} ::= r{0} | r{0} r{0}\n", index + 1)).collect();
    let chain = rules.concat();
    assert!(model.error(&grammar(&format!("root ::= r0\n{chain}r800 ::= \"a\"\n"))).contains("too ambiguous"));
}

#[test]
fn a_sequence_that_its_grammar_asks_too_much_of_ends_with_the_reason() {
    let model = Model::new();
    // Every further letter can be read in one more way.
    let mut state = model.compile(&grammar("root ::= \"\" | \"a\" root | root \"a\"")).start();
    let mut mask = TokenMask::default();
    let id = model.tokenizer.encode("a", false).unwrap()[0];
    let ended = (0..20_000).find_map(|_| state.allow(&mut mask).and_then(|_| state.accept(id)).err());
    let said = ended.expect("the grammar has a limit").to_string();
    assert!(said.starts_with("the structured output cannot be followed: its grammar is too ambiguous"), "{said}");
}

#[test]
fn a_grammar_that_nobody_waits_for_is_not_compiled_and_others_that_wait_get_it() {
    let model = Model::new();
    let gone = Cancellation::default();
    gone.cancel();
    let error = model.grammars.compile(&regex("a+"), &gone).unwrap_err();
    assert_eq!(error.message, "nobody waits for the grammar any more");
    model.check(&regex("a+"), &["a"], &["b"]);
    assert!(model.grammars.compile(&regex("a+"), &gone).is_ok(), "it is there already");
}

#[test]
fn the_length_of_a_constraint_is_that_of_all_its_texts() {
    for (constraint, bytes) in [
        (regex("abc"), 3),
        (grammar("abcd"), 4),
        (Constraint::Choice(vec!["ab".to_owned(), "c".to_owned()]), 5),
        (schema(json!({"ab": ["c", 1]})), 7),
        (Constraint::JsonObject(JsonOptions::default()), 0),
        (tags(&json!({"type": "tag", "begin": "ab", "content": {"type": "regex", "pattern": "c"}, "end": "d"})), 4),
    ] {
        assert!(!constraint.is_longer_than(bytes), "{constraint:?}");
        assert_eq!(
            bytes > 0,
            bytes.checked_sub(1).is_some_and(|less| constraint.is_longer_than(less)),
            "{constraint:?}"
        );
    }
}
