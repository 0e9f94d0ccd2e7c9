//! What may happen to a control plane: calls, weights that come in bodies, requests, and steps.

use proptest::prelude::*;

use tito::control::{Newcomers, PauseMode, SleepLevel, SleepTag};

/// A tensor that the test writes. The model has others, which only come with a whole checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tensor {
    Norm,
    First,
}

impl Tensor {
    pub(super) const ALL: [Self; 2] = [Self::Norm, Self::First];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Norm => "model.norm.weight",
            Self::First => "model.layers.0.input_layernorm.weight",
        }
    }
}

/// Numbers that tensors are filled with. The first three are those before and after the deltas.
pub(super) const NUMBERS: [f32; 4] = [1.0, 0.5, 0.25, 0.75];

/// Where an update finds weights on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The checkpoint that the server was started with.
    Checkpoint,
    /// A copy of it in a directory whose name is a version: 5.
    Named,
    /// A directory that may have been pulled up to a version; another copy lies in it.
    Local,
    /// The delta that leads to a version.
    Delta(u64),
    /// Nothing is there.
    Missing,
    /// A tensor with another shape than the model's.
    Misshapen,
}

/// Weights that are a part of an update in phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    At(Place),
    /// All deltas that lead to a version.
    Version(u64),
    Filled(Tensor, usize),
    /// No tensor at all.
    Empty,
}

/// What adapters are called.
pub(super) const ADAPTERS: [&str; 2] = ["p", "q"];

/// What an adapter brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lora {
    /// Matrices of attention, filled with one of the numbers.
    Attention(usize),
    /// Matrices of the head beside the weights that they were trained with, which have to be those that are served.
    Head,
    /// More ranks than are served.
    TooGreat,
    /// Nothing is there.
    Missing,
}

impl Lora {
    /// Whether it is compared with weights, which an update may be writing.
    pub(super) fn reads_weights(self) -> bool {
        self == Self::Head
    }
}

/// What becomes of an adapter whose name is given to another one, and of requests that run with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replacing {
    /// It stays, and the other one is refused.
    Never,
    Finish,
    Abort,
}

/// What requests are called.
pub(super) const IDS: [&str; 2] = ["one", "other"];

