//! Constraints over the tokens of the tiny model, followed byte by byte and sampled at random.

mod forced;
mod guesses;
mod hostile;
mod schemas;
mod told_apart;

use std::{collections::HashMap, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    TokenId,
    sampling::{SamplingParams, SequenceSampler, SharedConstraint, TokenMask},
    tokenizer::Tokenizer,
};

const IM_END: TokenId = 2;

pub(crate) struct Model {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) grammars: Grammars,
    /// The token of each byte.
    bytes: HashMap<u8, TokenId>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-model/tokenizer.json");
        Self::of(Arc::new(Tokenizer::from_file(path).unwrap()))
    }

    fn of(tokenizer: Arc<Tokenizer>) -> Self {
        let ids = (0..).take(tokenizer.vocab_size()).filter(|&id| !tokenizer.is_special(id));
        let bytes = ids.filter_map(|id| match tokenizer.token_bytes(id).ok()?.as_slice() {
            &[byte] => Some((byte, id)),
            _ => None,
        });
        Self { bytes: bytes.collect(), grammars: Grammars::new(Arc::clone(&tokenizer), [IM_END]), tokenizer }
    }

    pub(super) fn compile(&self, constraint: &Constraint) -> SharedConstraint {
        self.grammars
            .compile(constraint, &Cancellation::default())
            .unwrap_or_else(|error| panic!("{constraint:?}: {error}"))
    }

    /// Whether the output may be these ids.
    fn accepts_ids(&self, constraint: &Constraint, ids: impl IntoIterator<Item = TokenId>) -> bool {
        let mut state = self.compile(constraint).start();
        let mut mask = TokenMask::default();
        for id in ids {
            let _ = state.allow(&mut mask).unwrap();
            if !mask.allows(id) {
                return false;
            }
            state.accept(id).unwrap();
        }
        state.allow(&mut mask).unwrap_or(false)
    }

    /// Whether an output may begin so.
    pub(crate) fn may_begin(&self, constraint: &Constraint, text: &str) -> bool {
        let mut state = self.compile(constraint).start();
        let mut mask = TokenMask::default();
        text.bytes().map(|byte| self.bytes[&byte]).all(|id| {
            let _ = state.allow(&mut mask).unwrap();
            mask.allows(id) && state.accept(id).is_ok()
        })
    }

    pub(crate) fn accepts(&self, constraint: &Constraint, text: &str) -> bool {
        self.accepts_ids(constraint, text.bytes().map(|byte| self.bytes[&byte]))
    }

    #[track_caller]
    pub(super) fn check(&self, constraint: &Constraint, accepted: &[&str], refused: &[&str]) {
        for text in accepted {
            assert!(self.accepts(constraint, text), "{constraint:?} should accept {text:?}");
        }
        for text in refused {
            assert!(!self.accepts(constraint, text), "{constraint:?} should refuse {text:?}");
        }
    }

    pub(super) fn error(&self, constraint: &Constraint) -> String {
        self.grammars.compile(constraint, &Cancellation::default()).unwrap_err().message
    }

    /// What random logits make of a constraint: the text, and whether it ended before `most` tokens.
    fn sample(&self, constraint: &Constraint, seed: u64, most: usize) -> (String, bool) {
        // Short outputs: closing is likelier than going on.
        self.sample_with(constraint, seed, most, (b"\"}]", 4.0))
    }

    /// Samples with a bias for some bytes.
    pub(super) fn sample_with(
        &self,
        constraint: &Constraint,
        seed: u64,
        most: usize,
        (bytes, bias): (&[u8], f32),
    ) -> (String, bool) {
        let params = SamplingParams {
            constraint: Some(self.compile(constraint)),
            eos_token_id: Some(IM_END),
            seed: Some(seed),
            max_tokens: most,
            ..SamplingParams::default()
        };
        let mut sampler = SequenceSampler::new(params.valid(), Arc::new([]));
        let mut ids = Vec::new();
        let mut random = seed;
        loop {
            let mut logits: Vec<f32> = (0..self.tokenizer.vocab_size())
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    f32::from(u16::try_from(random >> 48).unwrap()) / 16_384.0
                })
                .collect();
            for byte in bytes {
                logits[self.bytes[byte] as usize] += bias;
            }
            let step = sampler.step(&mut logits).unwrap();
            if step.token.id == IM_END {
                return (self.tokenizer.decode(&ids, false).unwrap(), true);
            }
            ids.push(step.token.id);
            if step.finish.is_some() {
                return (self.tokenizer.decode(&ids, false).unwrap(), false);
            }
        }
    }
}

