//! What a grammar leaves no choice about: it is what comes, however it is spelled.

use super::*;
use crate::structured::{ReasoningEnd, after_reasoning};

impl Model {
    /// The tiny model, which has these special tokens besides.
    pub(crate) fn with_special(contents: &[&str]) -> Self {
        let known = Self::new().tokenizer;
        let mut definition: Value = serde_json::from_str(&known.to_json().unwrap()).unwrap();
        let added = definition["added_tokens"].as_array_mut().unwrap();
        added.retain(|token| !contents.contains(&token["content"].as_str().unwrap()));
        let contents = contents.iter().map(|&content| (content, known.id_of(content)));
        let mut new = known.vocab_size()..;
        for (content, id) in contents {
            let id = id.map(|id| id as usize).or_else(|| new.next());
            added.push(json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                               "normalized": false, "special": true }));
        }
        added.sort_by_key(|token| token["id"].as_u64());
        Self::of(Arc::new(Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap()))
    }

    /// Whether an output may be this text, its special tokens by their ids.
    pub(crate) fn accepts_with_special(&self, constraint: &Constraint, text: &str) -> bool {
        self.accepts_ids(constraint, self.tokenizer.encode(text, false).unwrap())
    }
}

/// Outputs with fixed parts, between parts that are free.
pub(super) fn constraints() -> Vec<Constraint> {
    let call = json!({"type": "tag", "begin": "<tool_call>", "content": {"type": "json_schema", "json_schema": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}}, "required": ["city"]
    }}, "end": "</tool_call>"});
    vec![
        schema(json!({
            "type": "object", "additionalProperties": false, "required": ["temperature", "unit"],
            "properties": {"temperature": {"type": "integer"}, "unit": {"enum": ["celsius", "fahrenheit"]}}
        })),
        regex("(one|two) and then[0-9]+ the end"),
        Constraint::Choice(vec!["a long first answer".to_owned(), "a long second answer".to_owned()]),
        grammar("root ::= \"begin \" [a-z]+ \" and é end\""),
        tags(&call),
    ]
}

/// The ids of an output that random logits make, and what was forced after each of them.
fn sampled(model: &Model, constraint: SharedConstraint, seed: u64) -> (Vec<TokenId>, Vec<Vec<TokenId>>) {
    let params = SamplingParams {
        constraint: Some(constraint.never_long()),
        eos_token_id: Some(IM_END),
        seed: Some(seed),
        max_tokens: 120,
        ..SamplingParams::default()
    };
    let mut samplers = [
        SequenceSampler::new(params.clone().valid(), Arc::new([])).foreseeing(),
        SequenceSampler::new(params.valid(), Arc::new([])),
    ];
    let (mut ids, mut forced) = (Vec::new(), Vec::new());
    let tokens = (0..11_u8).map(|place| f32::from(place * 7 % 11) / 4.0).cycle();
    let logits: Vec<f32> = tokens.take(model.tokenizer.vocab_size()).collect();
    loop {
        let [step, plain] = samplers.each_mut().map(|sampler| sampler.step(&mut logits.clone()).unwrap());
        assert_eq!((&step.token, step.finish), (&plain.token, plain.finish), "what is sampled stays the same");
        assert!(plain.forced.is_empty(), "nobody asked");
        ids.push(step.token.id);
        forced.push(step.forced);
        if step.finish.is_some() {
            return (ids, forced);
        }
    }
}

fn bytes(model: &Model, ids: &[TokenId]) -> Vec<u8> {
    let of = |&id: &TokenId| {
        if model.tokenizer.is_special(id) {
            [&[0xff][..], &id.to_le_bytes()].concat()
        } else {
            model.tokenizer.token_bytes(id).unwrap()
        }
    };
    ids.iter().flat_map(of).collect()
}

#[test]
fn what_is_forced_is_what_comes() {
    let model = Model::new();
    for constraint in constraints() {
        let mut most = 0;
        for seed in 0..20 {
            let (ids, forced) = sampled(&model, model.compile(&constraint), seed);
            for (place, forced) in forced.iter().enumerate() {
                let (text, follows) = (bytes(&model, forced), bytes(&model, &ids[place + 1..]));
                let common = text.iter().zip(&follows).take_while(|(one, other)| one == other).count();
                assert!(common == text.len().min(follows.len()), "{constraint:?}: {text:?} at {place} of {ids:?}");
                most = most.max(text.len());
            }
        }
        assert!(most >= 4, "{constraint:?}: at most {most} bytes were forced");
    }
}

#[test]
fn nothing_is_forced_in_thoughts_and_what_follows_them_is() {
    let model = Model::new();
    let end = model.bytes[&b'!'];
    let answer = Constraint::Choice(vec!["forty-two".to_owned()]);
    for call in [None, Some(model.bytes[&b'f'])] {
        let constraint =
            after_reasoning(model.compile(&answer), ReasoningEnd { end, call }, model.tokenizer.vocab_size());
        let mut foresight = constraint.foresight().unwrap();
        assert!(foresight.follow(model.bytes[&b'a']) && foresight.forced().is_empty());
        if let Some(call) = call {
            assert!(foresight.follow(call));
            assert_eq!(bytes(&model, &foresight.forced()), b"orty-two");
        } else {
            assert!(foresight.follow(end));
            assert_eq!(bytes(&model, &foresight.forced()), b"forty-two");
            assert!(!foresight.follow(model.bytes[&b'x']), "what cannot follow ends it");
        }
    }
}

#[test]
fn a_long_text_is_forced_in_parts() {
    let model = Model::new();
    let text = "abcdefgh".repeat(625);
    let (ids, forced) = sampled(&model, model.compile(&Constraint::Choice(vec![text.clone()])), 1);
    assert!(text.as_bytes().starts_with(&bytes(&model, &ids)), "the output goes on");
    assert!(forced.iter().all(|forced| (1..=64).contains(&forced.len())));
}
