//! `/v1/trajectories/export`: log-probs leave only as what trainers take them for.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::RowAccessor as _,
};
use serde_json::{Value, json};
use strum::VariantArray;
use tito::{
    store::MemoryStore,
    trajectory::{AdapterUsed, CapturePolicy, Generation, PackedMasks, SamplingUsed, Trajectories},
    turn::Capture,
};

use crate::{
    it::app::{MODEL, TestApp},
    wire::trajectories::export::Format,
};

/// The name of a format in queries.
pub(super) fn named(format: Format) -> String {
    serde_json::to_value(format).unwrap().as_str().unwrap().to_owned()
}

/// The formats of trainers, which are all but tito's own.
fn trainers() -> impl Iterator<Item = String> {
    let trainers = Format::VARIANTS.iter().filter(|format| !matches!(format, Format::Jsonl | Format::Parquet));
    trainers.copied().map(named)
}

/// What a request changes of its sampling.
type Edit = fn(&mut SamplingUsed);

/// The model's own distribution, and the log-probs of it.
pub(super) fn raw() -> SamplingUsed {
    SamplingUsed {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        repetition_penalty: 1.0,
        logit_bias: vec![],
        allowed_token_ids: None,
        bad_words_token_ids: vec![],
        seed: Some(1),
        max_tokens: 3,
        min_tokens: 0,
        ignore_eos: true,
        eos_token_id: Some(2),
        extra_eos_token_ids: vec![],
        stop_token_ids: vec![],
        stop: None,
        logprobs_mode: "raw_logprobs".to_owned(),
        detects_repetition: false,
        is_constrained: false,
        gives_experts: false,
    }
}

/// A turn of three sampled ids.
pub(super) fn turn(prompt: &[u32], session: usize, sampling: Option<SamplingUsed>) -> Generation {
    Generation {
        prompt: prompt.into(),
        sampled: vec![1; 3],
        logprobs: vec![-0.5, -0.25, -0.125],
        ranks: vec![1; 3],
        session: Some(session.to_string().into()),
        sampling,
        ..Generation::default()
    }
}

/// A server that captured these turns.
pub(super) fn captured(turns: impl IntoIterator<Item = Generation>) -> TestApp {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories =
        Trajectories::open(store, CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true }).unwrap();
    for generation in turns {
        trajectories.capture(generation).unwrap();
    }
    let trajectories = Arc::new(trajectories);
    TestApp::new().captures(Capture { trajectories, model: MODEL.into(), process: "test".into() })
}

/// A server that captured one trajectory of one turn for each of these.
fn app(turns: impl IntoIterator<Item = Option<SamplingUsed>>) -> TestApp {
    let prompt = |number: usize| [3, 4 + u32::try_from(number).unwrap()];
    captured(turns.into_iter().enumerate().map(|(number, sampling)| turn(&prompt(number), number, sampling)))
}

/// The message of a line that stands for a sequence that could not be exported; empty for all others.
fn error(line: &Value) -> &str {
    line["error"]["message"].as_str().unwrap_or_default()
}

