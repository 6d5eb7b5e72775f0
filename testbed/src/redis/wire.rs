//! Just enough of the protocol to ask a server for what a test wants to know.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::tool::{TEST_TIMEOUT, Trouble};

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// Nothing.
    Nil,
    /// A number.
    Number(i64),
    /// Bytes, or a word of the server.
    Text(Vec<u8>),
    /// Several.
    List(Vec<RedisReply>),
}

impl RedisReply {
    /// The number in it; 0 if there is none.
    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => other.to_string().parse().unwrap_or_default(),
        }
    }
}

/// Lists as lines.
impl fmt::Display for RedisReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => Ok(()),
            Self::Number(number) => write!(formatter, "{number}"),
            Self::Text(bytes) => formatter.write_str(&String::from_utf8_lossy(bytes)),
            Self::List(replies) => {
                for (index, reply) in replies.iter().enumerate() {
                    let line = if index == 0 { "" } else { "\n" };
                    write!(formatter, "{line}{reply}")?;
                }
                Ok(())
            }
        }
    }
}

/// Sends one command on a connection of its own.
pub(super) fn ask(port: u16, words: &[&str]) -> Result<RedisReply, Trouble> {
    let failed = |error: std::io::Error| Trouble::new(format!("port {port}: {error}"));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).map_err(failed)?;
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(command.as_bytes()).map_err(failed)?;
    read(&mut BufReader::new(stream)).map_err(failed)?.map_err(Trouble::new)
}

/// The outer error is of the connection, the inner one the server's words.
fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Result<RedisReply, String>> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let number: i64 = rest.parse().unwrap_or_default();
    Ok(match kind {
        "-" => Err(rest.to_owned()),
        ":" => Ok(RedisReply::Number(number)),
        "$" | "*" if number < 0 => Ok(RedisReply::Nil),
        "$" => {
            let mut bytes = vec![0; usize::try_from(number).unwrap_or_default() + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(RedisReply::Text(bytes))
        }
        "*" => {
            let mut replies = Vec::new();
            for _ in 0..number {
                match read(stream)? {
                    Ok(reply) => replies.push(reply),
                    Err(words) => return Ok(Err(words)),
                }
            }
            Ok(RedisReply::List(replies))
        }
        _ => Ok(RedisReply::Text(rest.as_bytes().to_vec())),
    })
}
