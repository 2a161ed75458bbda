//! One request for a file, or for the rest of one, by HTTP or HTTPS.
//!
//! A thread of its own waits for the network, so that whoever asked can be stopped at any time: it ends at its next
//! piece, or when the network's limits are over, or with the process.
//!
//! May use: `fetch::{error, watch}`.

use std::io::{self, Read};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body, Error};

use super::error::FetchError;
use super::watch::Watch;

const USER_AGENT: &str = concat!("stallscope/", env!("CARGO_PKG_VERSION"));
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// Without a byte.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 64 << 10;
/// Between the network and the disk.
const PIECES_AHEAD: usize = 16;
const STOP_CHECK: Duration = Duration::from_millis(100);

/// What a server sends.
pub(super) enum Piece {
    /// Before the first bytes: where in the file they begin, and the size of the file, if it says.
    Begin {
        offset: u64,
        size: Option<u64>,
    },
    Bytes(Vec<u8>),
    /// It has sent all that it will.
    End,
}

/// Why it does not.
pub(super) enum Refusal {
    /// It does not have the part that was asked for: 416.
    NoSuchRange,
    /// The connection ended before the file did; in words.
    BrokenOff(String),
    /// In words.
    Failed(String),
}

/// A client with limits on what it waits for. Proxies are taken from the environment (`HTTPS_PROXY`, `NO_PROXY`, ...).
pub(super) fn agent() -> Agent {
    Agent::config_builder()
        .user_agent(USER_AGENT)
        // The bytes as they are stored.
        .accept_encoding("identity")
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT_LIMIT))
        .timeout_connect(Some(CONNECT_LIMIT))
        .timeout_recv_response(Some(SILENCE_LIMIT))
        .timeout_per_read(Some(SILENCE_LIMIT))
        .build()
        .into()
}

/// A request that is under way.
pub(super) struct Request {
    pieces: Receiver<Result<Piece, Refusal>>,
}

impl Request {
    /// Asks for `url` from byte `offset` on.
    ///
    /// # Errors
    /// [`FetchError::Thread`].
    pub(super) fn send(agent: &Agent, url: &str, offset: u64) -> Result<Request, FetchError> {
        let (sender, pieces) = bounded(PIECES_AHEAD);
        let (agent, url) = (agent.clone(), url.to_owned());
        let ask = move || {
            if let Err(refusal) = receive(&agent, &url, offset, &sender) {
                // Nobody waits for it any more: then it was stopped.
                let _ = sender.send(Err(refusal));
            }
        };
        let thread = std::thread::Builder::new().name("download".to_owned());
        match thread.spawn(ask) {
            Ok(_) => Ok(Request { pieces }),
            Err(source) => Err(FetchError::Thread { source }),
        }
    }

    /// Waits for the next piece.
    ///
    /// # Errors
    /// [`FetchError::Stopped`].
    pub(super) fn next(&self, watch: &Watch) -> Result<Result<Piece, Refusal>, FetchError> {
        loop {
            watch.go_on()?;
            match self.pieces.recv_timeout(STOP_CHECK) {
                Ok(piece) => return Ok(piece),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let what = "the download ended without a reason".to_owned();
                    return Ok(Err(Refusal::Failed(what)));
                }
            }
        }
    }
}

/// Sends what comes from the server on, until it ends or nobody listens.
fn receive(
    agent: &Agent,
    url: &str,
    offset: u64,
    to: &Sender<Result<Piece, Refusal>>,
) -> Result<(), Refusal> {
    let mut request = agent.get(url);
    if offset > 0 {
        request = request.header(header::RANGE, format!("bytes={offset}-"));
    }
    let response = request
        .call()
        .map_err(|error| Refusal::Failed(in_words(&error)))?;
    if to.send(Ok(begin(&response, offset)?)).is_err() {
        return Ok(());
    }
    let mut body = response.into_body().into_reader();
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = match body.read(&mut piece) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(broken_off(error)),
        };
        piece.truncate(read);
        let piece = match read {
            0 => Piece::End,
            _ => Piece::Bytes(piece),
        };
        if to.send(Ok(piece)).is_err() || read == 0 {
            return Ok(());
        }
    }
}

/// What the head of the response says of its body.
fn begin(response: &Response<Body>, asked: u64) -> Result<Piece, Refusal> {
    let status = response.status();
    let text = |name| response.headers().get(name)?.to_str().ok();
    match status {
        StatusCode::OK => Ok(Piece::Begin {
            offset: 0,
            size: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        }),
        StatusCode::PARTIAL_CONTENT => {
            let range = text(header::CONTENT_RANGE).unwrap_or_default();
            match content_range(range) {
                Some((offset, size)) => Ok(Piece::Begin { offset, size }),
                None => Err(Refusal::Failed(format!(
                    "it sent a part at an unknown place (asked from byte {asked}, Content-Range {range:?})"
                ))),
            }
        }
        StatusCode::RANGE_NOT_SATISFIABLE => Err(Refusal::NoSuchRange),
        _ => Err(Refusal::Failed(format!("HTTP status {status}"))),
    }
}

/// Where `bytes 5-9/10` begins, and of how many bytes it is a part; `*` for a size that nobody knows.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (first, _) = range.split_once('-')?;
    let size = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    Some((first.trim().parse().ok()?, size))
}

fn in_words(error: &Error) -> String {
    match error {
        Error::HostNotFound => {
            "its name is not found (is there a network, and a DNS server?)".to_owned()
        }
        Error::Timeout(_) => format!("no answer ({error})"),
        Error::Io(error) => format!("no connection: {error}"),
        Error::BadUri(_) | Error::Http(_) => format!("no such address: {error}"),
        _ => error.to_string(),
    }
}

fn broken_off(error: io::Error) -> Refusal {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::Timeout(_)) => {
            let seconds = SILENCE_LIMIT.as_secs();
            Refusal::Failed(format!("nothing more came for {seconds} s"))
        }
        _ => Refusal::BrokenOff(format!("the connection broke off: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_understood_or_refused() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range(" bytes 0-0/*"), Some((0, None)));
        for broken in ["", "bytes */10", "bytes 5", "items 5-9/10", "bytes 5-9/x"] {
            assert_eq!(content_range(broken), None, "{broken}");
        }
    }
}
