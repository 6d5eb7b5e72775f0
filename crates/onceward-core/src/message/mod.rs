//! Messages that leave with a commit: what is sent, in which order, and what a failed delivery means.
//!
//! A producer puts a [`NewMessage`] into the outbox inside its own transaction. A relay delivers it to
//! a sink: at least once if the transaction commits, never if it does not, in order per aggregate. This
//! module is the part that decides; time, chance and what is stored are arguments. Read it in this order:
//!
//! 1. [`Message`]: what is delivered, and the [`Lane`] that it takes.
//! 2. [`Queue`]: what a backend implements. Lanes are leased; one [`Settlement`] moves a lane on.
//! 3. [`LaneWork`]: what a relay does with one page of a lane, and the settlement that comes of it.
//! 4. [`decide_delivery`]: what one attempt means for its message, by the rules of [`retry`](crate::retry).
//! 5. [`InspectQueue`]: what operators see and change.

mod content;
mod delivery;
mod inspect;
mod queue;
mod work;

pub use content::{Aggregate, Lane, Message, MessageError, MessageId, NewMessage, SinkName, Topic};
pub use delivery::{Delivery, Next, Sent, begin_delivery, decide_delivery};
pub use inspect::{
    Changed, InspectQueue, LaneCondition, MessageFilter, MessagePage, MessageState, QueueCondition,
    RepairKind, RepairMessage, ShownMessage, SinkCondition,
};
pub use queue::{
    Advance, Cursor, Due, Enqueue, Fresh, LeaseRequest, Page, ParkChange, Parking, Place, Position,
    Queue, Receive, RelayId, Settled, Settlement, SinkId, StartFrom, Sweep,
};
pub use work::{DeadLetters, LaneWork, NO_SINK, Token, TopicRule};
