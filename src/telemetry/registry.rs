//! The recorder behind the `metrics` facade: series by family and labels, in the process's memory.
//!
//! Owns what a series is and when it began. Refuses to write text, and to know what any metric means beyond its family.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use indexmap::IndexMap;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::families::{FAMILIES, Family, Labels, MetricKind};

/// All series of the process; clones share them.
#[derive(Clone)]
pub(super) struct Registry(Arc<Inner>);

struct Inner {
    model_name: String,
    max_model_len: usize,
    families: Mutex<IndexMap<String, Series>>,
    counters: Known<Counter>,
    histograms: Known<Histogram>,
}

/// What was registered, by its name and labels as code gives them. A series has more labels, in order, and to make these each
/// time that something is counted takes longer than to count it.
struct Known<T>(Mutex<HashMap<Key, T>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Known<T> {
    fn get(&self, key: &Key, register: impl FnOnce() -> T) -> T {
        if let Some(known) = self.0.lock().get(key) {
            return known.clone();
        }
        let registered = register();
        self.0.lock().insert(key.clone(), registered.clone());
        registered
    }
}

/// The series of one family, by their labels in the order of their names.
pub(super) type Series = BTreeMap<Vec<(String, String)>, Metric>;

/// One series.
pub(super) struct Metric {
    pub(super) value: Value,
    /// Seconds since 1970.
    pub(super) created: f64,
}

/// What a series has counted.
pub(super) enum Value {
    Counter(Arc<AtomicU64>),
    /// The bits of a float.
    Gauge(Arc<AtomicU64>),
    Distribution(Arc<Distribution>),
}

/// Numbers by bucket, and their sum.
pub(super) struct Distribution {
    bounds: Vec<f64>,
    /// The counts between the bounds, one more than there are bounds.
    counts: Vec<AtomicU64>,
    /// The bits of a float.
    sum: AtomicU64,
}

impl Distribution {
    fn new(bounds: Vec<f64>) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Self { bounds, counts, sum: AtomicU64::new(0_f64.to_bits()) }
    }

    /// Each upper bound with the numbers up to it; then all numbers, and their sum.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (index, counted) in self.counts.iter().enumerate() {
            count += counted.load(Ordering::Relaxed);
            if let Some(bound) = self.bounds.get(index) {
                buckets.push((*bound, count));
            }
        }
        (buckets, count, f64::from_bits(self.sum.load(Ordering::Relaxed)))
    }
}

impl HistogramFn for Distribution {
    fn record(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The closure always gives a value.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl Registry {
    /// A registry with the series that are there from the start.
    pub(super) fn new(model_name: &str, max_model_len: usize) -> Self {
        let registry = Self(Arc::new(Inner {
            model_name: model_name.to_owned(),
            max_model_len,
            families: Mutex::new(IndexMap::new()),
            counters: Known::default(),
            histograms: Known::default(),
        }));
        for family in FAMILIES {
            registry.0.families.lock().insert(family.name.to_owned(), Series::new());
            if matches!(family.kind, MetricKind::Older { .. }) {
                continue;
            }
            for labels in family.series {
                let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                registry.with_series(family.name, labels.collect(), family.kind, |_| ());
            }
        }
        registry
    }

    /// Sets a gauge whose value is asked for when the page is.
    pub(super) fn set(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.with_series(name, labels, MetricKind::Gauge, |metric| {
            if let Value::Gauge(bits) = &metric.value {
                bits.store(value.to_bits(), Ordering::Relaxed);
            }
        });
    }

    /// The sum of a counter over all its series; 0 for what was never counted.
    pub(super) fn counted(&self, name: &str) -> u64 {
        let families = self.0.families.lock();
        let series = families.get(name).into_iter().flat_map(BTreeMap::values);
        let counts = series.map(|metric| match &metric.value {
            Value::Counter(count) => count.load(Ordering::Relaxed),
            Value::Gauge(_) | Value::Distribution(_) => 0,
        });
        counts.sum()
    }

    /// Calls `show` with every family and its series: those that are known in their order, then the others.
    pub(super) fn each(&self, mut show: impl FnMut(&str, Option<&Family>, &Series)) {
        let families = self.0.families.lock();
        for (name, series) in families.iter() {
            let family = find_family(name);
            match family.map(|family| family.kind) {
                Some(MetricKind::Older { of }) => show(name, family, families.get(of).unwrap_or(series)),
                _ => show(name, family, series),
            }
        }
    }

    fn with_series<T>(
        &self,
        name: &str,
        mut labels: Vec<(String, String)>,
        kind: MetricKind,
        use_it: impl FnOnce(&mut Metric) -> T,
    ) -> T {
        let family = find_family(name);
        labels.extend(self.own_labels(family.map_or(Labels::EngineAndModel, |family| family.labels)));
        labels.sort();
        let mut families = self.0.families.lock();
        let series = families.entry(name.to_owned()).or_default();
        let kind = family.map_or(kind, |family| family.kind);
        let metric = series.entry(labels).or_insert_with(|| Metric { value: self.value(kind), created: now() });
        use_it(metric)
    }

    fn own_labels(&self, labels: Labels) -> Vec<(String, String)> {
        let engine = || ("engine".to_owned(), "0".to_owned());
        let model = || ("model_name".to_owned(), self.0.model_name.clone());
        match labels {
            Labels::EngineAndModel => vec![engine(), model()],
            Labels::Engine => vec![engine()],
            Labels::Model => vec![model()],
            Labels::None => Vec::new(),
        }
    }

    fn value(&self, kind: MetricKind) -> Value {
        match kind {
            MetricKind::Counter => Value::Counter(Arc::default()),
            MetricKind::Gauge => Value::Gauge(Arc::new(AtomicU64::new(0_f64.to_bits()))),
            MetricKind::Histogram(buckets) => {
                Value::Distribution(Arc::new(Distribution::new(buckets.bounds(self.0.max_model_len))))
            }
            MetricKind::Summary | MetricKind::Older { .. } => {
                Value::Distribution(Arc::new(Distribution::new(Vec::new())))
            }
        }
    }
}

/// A time as Prometheus writes times.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

fn find_family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

fn labels(key: &Key) -> Vec<(String, String)> {
    key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect()
}

/// A metric that is registered as something else than its family says counts into nothing.
impl Recorder for Registry {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let counter = |metric: &mut Metric| match &metric.value {
            Value::Counter(count) => Counter::from_arc(Arc::clone(count)),
            Value::Gauge(_) | Value::Distribution(_) => Counter::noop(),
        };
        self.0.counters.get(key, || self.with_series(key.name(), labels(key), MetricKind::Counter, counter))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.with_series(key.name(), labels(key), MetricKind::Gauge, |metric| match &metric.value {
            Value::Gauge(bits) => Gauge::from_arc(Arc::clone(bits)),
            Value::Counter(_) | Value::Distribution(_) => Gauge::noop(),
        })
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let histogram = |metric: &mut Metric| match &metric.value {
            Value::Distribution(distribution) => Histogram::from_arc(Arc::clone(distribution)),
            Value::Counter(_) | Value::Gauge(_) => Histogram::noop(),
        };
        self.0.histograms.get(key, || self.with_series(key.name(), labels(key), MetricKind::Summary, histogram))
    }
}
