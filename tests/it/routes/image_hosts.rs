//! Images that other hosts have: which hosts are asked, where redirects may lead, and what becomes of hosts that fail.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, RawQuery, Request, State},
    http::{Response, StatusCode, header},
    response::{IntoResponse, Redirect},
    routing::get,
};
use futures::{StreamExt, future::join_all, stream};
use serde_json::{Value, json};
use tito::media::{HostPolicy, MediaPolicy};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::it::app::{
    MODEL, TestApp,
    images::{image_part, png, policy},
};

const CHAT: &str = "/v1/chat/completions";
/// The largest file that the tests' server reads.
const MOST: usize = 4_096;

/// A host with images, and what happens to requests for them.
#[derive(Clone)]
struct Host {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    held: Arc<Gate>,
}

/// Where requests for `/held` wait.
struct Gate {
    arrived: Semaphore,
    opened: Semaphore,
}

impl Host {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let held = Gate { arrived: Semaphore::new(0), opened: Semaphore::new(0) };
        let address = listener.local_addr().unwrap();
        let host = Self { address, asked: Arc::default(), held: Arc::new(held) };
        let app = Router::new()
            .route("/image", get(async || png(56, 84, 1)))
            .route("/to", get(async |RawQuery(url): RawQuery| sent_to(url.unwrap_or_default())))
            .route("/hops/{left}", get(hop))
            .route("/status/{status}", get(async |Path(status): Path<u16>| StatusCode::from_u16(status).unwrap()))
            .route("/text", get(async || "no image"))
            .route("/many-bytes", get(async || vec![0; MOST + 1]))
            .route("/claims", get(async || unfinished(MOST + 1)))
            .route(
                "/endless",
                get(async || Body::from_stream(stream::repeat(Ok::<_, String>(Bytes::from_static(&[0; 512]))))),
            )
            .route("/cut", get(async || broken()))
            .route("/half", get(async || unfinished(MOST)))
            .route("/silent", get(async || std::future::pending::<()>().await))
            .route("/held", get(held_image))
            .layer(axum::middleware::map_request_with_state(host.clone(), counted))
            .with_state(host.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        host
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The URL by the name of this machine.
    fn by_name(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.address.port())
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn counted(State(host): State<Host>, request: Request) -> Request {
    host.asked.fetch_add(1, Ordering::SeqCst);
    request
}

fn sent_to(url: String) -> impl IntoResponse {
    (StatusCode::FOUND, [(header::LOCATION, url)])
}

async fn hop(Path(left): Path<usize>) -> Redirect {
    Redirect::temporary(&if left == 0 { "/image".to_owned() } else { format!("/hops/{}", left - 1) })
}

async fn held_image(State(host): State<Host>) -> Vec<u8> {
    host.held.arrived.add_permits(1);
    host.held.opened.acquire().await.unwrap().forget();
    png(56, 84, 1)
}

/// A response that begins and does not go on.
fn unfinished(length: usize) -> Response<Body> {
    let begun = stream::once(async { Ok::<_, String>(Bytes::from_static(b"begun")) });
    let mut response = Response::new(Body::from_stream(begun.chain(stream::pending())));
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

/// A response that ends before its end.
fn broken() -> Body {
    Body::from_stream(stream::iter([Ok(Bytes::from_static(b"begun")), Err("the host has had enough".to_owned())]))
}

/// A server that asks these hosts, which have `timeout` to answer.
fn asking(allowed: &[&str], timeout: Duration) -> TestApp {
    let allowed = allowed.iter().map(|&host| host.to_owned()).collect();
    let hosts = HostPolicy { allowed, timeout, most_bytes: MOST as u64, ..HostPolicy::default() };
    TestApp::new().sees_images_by(MediaPolicy { hosts, ..policy() })
}

/// One that waits until a busy machine has answered.
fn patient(allowed: &[&str]) -> TestApp {
    asking(allowed, Duration::from_mins(10))
}

fn chat(parts: &[Value]) -> Value {
    json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": parts}]})
}

fn named(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// The status of a request for an image, and what the answer says: of its error, if it has one.
async fn answer(app: &TestApp, url: &str) -> (u16, String) {
    let answer = app.post(CHAT, chat(&[named(url)])).await;
    let body = answer.json();
    if answer.status != 200 {
        let field = body["error"]["param"].as_str().unwrap();
        assert_eq!(field, "messages[0].content[0].image_url", "{body}");
    }
    (answer.status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_image_of_an_allowed_host_is_the_image_of_its_bytes() {
    let host = Host::start().await;
    let app = patient(&["127.0.0.1"]);
    app.post(CHAT, chat(&[image_part(56, 84, 1)])).await.ok();
    let by_data = app.prompt_images();
    let location = host.url(&format!("/to?{}", host.url("/image")));
    for url in [host.url("/image"), host.url("/image").replace("http:", "HTTP:"), host.url("/to?image"), location] {
        assert_eq!(answer(&app, &url).await, (200, String::new()), "{url}");
        assert_eq!(app.prompt_images(), by_data, "{url}");
    }
    assert_eq!(host.asked(), 6);
    let body = json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": host.url("/image")}}]}]});
    app.post("/v1/messages", body).await.ok();
    assert_eq!(app.prompt_images(), by_data);
    let body = json!({"model": MODEL, "max_output_tokens": 4, "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": host.url("/image")}]}]});
    app.post("/v1/responses", body).await.ok();
    assert_eq!(app.prompt_images(), by_data);
}

#[tokio::test]
async fn hosts_that_are_not_allowed_are_not_asked() {
    let host = Host::start().await;
    let nobody = TestApp::new().sees_images();
    let (status, said) = answer(&nobody, &host.url("/image")).await;
    assert_eq!(status, 400);
    assert!(said.contains("only if --allowed-media-domains names them"), "{said}");

    let app = patient(&["127.0.0.1", "example.org", "[::1]"]);
    let port = host.address.port();
    let refused = [
        (host.by_name("/image"), "`localhost` is none of the hosts"),
        (format!("http://127.0.0.2:{port}/image"), "`127.0.0.2` is none"),
        (format!("http://127.0.0.1.example.net:{port}/image"), "none of the hosts"),
        (format!("http://[::ffff:127.0.0.1]:{port}/image"), "none of the hosts"),
        ("https://images.example.org/".to_owned(), "none of the hosts"),
        ("https://example.org./".to_owned(), "none of the hosts"),
        (format!("http://127.0.0.1:{port}@example.net/image"), "a user or a password"),
        (format!("http://user@127.0.0.1:{port}/image"), "a user or a password"),
        (format!("ftp://127.0.0.1:{port}/image"), "this one is `ftp:`"),
    ];
    for (url, expected) in refused {
        let (status, said) = answer(&app, &url).await;
        assert!(status == 400 && said.contains(expected), "{url}: {status} {said}");
    }
    assert_eq!(host.asked(), 0);
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_refused_though_it_is_allowed() {
    let host = Host::start().await;
    let app = patient(&["localhost", "127.0.0.1"]);
    for url in [host.by_name("/image"), host.url(&format!("/to?{}", host.by_name("/image")))] {
        let (status, said) = answer(&app, &url).await;
        assert!(status == 400 && said.contains("has no public address"), "{url}: {status} {said}");
    }
    // Only the redirect was asked for.
    assert_eq!(host.asked(), 1);
}

#[tokio::test]
async fn no_redirect_is_followed_where_none_may_be() {
    let host = Host::start().await;
    let hosts = HostPolicy { allowed: vec!["127.0.0.1".to_owned()], redirects: 0, ..HostPolicy::default() };
    let app = TestApp::new().sees_images_by(MediaPolicy { hosts, ..policy() });
    assert_eq!(answer(&app, &host.url("/image")).await.0, 200);
    let (status, message) = answer(&app, &host.url("/to?image")).await;
    assert!(status == 422 && message.contains("redirects more than 0 times"), "{status} {message}");
    assert_eq!(host.asked(), 2);
}

#[tokio::test]
async fn redirects_are_followed_five_times_and_to_allowed_hosts() {
    let host = Host::start().await;
    let app = patient(&["127.0.0.1"]);
    assert_eq!(answer(&app, &host.url("/hops/4")).await.0, 200);
    assert_eq!(host.asked(), 6);
    let to = |url: &str| host.url(&format!("/to?{url}"));
    let refused = [
        (host.url("/hops/5"), 422, "redirects more than 5 times"),
        (host.url("/to?to?to?"), 422, "redirects more than 5 times"),
        (to("http://"), 422, "redirects to an invalid URL"),
        (to(&host.by_name("/image")), 400, "`localhost` is none of the hosts"),
        (to("//169.254.169.254/latest/meta-data"), 400, "`169.254.169.254` is none of the hosts"),
        (to("http://a:b@127.0.0.1/image"), 400, "a user or a password"),
        (to("file:///etc/hostname"), 400, "redirects to a `file:` URL"),
        (to("ftp://127.0.0.1/image"), 400, "redirects to a `ftp:` URL"),
        (to("data:image/png;base64,aGk="), 400, "redirects to a `data:` URL"),
    ];
    for (url, expected, words) in refused {
        let (status, said) = answer(&app, &url).await;
        assert!(status == expected && said.contains(words), "{url}: {status} {said}");
    }
}

#[tokio::test]
async fn what_a_host_does_not_have_is_422_and_what_it_fails_at_is_500() {
    let host = Host::start().await;
    let app = patient(&["127.0.0.1"]);
    let status = |status: u16| host.url(&format!("/status/{status}"));
    let answers = [
        (status(404), 422, "HTTP 404 error"),
        (status(401), 422, "HTTP 401 error"),
        (status(304), 422, "HTTP 304 error"),
        (status(408), 500, "HTTP 408 error"),
        (status(429), 500, "HTTP 429 error"),
        (status(500), 500, "HTTP 500 error"),
        (status(503), 500, "HTTP 503 error"),
        (host.url("/cut"), 500, "Failed to fetch media from URL"),
        (host.url("/many-bytes"), 422, "more than 4096 bytes"),
        (host.url("/claims"), 422, "more than 4096 bytes"),
        (host.url("/endless"), 422, "more than 4096 bytes"),
        (host.url("/text"), 400, "cannot be read"),
        (status(204), 400, "cannot be read"),
        ("http://127.0.0.1:99999/".to_owned(), 422, "Invalid URL"),
        ("http://".to_owned(), 422, "Invalid URL"),
    ];
    for (url, expected, words) in answers {
        let (status, said) = answer(&app, &url).await;
        assert!(status == expected && said.contains(words), "{url}: {status} {said}");
        assert!(!said.contains("127.0.0.1"), "{said}");
    }
    let answer = app.post(CHAT, chat(&[named(&status(404))])).await;
    assert_eq!(answer.json()["error"]["type"], "UnprocessableEntityError");
}

#[tokio::test]
async fn a_host_that_does_not_answer_or_stops_is_given_up() {
    let host = Host::start().await;
    let app = asking(&["127.0.0.1"], Duration::from_millis(50));
    for path in ["/silent", "/half"] {
        let (status, said) = answer(&app, &host.url(path)).await;
        assert!(status == 500 && said.contains("took more than 0.05 seconds"), "{path}: {status} {said}");
    }
}

#[tokio::test]
async fn images_that_are_waited_for_keep_nobody_from_being_read() {
    let host = Host::start().await;
    let app = patient(&["127.0.0.1"]);
    let waiting = thread::available_parallelism().map_or(1, usize::from) + 1;
    let url = host.url("/held");
    let held = join_all((0..waiting).map(|_| answer(&app, &url)));
    let other = async {
        host.held.arrived.acquire_many(u32::try_from(waiting).unwrap()).await.unwrap().forget();
        app.post(CHAT, chat(&[image_part(28, 28, 2)])).await.ok();
        host.held.opened.add_permits(waiting);
    };
    let (held, ()) = tokio::join!(held, other);
    assert!(held.iter().all(|(status, _)| *status == 200), "{held:?}");
}
