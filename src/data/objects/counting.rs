//! What the store's answers are counted by: every HTTP request, those that are tried again included.
//!
//! May use: `objects::client`.

use std::cell::RefCell;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use stallscope_core::report::StoreReport;
use stallscope_core::timeline::Nanos;

/// Counters of the reads of one reader, and how long they took.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    samples: AtomicU64,
    cached: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    requests: AtomicU64,
    throttled: AtomicU64,
    server_errors: AtomicU64,
    cut_off: AtomicU64,
    /// Nanoseconds; `None` before the first.
    times: Mutex<Option<Histogram<u64>>>,
}

impl Counts {
    /// Counts a read that is over, with its bytes if they came; `took` where one request was enough.
    pub(super) fn add_read(&self, bytes: Option<u64>, took: Option<Duration>) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
        if let Some(took) = took {
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            if times.is_none() {
                *times = Histogram::new(3).ok();
            }
            if let Some(times) = times.as_mut() {
                times.record(took.as_nanos() as u64).ok();
            }
        }
    }

    /// Counts a sample that was taken, from a read or from the cache.
    pub(crate) fn add_sample(&self, is_cached: bool) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.cached.fetch_add(is_cached.into(), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> StoreReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.as_ref();
        StoreReport {
            samples: count(&self.samples),
            cached: count(&self.cached),
            reads: count(&self.reads),
            bytes: count(&self.bytes),
            requests: count(&self.requests),
            throttled: count(&self.throttled),
            server_errors: count(&self.server_errors),
            cut_off: count(&self.cut_off),
            mean_ns: Nanos(times.map_or(0, |times| times.mean() as u64)),
            p95_ns: Nanos(times.map_or(0, |times| times.value_at_quantile(0.95))),
        }
    }
}

/// What became of the requests of one read, or of one listing.
#[derive(Default)]
pub(super) struct Tried {
    pub(super) requests: u32,
    /// The last answer, where that refused.
    pub(super) refusal: Option<Refusal>,
    /// What they are counted by.
    pub(super) counts: Arc<Counts>,
}

/// An answer that refuses.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The store's own code and sentence, where it has any.
    pub(super) said: Option<String>,
}

tokio::task_local! {
    /// Of the read or listing that the task is about.
    pub(super) static TRIED: RefCell<Tried>;
}

/// Connects through the usual client, and counts.
#[derive(Debug)]
pub(super) struct Counting;

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(CountingService(inner)))
    }
}

#[derive(Debug)]
struct CountingService(HttpClient);

/// A longer answer is no error message.
const MOST_SAID: usize = 64 << 10;

#[async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Others ask for credentials.
        let is_read = request.headers().contains_key("range");
        let counts = TRIED.try_with(|tried| {
            let mut tried = tried.borrow_mut();
            tried.refusal = None;
            tried.requests += u32::from(is_read);
            tried.counts.clone()
        });
        let counts = counts.ok().filter(|_| is_read);
        let count = |counter: fn(&Counts) -> &AtomicU64| {
            if let Some(counts) = &counts {
                counter(counts).fetch_add(1, Ordering::Relaxed);
            }
        };
        count(|counts| &counts.requests);
        let cut_off = |error| {
            count(|counts| &counts.cut_off);
            error
        };
        let response = self.0.execute(request).await.map_err(cut_off)?;
        let status = response.status().as_u16();
        let (parts, body) = response.into_parts();
        if status < 400 && !is_read {
            return Ok(HttpResponse::from_parts(parts, body));
        }
        let body = body
            .collect()
            .await
            .map_err(|error| cut_off(again(error)))?;
        let body = body.to_bytes();
        if status < 400 {
            let wanted = parts
                .headers
                .get("content-range")
                .and_then(|range| length(range.to_str().ok()?));
            let found = body.len() as u64;
            if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
                return Err(cut_off(again(WrongLength { wanted, found })));
            }
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        match status {
            429 | 503 => count(|counts| &counts.throttled),
            500.. => count(|counts| &counts.server_errors),
            _ => {}
        }
        let said = said(&body[..body.len().min(MOST_SAID)]);
        TRIED
            .try_with(|tried| tried.borrow_mut().refusal = Some(Refusal { status, said }))
            .ok();
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// An error of a kind that is tried again.
fn again(error: impl Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, error)
}

/// An answer that does not have the bytes that it says it has.
#[derive(Debug, thiserror::Error)]
#[error("of {wanted} bytes, the store answered with {found}")]
struct WrongLength {
    wanted: u64,
    found: u64,
}

/// The bytes of a `Content-Range`.
fn length(range: &str) -> Option<u64> {
    let (places, _) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (start, end) = places.split_once('-')?;
    end.parse::<u64>()
        .ok()?
        .checked_sub(start.parse().ok()?)?
        .checked_add(1)
}

/// The code and the sentence in a store's answer, which is XML or JSON; nothing else of it, since some answers repeat
/// who asked.
fn said(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (inside, _) = rest.split_once(&format!("</{name}>"))?;
        let line = inside.lines().next().unwrap_or_default().trim();
        (!line.is_empty()).then(|| line.to_owned())
    };
    let json = || {
        let parsed: serde_json::Value = serde_json::from_slice(body).ok()?;
        let error = parsed.get("error").unwrap_or(&parsed);
        let message = error
            .get("message")
            .or_else(|| error.get("error_description"))?;
        Some(message.as_str()?.to_owned())
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (code, message) => code.or(message).or_else(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_only_code_and_sentence_are_told() {
        let xml = b"<?xml version=\"1.0\"?><Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message>\
                    <AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>";
        assert_eq!(said(xml).unwrap(), "InvalidAccessKeyId: No such key.");
        let json =
            br#"{"error": {"code": 401, "message": "Invalid Credentials", "token": "secret"}}"#;
        assert_eq!(said(json).unwrap(), "Invalid Credentials");
        assert_eq!(said(b"<html>secret</html>"), None);
        assert_eq!(said(b"\xff\xfe"), None);
    }
}
