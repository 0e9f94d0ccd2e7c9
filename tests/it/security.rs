//! docs/security.md: every path of every port is asked without a key, with each key, and as a page of another origin would
//! ask; the page's table is what came of it.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, header},
};
use expect_test::expect_file;
use tito::{
    admin, api,
    server::{self, AllowedHosts, ApiKeys, ControlPlane, ServerConfig},
};
use tower::ServiceExt;

use crate::it::{app::TestApp, labels::admin_of};

const API_KEY: &str = "of-the-api";
const ADMIN_KEY: &str = "of-the-control-plane";

/// What paths are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Health,
    Metrics,
    Docs,
    Page,
    Api,
    ControlPlane,
    Unknown,
}

impl Group {
    fn words(self) -> &'static str {
        match self {
            Self::Health => "`/health`",
            Self::Metrics => "`/metrics`",
            Self::Docs => "`/docs`, `/redoc`, `/openapi.json`",
            Self::Page => "the page of `/inspect` without what was captured",
            Self::Api => "the API",
            Self::ControlPlane => "the control plane",
            Self::Unknown => "paths that do not exist",
        }
    }
}

/// The groups that the page names together, where all of them say the same.
const OPEN: [Group; 4] = [Group::Health, Group::Metrics, Group::Docs, Group::Page];

