//! What makes a test pass or fail by chance: sleeping, asserting how long something took, giving up early, ports that are
//! fixed or that others may take in between, and requests that nothing holds until a call comes. Refused in all tests, in Rust
//! and in Python.
//!
//! It goes by what a line says, and knows of what is asserted only the names that the file gives to times.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::it::layering::{is_name, name_at};

/// What is still there, by file: what is refused, how many lines say it, and why they may. It may only get shorter.
const KNOWN: &[(&str, Luck, usize, &str)] = &[
    ("tests/clients/conftest.py", Luck::Port, 2, "for programs that do not say which port they took"),
    ("tests/clients/control.py", Luck::Time, 1, "a wait that looks whether something ends too early"),
    (
        "tests/clients/inspect_pictures.py",
        Luck::Sleep,
        1,
        "until nothing moves any more in a picture that people look at",
    ),
    ("tests/clients/routed.py", Luck::Sleep, 1, "between two attempts of a client that gives up at none"),
    ("tests/clients/recorded.py", Luck::Sleep, 1, "between two looks at a response in the background"),
    ("tests/clients/routers.py", Luck::Sleep, 1, "until a router answers, which tells nobody that it does"),
    ("tests/clients/routers.py", Luck::Time, 3, "the bound of that wait, of one look, and of an end without a kill"),
    ("tests/clients/routers.py", Luck::Port, 2, "routers take the number of a port, and do not say which they took"),
    ("tests/clients/test_control_faults.py", Luck::Sleep, 1, "a client that stays until it is killed"),
    ("tests/clients/test_control_faults.py", Luck::Port, 1, "a server whose log nobody can read"),
    (
        "tests/clients/test_control_soak.py",
        Luck::Sleep,
        1,
        "of a client that was refused, and asks until it is stopped",
    ),
    ("tests/clients/chromium.py", Luck::Time, 1, "the bound of a wait for the page"),
    ("tests/clients/test_prometheus.py", Luck::Time, 1, "the bound of one look"),
    ("tests/clients/test_prometheus.py", Luck::Sleep, 1, "until Prometheus has scraped"),
    (
        "tests/clients/test_kv_events.py",
        Luck::Port,
        1,
        "as in vLLM, endpoints have numbers, and nobody says which was taken",
    ),
    (
        "tests/clients/test_otlp.py",
        Luck::Port,
        1,
        "the collector takes the numbers of ports, and does not say which it took",
    ),
    ("tests/clients/test_prometheus.py", Luck::Port, 1, "Prometheus takes the number of a port"),
    ("tests/clients/test_routers.py", Luck::Port, 1, "routers are told of replicas that start again at the same ports"),
    ("tests/gpu/found.py", Luck::Time, 1, "a driver that does not answer is none"),
    ("tests/gpu/session.py", Luck::Sleep, 1, "between two looks at a gauge"),
    ("tests/ray/conftest.py", Luck::Port, 1, "Ray Serve takes the number of a port, which the test holds"),
    ("tests/it/control.rs", Luck::Race, 1, UNREAD),
    ("tests/it/control_races.rs", Luck::Race, 7, UNREAD),
];

/// Why a request needs no gate where only the control plane's count of requests is asked.
const UNREAD: &str = "for the control plane, who is not read runs, also once the engine has computed all of it";

/// The functions that may pause between two looks at a condition, for all tests in their language.
const POLLS: [(&str, &str); 4] = [
    ("tests/clients/conftest.py", "def poll("),
    ("tests/ray/conftest.py", "def poll("),
    ("tests/clients/chromium.py", "def until("),
    ("tests/it/patience.rs", "async fn within("),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Luck {
    /// It hopes that something has happened by then.
    Sleep,
    /// It hopes that the machine is fast.
    Time,
    /// It hopes that nobody else has it.
    Port,
    /// It hopes that a request has not ended yet.
    Race,
}

/// A line that is refused.
type Found = (usize, Luck);

/// The lines of a Rust file that only tests are made of.
fn rust_tests(path: &str, text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line, "//")));
    let whole = path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs");
    if whole {
        return lines.collect();
    }
    let mut tests = Vec::new();
    let mut lines = lines.peekable();
    while let Some((_, line)) = lines.next() {
        let attribute = line.trim_start();
        if !attribute.starts_with("#[cfg(test)]") && !attribute.starts_with("#[cfg(all(test") {
            continue;
        }
        // The item that the attribute is of, to its last line, which is not indented further.
        let indent = indent_of(&line);
        for (number, line) in lines.by_ref() {
            let last = indent_of(&line) == indent && line.trim_end().ends_with([';', '}']);
            tests.push((number, line));
            if last {
                break;
            }
        }
    }
    tests
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn without_comment(line: &str, mark: &str) -> String {
    line.split(mark).next().unwrap_or_default().to_owned()
}

