//! Every template of TRL, and those that llama.cpp and vLLM carry, with every request of the grid: the same text, or an error where Python has one.

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex};

use serde::Deserialize;
use serde_json::Value;
use time::{OffsetDateTime, macros::datetime};
use tito::{
    chat::{FunctionTool, Message},
    json,
    model::EosTokens,
    prompt::{ChatPrompt, OnUnprovable, PromptRenderer},
    tokenizer::{AddedToken, ByteLevelBpe, Tokenizer},
};

use super::{assert_none, in_parallel, lines, parting, recording, stems, values};
use crate::it::continuity::{Model, Server, ids};

/// What the recorder's clock shows.
const NOW: OffsetDateTime = datetime!(2024-07-04 15:06:09.000123 UTC);
/// Of every how many successes one is asked for over HTTP too.
const HTTP_STRIDE: usize = 16;

/// Where the templates come from.
const SOURCES: [&str; 3] = ["trl", "llama.cpp", "vllm"];

/// The fields of a chat request that decide its prompt.
#[derive(Deserialize)]
struct Request {
    messages: Vec<Message>,
    tools: Option<Vec<FunctionTool>>,
    documents: Option<Vec<json::Value>>,
    chat_template_kwargs: Option<json::Value>,
    reasoning_effort: Option<String>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
}

impl Request {
    fn into_prompt(self) -> ChatPrompt {
        let kwargs = self.chat_template_kwargs.as_ref().and_then(json::Value::as_object);
        ChatPrompt {
            tools: self.tools,
            documents: self.documents,
            add_generation_prompt: self.add_generation_prompt.unwrap_or(true),
            continue_final_message: self.continue_final_message.unwrap_or(false),
            template_kwargs: kwargs.cloned().unwrap_or_default(),
            reasoning_effort: self.reasoning_effort,
            now: NOW,
            ..ChatPrompt::new(self.messages)
        }
    }
}

/// One token for each byte, and the special tokens that the recorder gave the templates: ids are the text again.
fn bytes() -> Tokenizer {
    const SPECIAL: [&str; 3] = ["<unused>", "<s>", "</s>"];
    let alphabet = ('!'..='~').chain('¡'..='¬').chain('®'..='ÿ').chain('\u{100}'..='\u{143}');
    let tokens = SPECIAL.map(str::to_owned).into_iter().chain(alphabet.map(String::from));
    let added_tokens = (0..).zip(SPECIAL).map(|(id, token)| AddedToken::verbatim(id, token, true)).collect();
    ByteLevelBpe { vocab: tokens.zip(0..).collect(), added_tokens, ..ByteLevelBpe::default() }.build().unwrap()
}

/// Refused on purpose: of what kind the request is, and a part of the reason.
type Refusal = (&'static str, &'static str);
const LOSES_CALLS: Refusal = ("refused, since Python loses calls", "makes calls");
/// vLLM refuses these before it renders them; the recorder's renderer leaves the parts out.
const LACKS_TEXT: Refusal = ("refused, since a part has no text", "of a content part must be a string");

/// What the model said there is in no prompt of Python's.
const LOSES_REFUSAL: Refusal = ("refused, since Python loses a refusal", "`refusal` of a message is not served");

/// Why a request that Python renders is refused.
fn refused_on_purpose(request: &str) -> Option<Refusal> {
    let request: Value = serde_json::from_str(request).unwrap_or_default();
    let messages = request["messages"].as_array()?;
    let lacks_text = |part: &Value| match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") => part["text"].is_null(),
        Some("refusal") => part["refusal"].is_null(),
        _ => false,
    };
    let mut parts = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    if parts.any(lacks_text) {
        return Some(LACKS_TEXT);
    }
    let loses_refusal = |message: &Value| {
        let refusal = message["refusal"].as_str().filter(|refusal| !refusal.is_empty());
        refusal.is_some_and(|refusal| !message["content"].to_string().contains(refusal))
    };
    if messages.iter().any(loses_refusal) {
        return Some(LOSES_REFUSAL);
    }
    // Whether the last message is to be continued and makes calls, which Python leaves out of the prompt.
    let calls = messages.last().and_then(|last| last["tool_calls"].as_array()).is_some_and(|calls| !calls.is_empty());
    (request["continue_final_message"] == true && calls).then_some(LOSES_CALLS)
}

/// What was compared, by kind, and what differed.
#[derive(Default)]
struct Report {
    counts: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

impl Report {
    fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        self.differences.extend(other.differences);
    }
}

