//! `/inspect`: a page that shows captured trajectories. It is in the binary, and holds no data: its scripts ask the paths
//! under `/v1`, with the key that whoever looks at it types.

use axum::{
    Json, Router,
    extract::{FromRef, Path, State},
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

use super::trajectories::{Captured, OwnTrajectories};
use crate::http;

/// The path of the page.
pub(crate) const PATH: &str = "/inspect";

/// Nothing but the files below runs, is drawn or is asked, but for pictures that these made of what they were sent, and no other page frames this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page, which names the others relative to itself, so that it works behind any prefix.
const PAGE: File = ("text/html; charset=utf-8", include_str!("page/page.html"));

/// The type and the content of a file.
type File = (&'static str, &'static str);

/// The files of the page, by their names under it.
const FILES: [(&str, File); 13] = [
    ("page.css", ("text/css; charset=utf-8", include_str!("page/page.css"))),
    ("icon.svg", ("image/svg+xml", include_str!("page/icon.svg"))),
    ("main.js", (SCRIPT, include_str!("page/main.js"))),
    ("server.js", (SCRIPT, include_str!("page/server.js"))),
    ("dom.js", (SCRIPT, include_str!("page/dom.js"))),
    ("list.js", (SCRIPT, include_str!("page/list.js"))),
    ("trajectory.js", (SCRIPT, include_str!("page/trajectory.js"))),
    ("tokens.js", (SCRIPT, include_str!("page/tokens.js"))),
    ("check.js", (SCRIPT, include_str!("page/check.js"))),
    ("said.js", (SCRIPT, include_str!("page/said.js"))),
    ("images.js", (SCRIPT, include_str!("page/images.js"))),
    ("shades.js", (SCRIPT, include_str!("page/shades.js"))),
    ("prompt.js", (SCRIPT, include_str!("page/prompt.js"))),
];

/// The page and its files, on a server that has trajectories; on others each is the 404 that says which flag is missing.
pub(crate) fn router<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Captured: FromRef<S>,
{
    Router::new().route(PATH, get(page)).route("/inspect/about.json", get(about)).route("/inspect/{file}", get(file))
}

async fn page(_: OwnTrajectories) -> Response {
    sent(PAGE)
}

/// What the page can do here. It is open to everybody, like the page.
async fn about(_: OwnTrajectories, State(captured): State<Captured>) -> Json<Value> {
    Json(json!({ "read_only": captured.api.is_none(), "has_texts": captured.tokenizer.is_some() }))
}

async fn file(_: OwnTrajectories, Path(name): Path<String>) -> Response {
    let found = FILES.iter().find(|(known, _)| *known == name);
    found.map_or_else(http::error::not_found, |(_, file)| sent(*file))
}

fn sent((kind, content): File) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // A server of another version has other files.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}
