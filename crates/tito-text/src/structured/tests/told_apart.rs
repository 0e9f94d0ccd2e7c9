//! Structural tags whose parts begin like what follows them: all texts of the form can be sampled and no others, or the
//! form is refused.

use super::*;

/// What random formats are made of.
#[derive(Debug, Clone)]
enum Form {
    Text(&'static str),
    /// Some of these characters, at least so many.
    Letters(&'static str, usize),
    Integer,
    Object,
    Word,
    Sequence(Vec<Form>),
    Or(Vec<Form>),
    Repeated(Box<Form>, &'static str),
    Tag(&'static str, Box<Form>, &'static str),
    Listed(Box<Form>, &'static str),
}

const ALPHABET: &[u8] = b"ab1\"{} ";

impl Form {
    fn json(&self) -> Value {
        let all = |forms: &[Self]| forms.iter().map(Self::json).collect::<Vec<_>>();
        match self {
            Self::Text(text) => json!({"type": "const_string", "value": text}),
            Self::Letters(letters, least) => json!({"type": "regex", "pattern": format!("[{letters}]{{{least},}}")}),
            Self::Integer => json!({"type": "json_schema", "json_schema": {"type": "integer"}}),
            Self::Object => json!({"type": "json_schema", "json_schema": {"type": "object", "maxProperties": 0}}),
            Self::Word => json!({"type": "json_schema", "json_schema": {"enum": ["a", 11]}}),
            Self::Sequence(forms) => json!({"type": "sequence", "elements": all(forms)}),
            Self::Or(forms) => json!({"type": "or", "elements": all(forms)}),
            Self::Repeated(form, kind) => json!({"type": kind, "content": form.json()}),
            Self::Tag(begin, form, end) => json!({"type": "tag", "begin": begin, "content": form.json(), "end": end}),
            Self::Listed(form, separator) => json!({"type": "tags_with_separator", "separator": separator,
                "at_least_one": true, "tags": [{"begin": "", "content": form.json(), "end": ""}]}),
        }
    }

    /// Where it may end in a text if it begins there.
    fn ends(&self, text: &str, from: usize) -> Vec<usize> {
        let fixed = |part: &str| if text[from..].starts_with(part) { vec![from + part.len()] } else { Vec::new() };
        let then = |starts: Vec<usize>, form: &Self| {
            let mut ends: Vec<usize> = starts.into_iter().flat_map(|from| form.ends(text, from)).collect();
            ends.sort_unstable();
            ends.dedup();
            ends
        };
        match self {
            Self::Text(part) => fixed(part),
            Self::Letters(letters, least) => {
                let most = text[from..].chars().take_while(|&c| letters.contains(c)).count();
                (*least..=most).map(|length| from + length).collect()
            }
            Self::Integer | Self::Object => {
                (from + 1..=text.len()).filter(|&end| self.is_json(&text[from..end])).collect()
            }
            Self::Word => [fixed("\"a\""), fixed("11")].concat(),
            Self::Sequence(forms) => forms.iter().fold(vec![from], then),
            Self::Or(forms) => forms.iter().flat_map(|form| form.ends(text, from)).collect(),
            Self::Repeated(form, kind) => {
                let mut ends = if *kind == "plus" { then(vec![from], form) } else { vec![from] };
                loop {
                    let more = then(ends.clone(), form);
                    let new: Vec<usize> = more.into_iter().filter(|end| !ends.contains(end)).collect();
                    if new.is_empty() {
                        return ends;
                    }
                    ends.extend(new);
                    if *kind == "optional" {
                        return ends;
                    }
                }
            }
            Self::Tag(begin, form, end) => then(then(fixed(begin), form), &Self::Text(end)),
            Self::Listed(form, separator) => {
                let further = Self::Sequence(vec![Self::Text(separator), (**form).clone()]);
                let further = Self::Repeated(Box::new(further), "star");
                then(form.ends(text, from), &further)
            }
        }
    }

    fn is_json(&self, text: &str) -> bool {
        let has_blanks_around = text.trim() != text;
        !has_blanks_around
            && match serde_json::from_str::<Value>(text) {
                Ok(Value::Number(_)) => matches!(self, Self::Integer),
                Ok(Value::Object(_)) => matches!(self, Self::Object),
                _ => false,
            }
    }

    /// How many parts are JSON, and whether one may have white space in it.
    fn json_parts(&self) -> (usize, bool) {
        let all = |forms: &[Self]| {
            forms.iter().map(Self::json_parts).fold((0, false), |all, form| (all.0 + form.0, all.1 | form.1))
        };
        match self {
            Self::Integer | Self::Word => (1, false),
            Self::Object => (1, true),
            Self::Text(_) | Self::Letters(..) => (0, false),
            Self::Sequence(forms) | Self::Or(forms) => all(forms),
            Self::Repeated(form, _) | Self::Tag(_, form, _) | Self::Listed(form, _) => form.json_parts(),
        }
    }

    fn holds(&self, text: &str) -> bool {
        self.ends(text, 0).contains(&text.len())
    }
}

fn forms() -> impl Strategy<Value = Form> {
    let texts = || prop::sample::select(vec!["a", "ab", "b", "1", "\"", "{", "a1"]);
    let leaf = prop_oneof![
        texts().prop_map(Form::Text),
        (prop::sample::select(vec!["a", "ab", "a1", "b{", "1\"", "} "]), 0_usize..2)
            .prop_map(|(letters, least)| Form::Letters(letters, least)),
        Just(Form::Integer),
        Just(Form::Object),
        Just(Form::Word),
    ];
    leaf.prop_recursive(3, 10, 3, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(Form::Sequence),
            2 => prop::collection::vec(inner, 2..4).prop_map(Form::Or),
            1 => (boxed.clone(), prop::sample::select(vec!["optional", "star", "plus"]))
                .prop_map(|(form, kind)| Form::Repeated(form, kind)),
            1 => (texts(), boxed.clone(), texts()).prop_map(|(begin, form, end)| Form::Tag(begin, form, end)),
            1 => (boxed, prop::sample::select(vec!["", "a", "1"])).prop_map(|(form, by)| Form::Listed(form, by)),
        ]
    })
}

impl Model {
    /// All texts of at most `longest` letters that an output may be, and whether it may end.
    fn texts(&self, constraint: &Constraint, longest: usize) -> Vec<String> {
        let (mut found, mut open) = (Vec::new(), vec![String::new()]);
        while let Some(text) = open.pop() {
            if self.accepts(constraint, &text) {
                found.push(text.clone());
            }
            let longer = ALPHABET.iter().map(|&letter| format!("{text}{}", char::from(letter)));
            open.extend(longer.filter(|longer| longer.len() <= longest && self.may_begin(constraint, longer)));
        }
        found.sort_unstable();
        found
    }
}

fn all_texts(longest: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut begin = 0;
    for _ in 0..longest {
        let end = all.len();
        for index in begin..end {
            all.extend(
                ALPHABET.iter().map(|&letter| format!("{}{}", all[index], char::from(letter))).collect::<Vec<_>>(),
            );
        }
        begin = end;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn all_texts_of_a_form_can_be_sampled_and_no_others(form in forms(), seed in any::<u64>()) {
        thread_local!(static MODEL: (Model, Vec<String>) = (Model::new(), all_texts(4)));
        MODEL.with(|(model, texts)| {
            let constraint = tags(&form.json());
            if let Err(error) = model.grammars.compile(&constraint, &Cancellation::default()) {
                let is_named = error.message.contains("what follows it") || error.message.contains("directly follow")
                    || error.message.contains("number cannot be followed") || error.message.contains("same bracket");
                prop_assert!(is_named, "{form:?}: {error}");
                return Err(TestCaseError::reject("it is refused"));
            }
            // Where several values of JSON may begin, the compiler lets white space in before them.
            let (count, is_spaced) = form.json_parts();
            prop_assume!(count < 2 || !is_spaced);
            let mut expected: Vec<&String> = texts.iter().filter(|text| form.holds(text)).collect();
            expected.sort_unstable();
            let found = model.texts(&constraint, 4);
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{:?}", form);
            let (text, ended) = model.sample(&constraint, seed, 40);
            prop_assert!(!ended || form.holds(&text), "{form:?}: {text:?}");
            Ok(())
        })?;
    }
}

fn cs(value: &str) -> Value {
    json!({"type": "const_string", "value": value})
}

fn rx(pattern: &str) -> Value {
    json!({"type": "regex", "pattern": pattern})
}

#[expect(clippy::needless_pass_by_value, reason = "as the macro makes them")]
fn js(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": schema})
}

#[expect(clippy::needless_pass_by_value, reason = "as the macro makes them")]
fn tag(begin: &str, content: Value, end: &str) -> Value {
    json!({"type": "tag", "begin": begin, "content": content, "end": end})
}

#[expect(clippy::needless_pass_by_value, reason = "as the macro makes them")]
fn sequence(elements: Value) -> Constraint {
    tags(&json!({"type": "sequence", "elements": elements}))
}

#[expect(clippy::needless_pass_by_value, reason = "as the macro makes them")]
fn or(elements: Value) -> Value {
    json!({"type": "or", "elements": elements})
}

#[test]
fn a_part_that_would_take_in_what_follows_it_is_refused_by_name() {
    let model = Model::new();
    let (integer, boolean) = (|| js(json!({"type": "integer"})), || js(json!({"type": "boolean"})));
    let call = || tag("<f>", integer(), "</f>");
    let list = json!({"type": "tags_with_separator", "tags": [call()], "separator": ",", "at_least_one": true});
    for refused in [
        json!([rx("[a-z]+"), boolean()]),
        json!([rx("[^!]*"), call()]),
        json!([rx(".*"), js(json!({"type": "object"}))]),
        json!([rx("(.|\n)*"), call()]),
        json!([rx("[^!]*"), list]),
        json!([integer(), {"type": "plus", "content": cs("0")}]),
        json!([integer(), tag("5", boolean(), "")]),
        json!([integer(), or(json!([cs("0"), cs(".5")]))]),
        json!([or(json!([rx("[a-z]*1?"), {"type": "sequence", "elements": [cs("ab"), integer()]}]))]),
        json!([or(
            json!([{"type": "any_text"}, {"type": "sequence", "elements": [{"type": "any_text"}, cs("x"), integer()]}])
        )]),
        json!([js(json!({"type": "object"})), js(json!({"type": "array"}))]),
    ] {
        let error = model.error(&sequence(refused.clone()));
        let is_named = ["what follows it", "something else", "directly follow"].iter().any(|part| error.contains(part));
        assert!(is_named, "{refused}: {error}");
    }
}

#[test]
fn a_part_is_joined_with_what_follows_it_where_that_tells_them_apart() {
    let model = Model::new();
    let integer = || js(json!({"type": "integer"}));
    let between = || tag("a", rx("[a-c]*"), "b");
    model.check(&sequence(json!([between(), cs("c")])), &["abc", "abbc"], &["ab", "ac"]);
    let either = or(json!([tag("x", cs("a"), "y"), rx("[a-c]+")]));
    model.check(&sequence(json!([either, tag("c", cs("1"), "!")])), &["abc1!", "xayc1!", "cc1!"], &["c1!", "abc"]);
    model.check(&sequence(json!([rx("[a-z]*"), tag("ab1", integer(), "!")])), &["ab12!", "aab12!"], &["ab1!", "a2!"]);
    model.check(&sequence(json!([rx("[0-9]+"), {"type": "any_text"}])), &["1", "12", "1a2"], &["", "a"]);
    let list = json!({"type": "tags_with_separator", "tags": [between()], "separator": "c", "at_least_one": true});
    model.check(&tags(&list), &["ab", "abcab", "aabcacb"], &["", "abc", "abca"]);
}

fn tags_of(calls: &[Value]) -> Value {
    json!({"type": "tags_with_separator", "separator": "\n", "tags": calls, "at_least_one": true})
}

#[test]
fn common_formats_of_calls_are_served() {
    let model = Model::new();
    let call = |name: &str| {
        let begin = format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": ");
        tag(&begin, js(json!({"type": "object"})), "}\n</tool_call>")
    };
    let calls = [call("a"), call("ab")];
    let triggered = json!({"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": calls});
    model.check(
        &tags(&triggered),
        &["", "text", "a<tool_call>\n{\"name\": \"ab\", \"arguments\": {}}\n</tool_call>b"],
        &[],
    );
    let listed = json!({"type": "tags_with_separator", "separator": "\n", "tags": calls, "at_least_one": true});
    let section = tag("<cs>\n", tags_of(&[call("a"), call("ab")]), "\n</cs>");
    let one = "<tool_call>\n{\"name\": \"ab\", \"arguments\": {}}\n</tool_call>";
    model.check(&tags(&section), &[&format!("<cs>\n{one}\n{one}\n</cs>")], &[]);
    let thought = tag("<t>", json!({"type": "any_text"}), "</t>");
    let text = "<t>a</t><tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>";
    model.check(&sequence(json!([thought, listed])), &[text], &["<t>a</t>"]);
    let lead = sequence(json!([{"type": "any_text"}, cs("<tool_call>"), js(json!({})), cs("</tool_call>")]));
    model.check(&lead, &["ab<tool_call>12</tool_call>", "<tool_call>{\"a\": 1}</tool_call>"], &["12"]);
    model.check(&tags(&or(json!([js(json!({"type": "object"})), {"type": "any_text"}]))), &["{}", "{a", "b"], &[]);
}

#[test]
fn no_white_space_comes_between_json_and_what_follows_it() {
    let model = Model::new();
    let boolean = || js(json!({"type": "boolean"}));
    let ones = json!({"type": "plus", "content": js(json!({"enum": [1, 12]}))});
    model.check(&sequence(json!([ones, cs("e")])), &["1e", "112e", "1212e"], &["1 e", "1 12e", "e"]);
    let semicolon = json!({"type": "optional", "content": cs(";")});
    let both = json!([boolean(), semicolon, boolean()]);
    model.check(&sequence(both), &["true;false", "truefalse"], &["false  ;false", "true false"]);
    let list = json!({"type": "tags_with_separator", "tags": [tag("", boolean(), "")], "separator": ""});
    model.check(&tags(&list), &["", "true", "truefalse"], &["true ", "true\n"]);
    let compact = JsonOptions { compact: true, ..JsonOptions::default() };
    let objects = json!({"format": {"type": "plus", "content": js(json!({"type": "object"}))}});
    let objects = Constraint::Tags(Format::from_request(&objects).unwrap(), compact);
    model.check(&objects, &["{}", "{}{}"], &["{} {}", "{} "]);
}

#[test]
fn expressions_are_joined_whatever_their_groups_are_called() {
    let model = Model::new();
    model.check(&sequence(json!([rx("(?P<n>a)"), rx("(?P<n>b)")])), &["ab"], &["a"]);
    model.check(&sequence(json!([rx("(?x) a # first"), rx("b")])), &["ab"], &["a", "a b"]);
    model.check(&regex("(?x) a # first\n b # last"), &["ab"], &["a"]);
}

/// As many strict tools as an agent may have.
#[test]
fn very_many_tags_with_the_same_begin_are_told_apart() {
    let model = Model::new();
    let call = |number: usize| {
        let begin = format!("<tool_call>{{\"name\": \"some_tool_{number}\", \"arguments\": ");
        tag(&begin, js(json!({"type": "object"})), "}</tool_call>")
    };
    let calls: Vec<Value> = (0..800).map(call).collect();
    let format = or(Value::Array(calls));
    model.check(
        &tags(&format),
        &["<tool_call>{\"name\": \"some_tool_7\", \"arguments\": {}}</tool_call>"],
        &["<tool_call>{\"name\": \"some_tool_\", \"arguments\": {}}</tool_call>"],
    );
}

#[test]
fn a_form_that_is_too_large_to_look_at_is_refused() {
    let model = Model::new();
    let texts: Vec<Value> = (0..4000).map(|number| cs(&format!("{number}."))).collect();
    let error = model.error(&tags(&json!({"type": "star", "content": or(Value::Array(texts))})));
    assert!(error.contains("too large"), "{error}");
}

#[test]
fn equal_texts_and_references_without_end_are_told_apart_in_time() {
    let model = Model::new();
    let equal = json!({"type": "star", "content": or(Value::Array(vec![cs("a"); 600]))});
    model.check(&tags(&equal), &["", "a", "aaa"], &["b"]);
    let mut schema = json!({"$ref": "#/$defs/a0", "$defs": {"a7": {"type": "object", "properties": {}}}});
    for number in 0..7 {
        let next = json!({"$ref": format!("#/$defs/a{}", number + 1)});
        schema["$defs"][format!("a{number}")] = json!({"anyOf": [next.clone(), next]});
    }
    model.check(&tags(&tag("<f>", js(schema), "</f>")), &["<f>{}</f>"], &["<f>1</f>"]);
}

#[test]
fn one_expression_is_served_however_large_it_is() {
    let model = Model::new();
    model.check(&tags(&rx(".*a.{18}")), &["xaxxxxxxxxxxxxxxxxxx"], &["xa"]);
}

#[test]
fn tags_that_repeat_before_an_optional_one_are_served() {
    let model = Model::new();
    let repeated = json!({"type": "plus", "content": tag("<i>", rx("[^<]{1,9}"), "</i>")});
    let last = json!({"type": "optional", "content": tag("<b>", js(json!({"type": "object"})), "</b>")});
    model.check(
        &sequence(json!([repeated, last])),
        &["<i>a</i>", "<i>a</i><i>b</i><b>{}</b>"],
        &["<b>{}</b>", "<i></i>"],
    );
}

/// Both are the same grammar.
#[test]
fn what_was_compiled_for_calls_beside_a_form_is_not_taken_for_the_same_tag_of_a_request() {
    let model = Model::new();
    let call = json!({"type": "sequence", "elements": [cs("{\"name\": "), js(json!({"type": "boolean"})), cs("}")]});
    let Constraint::Tags(format, plain) = tags(&or(json!([call, js(json!({"type": "object"}))]))) else { panic!() };
    let calls = JsonOptions { brackets_are_json: true, ..JsonOptions::default() };
    model.check(&Constraint::Tags(format.clone(), calls), &["{\"name\": true}"], &["x"]);
    let error = model.error(&Constraint::Tags(format, plain));
    assert!(error.contains("bracket") || error.contains("what follows it"), "{error}");
}