/// vLLM's models of requests refuse a name that is null, its renderer passes over it.
fn without_null_names(request: &str) -> String {
    request.replace(r#", "name": null"#, "")
}

/// One template behind the renderer and behind HTTP.
struct Subject {
    model: Model,
    renderer: PromptRenderer,
    server: Server,
    runtime: tokio::runtime::Runtime,
    has_clock: bool,
}

impl Subject {
    fn new(source: &str) -> Self {
        let model = Model::new(bytes(), source, EosTokens { primary: Some(2), others: Vec::new() });
        Self {
            renderer: model.renderer(OnUnprovable::Error),
            server: model.serve(Vec::new()),
            model,
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            has_clock: source.contains("strftime_now"),
        }
    }

    fn render(&self, request: &str) -> Result<String, String> {
        let request: Request = serde_json::from_str(request).map_err(|error| error.to_string())?;
        let prompt = self.renderer.render(&request.into_prompt()).map_err(|error| error.to_string())?;
        Ok(self.model.text(&prompt.token_ids))
    }

    fn tokenized(&self, request: &str) -> String {
        let (status, answer) = self.runtime.block_on(self.server.post("/tokenize", without_null_names(request)));
        if status == 200 { self.model.text(&ids(&answer["tokens"])) } else { answer.to_string() }
    }

    fn refusal(&self, request: &str) -> (u16, String) {
        let request = without_null_names(request);
        let fields = request.strip_prefix('{').unwrap();
        let request = format!(r#"{{"tool_choice": "none", "max_tokens": 1, {fields}"#);
        let (status, answer) = self.runtime.block_on(self.server.post("/v1/chat/completions", request));
        (status, answer["error"]["message"].as_str().unwrap_or_default().to_owned())
    }

    fn compare(&self, index: usize, request: &str, recorded: &Value, report: &mut Report) -> Result<(), String> {
        let rendered = self.render(request);
        // Messages are read before the template can raise anything.
        let refusal =
            refused_on_purpose(request).filter(|refusal| *refusal != LOSES_CALLS || recorded["text"].is_string());
        if let Some((kind, reason)) = refusal {
            report.count(kind);
            return match rendered {
                Err(error) if error.contains(reason) => Ok(()),
                other => Err(format!("  expected a refusal with {reason:?}\n  got {other:?}")),
            };
        }
        let Some(expected) = recorded["text"].as_str() else {
            if let Ok(text) = rendered {
                return Err(format!("  expected {recorded}\n  got {text:?}"));
            }
            let (status, message) = self.refusal(request);
            let raised = recorded["raised"].as_str();
            report.count(if raised.is_some() { "raised" } else { "failed" });
            return if status == 400 && raised.is_none_or(|raised| raised == message) {
                Ok(())
            } else {
                Err(format!("  expected 400 {recorded}\n  got {status} {message:?}"))
            };
        };
        match rendered {
            Ok(text) if text == expected => report.count("text"),
            Ok(text) => return Err(parting(expected, &text)),
            Err(error) => return Err(format!("  expected {expected:?}\n  got error {error:?}")),
        }
        if index.is_multiple_of(HTTP_STRIDE) && !self.has_clock {
            let text = self.tokenized(request);
            if text != expected {
                return Err(format!("over HTTP:\n{}", parting(expected, &text)));
            }
            report.count("text over HTTP");
        }
        Ok(())
    }
}

fn compare(directory: &Path, name: &str, requests: &[String]) -> Report {
    let subject = Subject::new(&fs::read_to_string(directory.join(format!("{name}.jinja"))).unwrap());
    let recorded = values(&directory.join(format!("renders/{name}.jsonl")));
    assert_eq!(recorded.len(), requests.len(), "{name}");
    let mut report = Report::default();
    for (index, (request, recorded)) in requests.iter().zip(&recorded).enumerate() {
        if let Err(difference) = subject.compare(index, request, recorded, &mut report) {
            report.differences.push(format!("{name}, {request}\n{difference}"));
        }
    }
    report
}

#[test]
fn every_template_renders_as_python_recorded_it() {
    let Some(directory) = recording() else { return };
    let requests = lines(&directory.join("requests.jsonl"));
    let mut names = Vec::new();
    for source in SOURCES {
        let recorded = stems(&directory.join("renders").join(source));
        assert_eq!(recorded, stems(&directory.join(source)));
        names.extend(recorded.into_iter().map(|name| format!("{source}/{name}")));
    }
    let count = names.len();
    let report = Mutex::new(Report::default());
    in_parallel(names, |name| {
        let compared = compare(&directory, &name, &requests);
        report.lock().unwrap().add(compared);
    });
    let report = report.into_inner().unwrap();
    eprintln!("{count} templates, {} requests each, as Python: {:?}", requests.len(), report.counts);
    assert_none(&report.differences);
    let kinds = ["text", "raised", "failed", LOSES_CALLS.0, LACKS_TEXT.0, LOSES_REFUSAL.0];
    let compared: usize = kinds.iter().filter_map(|kind| report.counts.get(kind)).sum();
    assert_eq!(compared, count * requests.len());
}
