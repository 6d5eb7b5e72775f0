//! What is delivered: a message, its names and its lane.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{error::Error, fmt};

use sha2::{Digest as _, Sha256};

use crate::{Digest, Timestamp};

/// The id of a message: a UUID, by which consumers recognise a repeat.
///
/// It is also the `Idempotency-Key` under which an HTTP sink sends it.
///
/// ```
/// use onceward_core::message::MessageId;
///
/// let id = MessageId::from_bytes([0; 16]);
/// assert_eq!(id.to_string(), "00000000-0000-0000-0000-000000000000");
/// assert_eq!(MessageId::parse(&id.to_string()), Some(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId([u8; 16]);

impl MessageId {
    /// Takes the bytes of a UUID.
    #[must_use]
    pub const fn from_bytes(uuid: [u8; 16]) -> Self {
        Self(uuid)
    }

    /// Reads a UUID as text; `None`: it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::try_parse(text).ok().map(|uuid| Self(uuid.into_bytes()))
    }

    /// The bytes, for storing.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(formatter)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MessageId({self})")
    }
}

fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Declares a text of 1 to 255 bytes without control characters, which names something.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes 1 to 255 bytes without control characters.
            pub fn new(text: &str) -> Result<Self, MessageError> {
                match is_name(text) {
                    true => Ok(Self(text.into())),
                    false => Err(MessageError::Name($what)),
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

name! {
    /// What a message is about, like `order.placed`: sinks choose messages by it.
    ///
    /// ```
    /// use onceward_core::message::Topic;
    ///
    /// assert_eq!(Topic::new("order.placed")?.as_str(), "order.placed");
    /// assert!(Topic::new("").is_err());
    /// # Ok::<(), onceward_core::message::MessageError>(())
    /// ```
    Topic, "topic"
}

name! {
    /// Whose messages keep their order, like `order-7`.
    ///
    /// ```
    /// use onceward_core::message::Aggregate;
    ///
    /// assert!(Aggregate::new("order-7\n").is_err());
    /// ```
    Aggregate, "aggregate"
}

name! {
    /// The name of a sink, which keeps its place in the outbox.
    ///
    /// ```
    /// use onceward_core::message::SinkName;
    ///
    /// assert_eq!(SinkName::new("billing")?.to_string(), "billing");
    /// # Ok::<(), onceward_core::message::MessageError>(())
    /// ```
    SinkName, "sink"
}

/// Why something cannot be a message.
///
/// ```
/// use onceward_core::message::Topic;
///
/// let error = Topic::new("").unwrap_err();
/// assert!(error.to_string().contains("1 to 255 bytes"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The name of this is too long, empty, or has control characters.
    Name(&'static str),
    /// The body is longer than [`NewMessage::MAX_BODY`].
    Body(usize),
    /// A header line cannot be sent, or all of them are longer than [`NewMessage::MAX_HEADERS`].
    Headers,
    /// It would expire before it may be sent.
    Times,
}

impl fmt::Display for MessageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(what) => write!(
                formatter,
                "the {what} of a message has 1 to 255 bytes and no control characters; nothing was enqueued"
            ),
            Self::Body(bytes) => write!(
                formatter,
                "the body has {bytes} bytes, and a message takes at most {}; nothing was enqueued: \
                 store it elsewhere and send a reference to it",
                NewMessage::MAX_BODY
            ),
            Self::Headers => write!(
                formatter,
                "a header line has a name without spaces or colons and a value without control characters, \
                 and all lines together have at most {} bytes; nothing was enqueued",
                NewMessage::MAX_HEADERS
            ),
            Self::Times => formatter
                .write_str("the message would expire before it may be sent; nothing was enqueued"),
        }
    }
}

impl Error for MessageError {}

/// One of 64 lanes: messages of one aggregate take the same, and a relay leases whole lanes.
///
/// ```
/// use onceward_core::message::Lane;
///
/// assert_eq!(Lane::of(b"order-7"), Lane::of(b"order-7"));
/// assert_eq!(Lane::all().count(), 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(u8);

impl Lane {
    /// How many there are, for ever: the lane of an aggregate must not change.
    pub const COUNT: u8 = 64;

    /// The lane of an aggregate: the first byte of its SHA-256, the same in SQL.
    #[must_use]
    pub fn of(aggregate: &[u8]) -> Self {
        Self(Sha256::digest(aggregate)[0] & (Self::COUNT - 1))
    }

