//! The control plane against a model of it: whatever several callers call, in whatever order, with faults, late bodies and
//! requests under way, the weights are to the bit those of the model, and so are their name, their checksums, the answers
//! of all calls, and the weights and the adapter that each token is said to be of. Each token is also the one that an engine samples
//! which never had other weights, unless it was computed with older keys.
//!
//! How many orders are tried is `TITO_TEST_CONTROL_ORDERS`; each `TITO_TEST_CONTROL_SEED`, a number, has others. The time after which an update is given up is none of a clock here:
//! what it does is a call of its own.

mod calls;
mod loras;
mod model;
mod reference;
mod requests;
mod world;

use std::{collections::VecDeque, time::Duration};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tokio::task::JoinHandle;

use tito::{
    control::{ControlPolicy, ControlStatus, PauseMode},
    engine::{OnWeightsChange, UndoPolicy},
};

use self::{
    calls::{ADAPTERS, Call, Event, Label, Lora, Replacing, Tensor},
    model::{Model, Next, Outcome, Said, Step},
    requests::Requests,
    world::{Body, World},
};
use super::patience::PATIENCE;

/// A body, as the model knows it.
struct Coming {
    real: Body,
    call: u64,
    is_part: bool,
    label: Label,
    numbers: [usize; 2],
    /// Pieces that have come.
    pieces: usize,
}

/// A call that was begun, and its next step.
struct Begun {
    handle: JoinHandle<Outcome>,
    step: Step,
    call: Call,
}

/// The model and what it is a model of.
struct Both {
    world: World,
    model: Model,
    requests: Requests,
    bodies: Vec<Coming>,
    /// Those that wait for requests to end.
    parked: Vec<Begun>,
}

impl Both {
    async fn new(policy: ControlPolicy) -> Self {
        let world = World::new(policy).await;
        let model = Model::new(policy, world.tensors());
        let requests = Requests::new(policy.on_weights_change);
        let mut both = Self { world, model, requests, bodies: Vec::new(), parked: Vec::new() };
        // So that most orders have answers by adapters.
        let all = ADAPTERS.iter().enumerate();
        both.call(all.map(|(number, name)| Call::Load(name, Lora::Attention(number), Replacing::Never)).collect())
            .await;
        both
    }

    async fn happen(&mut self, event: Event) {
        let stepped = event == Event::Step && self.model.computes() && self.requests.entered() > 0;
        match event {
            Event::Calls(calls) => self.call(calls).await,
            Event::Body(label, numbers) => self.begin_body(label, numbers).await,
            Event::Piece(index) if index < self.bodies.len() => self.piece(index).await,
            Event::Damage(index) if index < self.bodies.len() && self.bodies[index].pieces == 0 => {
                self.break_body(index, Ok(vec![255; 64].into())).await;
            }
            Event::Break(index) if index < self.bodies.len() => self.break_body(index, Err("gone".to_owned())).await,
            Event::Request(tokens, by, id) => self.request(tokens, by, id),
            Event::HangUp(index) => self.requests.hang_up(index),
            Event::Step if stepped => self.world.gate.step().await.unwrap(),
            Event::Piece(_) | Event::Damage(_) | Event::Break(_) | Event::Step => {}
        }
        self.settle(stepped).await;
        self.compare().await;
    }

    /// Sends a request, unless it is for an adapter that is not there.
    fn request(&mut self, tokens: usize, by: Option<&'static str>, id: &'static str) {
        let World { served, adapters, .. } = &self.world;
        let expected = by.map(|name| self.model.adapters.get(name).cloned());
        let found = by.map(|name| adapters.get(name));
        let label = found.as_ref().map(|found| found.as_ref().map(|adapter| adapter.label().to_string()));
        assert_eq!(label, expected.as_ref().map(|expected| expected.as_ref().map(|adapter| adapter.label.clone())));
        if expected == Some(None) {
            return;
        }
        let events = reference::ask(served, &[], tokens, found.flatten(), id);
        self.requests.add(events, tokens, expected.flatten(), id);
    }

    /// Has calls come at once, and compares what they answer.
    async fn call(&mut self, calls: Vec<Call>) {
        let is_alone = calls.len() == 1;
        let newest = self.model.newest();
        let resolved = calls.into_iter().filter_map(|call| match call {
            call if call.waits_for_nobody() && !is_alone => None,
            Call::Cancel(Some(before)) => Some(Call::Cancel(Some(newest.saturating_sub(before)))),
            call => Some(call),
        });
        let held = self.world.served.hold_calls().await;
        let begun =
            resolved.map(|call| Begun { handle: self.world.call(call), step: Step::Call(call), call }).collect();
        // Each has looked once, in this order, before the first is done.
        tokio::task::yield_now().await;
        drop(held);
        self.go_on(begun).await;
    }

    /// Has calls that were begun do their next steps, each in turn as they wait for each other.
    async fn go_on(&mut self, mut begun: VecDeque<Begun>) {
        let mut answered = Vec::new();
        while let Some(Begun { handle, step, call }) = begun.pop_front() {
            let is_look = !matches!(step, Step::Call(_)) && self.requests.entered() > 0;
            self.model.has_requests = self.requests.entered() > 0;
            let next = if is_look { self.model.look(step) } else { self.model.step(step) };
            let next = self.abort(call, next);
            if is_look && let Next::WhenSettled(step) = next {
                self.parked.push(Begun { handle, step, call });
                continue;
            }
            // Those that wait look at the state again.
            begun.extend(self.parked.drain(..));
            match next {
                Next::Done(outcome) => answered.push((handle, outcome, call)),
                Next::WhenSettled(step) => begun.push_back(Begun { handle, step, call }),
            }
        }
        for (handle, expected, call) in answered {
            let outcome = handle.await.unwrap();
            assert!(outcome == expected, "{call:?}: {outcome:?}, not {expected:?}: {:?}", self.model);
        }
        self.world.fence().await;
    }

