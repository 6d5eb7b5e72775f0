//! A port of this computer that stays ours while no server listens on it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::{TcpListener, TcpSocket};

const BACKLOG: u32 = 1024;

pub(super) struct Port {
    pub(super) address: SocketAddr,
    /// Bound, and not listening: connections are refused, and the system gives the port to no
    /// other process. Otherwise clients of a dead gateway might meet a stranger in its place.
    _held: Option<TcpSocket>,
}

impl Port {
    pub(super) fn free() -> io::Result<Self> {
        let socket = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        // Elsewhere a bound socket would keep out those who are to listen, too.
        let held = cfg!(target_os = "linux").then_some(socket);
        Ok(Self { address, _held: held })
    }

    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        bound(self.address)?.listen(BACKLOG)
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn it_is_refused_while_nobody_listens_and_can_be_had_again() {
        let port = Port::free().unwrap();
        for _ in 0..3 {
            let listener = port.listen().unwrap();
            let (client, served) =
                tokio::join!(TcpStream::connect(port.address), listener.accept());
            drop(listener);
            let refused = TcpStream::connect(port.address).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            drop((client.unwrap(), served.unwrap()));
        }
    }
}
