//! docs/control-plane.md: every path of the control plane is asked, on a server that computes a request, and the page's
//! table is what was seen to come of it. A call that answers with success has an effect that can be seen, or is one that
//! only looks, or is on a short list of those for which there is nothing to do.

mod rows;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, pin::pin, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, header},
};
use expect_test::expect_file;
use futures::{FutureExt, StreamExt, poll};
use serde_json::Value;
use tempfile::TempDir;
use tito::{
    adapters::{AdapterPolicy, Adapters},
    admin::{self, Admin},
    control::{ControlPolicy, SleepTag, Update},
    engine::{
        AdapterLimits, Engine, EngineError,
        native::{NativeSettings, StepGate},
    },
    generation::{Event, Finish, GenerationRequest},
    weights::checksum::Checksum,
};
use tower::ServiceExt;

use self::rows::{Ask, IDLE, Row, rows};
use super::control::{self, Events, Served, engine_of, generation, request, serve};
use crate::it::patience::until;

/// A control plane over a tiny model, without a port.
pub(super) struct Server {
    admin: Arc<Admin>,
    served: Served,
    router: Router,
    disk: TempDir,
    gate: StepGate,
}

fn settings() -> NativeSettings {
    let limits = AdapterLimits { max_loras: 1, max_lora_rank: 1 };
    NativeSettings { adapters: Some(limits), ..control::settings() }
}

impl Server {
    pub(super) fn new() -> Self {
        Self::of(&settings())
    }

    pub(super) fn of(settings_of_engine: &NativeSettings) -> Self {
        let engine = engine_of(settings_of_engine);
        let gate = engine.step_gate();
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let served = serve(Arc::clone(&engine), ControlPolicy::default());
        let adapters = Arc::new(Adapters::new(engine, AdapterPolicy::default()));
        let names =
            admin::Served { model: "tiny".to_owned(), name: "tiny".to_owned(), weights: None, kv_block_size: None };
        let admin = Arc::new(Admin { control: Arc::clone(&served.control), served: names, adapters });
        Self { router: admin::router(Arc::clone(&admin)), admin, served, disk: rows::disk(&settings()), gate }
    }

    /// The same server, whose weights were loaded from there.
    pub(super) fn with_weights(self, weights: &Path) -> Self {
        let Admin { control, served, adapters } = &*self.admin;
        let served = admin::Served { weights: Some(tito::control::LoadedFiles::at(weights)), ..served.clone() };
        let admin = Arc::new(Admin { control: Arc::clone(control), served, adapters: Arc::clone(adapters) });
        Self { router: admin::router(Arc::clone(&admin)), admin, ..self }
    }

    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    async fn ask(&self, asked: &Ask) -> (StatusCode, Vec<u8>) {
        let (media_type, body) = asked.body(self.disk.path(), &settings());
        ask(&self.router, &asked.method, &asked.uri(), media_type, body).await
    }
}

/// Asks, and reads the whole answer.
pub(super) async fn ask(
    router: &Router,
    method: &Method,
    uri: &str,
    media_type: &str,
    body: impl Into<Body>,
) -> (StatusCode, Vec<u8>) {
    let request = Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, media_type);
    let answer = router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let status = answer.status();
    (status, axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec())
}

/// What a server shows of itself.
#[derive(Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part of the state of its own")]
struct Seen {
    is_paused: bool,
    refuses: bool,
    is_asleep: bool,
    is_updating: bool,
    label: String,
    updates: u64,
    sums: Option<BTreeMap<String, Checksum>>,
    lacking: usize,
    adapters: Vec<String>,
}

impl Seen {
    async fn of(server: &Server) -> Self {
        let control = &server.served.control;
        let shown = control.status();
        // Only where nothing is computed: elsewhere, it would be.
        let newcomer = || request(&server.served, 2).next().now_or_never();
        let weights = control.weights();
        Self {
            is_paused: shown.paused,
            refuses: shown.paused && newcomer() == Some(Some(Err(EngineError::Paused))),
            is_asleep: shown.asleep,
            is_updating: shown.updating,
            label: weights.label.to_string(),
            updates: weights.number,
            sums: control.checksums().await.ok(),
            lacking: control.lacking(),
            adapters: server.admin.adapters.all().into_iter().map(|(name, _)| name).collect(),
        }
    }