pub(super) fn regex(regex: &str) -> Constraint {
    Constraint::Regex(regex.to_owned())
}

pub(super) fn grammar(grammar: &str) -> Constraint {
    Constraint::Grammar(grammar.to_owned())
}

pub(super) fn schema(schema: Value) -> Constraint {
    Constraint::Json(schema, JsonOptions::default())
}

pub(super) fn tags(format: &Value) -> Constraint {
    let format = Format::from_request(&json!({ "format": format })).unwrap();
    Constraint::Tags(format, JsonOptions::default())
}

#[test]
fn a_regex_matches_all_of_the_output() {
    let model = Model::new();
    model.check(&regex("(yes|no), [0-9]{2}"), &["yes, 10", "no, 99"], &["", "yes", "yes, 1", "yes, 100", " yes, 10"]);
    model.check(&regex(r"^\d+/\w$"), &["12/a"], &["٣/a", "12/", "12/é"]);
    model.check(&regex(""), &[""], &["a"]);
    model.check(&regex("é+"), &["éé"], &["è"]);
}

/// In ECMAScript and Python, what stands in a class is a character or a range.
#[test]
fn classes_of_characters_have_no_operations() {
    let model = Model::new();
    model.check(&regex("[+--]"), &["+", ",", "-"], &["a", "."]);
    model.check(&regex("[a-c&&b-d]"), &["a", "d", "&"], &["e"]);
    model.check(&regex(r"[[a\]]"), &["[", "a", "]"], &["b"]);
    model.check(&regex(r"[\w--_]"), &["a", "-", "_", "A"], &["!"]);
    model.check(&schema(json!({"type": "string", "pattern": "^[+--]$"})), &["\"+\"", "\",\"", "\"-\""], &["\"a\""]);
}

#[test]
fn a_choice_may_begin_with_another_one() {
    let model = Model::new();
    let choice = |choices: &[&str]| Constraint::Choice(choices.iter().map(|choice| (*choice).to_owned()).collect());
    model.check(&choice(&["a", "ab", "x\"y\n"]), &["a", "ab", "x\"y\n"], &["", "b", "abb", "x"]);
    model.check(&choice(&["", "no"]), &["", "no"], &["n"]);
    assert_eq!(model.error(&choice(&[])), "Choice '[]' cannot be an empty list");
}

#[test]
fn json_objects_are_any_and_end_with_their_brace() {
    let model = Model::new();
    let object = Constraint::JsonObject(JsonOptions::default());
    let accepted = ["{}", "{ \n}", "{\"a\": [1, {\"b\": null}], \"\\u00e9\\u0041\": \"x\\n\"}"];
    model.check(&object, &accepted, &["", "[]", "1", " {}", "{} ", "{}\n", "{\"a\"}", "{'a': 1}", "{\"a\": 1,}"]);
}

