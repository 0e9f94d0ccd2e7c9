//! The task that sends spans, from the start of the process to its end.

use std::{
    collections::BTreeMap,
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use super::{
    collector::{Again, Collector, NotTaken, quoted},
    protobuf::{ExportTraceServiceRequest, KeyValue, PartialSuccess, Resource, ResourceSpans, Scope, ScopeSpans},
    queue::{Dropped, Queue},
    settings::OtlpSettings,
    spans::Ended,
    tracer::Tracer,
};

/// How long the end of the process waits for spans that are not sent yet.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// The wait before the second try; each later one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Counts spans that the collector took.
const SENT: &str = "tito:trace_spans_sent_total";
/// What vLLM calls the process that makes its request spans.
const MODULE: &str = "vllm.llm_engine";

/// Sends spans until it is told to finish.
pub(crate) struct Exporter {
    queue: Arc<Queue>,
    /// The spans of the batch that is being sent.
    in_flight: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// Ready to send spans.
pub(crate) struct Prepared {
    settings: OtlpSettings,
    collector: Collector,
}

impl Prepared {
    /// Makes ready to send; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If certificates cannot be read; the error is one line.
    pub(crate) fn new(settings: OtlpSettings) -> Result<Self, String> {
        Ok(Self { collector: Collector::new(&settings)?, settings })
    }

    /// Where spans go, for people.
    pub(crate) fn shown(&self) -> String {
        self.collector.shown()
    }

    /// Begins to send what the tracer is told, in a task of its own; `model` is what answers call the model.
    pub(crate) fn start(self, model: &str) -> (Tracer, Exporter) {
        let Self { settings, collector } = self;
        let queue = Queue::new(settings.bounds);
        let tracer = Tracer::new(settings.sampler, Arc::clone(&queue));
        metrics::counter!(SENT).increment(0);
        for reason in Dropped::ALL {
            reason.count(0);
        }
        let in_flight = Arc::<AtomicUsize>::default();
        let sending = Sending {
            in_flight: Arc::clone(&in_flight),
            resource: resource(&settings.resource),
            timeout: settings.timeout,
            collector,
            model: model.to_owned(),
            queue: Arc::clone(&queue),
            fails: false,
        };
        let task = tokio::spawn(sending.run());
        (tracer, Exporter { queue, in_flight, task })
    }
}

impl Exporter {
    /// Sends what is left, for a few seconds at most; what is left then is dropped and counted. Returns how many spans these
    /// were.
    pub(crate) async fn finish(mut self) -> usize {
        self.queue.close();
        if timeout(LAST_WORDS, &mut self.task).await.is_ok() {
            return 0;
        }
        self.task.abort();
        // It may have ended by itself meanwhile.
        _ = self.task.await;
        let spans = self.queue.clear() + self.in_flight.load(Ordering::Acquire);
        Dropped::Unreachable.count(spans);
        tracing::warn!(spans, "traces: the last ones could not be sent in time");
        spans
    }
}

/// What the task works with.
struct Sending {
    queue: Arc<Queue>,
    in_flight: Arc<AtomicUsize>,
    collector: Collector,
    resource: Resource,
    model: String,
    /// For one batch, all tries together.
    timeout: Duration,
    /// Whether the latest batch was not taken, which is told once.
    fails: bool,
}

impl Sending {
    async fn run(mut self) {
        while let Some(batch) = self.queue.batch().await {
            let spans: usize = batch.iter().map(Ended::count).sum();
            let message = self.message(&batch);
            drop(batch);
            self.in_flight.store(spans, Ordering::Release);
            let sent = self.send(&message).await;
            self.in_flight.store(0, Ordering::Release);
            match sent {
                Ok(partial) => self.taken(spans, partial),
                Err(not_taken) => self.not_taken(spans, &not_taken),
            }
        }
    }

    fn message(&self, batch: &[Ended]) -> Bytes {
        let spans = batch.iter().flat_map(|ended| ended.spans(&self.model)).collect();
        let scope = Scope { name: "tito".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
    }

    /// Sends a message, again and again while that makes sense and there is time.
    async fn send(&self, message: &Bytes) -> Result<Option<PartialSuccess>, NotTaken> {
        let deadline = Instant::now() + self.timeout;
        let mut wait = FIRST_WAIT;
        loop {
            let is_last = self.queue.is_closed();
            let left = deadline.saturating_duration_since(Instant::now());
            let not_taken = match self.collector.send(message, left).await {
                Ok(taken) => return Ok(taken),
                Err(not_taken) => not_taken,
            };
            let Again::After(asked) = not_taken.again else { return Err(not_taken) };
            let pause = asked.unwrap_or(wait);
            if is_last || Instant::now() + pause >= deadline {
                return Err(not_taken);
            }
            wait *= 2;
            tokio::select! {
                () = sleep(pause) => {}
                // One more try, at once.
                () = self.queue.closed() => {}
            }
        }
    }

    fn taken(&mut self, spans: usize, partial: Option<PartialSuccess>) {
        if std::mem::take(&mut self.fails) {
            tracing::info!("traces: {} takes them again", self.collector.shown());
        }
        let PartialSuccess { rejected_spans, error_message } = partial.unwrap_or_default();
        let rejected = usize::try_from(rejected_spans).unwrap_or(0).min(spans);
        metrics::counter!(SENT).increment((spans - rejected) as u64);
        if rejected > 0 {
            Dropped::Refused.count(rejected);
            tracing::warn!(rejected, "traces: the collector did not take spans: {}", quoted(&error_message));
        }
    }

    fn not_taken(&mut self, spans: usize, NotTaken { why, again }: &NotTaken) {
        let dropped = if *again == Again::Never { Dropped::Refused } else { Dropped::Unreachable };
        dropped.count(spans);
        if !std::mem::replace(&mut self.fails, true) {
            let hint = self.collector.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            let place = self.collector.shown();
            tracing::warn!("traces: {place} does not take them, and they are dropped while it does not: {why}{hint}");
        }
    }
}

/// What all spans say of the process. What the environment says of it counts more, except for what vLLM always says.
fn resource(told: &BTreeMap<String, String>) -> Resource {
    let mut attributes = BTreeMap::from([
        ("service.name".to_owned(), "tito".to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id".to_owned(), Uuid::new_v4().to_string()),
    ]);
    attributes.extend(told.clone());
    attributes.extend([
        ("telemetry.sdk.name".to_owned(), "tito".to_owned()),
        ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ("telemetry.sdk.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("vllm.instrumenting_module_name".to_owned(), MODULE.to_owned()),
        ("vllm.process_id".to_owned(), process::id().to_string()),
    ]);
    Resource { attributes: attributes.iter().map(|(name, value)| KeyValue::new(name, value.as_str())).collect() }
}
