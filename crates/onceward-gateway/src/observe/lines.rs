//! Lines of the log on their way to standard error: no task that logs waits for the reader.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd as _,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::Duration,
};

use super::metrics;

/// How many lines may wait; more are dropped and counted.
const MAX_WAITING: usize = 4096;

/// How long lines may take to be written when the gateway stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes lines in a thread of its own; clones write to the same place.
#[derive(Clone)]
pub(super) struct Lines {
    queue: SyncSender<Message>,
}

enum Message {
    Line(Vec<u8>),
    /// Everything before this is written.
    Written(SyncSender<()>),
}

impl Lines {
    pub(super) fn to_standard_error() -> io::Result<Self> {
        // A file of its own: who else writes there, at start and stop, shall not wait for a lock.
        Self::to(File::from(io::stderr().as_fd().try_clone_to_owned()?))
    }

    fn to(place: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, waiting) = sync_channel(MAX_WAITING);
        thread::Builder::new().name("onceward-log".into()).spawn(move || write(place, &waiting))?;
        Ok(Self { queue })
    }

    /// Waits until everything is written, but not for long.
    pub(super) fn written(&self) {
        let (sender, written) = sync_channel(1);
        if self.queue.try_send(Message::Written(sender)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// One call for each line: that is how events are written.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.queue.try_send(Message::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                metrics::LOG_DROPPED.add(());
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(mut place: impl Write, waiting: &Receiver<Message>) {
    for message in waiting {
        // Standard error may be closed; then no operator reads it.
        let _ = match message {
            Message::Line(line) => place.write_all(&line),
            Message::Written(sender) => {
                let _ = sender.try_send(());
                Ok(())
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read as _, os::unix::net::UnixStream, time::Instant};

    #[test]
    fn who_logs_does_not_wait_for_who_reads() {
        let (place, mut reader) = UnixStream::pair().unwrap();
        let mut lines = Lines::to(place).unwrap();
        let (dropped, begun) = (metrics::LOG_DROPPED.get(()), Instant::now());
        let line = [b'x'; 1000];
        for _ in 0..3 * MAX_WAITING {
            lines.write_all(&line).unwrap();
        }
        assert!(metrics::LOG_DROPPED.get(()) - dropped >= MAX_WAITING as u64);
        lines.written();
        assert!(begun.elapsed() < 10 * FLUSH_TIMEOUT, "it gives up soon");
        let mut piece = [0; 1000];
        reader.read_exact(&mut piece).unwrap();
        assert_eq!(piece, line, "what waited is still written");
    }

    #[test]
    fn what_was_logged_is_written_before_the_end() {
        let (place, mut reader) = UnixStream::pair().unwrap();
        let mut lines = Lines::to(place).unwrap();
        lines.write_all(b"the end\n").unwrap();
        lines.written();
        let mut piece = [0; 8];
        reader.set_nonblocking(true).unwrap();
        reader.read_exact(&mut piece).unwrap();
        assert_eq!(&piece, b"the end\n");
    }
}