pub(super) async fn exported(app: &TestApp, query: &str) -> Vec<Value> {
    let answer = app.get(&format!("/v1/trajectories/export?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The errors of the rows of a table, and which distribution their log-probs describe.
async fn table(app: &TestApp, query: &str) -> Vec<(Option<String>, Option<String>)> {
    let request = axum::http::Request::get(format!("/v1/trajectories/export?format=parquet&{query}"));
    let body = app.send(request.body(axum::body::Body::empty()).unwrap()).await.into_body();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let reader = SerializedFileReader::new(bytes).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| (row.get_string(2).ok().cloned(), row.get_string(6).ok().cloned())).collect()
}

#[tokio::test]
async fn log_probs_of_another_distribution_than_the_sampled_one_are_no_trainers() {
    let edits: [(&str, Edit); 13] = [
        ("temperature 0.5", |used| used.temperature = 0.5),
        ("temperature 0", |used| used.temperature = 0.0),
        ("top_p 0.9", |used| used.top_p = 0.9),
        ("top_k 40", |used| used.top_k = 40),
        ("min_p 0.05", |used| used.min_p = 0.05),
        ("presence_penalty 0.5", |used| used.presence_penalty = 0.5),
        ("frequency_penalty -0.5", |used| used.frequency_penalty = -0.5),
        ("repetition_penalty 1.5", |used| used.repetition_penalty = 1.5),
        ("min_tokens 2", |used| used.min_tokens = 2),
        ("logit_bias", |used| used.logit_bias = vec![(7, 1.5)]),
        ("allowed_token_ids", |used| used.allowed_token_ids = Some(vec![1, 2])),
        ("bad_words", |used| used.bad_words_token_ids = vec![vec![9]]),
        ("a grammar, a budget for thoughts or a limit of one call", |used| used.is_constrained = true),
    ];
    let edited = |(_, edit): &(&str, Edit), mode: &str| {
        let mut used = SamplingUsed { logprobs_mode: mode.to_owned(), ..raw() };
        edit(&mut used);
        Some(used)
    };
    let raw_ones = app(edits.iter().map(|edit| edited(edit, "raw_logprobs")));
    let processed = app(edits.iter().map(|edit| edited(edit, "processed_logprobs")));
    for format in trainers() {
        let lines = exported(&raw_ones, &format!("format={format}")).await;
        assert_eq!(lines.len(), edits.len());
        for (line, (named, _)) in lines.iter().zip(edits) {
            let message = error(line);
            assert!(message.contains(&format!("request edited ({named})")), "{format} {line}");
            assert!(message.contains("allow_raw=true") && message.contains("processed_logprobs"), "{message}");
        }
        let allowed = exported(&raw_ones, &format!("format={format}&allow_raw=true")).await;
        assert!(allowed.len() == edits.len() && allowed.iter().all(|line| line.get("error").is_none()), "{allowed:?}");
        let right = exported(&processed, &format!("format={format}")).await;
        assert_eq!(right.len(), edits.len());
        for (line, (named, _)) in right.iter().zip(edits) {
            // The most probable token is said to be as probable as at temperature 1.
            assert_eq!(error(line).contains("(temperature 0)"), named == "temperature 0", "{format} {line}");
            assert_eq!(line.get("error").is_some(), named == "temperature 0", "{format} {line}");
        }
    }
    let refused = table(&raw_ones, "").await;
    for ((error, mode), (named, _)) in refused.iter().zip(edits) {
        assert!(error.as_ref().unwrap().contains(&format!("request edited ({named})")), "{error:?}");
        assert_eq!(*mode, None);
    }
    let all_of = |mode: &str| vec![(None, Some(mode.to_owned())); edits.len()];
    assert_eq!(refused.len(), edits.len());
    assert_eq!(table(&raw_ones, "allow_raw=true").await, all_of("raw_logprobs"));
    assert_eq!(table(&processed, "allow_raw=true").await, all_of("processed_logprobs"));
    let greedy = table(&processed, "").await.into_iter().filter_map(|(error, _)| error).collect::<Vec<_>>();
    assert!(greedy.len() == 1 && greedy[0].contains("return_sampling_mask"), "{greedy:?}");
    // tito's own lines are the record, and say what it has.
    for line in exported(&raw_ones, "").await {
        assert_eq!((&line["logprobs_mode"], &line["logprobs"][2]), (&json!("raw_logprobs"), &json!(-0.5)));
    }
}

#[tokio::test]
async fn the_models_own_distribution_has_log_probs_of_every_mode_and_an_unknown_one_has_none() {
    let mode = |mode: &str| SamplingUsed { logprobs_mode: mode.to_owned(), ..raw() };
    let untouched = app(["raw_logprobs", "processed_logprobs"].map(|name| Some(mode(name))));
    let unknown = app([None, Some(SamplingUsed { top_k: 3, ..mode("other") })]);
    for format in trainers() {
        let lines = exported(&untouched, &format!("format={format}")).await;
        assert!(lines.len() == 2 && lines.iter().all(|line| line.get("error").is_none()), "{lines:?}");
        let lines = exported(&unknown, &format!("format={format}")).await;
        assert!(error(&lines[0]).contains("does not say how it was sampled"), "{format} {lines:?}");
        assert!(error(&lines[1]).contains("a mode that is not known here (other)"), "{format} {lines:?}");
        let lines = exported(&unknown, &format!("format={format}&allow_raw=true")).await;
        assert!(lines.len() == 2 && lines.iter().all(|line| line.get("error").is_none()), "{lines:?}");
    }
    let modes = exported(&unknown, "").await.into_iter().map(|line| line["logprobs_mode"].clone());
    assert_eq!(modes.collect::<Vec<_>>(), [json!(null), json!("other")]);
    let refused = untouched.get("/v1/trajectories/export?allow_raw=yes").await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("allow_raw")));
}