#[test]
fn json_keeps_to_its_schema() {
    let model = Model::new();
    let person = schema(json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 3}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name", "age"]}));
    let accepted = ["{\"name\":\"Bob\",\"age\":42}", "{\n  \"name\": \"\",\n  \"age\": 0\n}"];
    let refused = [
        "{\"name\":\"Robert\",\"age\":42}",
        "{\"name\":\"Bob\",\"age\":121}",
        "{\"name\":\"Bob\"}",
        "{\"age\":42,\"name\":\"Bob\"}",
        "{\"name\":\"Bob\",\"age\":42,\"more\":1}",
        "{\"name\":\"Bob\",\"age\":42} ",
    ];
    model.check(&person, &accepted, &refused);
    let open = schema(json!({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": true}));
    model.check(&open, &["{\"a\":null,\"b\":1}", "{\"b\":1}"], &["{\"a\":1}"]);
    model.check(&schema(json!(true)), &["1", "null", "[{}]"], &["", "nul"]);
    model.check(&schema(json!({"enum": ["a", 1]})), &["\"a\"", "1"], &["\"b\"", "2"]);
}

#[test]
fn white_space_in_json_can_be_chosen() {
    let model = Model::new();
    let options = JsonOptions { whitespace: Some(" ?".to_owned()), ..JsonOptions::default() };
    let array = Constraint::Json(json!({"type": "array", "items": {"type": "integer"}}), options);
    model.check(&array, &["[1, 2]", "[ 1,2 ]"], &["[1,  2]", "[1,\n2]"]);
}

#[test]
fn ebnf_without_recursion_is_matched_whatever_its_lexemes_would_be() {
    let model = Model::new();
    model.check(&grammar("root ::= \"hello\" | \"goodbye\""), &["hello", "goodbye"], &["", "hell", "hellogoodbye"]);
    // A lexer that takes the longest would leave no x.
    model.check(&grammar("root ::= a \"x\"\na ::= [a-z]*"), &["x", "xx", "abx"], &["", "ab"]);
    model.check(&grammar("root ::= [^\\n\"]{2,3} # end"), &["ab", "é.b"], &["a", "abcd", "a\"b"]);
    model.check(&grammar("root ::= (\"a\"? \"b\")+ \"\""), &["b", "abb"], &["", "a"]);
}

#[test]
fn ebnf_with_recursion_is_matched_character_by_character() {
    let model = Model::new();
    let sums = grammar("root ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" root \")\" | \"len\" [a-z]* \"x\"");
    model.check(&sums, &["1", "12+(3+4)", "lenx", "lenxx+1", "lenabx"], &["", "(1", "1+", "len", "lena"]);
    model.check(&grammar("root ::= \"(\" root \")\" | \"x\"{0} \"y\" [a-z]{0,0}"), &["y", "((y))"], &["xy", "", "ya"]);
    let words = grammar("root ::= \"if\" | [a-z]+ | \"(\" root \")\"");
    model.check(&words, &["if", "i", "iffy", "((if))"], &["(if", "IF"]);
}

#[test]
fn lark_is_taken_as_it_is() {
    let model = Model::new();
    model.check(&grammar("start: \"a\" WORD\nWORD: /[b-d]+/"), &["abc"], &["a", "abe"]);
    assert!(
        model.error(&grammar("start: missing")).starts_with("Grammar error: "),
        "{}",
        model.error(&grammar("start: missing"))
    );
}

#[test]
fn structural_tags_leave_text_free_and_hold_what_is_tagged() {
    let model = Model::new();
    let call = json!({"type": "triggered_tags", "triggers": ["<f"], "tags": [
        {"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {"type": "object",
            "properties": {"x": {"type": "integer"}}, "required": ["x"]}}, "end": "</f>"},
        {"begin": "<f=b>", "content": {"type": "any_text"}, "end": "</f>"}]});
    let accepted = ["", "text < f", "<f=a>{\"x\": 1}</f>", "a<f=b>any <b> text</f>b<f=a>{\"x\":2}</f>"];
    model.check(&tags(&call), &accepted, &["<f", "<f=c></f>", "<f=a>{}</f>", "<f=b>", "<f=a>{\"x\":1}"]);
    let thought = json!({"type": "sequence", "elements": [
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text", "excludes": ["no"]}, "end": "</t>"},
        {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]+"}, {"type": "const_string", "value": "-"}]}]});
    let closed =
        json!({"type": "tag", "begin": "<t>", "content": {"type": "any_text", "excludes": ["<"]}, "end": "</t>"});
    model.check(&tags(&closed), &["<t></t>", "<t>ab</t>"], &["<t>a<b</t>", "<t>a</b></t>", "<t>a"]);
    model.check(&tags(&thought), &["<t></t>1", "<t>a</b></t>-"], &["<t>no</t>1", "<t>a</t>", "<t>a1"]);
    let list = json!({"type": "tags_with_separator", "separator": ",", "at_least_one": true, "tags": [
        {"begin": "(", "content": {"type": "regex", "pattern": "[a-z)]*"}, "end": ")"}]});
    model.check(&tags(&list), &["()", "(a),(b)", "(a)),(b)"], &["", "(a)(b)", "(a),", "(a"]);
}

/// The lexer takes as much text as it can for an expression, and left nothing for what follows.
#[test]
fn an_expression_may_end_where_what_follows_it_begins() {
    let model = Model::new();
    let word = || json!({"type": "regex", "pattern": "^[a-z]+$"});
    let text = |value: &str| json!({"type": "const_string", "value": value});
    let parts = |elements: Value| tags(&json!({"type": "sequence", "elements": elements}));
    model.check(&parts(json!([word(), text("x")])), &["ax", "axx", "xx"], &["x", "ab", ""]);
    model.check(
        &parts(json!([text("("), word(), text("x"), word(), text(")")])),
        &["(axb)", "(xxx)"],
        &["(xa)", "(abc)"],
    );
    model.check(
        &parts(json!([{"type": "sequence", "elements": [text("-"), word()]}, text("x/")])),
        &["-ax/"],
        &["-a/", "-x/"],
    );
    model.check(
        &parts(json!([word(), {"type": "optional", "content": text("1")}, text("x")])),
        &["ax", "a1x"],
        &["1x"],
    );
    model.check(&parts(json!([{"type": "plus", "content": word()}, text("x")])), &["ax", "xx"], &["x"]);
    let either = json!({"type": "or", "elements": [word(), {"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": ">"}]});
    model.check(&parts(json!([either, text("x")])), &["ax", "xx", "<a>x"], &["x", "a", "<a>"]);
    let free = json!({"type": "any_text"});
    model.check(&parts(json!([free, text("#"), word(), text("x")])), &["#ax", "12#xx"], &["#x", "ax"]);
    let number = || json!({"type": "json_schema", "json_schema": {"type": "integer"}});
    model.check(&parts(json!([number(), text("!")])), &["12!"], &["!", "12"]);
    for text in [".", "0", "e"].map(text) {
        let in_a_tag = json!({"type": "tag", "begin": "<", "content": number(), "end": text["value"]});
        assert!(model.error(&parts(json!([number(), text]))).contains("number cannot be followed by"));
        assert!(model.error(&tags(&in_a_tag)).contains("number cannot be followed by"));
    }
    let string = json!({"type": "json_schema", "json_schema": {"type": "string"}});
    model.check(&parts(json!([string, text(".")])), &["\"a\"."], &["\"a\""]);
}

#[test]
fn a_special_token_among_fixed_text_is_the_token_and_never_text() {
    let model = Model::new();
    let special =
        model.tokenizer.added_tokens().iter().find(|token| model.tokenizer.is_special(token.id) && token.id != IM_END);
    let special = special.expect("the tiny model has special tokens").clone();
    let format = json!({"type": "sequence", "elements": [
        {"type": "any_text"}, {"type": "const_string", "value": format!("{}b", special.content)}]});
    let constraint =
        tags(&json!({"type": "tag", "begin": "a", "content": {"type": "any_text"}, "end": special.content}));
    let ids = |text: &str| text.bytes().map(|byte| model.bytes[&byte]).collect::<Vec<_>>();
    assert!(model.accepts_ids(&constraint, [ids("axy"), vec![special.id]].concat()));
    assert!(model.accepts_ids(&constraint, [ids("a"), vec![special.id]].concat()));
    assert!(!model.accepts_ids(&constraint, ids(&format!("axy{}", special.content))));
    assert!(model.accepts_ids(&tags(&format), [ids("xy"), vec![special.id], ids("b")].concat()));
    let string = schema(json!({"type": "string"}));
    assert!(!model.accepts_ids(&string, [ids("\""), vec![special.id], ids("\"")].concat()));
    assert!(!model.accepts_ids(&string, [ids("\""), vec![IM_END], ids("\"")].concat()));
}

#[test]
fn reasoning_is_free_and_what_follows_its_end_is_constrained() {
    let model = Model::new();
    let ids = |text: &str| text.bytes().map(|byte| model.bytes[&byte]).collect::<Vec<_>>();
    let [end, call] = [model.bytes[&b'#'], model.bytes[&b'<']];
    let follow = |constraint: &Constraint, text: &str| {
        let ends = ReasoningEnd { end, call: Some(call) };
        let mut state = after_reasoning(model.compile(constraint), ends, model.tokenizer.vocab_size()).start();
        let mut mask = TokenMask::default();
        for id in ids(text) {
            let _ = state.allow(&mut mask).unwrap();
            if !mask.allows(id) {
                return None;
            }
            state.accept(id).unwrap();
        }
        let may_end = state.allow(&mut mask).unwrap();
        Some(may_end || mask.allows(IM_END))
    };
    let word = regex("ab");
    assert_eq!(follow(&word, "thoughts#ab"), Some(true));
    assert_eq!(follow(&word, "ab"), Some(true), "thoughts may be all that there is");
    assert_eq!(follow(&word, "thoughts#a"), Some(false));
    assert_eq!(follow(&word, "thoughts#x"), None);
    assert_eq!(follow(&word, "thoughts<"), None, "no call can begin");
    assert_eq!(follow(&regex("<a>"), "thoughts<a>"), Some(true));
    assert_eq!(follow(&regex("<a>"), "thoughts<b"), None);
}

#[test]
fn errors_say_what_is_wrong() {
    let model = Model::new();
    let expected = "Grammar error: at 1(8): invalid regex \"[0-9\" (in regex): regex parse error:\n    [0-9\n    ^\nerror: \
                    unclosed character class\n   1 | start: /[0-9/\n              ^";
    assert_eq!(model.error(&regex("[0-9")), expected);
    assert!(model.error(&regex("a\\")).contains("ends within an escape"));
    assert!(model.error(&regex("a(?=b)")).contains("look"), "{}", model.error(&regex("a(?=b)")));
    assert!(model.error(&schema(json!({"type": "sausage"}))).contains("sausage"));
    assert!(model.error(&schema(json!({"not": {}}))).contains("not"));
    assert!(model.error(&schema(json!([]))).contains("must be an object"));
    for rounded in [
        json!({"const": 1e300}),
        json!({"enum": ["a", 1_234_567_890_123_456_789_u64]}),
        json!({"properties": {"default": {"const": -9_007_199_254_740_993_i64}}}),
        json!({"type": "integer", "minimum": 9_007_199_254_740_993_u64}),
    ] {
        assert!(model.error(&schema(rounded)).contains("too large to be exact"));
    }
    model.compile(&schema(json!({"type": "integer", "maximum": 9_007_199_254_740_991_u64, "default": u64::MAX})));
    assert!(model.error(&grammar("root ::= x")).starts_with("Invalid grammar specification. line 1: "));
}

#[test]
fn what_is_compiled_is_compiled_once() {
    let model = Model::new();
    assert_eq!(model.compile(&regex("a+")), model.compile(&regex("a+")));
    assert_ne!(model.compile(&regex("a+")), model.compile(&regex("a*")));
}

#[test]
fn every_token_that_is_allowed_leaves_an_output_that_can_be_completed() {
    let model = Model::new();
    for seed in 0..12 {
        for constraint in [
            regex("(ab|cd)*e{2,5}"),
            grammar("root ::= \"a\" root \"b\" | \"c\""),
            tags(&json!({"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": "[a-f]*"}, "end": ">"})),
        ] {
            // If something is left at every step, none of them was a dead end.
            let (text, ended) = model.sample(&constraint, seed, 300);
            assert!(!ended || model.accepts(&constraint, &text), "{constraint:?}: {text:?}");
        }
    }
}

/// A schema and whether a value keeps to it.
#[derive(Debug, Clone)]
enum Shape {
    Null,
    Bool,
    Integer(i64, i64),
    Text(usize),
    Among(Vec<String>),
    List(Box<Shape>, usize),
    Object(Vec<(Shape, bool)>),
}

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Self::Null => json!({"type": "null"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Integer(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Text(most) => json!({"type": "string", "maxLength": most}),
            Self::Among(texts) => json!({"enum": texts}),
            Self::List(item, most) => json!({"type": "array", "items": item.schema(), "maxItems": most}),
            Self::Object(entries) => {
                let name = |index| format!("p{index}");
                let properties: serde_json::Map<_, _> =
                    entries.iter().enumerate().map(|(index, (shape, _))| (name(index), shape.schema())).collect();
                let required: Vec<_> =
                    entries.iter().enumerate().filter(|(_, entry)| entry.1).map(|(index, _)| name(index)).collect();
                json!({"type": "object", "properties": properties, "required": required})
            }
        }
    }

    fn holds(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) | (Self::Bool, Value::Bool(_)) => true,
            (Self::Integer(least, most), Value::Number(number)) => {
                // `-0` is an integer of JSON, which serde_json reads as a float.
                let number = if number.to_string() == "-0.0" { Some(0) } else { number.as_i64() };
                number.is_some_and(|number| (*least..=*most).contains(&number))
            }
            (Self::Text(most), Value::String(text)) => text.chars().count() <= *most,
            (Self::Among(texts), Value::String(text)) => texts.contains(text),
            (Self::List(item, most), Value::Array(items)) => {
                items.len() <= *most && items.iter().all(|value| item.holds(value))
            }
            (Self::Object(entries), Value::Object(values)) => {
                let known = |name: &String| name[1..].parse::<usize>().is_ok_and(|index| index < entries.len());
                values.keys().all(known)
                    && entries.iter().enumerate().all(|(index, (shape, required))| {
                        values.get(&format!("p{index}")).map_or(!required, |value| shape.holds(value))
                    })
            }
            _ => false,
        }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Null),
        Just(Shape::Bool),
        (-50_i64..50, 0_i64..2_000).prop_map(|(least, width)| Shape::Integer(least, least + width)),
        (0_usize..6).prop_map(Shape::Text),
        prop::collection::vec("[a-z\"\\\\é]{0,4}", 1..4).prop_map(Shape::Among),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0_usize..3).prop_map(|(item, most)| Shape::List(Box::new(item), most)),
            prop::collection::vec((inner, any::<bool>()), 0..4).prop_map(Shape::Object),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_random_logits_make_of_a_schema_keeps_to_it(shape in shapes(), seed in any::<u64>()) {
        thread_local!(static MODEL: Model = Model::new());
        MODEL.with(|model| {
            let constraint = Constraint::Json(shape.schema(), JsonOptions { compact: true, ..JsonOptions::default() });
            let (text, ended) = model.sample(&constraint, seed, 2_000);
            prop_assert!(ended, "{}: {text:?} did not end", shape.schema());
            let value: Value = serde_json::from_str(&text).map_err(|error| {
                TestCaseError::fail(format!("{}: {text:?}: {error}", shape.schema()))
            })?;
            prop_assert!(shape.holds(&value), "{}: {text:?}", shape.schema());
            Ok(())
        })?;
    }
}