/// Whether a line calls one of these, by its whole name.
fn calls(line: &str, names: &[&str]) -> bool {
    names.iter().any(|name| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            // `control.sleep(..)` of the control plane is another one.
            before.is_none_or(|c| !is_name(c) && (c != '.' || name.contains('.')))
        })
    })
}

/// Refused in Rust.
fn in_rust(path: &str, text: &str) -> Vec<Found> {
    const CLOCKS: [&str; 3] = ["elapsed()", "Instant::now()", "SystemTime::now()"];
    let lines = rust_tests(path, text);
    let mut found = Vec::new();
    for (number, line) in &lines {
        let defines = line.contains("fn sleep(");
        if !defines && calls(line, &["sleep(", "sleep_until(", "sleep_ms("]) {
            found.push((*number, Luck::Sleep));
        }
        if binds_fixed(line, &["TcpListener::bind(", "UdpSocket::bind(", "\"--port\", \""]) {
            found.push((*number, Luck::Port));
        }
        if is_impatient(line) {
            found.push((*number, Luck::Time));
        }
    }
    if path.starts_with("tests/it/control") {
        found.extend(ungated(&lines).into_iter().map(|number| (number, Luck::Race)));
    }
    found.extend(asserted_times(&lines, &CLOCKS, "let ", &["assert!(", "assert_eq!(", "assert_ne!("]));
    found
}

/// Whether a line of Rust gives up what a busy machine would still do: earlier than `PATIENCE` of `tests/it/patience.rs`.
fn is_impatient(line: &str) -> bool {
    const LEAST_MILLISECONDS: u64 = 240_000;
    let waits = ["timeout(", "PATIENCE: Duration = "].into_iter().any(|wait| line.contains(wait));
    waits
        && [("from_millis(", 1), ("from_secs(", 1_000), ("from_mins(", 60_000)].into_iter().any(
            |(unit, milliseconds)| {
                let mut given = line.split(unit).skip(1).map(name_at);
                given.any(|number| number.parse::<u64>().is_ok_and(|number| number * milliseconds < LEAST_MILLISECONDS))
            },
        )
}

/// Requests for many tokens in functions that know no gate: they may have ended when what comes next meets them.
fn ungated(lines: &[(usize, String)]) -> Vec<usize> {
    const MANY_TOKENS: u32 = 100;
    let is_long = |line: &str| {
        line.split("request(").skip(1).any(|rest| {
            let arguments = rest.split(')').next().unwrap_or_default();
            let last = arguments.rsplit(',').next().unwrap_or_default();
            last.trim().parse::<u32>().is_ok_and(|tokens| tokens >= MANY_TOKENS)
        })
    };
    let begins = |line: &str| line.starts_with("fn ") || line.contains(" fn ");
    lines
        .chunk_by(|_, (_, next)| !begins(next))
        .filter(|function| !function.iter().any(|(_, line)| line.contains("gate")))
        .flatten()
        .filter(|(_, line)| is_long(line))
        .map(|(number, _)| *number)
        .collect()
}

/// Refused in Python.
fn in_python(text: &str) -> Vec<Found> {
    const CLOCKS: [&str; 4] = ["time.time()", "monotonic()", "perf_counter()", "process_time()"];
    let lines: Vec<_> = text.lines().enumerate().map(|(i, line)| (i + 1, without_comment(line, "# "))).collect();
    let mut found = Vec::new();
    for (number, line) in &lines {
        let sleeps = calls(line, &["sleep(", "time.sleep(", "asyncio.sleep(", "page.wait_for_timeout("]);
        if (sleeps && !line.contains("def sleep(")) || line.contains(PAUSE) {
            found.push((*number, Luck::Sleep));
        }
        // Closed again, anybody may have it.
        let closed = calls(line, &["free_port("]) || line.contains(".getsockname(");
        if closed || binds_fixed(line, &[".bind((", "port=", "\"--port\", \"", "port = "]) {
            found.push((*number, Luck::Port));
        }
    }
    found.extend(lines.iter().filter(|(_, line)| gives_up_early(line)).map(|(number, _)| (*number, Luck::Time)));
    found.extend(asserted_times(&lines, &CLOCKS, "", &["assert ", "self.assert"]));
    found
}

