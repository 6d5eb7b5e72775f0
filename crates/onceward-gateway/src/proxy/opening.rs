//! How a connection begins: with the preface of HTTP/2, or with a request line of HTTP/1.
//!
//! What is clearly neither gets no answer, and its connection is closed. RFC 9113, section 3.4, asks for that: a
//! client of HTTP/2 that has garbled its preface would take an answer of HTTP/1.1 for frames.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What begins so is a preface or nothing.
const MARK: usize = "PRI * HTTP/2".len();

/// A client that has said so much without an end of its first line is left to hyper.
const LONGEST: usize = 256;

/// How much is read at once; most heads are there in one piece.
const PIECE: usize = 2048;

/// A connection whose first bytes are looked at before hyper sees them.
pub(super) struct Opening<S> {
    stream: S,
    /// What has come and was not yet handed on.
    held: BytesMut,
    is_clear: bool,
}

impl<S> Opening<S> {
    pub(super) fn of(stream: S) -> Self {
        Self { stream, held: BytesMut::new(), is_clear: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Of HTTP, or hyper says what is wrong with it.
    Http,
    Other,
    /// More has to come.
    Unclear,
}

/// What these first bytes are the start of.
fn judge(bytes: &[u8]) -> Start {
    let same = bytes.iter().zip(PREFACE).take_while(|(came, meant)| came == meant).count();
    if same == bytes.len().min(PREFACE.len()) {
        return if same == PREFACE.len() { Start::Http } else { Start::Unclear };
    }
    if same >= MARK {
        return Start::Other;
    }
    // RFC 9112, section 2.2: empty lines may come before the first one.
    let first = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    let text = &bytes[first..];
    let end = text.iter().position(|byte| *byte == b'\n');
    let line = &text[..end.unwrap_or(text.len())];
    let is_text = line.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\r'));
    if names_version_or_path(line) || !is_text || bytes.len() > LONGEST {
        return Start::Http;
    }
    if end.is_some() { Start::Other } else { Start::Unclear }
}

/// Whether a client that writes this line may mean HTTP/1: then hyper answers, with 400 if it is wrong.
fn names_version_or_path(line: &[u8]) -> bool {
    let has =
        |part: &[u8]| line.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    has(b"HTTP/") || has(b" /")
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.is_clear {
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut piece))?;
            this.held.extend_from_slice(piece.filled());
            this.is_clear = match judge(&this.held) {
                _ if piece.filled().is_empty() => true,
                Start::Http => true,
                Start::Unclear => false,
                Start::Other => {
                    let text = "neither HTTP/1 nor the preface of HTTP/2";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
            };
        }
        if this.held.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = this.held.len().min(buffer.remaining());
        buffer.put_slice(&this.held[..count]);
        this.held.advance(count);
        if this.held.is_empty() {
            this.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[test]
    fn what_may_be_http_is_told_from_what_is_not() {
        let long = "a".repeat(LONGEST + 1);
        for (text, start) in [
            ("", Start::Unclear),
            ("P", Start::Unclear),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r", Start::Unclear),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Start::Http),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nframes", Start::Http),
            ("PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\n", Start::Other),
            ("PRI * HTTP/2.1\r\n", Start::Other),
            ("PRI * HTTP/1.1\r\n", Start::Http),
            ("POST", Start::Unclear),
            ("POST /", Start::Http),
            ("\r\n\r\nGET / HTTP/1.1\r\n", Start::Http),
            ("\r\n\r\n", Start::Unclear),
            ("OPTIONS * HTTP/1.1\r\n", Start::Http),
            ("GET x y HTTP/1.1\r\n", Start::Http),
            ("get / http/1.1\r\n", Start::Http),
            ("GET /without-a-version\r\n", Start::Http),
            ("INVALID CONNECTION PREFACE", Start::Unclear),
            ("INVALID CONNECTION PREFACE\r\n\r\n", Start::Other),
            ("INVALID CONNECTION PREFACE\r\n\r\nGET / HTTP/1.1\r\n", Start::Other),
            ("PING\r\n", Start::Other),
            ("\u{16}\u{3}\u{1}", Start::Http),
            (&long, Start::Http),
        ] {
            assert_eq!(judge(text.as_bytes()), start, "{text:?}");
        }
    }

    #[tokio::test]
    async fn the_bytes_come_through_in_any_pieces() {
        let head = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand what follows, however long it may be";
        for piece in [1, 7, 24, 100] {
            let (mut client, server) = duplex(4096);
            let bytes = head.repeat(50);
            let sent = bytes.clone();
            tokio::spawn(async move {
                for piece in sent.chunks(piece) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            let (mut opening, mut came, mut buffer) = (Opening::of(server), Vec::new(), [0; 24]);
            loop {
                match opening.read(&mut buffer).await.unwrap() {
                    0 => break,
                    count => came.extend_from_slice(&buffer[..count]),
                }
            }
            assert!(came == bytes, "{piece}: {} of {}", came.len(), bytes.len());
        }
    }
}
