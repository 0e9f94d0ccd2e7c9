//! Requests under a control plane: when they begin, what samples each of their tokens, and how they end.

use futures::{FutureExt, StreamExt};

use tito::{
    engine::{EngineError, OnWeightsChange},
    generation::{Event, Finish, WeightSpans},
};

use super::{
    super::control::{Events, Served, request},
    model::{Door, Model},
};

struct Request {
    events: Events,
    /// Whether it is in the engine.
    entered: bool,
    aborted: bool,
    /// Tokens that are still to come.
    left: usize,
    spans: WeightSpans,
    keys: Option<Keys>,
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
}

impl Requests {
    pub(super) fn new(policy: OnWeightsChange) -> Self {
        Self { policy, all: Vec::new() }
    }

    pub(super) fn send(&mut self, served: &Served, tokens: usize) {
        let events = request(served, tokens);
        let spans = WeightSpans::default();
        self.all.push(Request { events, entered: false, aborted: false, left: tokens, spans, keys: None });
    }

    pub(super) fn hang_up(&mut self, index: usize) {
        if index < self.all.len() {
            self.all.remove(index);
        }
    }

    /// Those in the engine are to end with what they have.
    pub(super) fn abort(&mut self) {
        self.all.iter_mut().filter(|request| request.entered).for_each(|request| request.aborted = true);
    }

    /// How many are in the engine.
    pub(super) fn entered(&self) -> usize {
        self.all.iter().filter(|request| request.entered).count()
    }

    /// Reads what came of each, and compares it with what should have; `stepped` says that the engine has computed a step,
    /// which samples at most one token of each, and not of none.
    pub(super) fn look(&mut self, model: &Model, stepped: bool) {
        let (policy, mut sampled) = (self.policy, 0);
        self.all.retain_mut(|request| {
            let came = request.read();
            assert!(came.tokens <= usize::from(stepped), "{came:?}: {model:?}");
            assert_eq!(came, request.expected(model, came.tokens), "{model:?}");
            if came.tokens > 0 {
                sampled += 1;
                request.compare_span(model, policy);
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

    fn read(&mut self) -> Came {
        let mut came = Came::default();
        while let Some(Some(event)) = self.events.next().now_or_never() {
            match event {
                Ok(Event::Prompt(_)) => {}
                Ok(Event::Delta(delta)) => {
                    self.spans.push(&delta);
                    came.tokens += delta.tokens.len();
                    came.finish = delta.finish.or(came.finish);
                }
                Err(error) => came.error = Some(error),
            }
        }
        came
    }

    /// The last token is said to be of the weights that are there, and of older keys where it is.
    fn compare_span(&mut self, model: &Model, policy: OnWeightsChange) {
        let keys = Keys::next(self.keys, model, policy);
        self.keys = Some(keys);
        let span = self.spans.spans().pop().unwrap();
        let said = (&*span.label, span.number, span.reuse_older_keys);
        assert_eq!(said, (model.label.as_str(), model.number, keys.are_older), "{span:?}");
    }
}
