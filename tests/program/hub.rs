//! A model of the hub: what a person sees while it is fetched, in a log and on a terminal, and what `tito doctor` says of one
//! that is not fetched yet.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, mpsc},
};

use serde_json::{Value, json};

use crate::{
    doctor::{error, line, whole_model},
    program::{Server, TINY_MODEL, run_command, tito},
};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const MODEL: &str = "org/name";
const LOCAL: [&str; 6] = ["--device", "cpu", "--host", "127.0.0.1", "--port", "0"];

/// A hub with one model, which is gone once the test is.
struct Hub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    /// Where its clients keep what they fetch.
    home: tempfile::TempDir,
}

/// What it serves.
#[derive(Clone)]
struct Shelf {
    directory: Arc<tempfile::TempDir>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Lets the second half of the weights go, once the other end is dropped.
    half: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
}

impl Hub {
    fn new(directory: tempfile::TempDir) -> Self {
        Self::serving(directory, None)
    }

    /// Keeps the second half of the weights until the sender is dropped.
    fn holding(directory: tempfile::TempDir) -> (Self, mpsc::Sender<()>) {
        let (release, half) = mpsc::channel();
        (Self::serving(directory, Some(half)), release)
    }

    fn serving(directory: tempfile::TempDir, half: Option<mpsc::Receiver<()>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::default();
        let shelf =
            Shelf { directory: Arc::new(directory), asked: Arc::clone(&asked), half: Arc::new(Mutex::new(half)) };
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (shelf, connection) = (shelf.clone(), connection.unwrap());
                std::thread::spawn(move || shelf.answer(connection));
            }
        });
        Self { address, asked, home: tempfile::tempdir().unwrap() }
    }

    /// A command that knows this hub.
    fn tito(&self, arguments: &[&str]) -> Command {
        let mut command = tito(arguments);
        command.envs(self.variables());
        command
    }

    fn variables(&self) -> [(&'static str, &str); 4] {
        let home = self.home.path().to_str().unwrap();
        [("HF_HUB_OFFLINE", "0"), ("HF_ENDPOINT", &self.address), ("HF_HOME", home), ("NO_PROXY", "127.0.0.1")]
    }

    /// The files whose contents were asked for.
    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.dedup();
        asked
    }
}

impl Shelf {
    /// Answers one request as the hub does.
    fn answer(&self, mut connection: TcpStream) {
        let mut head = Vec::new();
        for line in BufReader::new(&connection).lines() {
            match line.unwrap() {
                line if line.is_empty() => break,
                line => head.push(line),
            }
        }
        let path = head[0].split(' ').nth(1).unwrap().to_owned();
        let close = "Connection: close\r\n\r\n";
        if path == format!("/api/models/{MODEL}/revision/main") {
            let names = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            let siblings: Vec<_> = names.iter().map(|name| json!({"rfilename": name})).collect();
            let body = json!({"sha": COMMIT, "siblings": siblings}).to_string();
            write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}{body}", body.len()).unwrap();
            return;
        }
        let Some(file) = path.strip_prefix(&format!("/{MODEL}/resolve/{COMMIT}/")) else {
            write!(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n{close}").unwrap();
            return;
        };
        let whole = fs::read(self.directory.path().join(file)).unwrap();
        let is_range = |line: &String| line.to_ascii_lowercase().starts_with("range: bytes=");
        let range = head.iter().find(|line| is_range(line)).unwrap().split_once('=').unwrap().1;
        let (start, end) = range.split_once('-').unwrap();
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        let part = &whole[start..=end.min(whole.len() - 1)];
        let (length, all, last) = (part.len(), whole.len(), start + part.len() - 1);
        write!(
            connection,
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {start}-{last}/{all}\r\n\
             X-Repo-Commit: {COMMIT}\r\nETag: \"{file}\"\r\n{close}"
        )
        .unwrap();
        self.asked.lock().unwrap().push(file.to_owned());
        // The size is asked for by a range of one byte.
        let half = if length > 1 && file == "model.safetensors" { self.half.lock().unwrap().take() } else { None };
        let (first, rest) = part.split_at(if half.is_some() { length / 2 } else { 0 });
        connection.write_all(first).unwrap();
        if let Some(half) = half {
            half.recv().unwrap_err();
        }
        connection.write_all(rest).unwrap();
    }
}

#[test]
fn a_log_has_a_line_for_each_file_that_is_fetched_and_none_the_next_time() {
    let hub = Hub::new(whole_model());
    let serve = [&["serve", MODEL, "--kv-cache-memory", "1M"], &LOCAL[..]].concat();
    let server = Server::spawn(&mut hub.tito(&serve));
    let fetched: Vec<&str> = server.said.lines().filter(|line| line.starts_with("fetching ")).collect();
    assert_eq!(
        fetched,
        [
            "fetching config.json (664 B) ...",
            "fetching model.safetensors (224.6 kB) ...",
            &format!("fetching tokenizer.json ({}) ...", kilobytes("tokenizer.json")),
            &format!("fetching tokenizer_config.json ({}) ...", kilobytes("tokenizer_config.json")),
        ],
        "{}",
        server.said
    );
    let (before, after) = server.said.split_once("fetching tokenizer_config.json").unwrap();
    assert!(!before.contains("loading the model") && after.contains("loading the model"), "{}", server.said);
    assert!(!server.said.contains(['\r', '\x1b']), "{:?}", server.said);
    server.stop("-TERM");

    let mut offline = hub.tito(&serve);
    let server = Server::spawn(offline.env("HF_HUB_OFFLINE", "1"));
    assert!(!server.said.contains("fetching"), "{}", server.said);
    server.stop("-TERM");
}

