//! Objects: listed, looked up, and read in parts by the runtime's thread while others wait or go on.
//!
//! May use: `data::error`, `objects::{client, counting}`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::client::{self, Client, client, runtime};
use super::counting::{Refusal, TRIED, Tried};
use super::{Listed, StoreFault};
use crate::DataError;

pub(crate) use super::counting::Counts;

pub(super) fn look_again() {
    client::look_again();
}

/// Bytes that are asked for at a time where much is read: larger requests of one connection are no faster.
const PART_BYTES: u64 = 8 << 20;
/// Parts that are asked for at once.
const PARTS_AT_ONCE: usize = 8;

/// As [`super::list`].
pub(super) fn list(url: &FilePath, deep: bool) -> Result<Vec<Listed>, DataError> {
    let listed = list_with(url, deep);
    listed.map_err(|fault| fault.of("list", url))
}

fn list_with(url: &FilePath, deep: bool) -> Result<Vec<Listed>, StoreFault> {
    let (client, prefix) = client(url)?;
    let (found, folders) = run(async {
        if deep {
            let objects = client.store.list(Some(&prefix));
            let objects: Vec<ObjectMeta> = objects.try_collect().await?;
            return Ok((objects, Vec::new()));
        }
        let listed = client.store.list_with_delimiter(Some(&prefix)).await?;
        Ok((listed.objects, listed.common_prefixes))
    })?;
    let mut listed = Vec::new();
    let mut add = |path: &Path, is_folder| {
        let parts = path.prefix_match(&prefix);
        let parts = parts.into_iter().flatten();
        let key = parts
            .map(|part| part.as_ref().to_owned())
            .collect::<Vec<_>>()
            .join("/");
        if !key.is_empty() {
            listed.push(Listed { key, is_folder });
        }
    };
    found.iter().for_each(|object| add(&object.location, false));
    folders.iter().for_each(|folder| add(folder, true));
    let mut known = client.known.lock().unwrap_or_else(PoisonError::into_inner);
    // Folders of some tools are objects without bytes.
    let objects = found.into_iter().filter(|object| object.size > 0);
    known.extend(objects.map(|object| (object.location.clone(), object)));
    Ok(listed)
}

/// Waits for `work` of the client's, which tells of one store.
fn run<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, StoreFault> {
    runtime()?.block_on(TRIED.scope(RefCell::default(), async {
        let done = work.await;
        done.map_err(|error| fault(&error, refusal().as_ref()))
    }))
}

/// What the store says of the object at `path`, if there is one.
fn look_up(client: &Client, path: &Path) -> Result<Option<ObjectMeta>, StoreFault> {
    let found = run(async {
        match client.store.head(path).await {
            Err(Error::NotFound { .. }) => Ok(None),
            head => head.map(Some),
        }
    })?;
    if let Some(meta) = &found {
        let known = client.known.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.insert(path.clone(), meta.clone());
    }
    Ok(found)
}

/// One object, as it was when it was listed or looked up. A clone names the same.
#[derive(Clone, Debug)]
pub(crate) struct Object(Arc<Known>);

struct Known {
    client: Arc<Client>,
    path: Path,
    size: u64,
    /// The version that is read, where the store has names for them.
    version: Option<String>,
    /// Unix milliseconds; 0 where it is not known.
    changed: i64,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({} bytes)", self.path, self.size)
    }
}

impl Object {
    /// The object at `url`.
    pub(crate) fn open(url: &FilePath) -> Result<Object, DataError> {
        Object::find(url)?.ok_or_else(|| {
            let fault = StoreFault {
                what: "there is no such object".to_owned(),
                remedy: "check the URL",
            };
            fault.of("open", url)
        })
    }

    /// The object at `url`, where that is one.
    pub(super) fn find(url: &FilePath) -> Result<Option<Object>, DataError> {
        let found = Object::find_with(url);
        found.map_err(|fault| fault.of("open", url))
    }