    /// A lane by its number; `None`: there is none.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (number < Self::COUNT).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All lanes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

/// A message that a producer puts into the outbox.
///
/// ```
/// use onceward_core::message::NewMessage;
///
/// let message = NewMessage::new("order.placed", b"{\"order\":7}")?.aggregate("order-7")?;
/// message.check()?;
/// # Ok::<(), onceward_core::message::MessageError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a message is sent by enqueueing it"]
pub struct NewMessage {
    /// Its id; `None`: the queue makes one.
    pub id: Option<MessageId>,
    /// What it is about.
    pub topic: Topic,
    /// Whose order it keeps; `None`: it has no order.
    pub aggregate: Option<Aggregate>,
    /// What is sent.
    pub body: Vec<u8>,
    /// Header lines that go with it.
    pub headers: Vec<(String, String)>,
    /// Not to be sent before.
    pub not_before: Option<Timestamp>,
    /// Not to be sent from then on.
    pub expires_at: Option<Timestamp>,
    /// The operation that it came from.
    pub operation: Option<Digest>,
    /// The producer's `traceparent`.
    pub trace: Option<String>,
}

impl NewMessage {
    /// The longest body.
    pub const MAX_BODY: usize = 1 << 20;

    /// The longest header lines, together.
    pub const MAX_HEADERS: usize = 32 << 10;

    /// A message without an order.
    pub fn new(topic: &str, body: impl Into<Vec<u8>>) -> Result<Self, MessageError> {
        Ok(Self {
            id: None,
            topic: Topic::new(topic)?,
            aggregate: None,
            body: body.into(),
            headers: Vec::new(),
            not_before: None,
            expires_at: None,
            operation: None,
            trace: None,
        })
    }

    /// Messages of one aggregate are delivered in the order of their commits.
    pub fn aggregate(mut self, aggregate: &str) -> Result<Self, MessageError> {
        self.aggregate = Some(Aggregate::new(aggregate)?);
        Ok(self)
    }

    /// Chooses the id: enqueueing the same id again is an error.
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Adds a header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends it at this time, not before.
    pub fn not_before(mut self, at: Timestamp) -> Self {
        self.not_before = Some(at);
        self
    }

    /// Sends it before this time, or not at all.
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Says from which operation it came.
    pub fn operation(mut self, operation: Digest) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Continues this trace: the value of a `traceparent` header.
    pub fn trace(mut self, traceparent: &str) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Whether a queue may take it. Queues ask; producers need not.
    pub fn check(&self) -> Result<(), MessageError> {
        if self.trace.as_deref().is_some_and(|trace| !is_name(trace)) {
            return Err(MessageError::Name("trace context"));
        }
        if self.body.len() > Self::MAX_BODY {
            return Err(MessageError::Body(self.body.len()));
        }
        let is_line = |(name, value): &(String, String)| {
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            !name.is_empty()
                && name.bytes().all(is_token)
                && !value.chars().any(|character| character.is_control() && character != '\t')
        };
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > Self::MAX_HEADERS || !self.headers.iter().all(is_line) {
            return Err(MessageError::Headers);
        }
        match (self.not_before, self.expires_at) {
            (Some(from), Some(until)) if until <= from => Err(MessageError::Times),
            _ => Ok(()),
        }
    }
}

/// A message as it is in the outbox.
///
/// ```
/// use onceward_core::message::{Lane, Message};
///
/// fn lane_of(message: &Message) -> Lane {
///     message.lane()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// By which consumers recognise a repeat.
    pub id: MessageId,
    /// What it is about.
    pub topic: Topic,
    /// Whose order it keeps; without one of the producer's it is the id.
    pub aggregate: Aggregate,
    /// What is sent.
    pub body: Vec<u8>,
    /// Header lines that go with it.
    pub headers: Vec<(String, String)>,
    /// When it was enqueued, by the store's clock.
    pub at: Timestamp,
    /// Not to be sent before.
    pub not_before: Option<Timestamp>,
    /// Not to be sent from then on.
    pub expires_at: Option<Timestamp>,
    /// The operation that it came from.
    pub operation: Option<Digest>,
    /// The producer's `traceparent`.
    pub trace: Option<String>,
}

impl Message {
    /// The lane of its aggregate.
    #[must_use]
    pub fn lane(&self) -> Lane {
        Lane::of(self.aggregate.as_str().as_bytes())
    }
}
