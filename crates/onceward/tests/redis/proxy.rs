//! A network between a store and its server, or between a primary and its replica, that a test breaks.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
};

/// How one answer or question is spoilt; its connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoil {
    /// The question does not arrive.
    Question,
    /// The answer does not arrive: what was asked for is done.
    Answer,
    /// The first byte of the answer arrives, and nothing more.
    HalfAnAnswer,
}

/// Listens on a port of its own and passes on what it hears, until the test says otherwise.
#[derive(Clone)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What is spoilt, how many of the kind are passed on before, and how many are spoilt.
    plan: Mutex<Option<(Spoil, usize, usize)>>,
    spoilt: AtomicUsize,
    /// Nothing passes any more, and neither side learns it.
    silent: AtomicBool,
}

impl Proxy {
    /// In front of this port.
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy =
            Self { address: listener.local_addr().unwrap(), shared: Arc::new(Shared::default()) };
        let shared = Arc::clone(&proxy.shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                tokio::spawn(pass_on(client, server, Arc::clone(&shared)));
            }
        });
        proxy
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Spoils so many of a kind, after so many have passed from now on.
    pub(crate) fn spoil(&self, spoil: Spoil, after: usize, count: usize) {
        *self.shared.plan.lock().unwrap() = Some((spoil, after, count));
    }

    /// How many were spoilt.
    pub(crate) fn spoilt(&self) -> usize {
        self.shared.spoilt.load(Ordering::SeqCst)
    }

    /// From now on nothing arrives on either side, and no connection ends.
    pub(crate) fn fall_silent(&self) {
        self.shared.silent.store(true, Ordering::SeqCst);
    }
}

impl Shared {
    /// Whether this one is spoilt.
    fn takes(&self, of: &[Spoil]) -> Option<Spoil> {
        let mut plan = self.plan.lock().unwrap();
        let (spoil, after, count) = plan.as_mut().filter(|(spoil, ..)| of.contains(spoil))?;
        if *after > 0 {
            *after -= 1;
            return None;
        }
        *count = count.checked_sub(1)?;
        self.spoilt.fetch_add(1, Ordering::SeqCst);
        Some(*spoil)
    }
}

async fn pass_on(client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    // Whichever direction ends first ends both.
    tokio::select! {
        () = carry(from_client, to_server, &shared, &[Spoil::Question]) => {}
        () = carry(from_server, to_client, &shared, &[Spoil::Answer, Spoil::HalfAnAnswer]) => {}
    }
}

/// One question or answer is one packet here: the client waits for the answer before it asks again.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, spoils: &[Spoil]) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if shared.silent.load(Ordering::SeqCst) {
            continue;
        }
        match shared.takes(spoils) {
            None => {}
            Some(Spoil::HalfAnAnswer) => {
                let _ = to.write_all(&bytes[..1]).await;
                return;
            }
            Some(_) => return,
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