/// Seconds after which a request or a program of a test may be given up, at the earliest: a machine that others keep busy needed
/// more than 60 for what takes one of 0.1.
const LEAST_TIMEOUT: u32 = 300;

/// What waits less than a second waits for nothing else.
const PAUSE: &str = ".wait(0.";

/// Whether a line gives up what a busy machine would still do.
fn gives_up_early(line: &str) -> bool {
    const BOUNDS: [&str; 8] = [
        "timeout=",
        "START_SECONDS = ",
        "STOP_SECONDS = ",
        "WAIT_SECONDS = ",
        "monotonic() + ",
        "settimeout(",
        ".result(",
        ".wait(",
    ];
    let is_early = |rest: &str| name_at(rest).parse::<u32>().is_ok_and(|seconds| seconds < LEAST_TIMEOUT);
    !line.contains(PAUSE) && BOUNDS.into_iter().any(|before| line.split(before).skip(1).any(is_early))
}

/// Whether what follows one of these has a port that is a number other than 0.
fn binds_fixed(line: &str, binds: &[&str]) -> bool {
    binds.iter().any(|bind| {
        line.split(bind).skip(1).any(|rest| {
            let argument = rest.split([')', ']']).next().unwrap_or_default();
            let last = argument.rsplit([',', ':']).next().unwrap_or_default();
            // `port=8000, host=..`: the number is the first argument.
            let number = if bind.contains("port") { argument } else { last };
            let number = name_at(number.trim().trim_start_matches('"'));
            number.parse::<u16>().is_ok_and(|port| port != 0)
        })
    })
}

/// Whether a clock after this is all of the value or a part of a sum, and not something that other things are made of.
fn is_number(before_clock: &str) -> bool {
    let mut rest = before_clock.trim_end_matches("time.").trim_end();
    while let Some(outer) =
        ["int(", "float(", "round(", "min(", "max(", "("].iter().find_map(|call| rest.strip_suffix(call))
    {
        rest = outer.trim_end();
    }
    !rest.contains(['(', '{'])
}

/// The lines of the function that begins so, by their numbers.
fn lines_of(text: &str, function: &str) -> BTreeSet<usize> {
    let lines: Vec<_> = text.lines().collect();
    let Some(first) = lines.iter().position(|line| line.trim_start().starts_with(function)) else {
        return BTreeSet::new();
    };
    let deeper = |line: &&&str| line.trim().is_empty() || indent_of(line) > indent_of(lines[first]);
    // In Rust, what follows the arguments is on a line that is indented no further.
    let header = lines[first..].iter().take_while(|line| !line.trim_end().ends_with([':', '{'])).count() + 1;
    let body = lines[first + header..].iter().take_while(deeper).count();
    (first + 1..=first + header + body).collect()
}

/// What is refused in a file, but for the pauses that are allowed by name.
fn refused(path: &str, text: &str) -> Vec<Found> {
    let is_python = Path::new(path).extension().is_some_and(|extension| extension == "py");
    let mut found = if is_python { in_python(text) } else { in_rust(path, text) };
    for (_, function) in POLLS.iter().filter(|(file, _)| *file == path) {
        let polls = lines_of(text, function);
        found.retain(|(line, luck)| *luck != Luck::Sleep || !polls.contains(line));
    }
    found
}

