//! The templates that TRL ships, with real tokenizers: every shape of conversation with every end of a generation, as in
//! `matrix`. The oracle works on text, and knows of each family only how it closes messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use expect_test::expect;
use serde_json::{Value, json};
use tito::{
    TokenId,
    model::EosTokens,
    prompt::{PromptError, Provenance, UnprovableSplice, replace_prefix_tokens},
    tokenizer::{AddedToken, Tokenizer},
};

use super::{
    Model,
    families::Family,
    ids,
    matrix::{ENDS, End, request, shapes},
    multiturn::smollm2_tokenizer,
    oracle::{CALL_MARK, MARK, known},
};
use crate::fidelity::{assert_none, in_parallel, recording, stems};

/// How the models of a family end their turns.
struct Ends {
    /// The tokenizer's own end-of-sequence token, then those of the generation configuration.
    stops: &'static [&'static str],
    /// What closes a message with another behind it; empty where nothing does.
    close: &'static str,
    /// What closes it at the very end.
    last_close: &'static str,
    /// What closes a message that makes calls.
    call_close: &'static str,
    /// A stop token that closes nothing.
    foreign: &'static str,
}

const fn ends(stops: &'static [&'static str], close: &'static str, foreign: &'static str) -> Ends {
    Ends { stops, close, last_close: close, call_close: close, foreign }
}

/// The family of a template by the beginning of its name, longest first: the tokenizer, then its ends.
const FAMILIES: [(&str, &str, Ends); 20] = [
    (
        "cohere2",
        "smollm2",
        ends(&["<|END_OF_TURN_TOKEN|>", "<|endoftext|>"], "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "<|endoftext|>"),
    ),
    ("cohere", "smollm2", ends(&["<|END_OF_TURN_TOKEN|>", "<|endoftext|>"], "<|END_OF_TURN_TOKEN|>", "<|endoftext|>")),
    ("deepseek", "deepseek_v3", ends(&["<｜end▁of▁sentence｜>", "<|EOT|>"], "<｜end▁of▁sentence｜>", "<|EOT|>")),
    ("diffusion_gemma", "smollm2", GEMMA4),
    ("gemma4", "smollm2", GEMMA4),
    ("gemma", "gemma3", ends(&["<eos>", "<end_of_turn>"], "<end_of_turn>", "<eos>")),
    ("glm4moe", "smollm2", ends(&["<|endoftext|>", "<|user|>", "<|observation|>"], "", "<|endoftext|>")),
    (
        "gptoss",
        "gptoss",
        Ends {
            last_close: "<|return|>",
            call_close: "<|call|>",
            ..ends(&["<|return|>", "<|endoftext|>", "<|call|>"], "<|end|>", "<|endoftext|>")
        },
    ),
    ("idefics3", "smollm2", ends(&["<end_of_utterance>", "<|endoftext|>"], "<end_of_utterance>", "<|endoftext|>")),
    ("lfm2", "smollm2", ends(&["<|im_end|>", "<|endoftext|>"], "<|im_end|>", "<|endoftext|>")),
    ("llama3", "llama3_1", ends(&["<|eot_id|>", "<|end_of_text|>"], "<|eot_id|>", "<|end_of_text|>")),
    ("llava_next", "smollm2", ends(&["</s>", "<|endoftext|>"], "</s>", "<|endoftext|>")),
    ("muse_glimmer", "smollm2", ends(&["<|eot|>", "<|endoftext|>"], "<|eot|>", "<|endoftext|>")),
    ("nemotron", "smollm2", ends(&["<|im_end|>", "<|endoftext|>"], "<|im_end|>", "<|endoftext|>")),
    ("phi3", "smollm2", ends(&["<|endoftext|>", "<|end|>"], "<|end|>", "<|endoftext|>")),
    ("qwen2_5", "qwen3", QWEN),
    ("qwen3", "qwen3", QWEN),
    ("smolvlm", "smollm2", ends(&["<end_of_utterance>", "<|endoftext|>"], "<end_of_utterance>", "<|endoftext|>")),
    ("", "", QWEN),
    ("", "", QWEN),
];
const QWEN: Ends = ends(&["<|im_end|>", "<|endoftext|>"], "<|im_end|>", "<|endoftext|>");
/// The model stops where the tool's answer begins.
const GEMMA4: Ends =
    Ends { call_close: "<|tool_response>", ..ends(&["<eos>", "<turn|>", "<|tool_response>"], "<turn|>", "<eos>") };

/// The special tokens that a template writes: a bar within angle brackets.
fn special_tokens(template: &str) -> BTreeSet<String> {
    let ends = |rest: &str| rest.char_indices().find(|&(at, c)| c == '>' && at > 1).map(|(at, _)| at + 1);
    let tokens = template.match_indices('<').filter_map(|(at, _)| Some(&template[at..at + ends(&template[at..])?]));
    let is_token = |token: &&str| {
        let inner = &token[1..token.len() - 1];
        token.len() < 40
            && (inner.starts_with('|') || inner.ends_with('|'))
            && !inner.contains([' ', '\'', '{', '<', '\n'])
    };
    tokens.filter(is_token).map(str::to_owned).collect()
}

/// The tokenizers, each read once.
struct Tokenizers<'a> {
    directory: &'a Path,
    read: Mutex<BTreeMap<&'static str, Arc<Tokenizer>>>,
}

