//! A server that does, request by request, what it was told before; then it repeats the last.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// What to do with one request.
#[derive(Clone, Copy)]
pub(crate) enum Do {
    /// Answers with this status, these header lines and this body.
    Answer(u16, &'static str, &'static str),
    /// Closes the connection, after the request was read.
    HangUp,
    /// Says nothing for longer than anybody waits here.
    Hang,
    /// Announces more body than it sends.
    CutShort,
    /// The same with this status and these header lines.
    CutAfter(u16, &'static str),
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The request line.
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.headers.iter().find(|(found, _)| found == name)?;
        Some(&line.1)
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Server {
    pub(crate) fn doing(script: &[Do]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (script.to_vec(), arrived.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, seen) = (script.clone(), seen.clone());
                thread::spawn(move || serve(stream, &script, &seen));
            }
        });
        Self { address, arrived }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, script: &[Do], seen: &Mutex<Vec<Arrived>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader) {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len() - 1
        };
        let what = script.get(number).or(script.last()).copied().unwrap_or(Do::HangUp);
        match what {
            Do::Answer(status, headers, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n{headers}\r\n");
                let _ = stream.write_all((head + body).as_bytes());
            }
            Do::CutShort | Do::CutAfter(..) => {
                let (status, headers) = match what {
                    Do::CutAfter(status, headers) => (status, headers),
                    _ => (201, ""),
                };
                let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 100\r\n{headers}\r\n");
                let _ = stream.write_all((head + "{\"id\"").as_bytes());
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            Do::HangUp => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            Do::Hang => thread::sleep(Duration::from_secs(30)),
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Arrived> {
    let mut next = || {
        let mut line = String::new();
        let read = reader.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    };
    let line = next()?;
    let mut headers = Vec::new();
    loop {
        let line = next()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Arrived { line, headers, body })
}