/// Assertions that name a clock, or a name that the same file gives to what a clock says.
fn asserted_times(lines: &[(usize, String)], clocks: &[&str], binds: &str, asserts: &[&str]) -> Vec<Found> {
    let mut times = BTreeSet::new();
    for (_, line) in lines {
        let Some((before, value)) = line.split_once(" = ") else { continue };
        if clocks.iter().any(|clock| value.split_once(clock).is_some_and(|(before, _)| is_number(before))) {
            let names = before.trim().trim_start_matches(binds).trim_start_matches("mut ");
            times.extend(
                names.split(',').map(|name| name_at(name.trim().trim_matches('('))).filter(|name| !name.is_empty()),
            );
        }
    }
    let is_time = |line: &str| {
        let named = |time: &&&str| line.split(|c| !is_name(c)).any(|name| name == **time);
        clocks.iter().any(|clock| line.contains(clock)) || times.iter().any(|time| named(&time))
    };
    let mut found = Vec::new();
    // The line of an assertion that goes on.
    let mut open = None;
    for (number, line) in lines {
        let code = line.trim();
        if asserts.iter().any(|assert| code.starts_with(assert)) {
            open = Some(*number);
        }
        if let Some(first) = open
            && is_time(code)
            && found.last() != Some(&(first, Luck::Time))
        {
            found.push((first, Luck::Time));
        }
        let goes_on = code.ends_with(['(', ',', '[', '{']) || !(code.ends_with([';', ')']) || asserts[0] == "assert ");
        if !goes_on {
            open = None;
        }
    }
    found
}