    /// Has those requests end that a call aborts; returns what then comes of it.
    fn abort(&mut self, call: Call, next: Next) -> Next {
        match (call, &next) {
            (Call::AbortAll, _) => return Next::Done(Ok(Said::Aborts(self.requests.abort()))),
            (Call::Abort(id), _) => return Next::Done(Ok(Said::Aborts(self.requests.abort_named(id)))),
            (Call::Pause(PauseMode::Abort, _), _) | (Call::Sleep(_, PauseMode::Abort), Next::Done(Ok(_))) => {
                self.requests.abort_begun();
            }
            (Call::Load(_, _, Replacing::Abort), Next::Done(Ok(Said::Loaded { before: Some(before) }))) => {
                self.requests.abort_adapter(before);
            }
            _ => {}
        }
        next
    }

    async fn begin_body(&mut self, label: Label, numbers: [usize; 2]) {
        // So many at once are enough for all that can happen.
        if self.bodies.len() == 2 {
            return;
        }
        let real = self.world.body(label, numbers);
        real.taken().await;
        match self.model.join(label) {
            Ok((call, is_part)) => self.bodies.push(Coming { real, call, is_part, label, numbers, pieces: 0 }),
            Err(fault) => assert_eq!(real.outcome().await, Err(fault), "{:?}", self.model),
        }
    }

    async fn piece(&mut self, index: usize) {
        let body = &mut self.bodies[index];
        body.real.send_next();
        body.pieces += 1;
        let tensor = |piece| (Tensor::ALL[piece], body.numbers[piece]);
        let answered = match body.pieces {
            1 => None,
            piece @ (2 | 3) => {
                let (tensor, number) = tensor(piece - 2);
                self.model.write_piece(body.call, tensor, number).err().map(Err)
            }
            _ => Some(self.model.end_body(body.call, body.is_part, body.label)),
        };
        self.answer_of(index, answered).await;
    }

    async fn break_body(&mut self, index: usize, piece: Result<bytes::Bytes, String>) {
        let body = &mut self.bodies[index];
        body.real.send(piece);
        let fault = self.model.break_body(body.call);
        self.answer_of(index, Some(Err(fault))).await;
    }

    /// Waits for a body: for its answer, or until what came of it is written.
    async fn answer_of(&mut self, index: usize, answered: Option<Outcome>) {
        match answered {
            None => self.bodies[index].real.taken().await,
            Some(expected) => {
                let body = self.bodies.remove(index);
                assert_eq!(body.real.outcome().await, expected, "{:?}", self.model);
            }
        }
        self.world.fence().await;
    }

    /// Reads all requests, and has those calls go on that waited for their ends.
    async fn settle(&mut self, stepped: bool) {
        self.requests.look(&self.model, stepped);
        while !self.parked.is_empty() {
            let parked = std::mem::take(&mut self.parked);
            let waiting = parked.len();
            tokio::task::yield_now().await;
            self.go_on(parked.into()).await;
            self.requests.look(&self.model, false);
            if self.parked.len() == waiting {
                break;
            }
        }
        for (seen, sampled) in self.requests.take_seen() {
            reference::compare(seen, sampled).await;
        }
    }

    async fn compare(&self) {
        let Self { world, model, .. } = self;
        let expected = ControlStatus {
            paused: model.is_paused(),
            asleep: model.is_asleep(),
            updating: model.is_updating(),
            held: model.is_held(),
        };
        assert_eq!(world.served.status(), expected, "{model:?}");
        let version = world.served.weights();
        assert_eq!((&*version.label, version.number), (model.label.as_str(), model.number), "{model:?}");
        assert_eq!(world.served.lacking(), model.lacking(), "{model:?}");
        let adapters = world.adapters.all();
        let labels: Vec<&str> = adapters.iter().map(|(_, named)| &**named.adapter.label()).collect();
        assert_eq!(labels, model.adapters.labels(), "{model:?}");
        world.compare(model.weights, model.is_updating()).await;
    }
}

fn policies() -> impl proptest::strategy::Strategy<Value = ControlPolicy> {
    use proptest::prelude::*;
    let changes = prop::sample::select(vec![OnWeightsChange::Recompute, OnWeightsChange::Reuse]);
    let undo = prop_oneof![3 => Just(UndoPolicy::Memory), 1 => Just(UndoPolicy::Nothing)];
    (any::<bool>(), changes, undo).prop_map(|(queue_while_paused, on_weights_change, undo)| ControlPolicy {
        queue_while_paused,
        on_weights_change,
        undo,
        update_timeout: Duration::from_hours(24),
    })
}

/// How many orders are tried where nobody says it.
const ORDERS: u32 = 500;

#[expect(clippy::disallowed_methods, reason = "tests have no command line of their own")]
#[test]
fn whatever_is_called_in_whatever_order_is_what_the_model_says() {
    let orders = std::env::var("TITO_TEST_CONTROL_ORDERS").map_or(ORDERS, |orders| orders.parse().unwrap());
    let seed: u8 = std::env::var("TITO_TEST_CONTROL_SEED").map_or(0, |seed| seed.parse().unwrap());
    let config = Config { cases: orders, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let outcome = runner.run(&(policies(), calls::events()), |(policy, events)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let all = async {
            let mut both = Both::new(policy).await;
            for event in events {
                both.happen(event).await;
            }
        };
        let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, all).await });
        done.map_err(|_| TestCaseError::fail("it does not end"))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