/// What weights are called: nothing, a name, or a number.
pub(super) type Label = Option<&'static str>;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Call {
    Pause(PauseMode, Newcomers),
    Resume,
    Sleep(SleepLevel, PauseMode),
    Wake(Option<SleepTag>),
    Start,
    Write(Part),
    Finish(Label),
    /// Of the update of such a number, as `--weight-update-timeout` does it; `None` is whichever is in phases. Where it is
    /// drawn, it counts back from the newest.
    Cancel(Option<u64>),
    Update(Place, Label),
    Pull(u64),
    CheckVersion(u64),
    Relabel(&'static str),
    ResetWeights,
    ResetCache(bool),
    AbortAll,
    /// Requests that are called so.
    Abort(&'static str),
    Load(&'static str, Lora, Replacing),
    Unload(&'static str),
}

impl Call {
    /// Whether what it says depends on calls that it does not wait for.
    pub(super) fn waits_for_nobody(self) -> bool {
        match self {
            Self::ResetCache(_) => true,
            Self::Load(_, lora, _) => lora.reads_weights(),
            _ => false,
        }
    }
}

/// What may happen next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// Calls that come at once, in this order.
    Calls(Vec<Call>),
    /// A body with weights begins to come.
    Body(Label, [usize; 2]),
    /// The next piece of the body of such a number comes: header, tensors, and the end.
    Piece(usize),
    /// It brings something else than what its header should be.
    Damage(usize),
    /// Its client goes away.
    Break(usize),
    /// A request for so many tokens, by an adapter or by the base, that is called so.
    Request(usize, Option<&'static str>, &'static str),
    /// Its client goes away.
    HangUp(usize),
    /// The engine may compute a step.
    Step,
}

fn label() -> impl Strategy<Value = Label> {
    prop::sample::select(vec![None, Some("1"), Some("2"), Some("5"), Some("step-a"), Some("step-b")])
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        4 => Just(Place::Checkpoint),
        2 => Just(Place::Named),
        3 => Just(Place::Local),
        4 => (1..=3_u64).prop_map(Place::Delta),
        1 => Just(Place::Missing),
        1 => Just(Place::Misshapen),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let tensor = prop::sample::select(Tensor::ALL.to_vec());
    prop_oneof![
        4 => place().prop_map(Part::At),
        2 => (0..=3_u64).prop_map(Part::Version),
        6 => (tensor, 0..NUMBERS.len()).prop_map(|(tensor, number)| Part::Filled(tensor, number)),
        1 => Just(Part::Empty),
    ]
}

fn adapter_call() -> impl Strategy<Value = Call> {
    let name = || prop::sample::select(ADAPTERS.to_vec());
    let lora = prop_oneof![
        8 => (0..NUMBERS.len()).prop_map(Lora::Attention),
        3 => Just(Lora::Head),
        1 => Just(Lora::TooGreat),
        1 => Just(Lora::Missing),
    ];
    let replacing =
        prop::sample::select(vec![Replacing::Never, Replacing::Finish, Replacing::Finish, Replacing::Abort]);
    prop_oneof![
        3 => (name(), lora, replacing).prop_map(|(name, lora, replacing)| Call::Load(name, lora, replacing)),
        1 => name().prop_map(Call::Unload),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let mode = || prop::sample::select(vec![PauseMode::Abort, PauseMode::Wait, PauseMode::Keep]);
    let newcomers = prop::sample::select(vec![Newcomers::Refused, Newcomers::Queued]);
    let level = prop::sample::select(vec![SleepLevel::Scheduling, SleepLevel::KvCache, SleepLevel::Weights]);
    let tag = [SleepTag::Weights, SleepTag::KvCache, SleepTag::Scheduling];
    prop_oneof![
        3 => (mode(), newcomers).prop_map(|(mode, newcomers)| Call::Pause(mode, newcomers)),
        5 => Just(Call::Resume),
        2 => (level, mode()).prop_map(|(level, mode)| Call::Sleep(level, mode)),
        4 => prop::option::of(prop::sample::select(tag.to_vec())).prop_map(Call::Wake),
        6 => Just(Call::Start),
        9 => part().prop_map(Call::Write),
        6 => label().prop_map(Call::Finish),
        3 => prop::option::of(0..3_u64).prop_map(Call::Cancel),
        9 => (place(), label()).prop_map(|(place, label)| Call::Update(place, label)),
        2 => (0..=3_u64).prop_map(Call::Pull),
        1 => (0..=3_u64).prop_map(Call::CheckVersion),
        3 => prop::sample::select(vec!["1", "2", "renamed"]).prop_map(Call::Relabel),
        1 => Just(Call::ResetWeights),
        1 => any::<bool>().prop_map(Call::ResetCache),
        1 => Just(Call::AbortAll),
        1 => prop::sample::select(IDS.to_vec()).prop_map(Call::Abort),
        10 => adapter_call(),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let numbers = [0..NUMBERS.len(), 0..NUMBERS.len()];
    let by = prop::option::weighted(0.6, prop::sample::select(ADAPTERS.to_vec()));
    let id = prop::sample::select(IDS.to_vec());
    prop_oneof![
        12 => call().prop_map(|call| Event::Calls(vec![call])),
        4 => prop::collection::vec(call(), 2..=4).prop_map(Event::Calls),
        3 => (label(), numbers).prop_map(|(label, numbers)| Event::Body(label, numbers)),
        8 => (0..2_usize).prop_map(Event::Piece),
        1 => (0..2_usize).prop_map(Event::Damage),
        1 => (0..2_usize).prop_map(Event::Break),
        6 => (1..=4_usize, by, id).prop_map(|(tokens, by, id)| Event::Request(tokens, by, id)),
        1 => (0..4_usize).prop_map(Event::HangUp),
        9 => Just(Event::Step),
    ]
}

/// What happens to one control plane, one after the other.
pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 1..=24)
}
