//! Every room of the house, for benches and fuzz targets: nothing here is promised to anybody.

pub use crate::TokenId;

macro_rules! open {
    ($($room:ident),* $(,)?) => {
        $(pub mod $room {
            pub use crate::$room::*;
        })*
    };
}

open!(
    adapters,
    admin,
    api,
    chat,
    config,
    continuity,
    continuity_store,
    control,
    engine,
    files,
    generation,
    gguf,
    images,
    json,
    launch,
    model,
    parser,
    prompt,
    sampling,
    server,
    state,
    store,
    structured,
    telemetry,
    tokenizer,
    trajectory,
    turn,
    weights,
    wire,
);
