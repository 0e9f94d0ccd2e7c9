//! The binary, and what it says and answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, ExitStatus, Stdio},
};

use serde_json::Value;

pub(crate) const TINY_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");

/// The binary, knowing nothing of the environment that tests run in.
pub(crate) fn tito(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tito"));
    command.args(arguments).stdin(Stdio::null());
    for name in [
        "VLLM_API_KEY",
        "TITO_ADMIN_API_KEY",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_IMAGE_FETCH_TIMEOUT",
        "VLLM_MAX_COMPLETION_PROMPTS",
        "VLLM_MAX_N_SEQUENCES",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
        "VLLM_LORA_RESOLVER_CACHE_DIR",
        "VLLM_PLUGINS",
        "VLLM_LOGGING_LEVEL",
        "TITO_LOG",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "HF_ENDPOINT",
        "HF_TOKEN",
    ] {
        command.env_remove(name);
    }
    command.env("HF_HUB_OFFLINE", "1");
    command
}

pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(arguments: &[&str]) -> Run {
    run_command(&mut tito(arguments))
}

pub(crate) fn run_command(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs to a failure and returns the line that says why.
pub(crate) fn failure(arguments: &[&str]) -> String {
    failure_with(arguments, &[])
}

/// The same with variables in the environment.
pub(crate) fn failure_with(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let run = run_command(tito(arguments).envs(variables.iter().copied()));
    // 2 where the flags alone are the reason.
    assert!(matches!(run.code, Some(1 | 2)), "{arguments:?}: {:?} {}", run.code, run.err);
    assert_eq!(run.out, "", "{arguments:?}");
    assert!(!run.err.contains("panicked"), "{}", run.err);
    let mut lines = run.err.lines().filter(|line| line.starts_with("error: "));
    let line = lines.next().unwrap_or_else(|| panic!("{arguments:?}: {}", run.err)).to_owned();
    assert!(run.err.ends_with(&format!("{line}\n")), "the reason is the last line: {}", run.err);
    line
}

/// `tito serve` with the scripted engine on a port of the system's choice, and further arguments.
pub(crate) fn serve_arguments<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["serve", model, "--engine", "scripted", "--host", "127.0.0.1", "--port", "0"];
    arguments.extend(more);
    arguments
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) banner: String,
    /// What was said before it.
    pub(crate) said: String,
    /// Unspecified for a Unix socket.
    pub(crate) address: SocketAddr,
    err: BufReader<std::process::ChildStderr>,
}

impl Server {
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::spawn(&mut tito(&serve_arguments(TINY_MODEL, more)))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let banner = loop {
            let mut line = String::new();
            assert_ne!(err.read_line(&mut line).unwrap(), 0, "the server ended: {seen}");
            if line.contains(" | http") || line.contains(" | unix:") {
                break line.trim_end().to_owned();
            }
            seen.push_str(&line);
        };
        let address = banner.rsplit("://").next().unwrap().trim_end_matches("/inspect").parse();
        let address = address.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Self { child, banner, said: seen, address, err }
    }

    /// The address of the control plane's own port.
    pub(crate) fn admin(&self) -> SocketAddr {
        let line = self.said.lines().find(|line| line.contains("the control plane is at ")).expect(&self.said);
        line.rsplit("://").next().unwrap().parse().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let mut connection = TcpStream::connect(self.address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    }

    /// The body of the answer to JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(self.ask(path, body).split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// The whole answer to JSON.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> String {
        let (body, mut connection) = (body.to_string(), TcpStream::connect(self.address).unwrap());
        let headers = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
        let length = body.len();
        write!(connection, "POST {path} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn stop(mut self, signal: &str) -> (ExitStatus, String) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut rest = String::new();
        self.err.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already after a stop; a failed test must not leave it behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
