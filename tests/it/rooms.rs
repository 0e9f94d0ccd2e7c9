//! The crates and their parts, and which may use which.

/// The crates that lie under the program, with their parts. Cargo keeps what a crate may use of the others; one with a single
/// part is that part.
pub(super) const CRATES: [(&str, &[&str]); 6] = [
    ("tito-engine", &["engine", "inference", "memory", "weights"]),
    ("tito-images", &["images"]),
    ("tito-mistralrs", &["mistralrs"]),
    ("tito-model", &["files", "gguf", "json", "model", "tokenizer"]),
    ("tito-sampling", &["sampling"]),
    ("tito-text", &["chat", "continuity", "parser", "prompt", "prompting", "structured"]),
];
pub(super) const PROGRAM: &str = "tito";

/// Where the code of all crates is.
pub(super) const CODE: [&str; 7] = [
    "src",
    "crates/tito-engine/src",
    "crates/tito-images/src",
    "crates/tito-mistralrs/src",
    "crates/tito-model/src",
    "crates/tito-sampling/src",
    "crates/tito-text/src",
];

/// What each part may use: of its own crate, and what is the program's of the others too. Nothing points up.
pub(super) const MAY_USE: [(&str, &[&str]); 55] = [
    ("main", &["program"]),
    ("program", &["api", "config", "files", "launch", "telemetry"]),
    // What others may build on.
    ("prompting", &["chat", "continuity", "prompt"]),
    ("inference", &["engine"]),
    // For benches and fuzz targets, which may use everything.
    ("internals", &[]),
    (
        "launch",
        &[
            "adapters",
            "admin",
            "chat",
            "config",
            "continuity",
            "continuity_store",
            "control",
            "engine",
            "files",
            "generation",
            "gguf",
            "images",
            "inspect",
            "json",
            "kv_events",
            "media",
            "memory",
            "model",
            "otlp",
            "parser",
            "prompt",
            "records",
            "replay",
            "sampling",
            "server",
            "state",
            "store",
            "structured",
            "telemetry",
            "tokenizer",
            "trajectory",
            "turn",
            "weights",
        ],
    ),
    // Pauses, weights, sleep.
    ("admin", &["adapters", "asked_for", "control", "engine", "retry", "weights"]),
    // Events of the cache for routers.
    ("kv_events", &["engine"]),
    // Spans of requests for collectors.
    ("otlp", &["engine", "request_trace"]),
    ("adapters", &["engine", "files", "weights"]),
    ("control", &["engine", "generation", "weights"]),
    (
        "server",
        &[
            "admin",
            "api",
            "engine",
            "fresh_uuid",
            "http",
            "inspect",
            "otlp",
            "reader",
            "request_trace",
            "state",
            "telemetry",
            "turn",
            "wire",
        ],
    ),
    ("telemetry", &["engine"]),
    (
        "api",
        &[
            "adapters",
            "asked_for",
            "chat",
            "continuity",
            "engine",
            "generation",
            "http",
            "images",
            "inspect",
            "json",
            "model",
            "npy",
            "parser",
            "prompt",
            "records",
            "request_fields",
            "request_trace",
            "sampling",
            "sglang",
            "state",
            "store",
            "structured",
            "tinker",
            "tokenizer",
            "turn",
            "wire",
        ],
    ),
    // The dialects of other servers.
    (
        "sglang",
        &[
            "engine",
            "generation",
            "http",
            "json",
            "model",
            "request_fields",
            "request_trace",
            "sampling",
            "state",
            "tokenizer",
            "turn",
            "wire",
        ],
    ),
    (
        "tinker",
        &[
            "engine",
            "generation",
            "http",
            "json",
            "model",
            "retry",
            "sampling",
            "state",
            "tinker_sessions",
            "turn",
            "wire",
        ],
    ),
    ("inspect", &["engine", "http", "replay", "retry", "state", "tokenizer", "trajectory", "turn", "wire"]),
    // What all handlers share.
    (
        "request_fields",
        &[
            "chat",
            "continuity",
            "engine",
            "fresh_uuid",
            "generation",
            "http",
            "json",
            "model",
            "parser",
            "prompt",
            "sampling",
            "state",
            "structured",
            "tokenizer",
            "trajectory",
            "turn",
            "wire",
        ],
    ),
    ("state", &["adapters", "engine", "records", "store", "tinker_sessions", "tokenizer", "turn", "wire"]),
    (
        "http",
        &[
            "adapters",
            "continuity",
            "engine",
            "generation",
            "json",
            "media",
            "parser",
            "prompt",
            "retry",
            "store",
            "trajectory",
            "turn",
            "wire",
        ],
    ),
    ("tinker_sessions", &["engine", "wire"]),
    ("records", &["chat", "json", "store", "turn", "wire"]),
    (
        "wire",
        &[
            "asked_for",
            "chat",
            "continuity",
            "engine",
            "foreign_fields",
            "generation",
            "json",
            "npy",
            "parser",
            "pydantic",
            "retry",
            "sampling",
            "structured",
            "tokenizer",
            "trajectory",
        ],
    ),
    (
        "turn",
        &[
            "chat",
            "continuity",
            "continuity_store",
            "engine",
            "generation",
            "images",
            "json",
            "media",
            "model",
            "parser",
            "prompt",
            "request_trace",
            "sampling",
            "structured",
            "tokenizer",
            "trajectory",
        ],
    ),
    (
        "replay",
        &["engine", "generation", "media", "sampling", "store", "structured", "tokenizer", "trajectory", "turn"],
    ),
    ("trajectory", &["sampling", "store"]),
    // The flags name types of these.
    ("config", &["json", "parser", "prompt", "sampling"]),
    ("continuity", &["chat", "prompt"]),
    ("generation", &["engine", "parser", "reader", "request_trace", "sampling", "tokenizer"]),
    // Who reads an answer, as far as a connection tells.
    ("reader", &[]),
    // What happens to a request, noted where it happens.
    ("request_trace", &["engine"]),
    ("prompt", &["chat", "parser"]),
    ("engine", &["memory", "weights"]),
    ("images", &[]),
    ("media", &["images"]),
    ("weights", &[]),
    ("structured", &[]),
    ("model", &["files", "gguf", "json", "tokenizer"]),
    ("gguf", &["files", "tokenizer"]),
    ("chat", &[]),
    // A format says in the words of `structured` what forces its calls.
    ("parser", &["chat", "structured"]),
    ("sampling", &[]),
    ("mistralrs", &[]),
    ("pydantic", &["json"]),
    ("asked_for", &[]),
    ("foreign_fields", &["json"]),
    ("fresh_uuid", &[]),
    ("npy", &[]),
    ("retry", &[]),
    ("continuity_store", &["continuity"]),
    ("store", &["files"]),
    ("json", &[]),
    ("tokenizer", &["files"]),
    ("files", &[]),
    ("memory", &[]),
];

/// The most lines that a part may have, with its tests: a part that grows past this has more than one subject.
pub(super) const MOST_LINES: [(&str, usize); 2] = [("api", 9_000), ("wire", 10_600)];

/// The crate of a file, and its path in the code of that crate.
pub(super) fn place(path: &str) -> Option<(&str, &str)> {
    if let Some(inner) = path.strip_prefix("src/") {
        return Some((PROGRAM, inner));
    }
    let (home, inner) = path.strip_prefix("crates/")?.split_once('/')?;
    Some((home, inner.strip_prefix("src/")?))
}

/// The crate of a part.
pub(super) fn home(part: &str) -> &'static str {
    CRATES.iter().find_map(|(name, parts)| parts.contains(&part).then_some(*name)).unwrap_or(PROGRAM)
}