impl Tokenizers<'_> {
    fn of(&self, name: &'static str, template: &str, ends: &Ends) -> Arc<Tokenizer> {
        if name == "smollm2" {
            let mut tokenizer = smollm2_tokenizer();
            let wanted = special_tokens(template).into_iter().chain(ends.stops.iter().map(ToString::to_string));
            let missing: BTreeSet<String> = wanted.filter(|token| tokenizer.id_of(token).is_none()).collect();
            let first = u32::try_from(tokenizer.vocab_size()).unwrap();
            let added: Vec<_> =
                (first..).zip(&missing).map(|(id, token)| AddedToken::verbatim(id, token, true)).collect();
            tokenizer = tokenizer.with_added_tokens(&added).unwrap();
            return Arc::new(tokenizer);
        }
        let mut read = self.read.lock().unwrap();
        let path = self.directory.join(format!("tokenizers/{name}/tokenizer.json"));
        Arc::clone(read.entry(name).or_insert_with(|| Arc::new(Tokenizer::from_file(path).unwrap())))
    }

    fn family(&self, name: &str) -> Family {
        let source = fs::read_to_string(self.directory.join(format!("trl/{name}.jinja"))).unwrap();
        let (_, tokenizer, ends) = FAMILIES.iter().find(|(prefix, ..)| name.starts_with(prefix)).unwrap();
        assert!(!tokenizer.is_empty(), "{name} is of no family that is listed");
        let tokenizer = self.of(tokenizer, &source, ends);
        let id = |token: &&str| tokenizer.id_of(token).unwrap_or_else(|| panic!("{name} has no {token}"));
        let stops: Vec<TokenId> = ends.stops.iter().map(id).collect();
        let eos = EosTokens { primary: Some(stops[0]), others: stops[1..].to_vec() };
        Family {
            name: name.to_owned().leak(),
            model: Model::new(tokenizer, &source, eos),
            close: ends.close,
            last_close: ends.last_close,
            call_close: ends.call_close,
            stop: ends.close.is_empty().then_some(ends.stops[1]),
            foreign: ends.foreign,
        }
    }
}

