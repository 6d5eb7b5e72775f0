//! What a message is.

use onceward_core::{
    Timestamp,
    message::{Aggregate, Lane, MessageError, MessageId, MessageState, NewMessage, Topic},
};

fn message() -> NewMessage {
    NewMessage::new("order.placed", "{}").unwrap()
}

#[test]
fn lanes_never_change() {
    // SQL has the same: the first byte of sha256, and 63.
    let known = [("order-7", 31), ("a", 10), ("", 35), ("ä", 51), ("order-0", 57)];
    for (aggregate, lane) in known {
        assert_eq!(Lane::of(aggregate.as_bytes()).number(), lane, "{aggregate}");
    }
    assert_eq!(Lane::from_number(63).map(Lane::number), Some(63));
    assert_eq!(Lane::from_number(64), None);
}

#[test]
fn names_have_1_to_255_bytes_and_no_control_characters() {
    for good in ["a", "ä b", &"x".repeat(255)] {
        assert_eq!(Topic::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "a\nb", "\u{85}", &"x".repeat(256), &"ä".repeat(128)] {
        let error = Aggregate::new(bad).unwrap_err();
        assert_eq!(error, MessageError::Name("aggregate"));
        assert!(error.to_string().contains("nothing was enqueued"));
    }
}

#[test]
fn a_message_within_its_limits_may_be_taken() {
    let most = vec![0; NewMessage::MAX_BODY];
    let long = "v".repeat(NewMessage::MAX_HEADERS - 1);
    for good in [
        message(),
        NewMessage { body: most, ..message() },
        message().header("a", &long),
        message().header("content-type", "text/plain; charset=utf-8").header("x", ""),
        message().header("x", "a\tb ä"),
        message().trace(&"0".repeat(255)),
        message().not_before(time(1)).expires_at(time(2)),
    ] {
        assert_eq!(good.check(), Ok(()));
    }
}

#[test]
fn a_message_beyond_its_limits_may_not() {
    let headers = |name, value| message().header(name, value).check();
    assert_eq!(headers("", "v"), Err(MessageError::Headers));
    assert_eq!(headers("a b", "v"), Err(MessageError::Headers));
    assert_eq!(headers("a:", "v"), Err(MessageError::Headers));
    assert_eq!(headers("ä", "v"), Err(MessageError::Headers));
    assert_eq!(headers("a", "v\r\nb: w"), Err(MessageError::Headers));
    assert_eq!(headers("a", "v\0"), Err(MessageError::Headers));
    let long = "v".repeat(NewMessage::MAX_HEADERS);
    assert_eq!(headers("a", &long), Err(MessageError::Headers));
    let body = vec![0; NewMessage::MAX_BODY + 1];
    let error = NewMessage { body, ..message() }.check().unwrap_err();
    assert_eq!(error, MessageError::Body(NewMessage::MAX_BODY + 1));
    assert!(error.to_string().contains("1048577 bytes"), "{error}");
    for times in [(1, 1), (2, 1)] {
        let message = message().not_before(time(times.0)).expires_at(time(times.1));
        assert_eq!(message.check(), Err(MessageError::Times));
    }
    for trace in ["", "a\nb", &"0".repeat(256)] {
        assert_eq!(message().trace(trace).check(), Err(MessageError::Name("trace context")));
    }
}

#[test]
fn ids_and_words_are_read_as_they_are_written() {
    let id = MessageId::from_bytes([0xAB; 16]);
    assert_eq!(id.to_string(), "abababab-abab-abab-abab-abababababab");
    assert_eq!(MessageId::parse(&id.to_string()), Some(id));
    assert_eq!(MessageId::parse("abababab"), None);
    for state in MessageState::ALL {
        assert_eq!(MessageState::parse(state.as_str()), Some(state));
    }
    assert_eq!(MessageState::parse("?"), None);
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_unix_micros(seconds * 1_000_000)
}