#[tokio::test]
async fn fields_that_edit_nothing_leave_the_distribution_the_models_own() {
    let idle: [Edit; 5] = [
        |used| used.presence_penalty = -0.0,
        |used| used.logit_bias = vec![(7, 0.0)],
        // There is no end that could be held back.
        |used| (used.min_tokens, used.eos_token_id) = (2, None),
        |used| used.stop = Some(vec!["end".to_owned()]),
        |used| used.gives_experts = true,
    ];
    let app = app(idle.iter().map(|edit| {
        let mut used = raw();
        edit(&mut used);
        Some(used)
    }));
    for format in trainers() {
        let lines = exported(&app, &format!("format={format}")).await;
        assert!(lines.len() == idle.len() && lines.iter().all(|line| line.get("error").is_none()), "{lines:?}");
    }
}

#[tokio::test]
async fn only_turns_that_are_learnt_from_have_to_fit() {
    let scaled = || Some(SamplingUsed { temperature: 0.5, ..raw() });
    let adapter = Some(AdapterUsed { name: "a".into(), label: "a@1".into(), checksum: None });
    let other = |prompt: &[u32], session| Generation { adapter: adapter.clone(), ..turn(prompt, session, scaled()) };
    let processed = Some(SamplingUsed { logprobs_mode: "processed_logprobs".to_owned(), ..raw() });
    let app = captured([
        // The last turn is the base's, and what the adapter sampled before it is not learnt from.
        other(&[3], 0),
        turn(&[3, 1, 1, 1, 4], 0, Some(raw())),
        // The first turn is learnt from, in the sequence of the leaf only.
        turn(&[5], 1, scaled()),
        turn(&[5, 1, 1, 1, 4], 1, Some(raw())),
        // Two servers had the file, one after the other.
        turn(&[6], 2, Some(raw())),
        turn(&[6, 1, 1, 1, 4], 2, processed),
    ]);
    for format in trainers() {
        let refused = async |unit: &str| {
            let lines = exported(&app, &format!("format={format}&unit={unit}")).await;
            lines.iter().map(|line| error(line).contains("temperature 0.5")).collect::<Vec<_>>()
        };
        assert_eq!(refused("leaf").await, [false, true, false], "{format}");
        assert_eq!(refused("turn").await, [true, false, true, false, false, false], "{format}");
    }
    let told = async |unit: &str| {
        let lines = exported(&app, &format!("unit={unit}")).await;
        lines.iter().map(|line| line["logprobs_mode"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let (raw, processed) = (Some("raw_logprobs".to_owned()), Some("processed_logprobs".to_owned()));
    assert_eq!(told("leaf").await, [raw.clone(), raw.clone(), None]);
    assert_eq!(told("turn").await[4..], [raw, processed]);
}

/// A turn whose tokens were the only ones that could be sampled, beside `others` in each row.
fn masked(prompt: &[u32], session: usize, sampling: SamplingUsed, others: &[u32]) -> Generation {
    let mut masks = PackedMasks::default();
    for _ in 0..3 {
        masks.push(&[&[1], others].concat());
    }
    Generation { masks, logprobs: vec![0.0; 3], ..turn(prompt, session, Some(sampling)) }
}

#[tokio::test]
async fn a_greedy_turn_fits_beside_a_mask_of_its_own_tokens_only() {
    let greedy = |temperature| SamplingUsed { temperature, logprobs_mode: "processed_logprobs".to_owned(), ..raw() };
    let uncertain = Generation { logprobs: vec![-0.5; 3], ..masked(&[3, 6], 2, greedy(0.0), &[]) };
    let app = captured([
        masked(&[3, 4], 0, greedy(0.0), &[]),
        // What is greedy is so below a bound.
        masked(&[3, 5], 1, greedy(1e-6), &[]),
        uncertain,
        masked(&[3, 7], 3, greedy(0.0), &[9]),
    ]);
    for format in trainers() {
        let lines = exported(&app, &format!("format={format}&allow_unmasked=true")).await;
        let refused = lines.iter().map(|line| error(line).contains("(temperature 0)"));
        assert_eq!(refused.collect::<Vec<_>>(), [false, false, true, true], "{format} {lines:?}");
    }
    // A trainer divides by a temperature.
    for line in exported(&app, "format=prime_rl&allow_raw=true").await {
        assert_eq!(line["temperatures"], json!([1.0, 1.0, 1.0, 1.0, 1.0]));
    }
}

#[tokio::test]
async fn what_branches_share_is_learnt_from_in_the_first_line_that_is_made() {
    let scaled = || SamplingUsed { temperature: 0.5, ..raw() };
    let app = captured([
        Generation { logprobs: vec![-0.5; 3], ..masked(&[5], 1, raw(), &[8, 9]) },
        turn(&[5, 1, 1, 1, 6], 1, Some(scaled())),
        masked(&[5, 1, 1, 1, 7], 1, raw(), &[]),
        turn(&[5, 1, 1, 1, 8], 1, Some(raw())),
    ]);
    let counts = |line: &Value| {
        let encoded = line["sampling_mask"]["counts"].as_str()?;
        let bytes = BASE64_STANDARD.decode(encoded).unwrap();
        Some(bytes.chunks(4).map(|word| word[0]).collect::<Vec<_>>())
    };
    let (all, last) =
        ([false, true, true, true, false, true, true, true], [[false; 5].as_slice(), &[true; 3]].concat());
    let lines = exported(&app, "format=prime_rl").await;
    assert!(error(&lines[0]).contains("temperature 0.5"), "{lines:?}");
    assert_eq!((&lines[1]["mask"], &lines[2]["mask"]), (&json!(all), &json!(last)));
    assert_eq!(counts(&lines[1]), Some(vec![0, 3, 3, 3, 0, 1, 1, 1]));
    // Outside the loss mask there is nothing.
    assert_eq!(counts(&lines[2]), None);
    assert_eq!(lines[2]["logprobs"], json!([0.0, 0.0, 0.0, 0.0, 0.0, -0.5, -0.25, -0.125]));
    let lines = exported(&app, "format=prime_rl&allow_raw=true").await;
    let masks = lines.iter().map(|line| line["mask"].clone()).collect::<Vec<_>>();
    assert_eq!(masks, [json!(all), json!(last), json!(last)]);
    assert_eq!(counts(&lines[1]), Some(vec![0, 0, 0, 0, 0, 1, 1, 1]));
    let repeated = async |query: &str| {
        let lines = exported(&app, query).await;
        lines.iter().map(|line| line["turns"][0]["repeated"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    // tito's own lines are all made.
    assert_eq!(repeated("format=jsonl").await, [false, true, true]);
    assert_eq!(repeated("unit=turn").await, [false, true, true, true]);
}

/// Pages and tests that have lists of their own, which the compiler does not see.
#[test]
fn every_format_is_named_where_formats_are_listed() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut missing = Vec::new();
    for format in Format::VARIANTS.iter().copied() {
        let name = named(format);
        let mut lists = vec![
            ("src/inspect/trajectories/query.rs", format!("`{name}`")),
            ("docs/trajectories.md", format!("\n| `{name}` | ")),
            ("docs/guides/rollouts.md", format!("`{name}`")),
        ];
        if format.write_line().is_some() {
            lists.push(("tests/clients/test_trajectory_formats.py", format!("\"{name}\"")));
        }
        missing.extend(lists.into_iter().filter(|(path, words)| !read(path).contains(words)));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
