//! The socket: bound before the model is loaded, so that a taken address is known before minutes of loading; listening
//! only when the server is ready.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use tokio::net::{TcpSocket, UnixSocket, UnixStream};

use super::settings::{Address, Listener};
use crate::server::{Endpoint, Tls};

const BACKLOG: u32 = 4096;

/// A bound socket.
pub(super) struct Bound {
    socket: Socket,
    tls: Option<Tls>,
    /// Where it is, for people.
    pub(super) shown: String,
    /// Whether only this machine reaches it.
    pub(super) is_local: bool,
}

/// The flags that name an address.
pub(super) type AddressFlags = [&'static str; 2];

enum Socket {
    Tcp(TcpSocket),
    Unix(UnixSocket, SocketFile),
}

/// Goes away with the server.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Someone may have tidied up already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds a socket, whose address comes from flags.
pub(super) async fn bind(Listener { address, tls }: Listener, flags: &AddressFlags) -> anyhow::Result<Bound> {
    let tls = tls.map(Tls::load).transpose()?;
    match address {
        Address::Unix(path) => {
            ensure!(tls.is_none(), "--uds and --ssl-certfile exclude each other");
            let socket = bind_unix(&path).await.with_context(|| format!("cannot use --uds {}", path.display()))?;
            let shown = format!("unix:{}", path.display());
            Ok(Bound { socket: Socket::Unix(socket, SocketFile(path)), tls, shown, is_local: true })
        }
        Address::Tcp { host, port } => {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let (socket, address) = bind_tcp(&host, port, flags)?;
            let (shown, is_local) = (format!("{scheme}://{address}"), address.ip().is_loopback());
            Ok(Bound { socket: Socket::Tcp(socket), tls, shown, is_local })
        }
    }
}

impl Bound {
    /// Listens. Another process may have begun to since `bind`: `SO_REUSEADDR` lets two sockets bind, but one listen.
    pub(super) fn listen(self) -> anyhow::Result<(Endpoint, Option<SocketFile>)> {
        let Self { socket, tls, shown, .. } = self;
        let context = || format!("cannot listen on {shown}");
        match (socket, tls) {
            (Socket::Tcp(socket), None) => Ok((Endpoint::Tcp(socket.listen(BACKLOG).with_context(context)?), None)),
            (Socket::Tcp(socket), Some(tls)) => {
                Ok((Endpoint::Tls(socket.listen(BACKLOG).with_context(context)?, tls), None))
            }
            (Socket::Unix(socket, file), _) => {
                Ok((Endpoint::Unix(socket.listen(BACKLOG).with_context(context)?), Some(file)))
            }
        }
    }
}

fn bind_tcp(host: &str, port: u16, flags: &AddressFlags) -> anyhow::Result<(TcpSocket, SocketAddr)> {
    let [host_flag, port_flag] = flags;
    let next = format!("choose another address with {host_flag} and {port_flag}");
    let mut last = None;
    for address in addresses(host, port, host_flag)? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let bound = socket.and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        });
        match bound {
            // With port 0 the system has chosen one.
            Ok(socket) => {
                let address = socket.local_addr().unwrap_or(address);
                return Ok((socket, address));
            }
            Err(error) => last = Some((error, address)),
        }
    }
    let (error, address) = last.with_context(|| format!("{host_flag} {host} has no address; {next}"))?;
    if error.kind() == ErrorKind::AddrInUse {
        bail!("cannot use {address}: another program listens there; stop it, or {next}");
    }
    Err(error).with_context(|| format!("cannot use {address}; {next}"))
}

fn addresses(host: &str, port: u16, flag: &str) -> anyhow::Result<Vec<SocketAddr>> {
    if host.is_empty() {
        return Ok(vec![SocketAddr::from(([0, 0, 0, 0], port))]);
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = (host, port).to_socket_addrs().with_context(|| format!("the host name {host} of {flag} is unknown"))?;
    Ok(found.collect())
}

/// A file that a server left behind is in nobody's way.
async fn bind_unix(path: &Path) -> anyhow::Result<UnixSocket> {
    let is_socket = path.symlink_metadata().is_ok_and(|about| about.file_type().is_socket());
    if is_socket {
        ensure!(
            UnixStream::connect(path).await.is_err(),
            "another program listens there; stop it, or choose another path"
        );
        std::fs::remove_file(path)?;
    } else {
        ensure!(!path.exists(), "a file that is no socket is there; choose another path");
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    Ok(socket)
}
