//! The outside world: a payment provider in the parent process, and its ledger of effects.
//!
//! The ledger has no unique constraint: what is asked for twice is done twice, unless the caller
//! sends a key and the provider is asked to honour it.

use std::{
    collections::HashSet,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

/// One effect, as the provider saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The operation that the client had in mind, unique for each.
    pub operation: String,
    /// What was charged.
    pub payload: String,
    /// When the provider did it.
    pub at: Instant,
}

/// A provider that listens on a loopback port until the process ends.
#[derive(Clone)]
pub struct Provider {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    charges: Vec<Charge>,
    keys: HashSet<String>,
}

impl Provider {
    /// Starts to listen.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, books) = (listener.local_addr()?, Arc::<Mutex<Books>>::default());
        let provider = Self { address, books };
        let for_thread = provider.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let provider = for_thread.clone();
                thread::spawn(move || provider.serve(&connection));
            }
        });
        Ok(provider)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything that was done, in order.
    #[must_use]
    pub fn charges(&self) -> Vec<Charge> {
        self.books().charges.clone()
    }

    /// One line asks, one line answers: `<key or -> <operation> <payload>`.
    fn serve(&self, connection: &TcpStream) {
        let mut lines = BufReader::new(connection).lines();
        while let Some(Ok(line)) = lines.next() {
            let mut words = line.splitn(3, ' ');
            let (Some(key), Some(operation), Some(payload)) =
                (words.next(), words.next(), words.next())
            else {
                return;
            };
            self.charge(key, operation, payload);
            let mut connection = connection;
            if connection.write_all(b"done\n").is_err() {
                return;
            }
        }
    }

    fn charge(&self, key: &str, operation: &str, payload: &str) {
        let mut books = self.books();
        if key == "-" || books.keys.insert(key.to_owned()) {
            let (operation, payload) = (operation.to_owned(), payload.to_owned());
            books.charges.push(Charge { operation, payload, at: Instant::now() });
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