    /// What is different now.
    fn effects(&self, now: &Self) -> Vec<String> {
        let mut effects = Vec::new();
        match (self.is_paused, now.is_paused) {
            (false, true) if now.refuses => effects.push("pauses, and refuses new requests".to_owned()),
            (false, true) => effects.push("pauses, and has new requests wait".to_owned()),
            (true, false) => effects.push("ends the pause".to_owned()),
            _ => {}
        }
        if self.is_asleep && !now.is_asleep {
            effects.push("wakes up".to_owned());
        }
        match (self.is_updating, now.is_updating) {
            (false, true) => effects.push("begins an update".to_owned()),
            (true, false) => effects.push("ends the update".to_owned()),
            _ => {}
        }
        if self.updates != now.updates {
            // During an update, there are none.
            let changed = self.sums.is_none() || self.sums != now.sums;
            effects.push((if changed { "replaces weights" } else { "reads the same weights again" }).to_owned());
        }
        if self.label != now.label {
            effects.push(format!("has the weights called `{}`", now.label));
        }
        if self.lacking < now.lacking {
            effects.push("loses all weights".to_owned());
        }
        for name in now.adapters.iter().filter(|name| !self.adapters.contains(name)) {
            effects.push(format!("serves the adapter `{name}`"));
        }
        for name in self.adapters.iter().filter(|name| !now.adapters.contains(name)) {
            effects.push(format!("takes the adapter `{name}` away"));
        }
        effects
    }
}

/// Has a server that sleeps wake up, and says how deep it slept, in vLLM's levels.
async fn level(server: &Server) -> u8 {
    let control = &server.served.control;
    if control.wake_up(Some(&[SleepTag::Scheduling])).await.unwrap().awake {
        return 0;
    }
    control.wake_up(None).await.unwrap();
    if control.lacking() > 0 { 2 } else { 1 }
}

/// Keys and values of a prompt that are in the cache.
async fn cached(server: &Server) -> usize {
    let prompt = GenerationRequest { prompt_token_ids: (5..70).collect(), ..generation(1) };
    let mut stream = server.served.generate(prompt);
    let mut cached = 0;
    while let Some(event) = stream.next().await {
        if let Event::Prompt(prompt) = event.unwrap() {
            cached = prompt.cached_tokens;
        }
    }
    let load = || server.served.control.engine().load();
    until("the engine is idle", async || load().running + load().waiting + load().paused == 0).await;
    cached
}

/// A request that has begun and stays where it is: only an abort ends it, until [`ended`] lets it go on.
pub(super) async fn held(server: &Server) -> Events {
    server.gate.shut().await.unwrap();
    let mut stream = request(&server.served, 40);
    loop {
        match stream.next().now_or_never() {
            Some(event) if matches!(event.as_ref().unwrap().as_ref().unwrap(), Event::Delta(_)) => return stream,
            Some(_) => {}
            None => server.gate.step().await.unwrap(),
        }
    }
}

/// Lets a request go on, and says how it ends.
pub(super) async fn ended(server: &Server, mut stream: Events) -> Finish {
    server.gate.open().await.unwrap();
    while let Some(event) = stream.next().await {
        if let Event::Delta(delta) = event.unwrap()
            && let Some(finish) = delta.finish
        {
            return finish;
        }
    }
    panic!("it did not end");
}

/// The answer to a call that waits for the request that runs: this is held until the call waits, and ends by itself.
async fn awaiting(server: &Server, asked: &Ask, running: Events) -> (StatusCode, Vec<u8>) {
    let mut call = pin!(server.ask(asked));
    until("the call waits", async || {
        assert!(poll!(call.as_mut()).is_pending(), "{asked} waits for no request");
        server.served.control.status().paused
    })
    .await;
    let (answer, finish) = tokio::join!(call, ended(server, running));
    assert_eq!(finish, Finish::Length, "{asked}");
    answer
}

/// Asks as a row says, and says what came of it.
async fn seen(row: &Row) -> Result<String, String> {
    let server = Server::new();
    cached(&server).await;
    for first in &row.first {
        let (status, answer) = server.ask(first).await;
        assert_eq!(status, 200, "{first}: {}", String::from_utf8_lossy(&answer));
    }
    let mut running = if row.is_idle { None } else { Some(held(&server).await) };
    let before = Seen::of(&server).await;
    let awaited = running.take_if(|_| row.waits);
    let (status, answer) = match awaited {
        Some(stream) => awaiting(&server, &row.asked, stream).await,
        None => server.ask(&row.asked).await,
    };
    for then in &row.then {
        let (status, answer) = server.ask(then).await;
        assert_eq!(status, 200, "{then}: {}", String::from_utf8_lossy(&answer));
    }
    let now = Seen::of(&server).await;
    let mut effects = before.effects(&now);
    let control = &server.served.control;
    control.cancel_update(None).await.unwrap();
    if now.is_asleep && !before.is_asleep {
        effects.push(format!("sleeps at level {}", level(&server).await));
    }
    control.wake_up(None).await.unwrap();
    control.resume().await.unwrap();
    if control.lacking() > 0 {
        // The request that runs waits for them.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(control::MODEL);
        control.update(Update { path, label: None, aborts: false }).await.unwrap();
    }
    if let Some(stream) = running
        && ended(&server, stream).await == Finish::Abort
    {
        effects.push("ends the request that runs".to_owned());
    }
    // What was asked first may have had them forgotten.
    if row.first.is_empty() && cached(&server).await == 0 {
        effects.push("forgets keys and values".to_owned());
    }
    let said = String::from_utf8_lossy(&answer).replace(server.disk.path().to_str().unwrap(), "DIR");
    told(row, (status, said.as_bytes()), &effects)
}