#[expect(clippy::cast_precision_loss, reason = "a small file")]
fn kilobytes(file: &str) -> String {
    format!("{:.1} kB", Path::new(TINY_MODEL).join(file).metadata().unwrap().len() as f64 / 1e3)
}

#[test]
fn a_terminal_shows_a_bar_for_a_file_while_it_is_fetched_and_then_only_the_outcome() {
    let (hub, release) = Hub::holding(whole_model());
    // It ends by itself: no memory for keys and values.
    let serve = format!("serve {MODEL} --kv-cache-memory 1 {}", LOCAL.join(" "));
    let within = format!("stty cols 100 rows 40; exec {} {serve}", env!("CARGO_BIN_EXE_tito"));
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--flush", "--return", "--command", &within, "/dev/null"]);
    terminal.env_clear().env("PATH", "/usr/bin:/bin").env("TERM", "xterm").envs(hub.variables());
    let mut shown = terminal.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut screen = shown.stdout.take().unwrap();
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    let mut more = |text: &mut String| {
        let length = screen.read(&mut piece).unwrap();
        text.push_str(&String::from_utf8_lossy(&piece[..length]));
        length > 0
    };
    let half = "112.29 kB/224.58 kB";
    while !text.contains(half) {
        assert!(more(&mut text), "{text:?}");
    }
    let bar = text.rsplit(['\r', '\n']).find(|line| line.contains(half)).unwrap();
    assert!(bar.contains(" fetching model.safetensors [") && bar.contains("█"), "{bar:?}");
    assert!(!text.contains("fetching model.safetensors ("), "a line besides the bar: {text:?}");
    drop(release);
    while more(&mut text) {}
    let code = shown.wait().unwrap().code();
    let last = text.trim_end().rsplit(['\r', '\n']).next().unwrap();
    assert!(code == Some(1) && last.contains("error: "), "{code:?} {text:?}");
    assert!(!last.contains("fetching"), "{last:?}");
}

#[test]
fn doctor_says_of_a_model_that_is_not_fetched_what_serve_would_download() {
    let hub = Hub::new(whole_model());
    let run = run_command(&mut hub.tito(&[&["doctor", MODEL, "--kv-cache-memory", "1M"], &LOCAL[..]].concat()));
    assert_eq!(run.code, Some(0), "{} {}", run.out, run.err);
    let snapshot = hub.home.path().join("hub/models--org--name/snapshots").join(COMMIT);
    let said = format!("{} (a directory), of the family LlamaForCausalLM", snapshot.display());
    assert_eq!(line(&run, "model"), said);
    assert_eq!(line(&run, "weights"), "1 MB, which serve has to download first");
    assert!(line(&run, "keys and values").starts_with("2 MB, room for "), "{}", run.out);
    assert_eq!(line(&run, "start"), "serve would start with these flags");
    assert_eq!(hub.asked(), ["config.json", "tokenizer.json", "tokenizer_config.json"]);

    // What doctor has fetched is no model for those who have no network.
    let mut offline = hub.tito(&[&["serve", MODEL], &LOCAL[..]].concat());
    let refused = run_command(offline.env("HF_HUB_OFFLINE", "1"));
    let said = "error: org/name is neither a directory here nor in the local Hugging Face cache, and HF_HUB_OFFLINE is set: \
                unset it to download the model, or pass a directory";
    assert_eq!(error(&refused), said);
    let mut offline = hub.tito(&[&["doctor", MODEL], &LOCAL[..]].concat());
    assert_eq!(error(&run_command(offline.env("HF_HUB_OFFLINE", "1"))), said);
}

#[test]
fn doctor_cannot_know_the_size_of_codes_that_are_not_fetched() {
    let model = whole_model();
    let config_path = model.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&config_path).unwrap()).unwrap();
    config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    fs::write(&config_path, config.to_string()).unwrap();
    let hub = Hub::new(model);
    let examined = |kept: &str| {
        let flags = ["doctor", MODEL, "--kv-cache-memory", "1M", "--quantized-weights", kept];
        run_command(&mut hub.tito(&[&flags[..], &LOCAL[..]].concat()))
    };
    let run = examined("kept");
    assert_eq!(run.code, Some(0), "{} {}", run.out, run.err);
    let said = "those in FP8 or MXFP4 stay as they are; how large they are shows once serve has downloaded them";
    assert_eq!(line(&run, "weights"), said);
    assert_eq!(line(&examined("widened"), "weights"), "1 MB, which serve has to download first");
}
