//! How the servers are spoken to: one question, one whole answer, again and again on a
//! connection. Bytes in, bytes out; who waits and for how long is not decided here.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    /// Commands of redis, as arrays.
    Redis,
    /// HTTP/1.1 with persistent connections: method, path.
    Http,
    /// Simple queries of PostgreSQL.
    Postgres,
}

/// A connection on which questions can be asked.
#[derive(Debug)]
pub struct Connection {
    /// The connection itself.
    pub stream: TcpStream,
    language: Language,
    received: Vec<u8>,
}

impl Language {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Http => "http",
            Self::Postgres => "postgres",
        }
    }

    /// What is sent first.
    fn greeting(self) -> Option<Vec<u8>> {
        let parameters = b"\0\x03\0\0user\0lab\0database\0postgres\0\0";
        (self == Self::Postgres).then(|| with_length(&[], parameters))
    }

    /// The bytes that ask for `words`.
    #[must_use]
    pub fn question(self, words: &[String]) -> Vec<u8> {
        match self {
            Self::Redis => {
                let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
                format!("*{}\r\n{}", words.len(), parts.collect::<String>()).into_bytes()
            }
            Self::Http => {
                format!("{} HTTP/1.1\r\nHost: lab\r\nContent-Length: 0\r\n\r\n", words.join(" ")).into_bytes()
            }
            Self::Postgres => with_length(b"Q", format!("{}\0", words.join(" ")).as_bytes()),
        }
    }

    /// Length of the first whole answer in `bytes`; `None` while a part of it is missing.
    ///
    /// # Errors
    /// The server says that it did not do what it was asked for.
    pub fn answer_length(self, bytes: &[u8]) -> Result<Option<usize>> {
        match self {
            Self::Redis => redis_answer(bytes),
            Self::Http => http_answer(bytes),
            Self::Postgres => postgres_answer(bytes),
        }
    }
}

impl Connection {
    /// Connects, and greets where that is the custom.
    ///
    /// # Errors
    /// Nobody listens, or the greeting is not returned.
    pub fn open(to: SocketAddrV4, language: Language) -> Result<Self> {
        let stream = TcpStream::connect(to).with_context(|| format!("connect to {to}"))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        let mut connection = Self { stream, language, received: Vec::new() };
        if let Some(greeting) = language.greeting() {
            connection.send(&greeting)?;
            while !connection.receive()? {}
        }
        Ok(connection)
    }

    /// Asks.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&mut self, question: &[u8]) -> Result<()> {
        self.stream.write_all(question).context("ask the server")
    }

    /// Reads once; whether the answer is whole now.
    ///
    /// # Errors
    /// The connection is closed, or the answer is no success. A timeout of the stream is an error
    /// too, of kind `WouldBlock`.
    pub fn receive(&mut self) -> Result<bool> {
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer)?;
        ensure!(length > 0, "the server closed the connection");
        self.received.extend_from_slice(buffer.get(..length).unwrap_or_default());
        let whole = self.language.answer_length(&self.received)?;
        whole.into_iter().for_each(|length| drop(self.received.drain(..length)));
        Ok(whole.is_some())
    }
}

/// A message of PostgreSQL: its kind, its length with the length's own 4 bytes, its body.
fn with_length(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
    [kind, &length, body].concat()
}

fn position(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn redis_answer(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(line) = position(bytes, b"\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes.get(..line).unwrap_or_default());
    match text.split_at_checked(1) {
        Some(("-", error)) => bail!("redis says {error}"),
        Some(("$", length)) => {
            let body = length.parse::<usize>().map_or(0, |length| length + 2);
            Ok(Some(line + 2 + body).filter(|end| bytes.len() >= *end))
        }
        Some(("+" | ":", _)) => Ok(Some(line + 2)),
        _ => bail!("not an answer of redis: {text}"),
    }
}

fn http_answer(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = position(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_lowercase();
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "not a success: {status}");
    let length = lines.find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let whole = end + 4 + length.context("an answer without a length")?;
    Ok(Some(whole).filter(|whole| bytes.len() >= *whole))
}

/// Everything up to and with the message that says the session is ready.
fn postgres_answer(bytes: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    loop {
        let Some((head, rest)) = bytes.get(at..).and_then(|rest| rest.split_at_checked(5)) else { return Ok(None) };
        let length = head.get(1..).and_then(|length| length.try_into().ok()).map_or(4, u32::from_be_bytes);
        let body = rest.get(..usize::try_from(length.saturating_sub(4)).context("a length")?);
        let Some(body) = body else { return Ok(None) };
        at += 5 + body.len();
        match head.first() {
            Some(b'E') => bail!("PostgreSQL says {}", String::from_utf8_lossy(body).replace('\0', " ")),
            Some(b'Z') => return Ok(Some(at)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Language;

    fn length(language: Language, bytes: &[u8]) -> Option<usize> {
        language.answer_length(bytes).unwrap()
    }

    #[test]
    fn an_answer_of_redis_is_a_line_or_a_string_of_known_length() {
        assert_eq!(length(Language::Redis, b"+PONG\r\n+PONG\r\n"), Some(7));
        assert_eq!(length(Language::Redis, b"$-1\r\n"), Some(5));
        assert_eq!(length(Language::Redis, b"$5\r\nhel"), None);
        assert_eq!(length(Language::Redis, b"$5\r\nhello\r\n"), Some(11));
        assert!(Language::Redis.answer_length(b"-ERR unknown\r\n").is_err());
    }

    #[test]
    fn an_http_answer_ends_with_its_body() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(length(Language::Http, answer), Some(answer.len()));
        assert_eq!(length(Language::Http, &answer[..answer.len() - 1]), None);
        assert!(Language::Http.answer_length(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").is_err());
    }

    #[test]
    fn an_answer_of_postgres_ends_when_the_session_is_ready() {
        let answer = b"C\0\0\0\x0dUPDATE 1\0Z\0\0\0\x05I";
        assert_eq!(length(Language::Postgres, answer), Some(answer.len()));
        assert_eq!(length(Language::Postgres, &answer[..16]), None);
        assert!(Language::Postgres.answer_length(b"E\0\0\0\x08boom").is_err());
    }

    #[test]
    fn a_ping_is_the_one_that_the_preset_knows() {
        assert_eq!(Language::Redis.question(&["PING".to_owned()]), b"*1\r\n$4\r\nPING\r\n");
        assert_eq!(Language::Postgres.question(&["SELECT 1".to_owned()]), b"Q\0\0\0\x0dSELECT 1\0");
    }
}
