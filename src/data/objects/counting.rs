//! What the store's answers are counted by: every HTTP request, those that are tried again included.
//!
//! May use: `objects::client`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use super::StoreCounts;

/// Of the process.
pub(super) static COUNTS: Counts = Counts {
    samples: AtomicU64::new(0),
    cached: AtomicU64::new(0),
    reads: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    requests: AtomicU64::new(0),
    throttled: AtomicU64::new(0),
    server_errors: AtomicU64::new(0),
    answered: AtomicU64::new(0),
    times: Mutex::new(None),
};

/// Counters, and how long reads took.
pub(super) struct Counts {
    samples: AtomicU64,
    cached: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    requests: AtomicU64,
    throttled: AtomicU64,
    server_errors: AtomicU64,
    /// Requests whose answer came as a whole, whatever it was.
    answered: AtomicU64,
    /// Nanoseconds; `None` before the first.
    times: Mutex<Option<Histogram<u64>>>,
}

impl Counts {
    /// Counts a read that is over; `took` where one request was enough.
    pub(super) fn add_read(&self, bytes: Option<u64>, took: Option<Duration>) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let Some(bytes) = bytes else {
            return;
        };
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Relaxed);
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

    pub(super) fn add_sample(&self, is_cached: bool) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.cached.fetch_add(is_cached.into(), Ordering::Relaxed);
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        let counters = [
            &self.samples,
            &self.cached,
            &self.reads,
            &self.bytes,
            &self.requests,
            &self.throttled,
            &self.server_errors,
            &self.answered,
        ];
        for counter in counters {
            counter.store(0, Ordering::Relaxed);
        }
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn now(&self) -> StoreCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (throttled, server_errors) = (count(&self.throttled), count(&self.server_errors));
        let answered = count(&self.answered) + throttled + server_errors;
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.as_ref();
        StoreCounts {
            samples: count(&self.samples),
            cached: count(&self.cached),
            reads: count(&self.reads),
            bytes: count(&self.bytes),
            requests: count(&self.requests),
            throttled,
            server_errors,
            cut_off: count(&self.requests).saturating_sub(answered),
            mean_ns: times.map_or(0, |times| times.mean() as u64),
            p95_ns: times.map_or(0, |times| times.value_at_quantile(0.95)),
        }
    }
}

/// What became of the requests of one read.
#[derive(Default)]
pub(super) struct Tried {
    pub(super) requests: u32,
    /// The last answer that refused.
    pub(super) refusal: Option<Refusal>,
}

/// An answer that refuses.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The store's own code and sentence, where it has any.
    pub(super) said: Option<String>,
}

tokio::task_local! {
    /// Of the read that the task is about; listings have none.
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
        let is_read = TRIED
            .try_with(|tried| tried.borrow_mut().requests += 1)
            .is_ok();
        if is_read {
            COUNTS.requests.fetch_add(1, Ordering::Relaxed);
        }
        let response = self.0.execute(request).await?;
        let status = response.status().as_u16();
        if status < 400 {
            return Ok(response);
        }
        if is_read {
            let counter = match status {
                429 | 503 => &COUNTS.throttled,
                500.. => &COUNTS.server_errors,
                _ => &COUNTS.answered,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        let said = said(&body[..body.len().min(MOST_SAID)]);
        TRIED
            .try_with(|tried| tried.borrow_mut().refusal = Some(Refusal { status, said }))
            .ok();
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
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