/// What has to follow the known ids, as text and as ids: what the honest render has behind the anchor's own words, from
/// the close on. `None` where it does not show them.
fn tail(family: &Family, request: &Value) -> Result<Option<(Vec<TokenId>, usize)>, PromptError> {
    let (anchor, _) = known(request);
    let model = &family.model;
    let last = anchor + 1 == request["messages"].as_array().unwrap().len();
    let honest = model.honest(request)?;
    let text = model.text(&honest);
    let mut marked = request.clone();
    let message = &mut marked["messages"][anchor];
    message["content"] = json!(MARK);
    // Some templates show the first call only, some none.
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        call["function"]["arguments"] = json!(json!({"a": 0, "b": CALL_MARK}).to_string());
    }
    let marked = model.text(&model.honest(&marked)?);
    let calls = marked.contains(CALL_MARK);
    let Some((_, behind)) = marked.rsplit_once(if calls { CALL_MARK } else { MARK }) else { return Ok(None) };
    let close = match (calls, last, &request["add_generation_prompt"]) {
        (true, _, _) => family.call_close,
        (false, true, Value::Bool(false)) => family.last_close,
        _ => family.close,
    };
    let start = if close.is_empty() {
        let special = model.tokenizer.added_tokens().iter().filter(|token| token.special);
        special.filter_map(|token| behind.find(&token.content)).min().unwrap_or(behind.len())
    } else {
        let Some(start) = behind.find(close) else { return Ok(None) };
        start
    };
    let tail = &behind[start..];
    if !text.ends_with(tail) {
        return Ok(None);
    }
    // The close is a token of its own, so the ids of the tail are the last ids of the whole.
    let is_tail = |&at: &usize| model.text(&honest[at..]) == tail;
    let start = (0..=honest.len()).rev().find(is_tail).expect("a tail of whole tokens");
    let closers = if close.is_empty() { usize::from(start < honest.len()) } else { model.ids(close).len() };
    Ok(Some((honest[start..].to_vec(), closers)))
}

/// The known ids and what has to follow them.
fn expected(family: &Family, request: &Value) -> Result<Option<Vec<TokenId>>, PromptError> {
    let (anchor, known) = known(request);
    let last = anchor + 1 == request["messages"].as_array().unwrap().len();
    if last && request["continue_final_message"] == true {
        return Ok(Some(known));
    }
    let Some((tail, closers)) = tail(family, request)? else { return Ok(None) };
    let sampled = ids(&request["messages"][anchor]["generation_token_ids"]);
    let overlap = (0..=closers).rev().find(|&length| sampled.ends_with(&tail[..length])).unwrap();
    Ok(Some([known.as_slice(), &tail[overlap..]].concat()))
}

/// What NeMo-RL would make of the request, which counts end-of-sequence tokens up to the last assistant message.
fn by_nemo_rl(family: &Family, request: &Value) -> Option<Vec<TokenId>> {
    let messages = request["messages"].as_array().unwrap();
    let last = messages.iter().rposition(|message| message["role"] == "assistant")?;
    let mut start = json!({"messages": messages[..=last], "add_generation_prompt": false});
    for message in start["messages"].as_array_mut().unwrap() {
        message.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_token_ids"));
    }
    let model = &family.model;
    let (start, whole) = (model.honest(&start).ok()?, model.honest(request).ok()?);
    replace_prefix_tokens(model.eos.primary, &known(request).1, &start, &whole).ok()
}

/// Where counting end tokens happens to be right and no proof is known: template and shape.
const UNPROVEN: [(&str, &str); 2] = [
    // It shows the first of several parts, and what it leaves out could as well have been the end of the message.
    ("llava_next", "content parts"),
    ("deepseek_r1_distill", "thoughts and calls"),
];

#[derive(Debug, Default)]
struct Counts {
    exact: usize,
    exact_after_foreign_stop: usize,
    refused: BTreeMap<String, usize>,
    /// The template cannot show the conversation.
    not_shown: usize,
    /// The template does not show what the message says, so that only the two proofs speak for the ids.
    without_oracle: usize,
    nemo_rl_right: usize,
    nemo_rl_wrong: usize,
    nemo_rl_fails: usize,
    wrong: Vec<String>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.exact += other.exact;
        self.exact_after_foreign_stop += other.exact_after_foreign_stop;
        self.not_shown += other.not_shown;
        self.without_oracle += other.without_oracle;
        self.nemo_rl_right += other.nemo_rl_right;
        self.nemo_rl_wrong += other.nemo_rl_wrong;
        self.nemo_rl_fails += other.nemo_rl_fails;
        self.wrong.extend(other.wrong);
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
    }
}

