//! What is said and counted of trajectories that leave.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString};
use parking_lot::Mutex;

use super::*;

/// Lines of the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the log says while something is done, from each line what comes after its level.
fn logged<T>(action: impl FnOnce() -> T) -> (T, Vec<String>) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let done = tracing::subscriber::with_default(subscriber, action);
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let warnings = text.lines().filter_map(|line| Some(line.split_once(" WARN ")?.1.split_once(": ")?.1.to_owned()));
    (done, warnings.collect())
}

/// Five trajectories of an hour ago, and three of now.
fn eight() -> Arc<MemoryStore> {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    for number in 0..8 {
        let ended = if number < 5 { now() - 3600.0 } else { now() };
        trajectories.capture(Generation { ended, ..generation(&[number], &[1]) }).unwrap();
    }
    store
}

/// Counters by their label.
#[derive(Default)]
struct Counted(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counted {
    fn counting<T>(&self, action: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(self, action)
    }

    fn of(&self, reason: &str) -> u64 {
        self.0.lock().get(reason).map_or(0, |count| count.load(Ordering::Acquire))
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let reason: String = key.labels().map(|label| label.value().to_owned()).collect();
        Counter::from_arc(Arc::clone(self.0.lock().entry(reason).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_start_says_how_many_trajectories_it_removes_and_why() {
    let (store, counts) = (eight(), Counted::default());
    let ((), said) = logged(|| drop(opened(&store, POLICY)));
    assert!(said.is_empty(), "{said:?}");
    let policy = CapturePolicy { ttl: Some(Duration::from_mins(1)), ..POLICY };
    let (trajectories, said) = logged(|| counts.counting(|| opened(&store, policy)));
    let because = "were removed: nothing was added to them for longer than --capture-ttl 60";
    assert_eq!(said, [format!("5 of 8 captured trajectories of earlier processes {because}")]);
    assert_eq!((counts.of("ttl"), counts.of("size")), (5, 0));
    let bytes = trajectories.bytes() - 1;
    let ((), said) = logged(|| counts.counting(|| drop(opened(&store, CapturePolicy { bytes, ..POLICY }))));
    let because = format!("were removed, the oldest first: all of them take more than --capture-size {bytes}");
    assert_eq!(said, [format!("1 of 3 captured trajectories of earlier processes {because}")]);
    assert_eq!((counts.of("ttl"), counts.of("size")), (5, 1));
}

#[test]
fn trajectories_that_leave_are_counted_by_reason() {
    let (store, counts) = (eight(), Counted::default());
    let bytes = opened(&store, POLICY).bytes();
    let trajectories = opened(&store, CapturePolicy { bytes, ..POLICY });
    counts.counting(|| {
        let all = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories;
        assert!(trajectories.delete(&None, &all[7].id).unwrap());
        assert!(!trajectories.delete(&None, &all[7].id).unwrap());
        for number in 8..11 {
            trajectories.capture(generation(&[number], &[1])).unwrap();
        }
    });
    let left = trajectories.list(&None, &Filter::default(), 99).unwrap().trajectories.len();
    let removed = 8 + 3 - 1 - left;
    assert!(removed > 0);
    assert_eq!(counts.of("size"), removed as u64);
    assert_eq!((counts.of("deleted"), counts.of("ttl")), (1, 0));
}
