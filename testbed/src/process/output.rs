//! What a program says on one of its streams.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use super::{Life, locked, poll};
use crate::tool::{TEST_TIMEOUT, Trouble};

/// One stream of a [`Process`](crate::Process); each line is waited for once, and all of them are kept.
pub struct Output {
    file: File,
    unread: Mutex<Unread>,
    life: Arc<Life>,
}

/// What nobody has waited for yet.
#[derive(Default)]
struct Unread {
    /// Up to here the file was read.
    end: u64,
    bytes: Vec<u8>,
}

impl Output {
    pub(super) fn new(file: File, life: Arc<Life>) -> Self {
        Self { file, unread: Mutex::default(), life }
    }

    /// Everything that it has said so far.
    pub fn text(&self) -> String {
        let mut bytes = Vec::new();
        self.read(0, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Everything up to the last line that was waited for.
    pub fn heard(&self) -> String {
        let unread = locked(&self.unread);
        let mut bytes = Vec::new();
        self.read(0, &mut bytes);
        bytes.truncate(usize::try_from(unread.end).unwrap_or(usize::MAX) - unread.bytes.len());
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the next line, without its end; `None`: it has ended, and said no more.
    ///
    /// # Errors
    ///
    /// When it says nothing for [`TEST_TIMEOUT`].
    pub fn next_line(&self) -> Result<Option<String>, Trouble> {
        let mut unread = locked(&self.unread);
        let next = poll(TEST_TIMEOUT, || {
            // What has ended by now says no more, so the order of these two matters.
            let ended = self.life.ended().is_some();
            let end = unread.end;
            unread.end += self.read(end, &mut unread.bytes);
            let line = unread.next_line(ended);
            (line.is_some() || ended).then_some(line)
        });
        next.ok_or_else(|| Trouble::new(format!("{} says nothing", self.life.name)))
    }

    /// Waits for the next line that contains this text, and gives it.
    ///
    /// # Errors
    ///
    /// When it ends before that or says nothing for [`TEST_TIMEOUT`], with everything that it said.
    pub fn wait_for(&self, text: &str) -> Result<String, Trouble> {
        while let Some(line) = self.next_line().map_err(|trouble| self.never(text, &trouble))? {
            if line.contains(text) {
                return Ok(line);
            }
        }
        Err(self.never(text, "it has ended"))
    }

    /// Waits for the next line that contains this text, and gives the word behind it.
    ///
    /// A comma or a quote ends a word, as a space does.
    ///
    /// # Errors
    ///
    /// As for [`Output::wait_for`].
    pub fn wait_for_word(&self, before: &str) -> Result<String, Trouble> {
        let line = self.wait_for(before)?;
        let rest = line.split_once(before).map_or("", |(_, rest)| rest);
        let end = rest.find(|letter: char| letter.is_whitespace() || [',', '"'].contains(&letter));
        Ok(rest[..end.unwrap_or(rest.len())].to_owned())
    }

    /// Waits for the line that says `listening on` an address, and gives that; a scheme may stand before it.
    ///
    /// # Errors
    ///
    /// As for [`Output::wait_for`], and when what it says is no address.
    pub fn wait_for_address(&self) -> Result<SocketAddr, Trouble> {
        let said = self.wait_for_word("listening on ")?;
        let address = said.split_once("://").map_or(said.as_str(), |(_, address)| address);
        let name = &self.life.name;
        address.parse().map_err(|_| Trouble::new(format!("{name} listens on no address: {said}")))
    }

    /// The last lines.
    pub(super) fn last_words(&self) -> String {
        let text = self.text();
        let mut last: Vec<&str> = text.lines().rev().take(3).collect();
        last.reverse();
        last.join(" / ")
    }

    /// Appends what is in the file from there on, and gives how much it was.
    ///
    /// The process writes through a handle with the same position, so that nothing here may move it.
    fn read(&self, from: u64, into: &mut Vec<u8>) -> u64 {
        let (mut at, mut piece) = (from, [0; 8 << 10]);
        while let Ok(length @ 1..) = self.file.read_at(&mut piece, at) {
            into.extend_from_slice(&piece[..length]);
            at += length as u64;
        }
        at - from
    }

    fn never(&self, text: &str, why: impl std::fmt::Display) -> Trouble {
        let name = &self.life.name;
        Trouble::new(format!("{name} never said {text:?} ({why}); it said:\n{}", self.text()))
    }
}

impl Unread {
    /// The first line, or what there is of it when no more comes.
    fn next_line(&mut self, ended: bool) -> Option<String> {
        let newline = self.bytes.iter().position(|byte| *byte == b'\n');
        let (length, taken) = match newline {
            Some(at) => (at, at + 1),
            None if ended && !self.bytes.is_empty() => (self.bytes.len(), self.bytes.len()),
            None => return None,
        };
        let line = String::from_utf8_lossy(&self.bytes[..length]).into_owned();
        self.bytes.drain(..taken);
        Some(line)
    }
}
