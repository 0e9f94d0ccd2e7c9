//! What becomes of errors of the device.

#[cfg(not(feature = "cuda"))]
use candle_core::Error;
use candle_core::Result;

#[cfg(feature = "cuda")]
use super::kernels::is_out_of_memory;
use crate::engine::native::backend::NoRoom;

/// What the device answers. As nothing that is computed can be missing or misshapen, an error is the device's own. It
/// ends the engine, with the reason in the log.
pub(super) fn done<T>(outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("the device failed: {error}"))
}

/// Makes an error of what the device says while weights are read. Reading needs memory of the device, which may have
/// none left.
pub(super) fn with_room<T>(outcome: Result<T>) -> std::result::Result<T, NoRoom> {
    match outcome {
        Err(error) if is_out_of_memory(&error) => Err(NoRoom),
        outcome => Ok(done(outcome)),
    }
}

/// Memory is refused by a driver only, and in this build there is none.
#[cfg(not(feature = "cuda"))]
fn is_out_of_memory(_: &Error) -> bool {
    false
}