/// What came of a call, as the page says it; or what is wrong with that.
fn told(row: &Row, (status, answer): (StatusCode, &[u8]), effects: &[String]) -> Result<String, String> {
    let asked = &row.asked;
    let said: Value = serde_json::from_slice(answer).unwrap_or_default();
    let nothing_to_do = IDLE.iter().find(|(path, _)| *path == asked.path);
    let happened = effects.join("; ");
    if status != 200 {
        // SGLang's shape has the sentence outside of an error.
        let message = said["error"]["message"].as_str().or(said["message"].as_str()).unwrap_or_default();
        let reason = message.split(';').next().unwrap_or_default();
        // A part of an update that is refused ends it; no other refusal does anything.
        return match effects {
            [] if !reason.is_empty() => Ok(format!("{}: {reason}", status.as_u16())),
            [only] if only == "ends the update" => Ok(format!("{}: {reason}, and {only}", status.as_u16())),
            _ => Err(format!("{asked}: {status} {said}, and yet: {happened}")),
        };
    }
    match (row.is_look, nothing_to_do) {
        (true, _) | (_, Some(_)) if !effects.is_empty() => Err(format!("{asked} changes something: {happened}")),
        (true, _) if answer.is_empty() => Ok("says that all is well".to_owned()),
        (true, _) => Ok(format!("says `{}`", brief(&said, 4))),
        (_, Some((_, reason))) => Ok(format!("nothing: {reason}")),
        _ if effects.is_empty() => Err(format!("{asked} answers with success and did nothing: {said}")),
        _ => Ok(happened),
    }
}

/// An answer without what is long: the first fields of an object and items of a list, and fewer of what they have.
fn brief(value: &Value, most: usize) -> Value {
    let within = |value: &Value| brief(value, (most / 2).max(1));
    match value {
        Value::Object(fields) => {
            let shown = fields.iter().take(most).map(|(name, value)| (name.clone(), within(value)));
            let more = (fields.len() > most).then(|| ("…".to_owned(), "…".into()));
            Value::Object(shown.chain(more).collect())
        }
        Value::Array(items) => {
            let more = (items.len() > most).then(|| "…".into());
            items.iter().take(most).map(within).chain(more).collect()
        }
        Value::String(text) if text.chars().count() > 24 => "…".into(),
        other => other.clone(),
    }
}

/// A call before or after that of a row: the page says of all these that they are POST.
fn in_passing(call: &str) -> String {
    format!("`{}`", call.trim_start_matches("POST "))
}

/// Of what is shown whole of a call before, in bytes.
const WIDEST_BEFORE: usize = 40;

const MARKS: [&str; 2] = ["<!-- effects -->\n", "<!-- end of effects -->"];

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_every_path_does() {
    let (paths, mut rows) = (admin::paths(), rows());
    let place = |row: &Row| paths.iter().position(|path| *path == row.asked.path);
    for path in &paths {
        assert!(rows.iter().any(|row| row.asked.path == *path), "{path} is asked by no row");
    }
    rows.sort_by_key(|row| place(row).unwrap_or_else(|| panic!("there is no {}", row.asked.path)));
    let mut table = String::from("| call | after | what happens |\n|---|---|---|\n");
    let mut wrong = Vec::new();
    let outcomes: Vec<_> = futures::stream::iter(&rows).map(seen).buffered(4).collect().await;
    for (row, outcome) in rows.iter().zip(outcomes) {
        // Of a call before, what is sent is shown where it fits into a cell.
        let before = |first: &Ask| {
            let whole = first.to_string();
            let fits = row.first.len() == 1 && whole.len() <= WIDEST_BEFORE;
            in_passing(&if fits { whole } else { first.call() })
        };
        let after: Vec<String> = row.first.iter().map(before).collect();
        let then: Vec<String> =
            row.then.iter().map(|then| format!("with {} after it: ", in_passing(&then.call()))).collect();
        let seen = outcome.unwrap_or_else(|reason| {
            wrong.push(reason);
            String::new()
        });
        writeln!(table, "| `{}` | {} | {}{seen} |", row.asked, after.join(", "), then.concat()).unwrap();
    }
    assert_eq!(wrong, [""; 0]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/control-plane.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    expect_file![path].assert_eq(&format!("{before}{begin}{table}{end}{after}"));
}
