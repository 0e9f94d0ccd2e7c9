//! Requests under a control plane: when they begin, what samples each of their tokens, and how they end.

use futures::{FutureExt, StreamExt};

use tito::{
    engine::{EngineError, OnWeightsChange, SampledToken},
    generation::{Event, Finish, WeightSpans},
};

use super::{
    super::control::Events,
    model::{Adapter, Door, Model},
    reference::{Sampled, Seen},
};

struct Request {
    events: Events,
    id: &'static str,
    /// The adapter that samples, whatever has its name by now; `None` for the base.
    adapter: Option<Adapter>,
    /// Whether it is in the engine.
    entered: bool,
    aborted: bool,
    /// Tokens that are still to come.
    left: usize,
    spans: WeightSpans,
    keys: Option<Keys>,
    sampled: Vec<Sampled>,
}

/// What the keys and values of a request were computed with.
#[derive(Clone, Copy)]
struct Keys {
    given_back: u64,
    changes: u64,
    are_older: bool,
}

impl Keys {
    /// Those that the next token is computed with.
    fn next(before: Option<Self>, model: &Model, policy: OnWeightsChange) -> Self {
        let kept = before.filter(|keys| keys.given_back == model.given_back && policy == OnWeightsChange::Reuse);
        let are_older = kept.is_some_and(|keys| keys.are_older || keys.changes != model.changes);
        Self { given_back: model.given_back, changes: model.changes, are_older }
    }
}

/// What came of a request since the last look.
#[derive(Debug, PartialEq, Default)]
struct Came {
    tokens: usize,
    finish: Option<Finish>,
    error: Option<EngineError>,
}

impl Came {
    fn error(error: EngineError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

pub(super) struct Requests {
    policy: OnWeightsChange,
    all: Vec<Request>,
    /// Tokens that are not compared yet with those of an engine of their own.
    seen: Vec<(Seen, Sampled)>,
}

impl Requests {
    pub(super) fn new(policy: OnWeightsChange) -> Self {
        Self { policy, all: Vec::new(), seen: Vec::new() }
    }

    /// Takes note of a request for `tokens` tokens.
    pub(super) fn add(&mut self, events: Events, tokens: usize, adapter: Option<Adapter>, id: &'static str) {
        let (spans, sampled) = (WeightSpans::default(), Vec::new());
        let (entered, aborted, left, keys) = (false, false, tokens, None);
        self.all.push(Request { events, id, adapter, entered, aborted, left, spans, keys, sampled });
    }

    pub(super) fn hang_up(&mut self, index: usize) {
        if index < self.all.len() {
            self.all.remove(index);
        }
    }

    /// All are to end with what they have, also those that wait at the door; says how many those are.
    pub(super) fn abort(&mut self) -> usize {
        self.abort_where(|_| true)
    }

    /// The same for those in the engine.
    pub(super) fn abort_begun(&mut self) {
        self.abort_where(|request| request.entered);
    }

    /// The same for those that are called so.
    pub(super) fn abort_named(&mut self, id: &str) -> usize {
        self.abort_where(|request| request.id == id)
    }

    /// The same for those of an adapter.
    pub(super) fn abort_adapter(&mut self, label: &str) -> usize {
        self.abort_where(|request| request.adapter.as_ref().is_some_and(|adapter| adapter.label == label))
    }

    fn abort_where(&mut self, is_meant: impl Fn(&Request) -> bool) -> usize {
        let meant = self.all.iter_mut().filter(|request| is_meant(request) && !request.aborted);
        meant.map(|request| request.aborted = true).count()
    }

    /// The tokens that were sampled since the last call, each with what it was sampled from; those of older keys, which have
    /// a history, are not among them.
    pub(super) fn take_seen(&mut self) -> Vec<(Seen, Sampled)> {
        std::mem::take(&mut self.seen)
    }

    /// How many are in the engine; those that are to end have left it.
    pub(super) fn entered(&self) -> usize {
        self.all.iter().filter(|request| request.entered && !request.aborted).count()
    }

    /// Reads what came of each, and compares it with what should have; `stepped` says that the engine has computed a step,
    /// which samples at most one token of each, and not of none.
    pub(super) fn look(&mut self, model: &Model, stepped: bool) {
        let (policy, mut sampled) = (self.policy, 0);
        let Self { all, seen, .. } = self;
        all.retain_mut(|request| {
            let (came, token) = request.read();
            assert!(came.tokens <= usize::from(stepped), "{came:?}: {model:?}");
            assert_eq!(came, request.expected(model, came.tokens), "{model:?}");
            if let Some(token) = token {
                sampled += 1;
                request.compare_span(model, policy);
                seen.extend(request.take_in(&token, model));
            }
            came.finish.is_none() && came.error.is_none()
        });
        assert!(sampled > 0 || !stepped, "{model:?}");
    }
}

impl Request {
    fn expected(&mut self, model: &Model, tokens: usize) -> Came {
        if self.aborted {
            return Came { finish: Some(Finish::Abort), ..Came::default() };
        }
        if self.entered {
            self.left -= tokens;
            return Came { tokens, finish: (self.left == 0).then_some(Finish::Length), error: None };
        }
        match (model.door(), model.lacking()) {
            (Door::Refusing, _) => Came::error(EngineError::Paused),
            (Door::Queueing, _) => Came::default(),
            (Door::Open, 0) => {
                self.entered = true;
                Came::default()
            }
            (Door::Open, missing) => Came::error(EngineError::WithoutWeights { missing }),
        }
    }

    /// Reads what came, and the last token of it.
    fn read(&mut self) -> (Came, Option<SampledToken>) {
        let (mut came, mut last) = (Came::default(), None);
        while let Some(Some(event)) = self.events.next().now_or_never() {
            match event {
                Ok(Event::Prompt(_)) => {}
                Ok(Event::Delta(delta)) => {
                    self.spans.push(&delta);
                    came.tokens += delta.tokens.len();
                    came.finish = delta.finish.or(came.finish);
                    last = delta.tokens.into_iter().next_back().or(last);
                }
                Err(error) => came.error = Some(error),
            }
        }
        (came, last)
    }

    /// Takes note of a token; returns what it was sampled from, if that is of the weights alone.
    fn take_in(&mut self, token: &SampledToken, model: &Model) -> Option<(Seen, Sampled)> {
        let sampled = Sampled::of(token);
        let before = self.sampled.iter().map(|sampled| sampled.id).collect();
        self.sampled.push(sampled);
        let is_new = self.keys.is_some_and(|keys| !keys.are_older);
        let lora = self.adapter.as_ref().map(|adapter| adapter.lora);
        is_new.then_some((Seen { weights: model.weights, lora, before }, sampled))
    }

    /// The last token is said to be of the weights that are there, and of older keys where it is.
    fn compare_span(&mut self, model: &Model, policy: OnWeightsChange) {
        let keys = Keys::next(self.keys, model, policy);
        self.keys = Some(keys);
        let span = self.spans.spans().pop().unwrap();
        let (label, base) = match &self.adapter {
            None => (&model.label, None),
            Some(adapter) => (&adapter.label, Some(model.label.as_str())),
        };
        let said = (&*span.label, span.base.as_deref(), span.number, span.reuse_older_keys);
        assert_eq!(said, (label.as_str(), base, model.number, keys.are_older), "{span:?}");
    }
}
