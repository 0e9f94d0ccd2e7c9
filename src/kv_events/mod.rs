//! Events of the cache of prefixes for routers, as vLLM publishes them: `ZeroMQ` sockets PUB and ROUTER, messages in msgpack.
//!
//! Owns sockets, messages, and the batches that are kept for those who missed some. Refuses to know what is cached: the engine
//! tells it.
//!
//! The sockets speak ZMTP 3.0 over TCP with the mechanism NULL, as much of it as these two kinds need. The crate `zeromq` has a
//! fixed high-water mark of 100,000 messages for each subscriber, no bound for frames that come, and none for a ROUTER.

mod endpoint;
mod messages;
mod peers;
mod publisher;
mod replay;
#[cfg(test)]
mod tests;
mod zmtp;

pub(crate) use self::publisher::{Bound, Publishing};