/// All files that end so, by their paths from the repository's root.
fn files(folder: &str, extension: &str) -> BTreeMap<String, String> {
    fn collect(folder: &Path, extension: &str, out: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                collect(&path, extension, out);
            } else if path.extension().is_some_and(|found| found == extension) {
                out.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = Vec::new();
    collect(&root.join(folder), extension, &mut out);
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
    out.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// By file and kind, the lines.
fn found() -> BTreeMap<(String, Luck), Vec<usize>> {
    let files =
        [files("src", "rs"), files("crates", "rs"), files("tests", "rs"), files("tests", "py")].into_iter().flatten();
    let mut found: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    // But for the samples below, and for what starts servers for vLLM's tests: these ask for free ports, and no run of
    // scripts/test has them in it.
    let left_out = ["tests/it/luck.rs", "tests/reference/vllm_tests/launch.py"];
    for (path, text) in files.filter(|(path, _)| !left_out.contains(&path.as_str())) {
        for (line, luck) in refused(&path, &text) {
            found.entry((path.clone(), luck)).or_default().push(line);
        }
    }
    found
}

#[test]
fn no_test_depends_on_luck_but_those_on_the_list() {
    let mut found = found();
    let mut complaints = Vec::new();
    for (path, luck, count, reason) in KNOWN {
        assert!(!reason.is_empty(), "{path}");
        let lines = found.remove(&((*path).to_owned(), *luck)).unwrap_or_default();
        if lines.len() < *count {
            complaints.push(format!("{path}: {luck:?}: {} lines and no longer {count}: shorten the list", lines.len()));
        } else if lines.len() > *count {
            complaints.push(format!("{path}: {luck:?}: more than {count} lines: {lines:?}"));
        }
    }
    let new = found.iter().map(|((path, luck), lines)| format!("{path}: {luck:?}: lines {lines:?}"));
    complaints.extend(new);
    assert!(complaints.is_empty(), "wait for what the test is about (CONTRIBUTING.md):\n{}", complaints.join("\n"));
}

#[test]
fn luck_is_found_in_rust() {
    use Luck::{Port, Sleep, Time};
    for (text, expected) in [
        ("std::thread::sleep(WAIT);", vec![(1, Sleep)]),
        ("tokio::time::sleep(WAIT).await;\nsleep_until(end).await;", vec![(1, Sleep), (2, Sleep)]),
        ("assert!(begun.elapsed() < SOON);", vec![(1, Time)]),
        ("let begun = Instant::now();\ng();\nassert!(Instant::now() - begun < SOON);", vec![(3, Time)]),
        ("assert!(\n    a\n    && begun.elapsed() < SOON,\n);", vec![(1, Time)]),
        ("let took = begun.elapsed();\nassert!(took < SOON);", vec![(2, Time)]),
        ("tokio::time::timeout(Duration::from_secs(60), ended)", vec![(1, Time)]),
        ("const PATIENCE: Duration = Duration::from_mins(1);", vec![(1, Time)]),
        ("let a = TcpListener::bind(\"127.0.0.1:8000\");", vec![(1, Port)]),
        ("let a = TcpListener::bind((HOST, 8000));", vec![(1, Port)]),
        ("run(&[\"--port\", \"8000\"]);", vec![(1, Port)]),
    ] {
        assert_eq!(in_rust("tests/it/a.rs", text), expected, "{text}");
        assert_eq!(in_rust("src/a/tests/b.rs", text), expected, "{text}");
        assert!(in_rust("src/a.rs", text).is_empty(), "not a test: {text}");
        let indented = text.replace('\n', "\n    ");
        let module =
            format!("fn f() {{ sleep(A) }}\n#[cfg(test)]\nmod tests {{\n    {indented}\n}}\nfn g() {{ sleep(A) }}");
        let moved: Vec<_> = expected.iter().map(|(line, luck)| (line + 3, *luck)).collect();
        assert_eq!(in_rust("src/a.rs", &module), moved, "{module}");
    }
    for text in [
        "// thread::sleep(A)",
        "control.sleep(level, mode).await;",
        "Call::Sleep(level) => {}",
        "let a = TcpListener::bind(\"127.0.0.1:0\");\nlet b = TcpListener::bind((HOST, 0));",
        "serve(&[\"--port\", \"0\"]);",
        "let begun = Instant::now();\nassert!(ends);",
        "let watched = Watched { began: Instant::now() };\nassert!(watched.look());",
        "serve(&[\"--port\", \"70000\"]);",
        "tokio::time::timeout(Duration::from_mins(4), ended)",
        "let policy = Policy { ttl: Duration::from_millis(1) };",
    ] {
        assert_eq!(in_rust("tests/it/a.rs", text), [], "{text}");
    }
}

#[test]
fn requests_that_nothing_holds_are_found() {
    let ungated = "fn f() {\n    gate.shut();\n}\nasync fn g() {\n    let a = request(&control, 400);\n    call();\n}";
    assert_eq!(in_rust("tests/it/control_a.rs", ungated), [(5, Luck::Race)]);
    for text in [ungated.replace("call()", "gate.open()"), ungated.replace("400", "2")] {
        assert_eq!(in_rust("tests/it/control_a.rs", &text), [], "{text}");
    }
}

#[test]
fn luck_is_found_in_python() {
    use Luck::{Port, Sleep, Time};
    for (text, expected) in [
        ("time.sleep(1)", vec![(1, Sleep)]),
        ("    await asyncio.sleep(1)\n    sleep(2)", vec![(1, Sleep), (2, Sleep)]),
        ("begun = time.monotonic()\nf()\nassert time.monotonic() - begun < 10", vec![(3, Time)]),
        ("took = time.perf_counter() - begun\nassert took < 1", vec![(2, Time)]),
        ("assert f(\n    time.monotonic(),\n)", vec![(1, Time)]),
        ("assert f()\nend = time.monotonic()", vec![]),
        ("self.assertLess(time.time() - begun, 10)", vec![(1, Time)]),
        ("requests.get(url, timeout=60)", vec![(1, Time)]),
        ("START_SECONDS = 120", vec![(1, Time)]),
        ("assert begun.wait(60)\nlate.result(60)\na.settimeout(5)", vec![(1, Time), (2, Time), (3, Time)]),
        ("end = time.monotonic() + 60", vec![(1, Time)]),
        ("Event().wait(0.25)\npage.wait_for_timeout(10)", vec![(1, Sleep), (2, Sleep)]),
        ("port = free_port()", vec![(1, Port)]),
        ("a.bind((\"\", 0))\nreturn a.getsockname()[1]", vec![(2, Port)]),
        ("a.bind((\"127.0.0.1\", 8000))", vec![(1, Port)]),
        ("Server(port=8000)\nport = 8000\nrun([\"--port\", \"8000\"])", vec![(1, Port), (2, Port), (3, Port)]),
    ] {
        assert_eq!(in_python(text), expected, "{text}");
    }
    for text in [
        "# time.sleep(1)",
        "client.sleep(1)",
        "a.bind((\"\", 0))",
        "run([\"--port\", \"0\"])",
        "assert port == 1",
        "get(url, timeout=300)",
        "WAIT_SECONDS = 600",
        "late.result(300)",
    ] {
        assert_eq!(in_python(text), [], "{text}");
    }
}