fn check(family: &Family, (shape, messages, fields): (&str, &[Value], &Value), end: End, counts: &mut Counts) {
    let place = format!("{}, {shape}, {end:?}", family.name);
    let Ok(request) = request(family, messages, fields, end) else {
        counts.not_shown += 1;
        return;
    };
    let rendered = match family.model.render(&request) {
        Ok(rendered) => rendered,
        Err(PromptError::Unprovable(reason)) => {
            *counts.refused.entry(format!("{shape}: {}", <&str>::from(reason))).or_default() += 1;
            let right = expected(family, &request).ok().flatten();
            let lost = [UnprovableSplice::MessagesMoved, UnprovableSplice::ContinuesClosedMessage].contains(&reason);
            let listed = UNPROVEN.iter().any(|(prefix, of)| family.name.starts_with(prefix) && *of == shape);
            if !lost && !listed && right.is_some() && right == by_nemo_rl(family, &request) {
                counts.wrong.push(format!("{place}: NeMo-RL can, {reason:?}"));
            }
            return;
        }
        Err(_) => {
            counts.not_shown += 1;
            return;
        }
    };
    let (_, known) = known(&request);
    let Provenance::Spliced { foreign_stop, .. } = rendered.provenance else {
        panic!("{place}: {:?}", rendered.provenance)
    };
    if !rendered.token_ids.starts_with(&known) {
        counts.wrong.push(format!("{place} does not start with the known ids"));
        return;
    }
    let Some(expected) = expected(family, &request).unwrap() else {
        counts.without_oracle += 1;
        return;
    };
    let [is, should] = [&*rendered.token_ids, expected.as_slice()].map(|ids| family.model.text(ids));
    if *rendered.token_ids != expected {
        counts.wrong.push(format!("{place} is silently wrong:\n{is:?}\n{should:?}"));
        return;
    }
    *(if foreign_stop { &mut counts.exact_after_foreign_stop } else { &mut counts.exact }) += 1;
    match by_nemo_rl(family, &request) {
        None => counts.nemo_rl_fails += 1,
        Some(ids) if ids == expected => counts.nemo_rl_right += 1,
        Some(_) => counts.nemo_rl_wrong += 1,
    }
}

#[test]
fn every_splice_with_real_templates_is_exact_or_refused() {
    let Some(directory) = recording() else { return };
    let tokenizers = Tokenizers { directory: &directory, read: Mutex::default() };
    let counts = Mutex::new(Counts::default());
    in_parallel(stems(&directory.join("trl")), |name| {
        let family = tokenizers.family(&name);
        let mut own = Counts::default();
        for (shape, messages, fields) in shapes() {
            for end in ENDS {
                check(&family, (shape, &messages, &fields), end, &mut own);
            }
        }
        counts.lock().unwrap().add(own);
    });
    let mut counts = counts.into_inner().unwrap();
    assert_none(&std::mem::take(&mut counts.wrong));
    let counts = format!("{counts:#?}");
    eprintln!("{counts}");
    expect![[r#"
        Counts {
            exact: 10407,
            exact_after_foreign_stop: 1707,
            refused: {
                "call last: no_close": 7,
                "content and call: messages_moved": 42,
                "content parts: tail_differs": 14,
                "continues the anchor: continues_closed_message": 144,
                "continues the anchor: continues_other_text": 76,
                "developer later: messages_moved": 413,
                "system later: messages_moved": 42,
                "thoughts and calls: messages_moved": 42,
                "thoughts and calls: tail_differs": 7,
            },
            not_shown: 672,
            without_oracle: 539,
            nemo_rl_right: 7157,
            nemo_rl_wrong: 2004,
            nemo_rl_fails: 2953,
            wrong: [],
        }"#]]
    .assert_eq(&counts);
}
