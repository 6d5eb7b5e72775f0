//! Bodies that come in pieces, break off, hang, or are not as long as they say.

use std::{
    collections::VecDeque,
    convert::Infallible,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// The connection to whoever made a body broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection reset")
    }
}

impl Error for Broken {}

/// One piece of [`Pieces`]: [`data`], [`trailers`] or [`broken`].
#[derive(Debug)]
pub struct Piece(Result<Frame<Bytes>, Broken>);

impl From<&'static str> for Piece {
    fn from(text: &'static str) -> Self {
        data(text)
    }
}

/// Some bytes of a body.
pub fn data(bytes: impl Into<Bytes>) -> Piece {
    Piece(Ok(Frame::data(bytes.into())))
}

/// The lines after a body.
///
/// # Panics
///
/// When a name or a value cannot be sent.
pub fn trailers(lines: &[(&'static str, impl AsRef<[u8]>)]) -> Piece {
    let mut trailers = HeaderMap::new();
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a value that can be sent");
        trailers.append(HeaderName::from_static(name), value);
    }
    Piece(Ok(Frame::trailers(trailers)))
}

/// The end of a body before its time.
pub fn broken() -> Piece {
    Piece(Err(Broken))
}

/// A body of pieces and of unknown length, which may break off, hang or lie about its length.
///
/// ```
/// use http_body_util::BodyExt as _;
/// use testbed::{Pieces, broken, trailers};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let whole = Pieces::of(["rec", "eipt"]).then(trailers(&[("x-sum", "7")]));
/// assert_eq!(whole.collect().await.unwrap().to_bytes(), "receipt");
/// assert!(Pieces::of(["rec"]).then(broken()).collect().await.is_err());
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Pieces {
    ready: VecDeque<Piece>,
    later: Later,
    promised: SizeHint,
}

#[derive(Debug, Default)]
enum Later {
    #[default]
    Nothing,
    Never,
    Sent(mpsc::UnboundedReceiver<Piece>),
}

impl Pieces {
    /// These pieces, as fast as they are read, and then the end.
    pub fn of(pieces: impl IntoIterator<Item: Into<Piece>>) -> Self {
        Self { ready: pieces.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A body that goes on as long as the sender lives.
    pub fn channel() -> (mpsc::UnboundedSender<Piece>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self { later: Later::Sent(receiver), ..Self::default() })
    }

    /// A body that never ends, and of which nothing comes.
    pub fn stuck() -> Self {
        Self { later: Later::Never, ..Self::default() }
    }

    /// One more piece after those that are known.
    #[must_use]
    pub fn then(mut self, piece: Piece) -> Self {
        self.ready.push_back(piece);
        self
    }

    /// Says that it is so long, whatever comes.
    #[must_use]
    pub fn promising(self, length: u64) -> Self {
        Self { promised: SizeHint::with_exact(length), ..self }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(Piece(piece)) = self.ready.pop_front() {
            return Poll::Ready(Some(piece));
        }
        match &mut self.later {
            Later::Nothing => Poll::Ready(None),
            Later::Never => Poll::Pending,
            Later::Sent(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|Piece(piece)| piece))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.promised
    }
}

/// A body whose frames come from elsewhere; it never breaks off, and its sender waits for its reader.
#[derive(Debug)]
pub struct Pipe(mpsc::Receiver<Frame<Bytes>>);

impl Pipe {
    /// A body that goes on as long as the sender lives, and the sender.
    pub fn new() -> (mpsc::Sender<Frame<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(16);
        (sender, Self(receiver))
    }
}

impl Body for Pipe {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}
