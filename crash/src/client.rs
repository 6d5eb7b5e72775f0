//! One attempt over a real socket. Whatever does not come back whole is lost.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::history::{Answer, OperationName, classify};

/// Sends `POST /charges` once, with the payload as body.
#[must_use]
pub fn attempt(
    service: SocketAddr,
    operation: &OperationName,
    payload: &str,
    patience: Duration,
) -> Answer {
    match exchange(service, operation, payload, patience) {
        Ok((status, headers, body)) => classify(status, headers, &body),
        Err(error) => Answer::Lost(error.to_string()),
    }
}

/// How the ledgers call an operation: one word, because the provider reads words.
#[must_use]
pub fn ledger_name(operation: &OperationName) -> String {
    format!("{}/{}", operation.scope, operation.key)
}

type Whole = (u16, Vec<(String, String)>, Vec<u8>);

fn exchange(
    service: SocketAddr,
    operation: &OperationName,
    payload: &str,
    patience: Duration,
) -> io::Result<Whole> {
    let mut connection = TcpStream::connect_timeout(&service, patience)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(patience))?;
    connection.set_write_timeout(Some(patience))?;
    let request = format!(
        "POST /charges HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nx-tenant: {}\r\n\
         x-operation: {}\r\nidempotency-key: {}\r\ncontent-type: text/plain\r\n\
         content-length: {}\r\n\r\n{payload}",
        operation.scope,
        ledger_name(operation),
        operation.key,
        payload.len(),
    );
    connection.write_all(request.as_bytes())?;
    read_answer(&mut BufReader::new(connection))
}

fn read_answer(connection: &mut BufReader<TcpStream>) -> io::Result<Whole> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no status line"))?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if line != "\r\n" {
        return Err(io::Error::other("the head broke off"));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok());
    let length = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok((status, headers, body))
}