    fn find_with(url: &FilePath) -> Result<Option<Object>, StoreFault> {
        let (client, path) = client(url)?;
        let known = client.known.lock();
        let known = known
            .unwrap_or_else(PoisonError::into_inner)
            .get(&path)
            .cloned();
        let meta = match known {
            Some(meta) => meta,
            // The root of a bucket, or what is a folder by its looks and by a listing.
            None if path.as_ref().is_empty() => return Ok(None),
            None if !client.is_http
                && !path.filename().is_some_and(|name| name.contains('.'))
                && !list_with(url, false)?.is_empty() =>
            {
                return Ok(None);
            }
            None => match look_up(&client, &path) {
                Ok(Some(meta)) => meta,
                Ok(None) => return Ok(None),
                Err(fault) if client.is_http => return Err(fault),
                // The answer to this kind of request has no words.
                Err(fault) => return Err(list_with(url, false).err().unwrap_or(fault)),
            },
        };
        Ok(Some(Object(Arc::new(Known {
            client,
            path,
            size: meta.size,
            // A weak name is of several versions.
            version: meta.e_tag.filter(|name| !name.starts_with("W/")),
            changed: meta.last_modified.timestamp_millis(),
        }))))
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> u64 {
        self.0.size
    }

    /// What tells this version from others, where the store tells anything.
    pub(crate) fn version(&self) -> Option<String> {
        let Known {
            size,
            version,
            changed,
            ..
        } = &*self.0;
        let name = version.as_deref().unwrap_or_default();
        (*changed > 0 || !name.is_empty()).then(|| format!("{size} {changed} {name}"))
    }

    /// Asks for the bytes in `range`, and does not wait.
    pub(crate) fn start(&self, range: Range<u64>, counts: &Arc<Counts>) -> Arc<Request> {
        let request = Arc::new(Request::default());
        let answering = Answering(request.clone());
        match runtime() {
            _ if range.is_empty() => request.answer(Ok(Bytes::new())),
            Err(fault) => request.answer(Err(fault)),
            Ok(runtime) => {
                let (object, counts) = (self.0.clone(), counts.clone());
                runtime.spawn(async move {
                    let tried = RefCell::new(Tried {
                        counts,
                        ..Tried::default()
                    });
                    let answer = TRIED.scope(tried, read(&object, range)).await;
                    answering.0.answer(answer);
                });
            }
        }
        request
    }

    /// The bytes in `range`, of which several parts are asked for at once.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes, StoreFault> {
        let length = range.end.saturating_sub(range.start);
        let counts = Arc::default();
        if length <= PART_BYTES {
            return self.start(range, &counts).wait();
        }
        let mut parts = range.clone().step_by(PART_BYTES as usize);
        let mut start = || {
            let start = parts.next()?;
            Some(self.start(start..range.end.min(start + PART_BYTES), &counts))
        };
        let mut asked: VecDeque<Arc<Request>> = VecDeque::new();
        asked.extend(std::iter::from_fn(&mut start).take(PARTS_AT_ONCE));
        let mut bytes = BytesMut::with_capacity(length as usize);
        while let Some(first) = asked.pop_front() {
            bytes.extend_from_slice(&first.wait()?);
            asked.extend(start());
        }
        Ok(bytes.freeze())
    }
}

/// Bytes that were asked for.
#[derive(Default)]
pub(crate) struct Request {
    answer: Mutex<Option<Result<Bytes, StoreFault>>>,
    answered: Condvar,
}

/// Who answers a request; dropped, it answers that nothing comes.
struct Answering(Arc<Request>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answer(Err(StoreFault {
            what: "the thread that asks the store has ended".to_owned(),
            remedy: "please report it, with the lines above",
        }));
    }
}

impl Request {
    /// The first answer counts.
    fn answer(&self, answer: Result<Bytes, StoreFault>) {
        let mut place = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(answer);
        self.answered.notify_all();
    }

    /// Waits until they are here.
    pub(crate) fn wait(&self) -> Result<Bytes, StoreFault> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = &*answer {
                return answer.clone();
            }
            let woken = self.answered.wait(answer);
            answer = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Reads the bytes in `range`, within the scope of a [`Tried`].
async fn read(object: &Known, range: Range<u64>) -> Result<Bytes, StoreFault> {
    let began = Instant::now();
    let options = GetOptions::new()
        .with_range(Some(range.clone()))
        .with_if_match(object.version.clone());
    let answer = async {
        let answer = object.client.store.get_opts(&object.path, options).await?;
        answer.bytes().await
    };
    let answer = answer.await;
    let (requests, counts) = TRIED.with(|tried| {
        let tried = tried.borrow();
        (tried.requests, tried.counts.clone())
    });
    let bytes = answer.as_ref().ok().map(|bytes| bytes.len() as u64);
    let took = (requests == 1 && bytes.is_some()).then(|| began.elapsed());
    counts.add_read(bytes, took);
    answer.map_err(|error| fault(&error, refusal().as_ref()))
}

fn refusal() -> Option<Refusal> {
    TRIED.with(|tried| tried.borrow().refusal.clone())
}

const UNREACHABLE: &str =
    "check the network, and the store or its server (AWS_ENDPOINT_URL and AWS_REGION for s3://)";
const EXPIRED: &str = "the credentials in the environment have expired: get new ones";

/// What went wrong, without what could tell who asked.
fn fault(error: &Error, refusal: Option<&Refusal>) -> StoreFault {
    if let Some(Refusal { status, said }) = refusal {
        let said = match said {
            Some(said) => format!(" ({said})"),
            None => String::new(),
        };
        let remedy = match status {
            400 if said.contains("Expired") => EXPIRED,
            401 | 403 => {
                "check the credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
                 AWS_SESSION_TOKEN for s3://), and whether they have expired"
            }
            404 => "check the URL",
            405 | 501 => "an HTTP server lists no files: name one file",
            412 => "the object was written again: leave the data set alone during a run",
            429 | 503 => "lower read.requests, or ask for a higher limit",
            _ => "try again later, or ask who runs the store",
        };
        let what = format!("the store answered with status {status}{said}");
        return StoreFault { what, remedy };
    }
    // The innermost reason names no URL.
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let remedy = match error {
        Error::NotSupported { .. } => "use a server that sends parts of files (HTTP ranges)",
        _ => UNREACHABLE,
    };
    StoreFault {
        what: innermost.to_string(),
        remedy,
    }
}
