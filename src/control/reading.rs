//! Weights that are read back from the engine, some at a time, and what is done with each of them on all cores.

use std::{
    collections::BTreeMap,
    num::NonZero,
    panic::resume_unwind,
    sync::Arc,
    thread::{self, available_parallelism},
};

use parking_lot::Mutex;

use crate::engine::{EngineControl, TensorInfo, UpdateError, Visit, WeightTensor};

/// Which weights are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Those of a version: nothing is read while they are replaced.
    Settled,
    /// Whatever is there amid the update that reads.
    Amid,
}

/// Tensors of about so many bytes are read at a time.
pub(super) const PART_BYTES: usize = 128 << 20;

/// Does what takes long away from the threads that serve connections.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UpdateError> + Send + 'static,
) -> Result<T, UpdateError> {
    let lost = |error| UpdateError::Refused(format!("the thread that reads the weights is gone: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

/// Tensors of these names in parts that fit into memory; the error is a name that the model does not have.
pub(super) fn parts<'a>(
    tensors: &[TensorInfo],
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Vec<String>>, String> {
    let known: BTreeMap<&str, &TensorInfo> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for name in names {
        let tensor = known.get(name).ok_or(name)?;
        part.push(name.to_owned());
        bytes += tensor.shape.iter().product::<usize>() * tensor.dtype.size();
        if bytes >= PART_BYTES {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
    }
    parts.push(part);
    Ok(parts)
}

/// The tensors of these names, as the engine holds them, the largest first.
pub(super) async fn read(
    engine: &dyn EngineControl,
    names: Vec<String>,
    reading: Reading,
) -> Result<Vec<WeightTensor>, UpdateError> {
    let read = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&read);
    let visit: Visit = Box::new(move |tensor: &TensorInfo, bytes: Vec<u8>| {
        let TensorInfo { name, dtype, shape } = tensor.clone();
        kept.lock().push(WeightTensor { name, dtype, shape, bytes: bytes.into() });
    });
    match reading {
        Reading::Settled => engine.read_weights(names, visit).await?,
        Reading::Amid => engine.read_weights_amid_update(names, visit).await?,
    }
    let mut read = std::mem::take(&mut *read.lock());
    read.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes.len()));
    Ok(read)
}

/// Does the same with each item, on all cores; who is free takes the next one. The first error ends it.
pub(super) fn on_all_cores<T: Send, R: Send, E: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let threads = available_parallelism().map_or(1, NonZero::get).min(items.len());
    let items = Mutex::new(items.into_iter());
    let on_one = || {
        let mut done = Vec::new();
        loop {
            let next = items.lock().next();
            let Some(item) = next else { return Ok(done) };
            done.push(work(item).inspect_err(|_| items.lock().by_ref().for_each(drop))?);
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(on_one)).collect();
        let mut done = on_one();
        for other in others {
            let more = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            done = done.and_then(|mut done| {
                done.extend(more?);
                Ok(done)
            });
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        for count in [0, 1, 100] {
            let mut done = on_all_cores((0..count).collect(), Ok::<_, ()>).unwrap();
            done.sort_unstable();
            assert_eq!(done, (0..count).collect::<Vec<i32>>());
        }
        assert_eq!(on_all_cores((0..100).collect(), |item| if item == 50 { Err("half") } else { Ok(()) }), Err("half"));
    }

    #[test]
    fn parts_hold_what_was_asked_for() {
        let tensor = |name: &str, rows| TensorInfo {
            name: name.to_owned(),
            dtype: crate::engine::WeightDtype::F32,
            shape: vec![rows, 1 << 20],
        };
        let tensors = [tensor("a", 20), tensor("b", 20), tensor("c", 20)];
        assert_eq!(parts(&tensors, ["c", "a", "b"]).unwrap(), [vec!["c", "a"], vec!["b"]]);
        assert_eq!(parts(&tensors, ["d"]).unwrap_err(), "d");
    }
}
