//! ZMTP 3.0, the protocol of `ZeroMQ`'s sockets (rfc.zeromq.org/spec/23), as a server of the mechanism NULL speaks it.
//!
//! What comes is bounded: subscriptions and requests for a replay are short.

use std::{io, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// The longest frame that is read, and the most frames of a message.
const LONGEST_FRAME: u64 = 4_096;
const MOST_FRAMES: usize = 8;
/// How long a peer may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(30);

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What a peer sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A message of some frames.
    Message(Vec<Vec<u8>>),
    /// A question whether anybody is there, with what the answer is to bring back.
    Ping(Vec<u8>),
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Greets a peer and is greeted; the peer's socket has to be of one of these types.
pub(super) async fn shake_hands(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    own: &str,
    others: &[&str],
) -> io::Result<()> {
    let shaken = timeout(PATIENCE, async {
        stream.write_all(&greeting()).await?;
        let mut theirs = [0; 64];
        stream.read_exact(&mut theirs).await?;
        if theirs[0] != 0xFF || theirs[9] & 1 == 0 || theirs[10] < 3 {
            return Err(wrong("the peer does not speak ZMTP 3"));
        }
        if &theirs[12..32] != b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" {
            return Err(wrong("the peer wants another mechanism than NULL"));
        }
        stream.write_all(&ready(own)).await?;
        let (flags, body) = read_frame(stream).await?;
        if flags & COMMAND == 0 {
            return Err(wrong("the peer does not say that it is ready"));
        }
        let kind = socket_type(&body)?;
        if others.contains(&kind.as_str()) { Ok(()) } else { Err(wrong(format!("a {own} is no use to a {kind}"))) }
    });
    shaken.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn greeting() -> [u8; 64] {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xFF, 0x7F, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// The command READY of a socket of this type.
fn ready(kind: &str) -> Bytes {
    let mut body = BytesMut::new();
    body.put_slice(b"\x05READY\x0bSocket-Type");
    body.put_u32(u32::try_from(kind.len()).expect("short"));
    body.put_slice(kind.as_bytes());
    if kind == "ROUTER" {
        body.put_slice(b"\x08Identity\0\0\0\0");
    }
    command(&body)
}

/// The answer to a ping.
pub(super) fn pong(context: &[u8]) -> Bytes {
    command(&[b"\x04PONG", context].concat())
}

fn command(body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    put_frame(&mut out, COMMAND, body);
    out.freeze()
}

/// A message of these frames.
pub(super) fn message(frames: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::with_capacity(frames.iter().map(|frame| frame.len() + 9).sum());
    for (number, frame) in frames.iter().enumerate() {
        put_frame(&mut out, if number + 1 < frames.len() { MORE } else { 0 }, frame);
    }
    out.freeze()
}

fn put_frame(out: &mut BytesMut, flags: u8, body: &[u8]) {
    if let Ok(length) = u8::try_from(body.len()) {
        out.put_slice(&[flags, length]);
    } else {
        out.put_u8(flags | LONG);
        out.put_u64(body.len() as u64);
    }
    out.put_slice(body);
}

/// The type of socket that a READY names.
fn socket_type(body: &[u8]) -> io::Result<String> {
    let mut rest = body.strip_prefix(b"\x05READY").ok_or_else(|| wrong("the peer does not say that it is ready"))?;
    let short = || wrong("a property of the peer is cut off");
    while let Some((length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(*length)).ok_or_else(short)?;
        let (length, after) = after.split_first_chunk::<4>().ok_or_else(short)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| short())?;
        let (value, after) = after.split_at_checked(length).ok_or_else(short)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return Ok(String::from_utf8_lossy(value).into_owned());
        }
        rest = after;
    }
    Err(wrong("the peer does not say what it is"))
}

/// Reads what comes next; an error at the end of the connection.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Incoming> {
    let mut frames = Vec::new();
    loop {
        let (flags, body) = read_frame(stream).await?;
        if flags & COMMAND != 0 {
            // A time to live comes before the context.
            if let Some(context) = body.strip_prefix(b"\x04PING").and_then(|rest| rest.get(2..)) {
                return Ok(Incoming::Ping(context.to_vec()));
            }
            continue;
        }
        frames.push(body);
        if flags & MORE == 0 {
            return Ok(Incoming::Message(frames));
        }
        if frames.len() == MOST_FRAMES {
            return Err(wrong("a message has too many frames"));
        }
    }
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let flags = stream.read_u8().await?;
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return Err(wrong("a frame has unknown flags"));
    }
    let length = if flags & LONG == 0 { u64::from(stream.read_u8().await?) } else { stream.read_u64().await? };
    if length > LONGEST_FRAME {
        return Err(wrong(format!("a frame has {length} bytes, more than {LONGEST_FRAME}")));
    }
    let mut body = vec![0; usize::try_from(length).map_err(|_| wrong("a frame is too long"))?];
    stream.read_exact(&mut body).await?;
    Ok((flags, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8]) -> io::Result<Vec<Incoming>> {
        let (mut rest, mut read_so_far) = (bytes, Vec::new());
        while !rest.is_empty() {
            read_so_far.push(read(&mut rest).await?);
        }
        Ok(read_so_far)
    }

    #[tokio::test]
    async fn messages_come_back_as_they_were_and_pings_are_told_apart() {
        let long = vec![7; 300];
        let sent = [&message(&[b"", b"ab", &long])[..], &command(b"\x04PING\x00\x0acd"), &message(&[b"\x01"])].concat();
        let expected = vec![
            Incoming::Message(vec![vec![], b"ab".to_vec(), long]),
            Incoming::Ping(b"cd".to_vec()),
            Incoming::Message(vec![vec![1]]),
        ];
        assert_eq!(read_all(&sent).await.unwrap(), expected);
        assert_eq!(socket_type(&ready("PUB")[2..]).unwrap(), "PUB");
        assert_eq!(socket_type(&ready("ROUTER")[2..]).unwrap(), "ROUTER");
    }

    #[tokio::test]
    async fn hostile_peers_get_an_error() {
        let many = vec![message(&[b"", b""])[..2].to_vec(); 9].concat();
        for bytes in [
            &b"\x02\x00\x00\x00\xff\x00\x00\x00\x00"[..],
            b"\x02\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x08\x00",
            b"\x00\x05ab",
            b"\x00",
            &many,
        ] {
            assert!(read_all(bytes).await.is_err(), "{bytes:?}");
        }
        for body in [&b"\x05READY\xff"[..], b"\x05READY\x01a\xff\xff\xff\xff", b"\x05READY", b"\x05ERROR"] {
            assert!(socket_type(body).is_err(), "{body:?}");
        }
        let (mut ours, mut theirs) = tokio::io::duplex(1_024);
        theirs
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        assert!(shake_hands(&mut ours, "PUB", &["SUB"]).await.is_err());
    }
}