/// What is asked, in words.
fn words(asked: &[String]) -> String {
    let open = OPEN.map(|group| group.words().to_owned());
    match asked.strip_prefix(open.as_slice()) {
        Some(others) => [&["the open paths".to_owned()], others].concat().join(", "),
        None => asked.join(", "),
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
enum Caller {
    Nobody,
    Key(&'static str),
    /// A page of another origin, in a browser that reaches the port.
    Page,
}

const CALLERS: [Caller; 4] = [Caller::Nobody, Caller::Key(API_KEY), Caller::Key(ADMIN_KEY), Caller::Page];

/// A request that changes as little as one can.
fn request(caller: Caller, method: &Method, path: &str) -> Request<Body> {
    let path: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
    let request = Request::builder().method(method).uri(path.join("/")).header(header::HOST, "localhost");
    let request = match caller {
        Caller::Nobody => request,
        Caller::Key(key) => request.header(header::AUTHORIZATION, format!("Bearer {key}")),
        Caller::Page => request.header(header::ORIGIN, "https://elsewhere.example"),
    };
    let body = if method == Method::POST { Body::from("{}") } else { Body::empty() };
    // As forms send it, where a page asks: nothing else goes to another origin without its leave.
    let media_type = if matches!(caller, Caller::Page) { "text/plain" } else { "application/json" };
    request.header(header::CONTENT_TYPE, media_type).body(body).unwrap()
}

/// What a path says to a caller.
async fn says(port: &Router, caller: Caller, method: &Method, path: &str, group: Group) -> &'static str {
    let status = port.clone().oneshot(request(caller, method, path)).await.unwrap().status();
    match status {
        StatusCode::UNAUTHORIZED => "401",
        StatusCode::FORBIDDEN => "403",
        StatusCode::METHOD_NOT_ALLOWED => "405",
        StatusCode::NOT_FOUND if matches!(group, Group::ControlPlane | Group::Unknown) => "404",
        _ => "answers",
    }
}

/// Every path of a server, and how it is asked.
fn paths() -> Vec<(Group, Method, String)> {
    let (post, get) = (Method::POST, Method::GET);
    let pages = [("/docs", Group::Docs), ("/redoc", Group::Docs), ("/openapi.json", Group::Docs)];
    let own = [("/inspect", Group::Page), ("/metrics", Group::Metrics), ("/nowhere", Group::Unknown)];
    let mut paths: Vec<_> =
        pages.into_iter().chain(own).map(|(path, group)| (group, get.clone(), path.to_owned())).collect();
    for (path, item) in &api::openapi().paths.paths {
        let group = if ["/health", "/ping"].contains(&path.as_str()) { Group::Health } else { Group::Api };
        let methods =
            [(&item.get, &get), (&item.post, &post), (&item.delete, &Method::DELETE), (&item.put, &Method::PUT)];
        let there = methods.into_iter().filter(|(operation, _)| operation.is_some());
        paths.extend(there.map(|(_, method)| (group, method.clone(), path.clone())));
    }
    // Those that read take GET, and the others POST; nobody learns anything from a 405.
    for path in admin::paths() {
        paths.extend([&get, &post].map(|method| (Group::ControlPlane, method.clone(), path.to_owned())));
    }
    paths
}

/// What a port says to all callers, and to what: the paths of a group that are not as most of it by their names.
async fn rows(port: &Router, is_of_admin: bool) -> Vec<(Vec<&'static str>, Vec<String>)> {
    let mut groups: BTreeMap<Group, BTreeMap<Vec<&'static str>, Vec<String>>> = BTreeMap::new();
    for (group, method, path) in paths() {
        // The API is nowhere on the control plane's own port.
        if is_of_admin && ![Group::ControlPlane, Group::Health, Group::Unknown].contains(&group) || path == "/ping" {
            continue;
        }
        let mut said = Vec::new();
        for caller in CALLERS {
            said.push(says(port, caller, &method, &path, group).await);
        }
        if !said.contains(&"405") {
            groups.entry(group).or_default().entry(said).or_default().push(path);
        }
    }
    let mut rows: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for (group, by_answer) in groups {
        let most = by_answer.values().map(Vec::len).max();
        for (said, paths) in by_answer {
            let is_rule = Some(paths.len()) == most;
            let names = if is_rule { vec![group.words().to_owned()] } else { quoted(paths) };
            match rows.iter_mut().find(|(other, _)| *other == said) {
                Some((_, all)) => all.extend(names),
                None => rows.push((said, names)),
            }
        }
    }
    rows
}

fn quoted(mut paths: Vec<String>) -> Vec<String> {
    paths.dedup();
    paths.into_iter().map(|path| format!("`{path}`")).collect()
}

async fn table(ports: Vec<(&'static str, Router)>) -> String {
    let mut table = String::from("| started with | asked | no key | API key | admin key | a web page |\n");
    table.push_str("|---|---|---|---|---|---|\n");
    for (flags, port) in ports {
        let mut flags = flags;
        for (said, asked) in rows(&port, flags.starts_with("`--admin-port")).await {
            writeln!(table, "| {flags} | {} | {} |", words(&asked), said.join(" | ")).unwrap();
            flags = "";
        }
    }
    table
}

const MARKS: [&str; 2] = ["<!-- doors -->\n", "<!-- end of doors -->"];

#[tokio::test]
async fn the_page_says_what_each_port_answers_to_whom() {
    let (open, keyed) = (TestApp::new(), TestApp::new().keys(&[API_KEY]));
    let key = |key: &str| ApiKeys::new(&[key.to_owned()]);
    let beside = |keys| {
        let (admin, hosts) = (admin_of(&keyed), AllowedHosts::default());
        keyed.router_with(ControlPlane::Open { admin, keys, hosts })
    };
    let insecure = |app: &TestApp| {
        let (admin, hosts) = (admin_of(app), AllowedHosts::default());
        app.router_with(ControlPlane::Open { admin, keys: ApiKeys::default(), hosts })
    };
    let own = |keys| server::admin_app(&admin_of(&open), keys, AllowedHosts::default(), &ServerConfig::default());
    let adapters = |app: &TestApp| {
        app.router_with(ControlPlane::AdaptersOnly { admin: admin_of(app), hosts: AllowedHosts::default() })
    };
    let ports = vec![
        ("nothing", open.router()),
        ("`--api-key`", keyed.router()),
        ("`VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`", adapters(&open)),
        ("`VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 --api-key`", adapters(&keyed)),
        ("`--api-key --admin-on-main-port`", beside(key(API_KEY))),
        ("`--api-key --admin-on-main-port --admin-api-key`", beside(key(ADMIN_KEY))),
        ("`--admin-on-main-port --insecure-admin`, or `VLLM_SERVER_DEV_MODE=1`", insecure(&open)),
        ("the same with `--api-key`", insecure(&keyed)),
        ("`--admin-port`: that port", own(ApiKeys::default())),
        ("`--admin-port --admin-api-key`: that port", own(key(ADMIN_KEY))),
    ];
    let table = table(ports).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    expect_file![path].assert_eq(&format!("{before}{begin}{table}{end}{after}"));
}
