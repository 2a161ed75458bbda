//! Objects: listed, looked up, and read in parts by the runtime's thread while others wait or go on.
//!
//! May use: `data::error`, `objects::{client, counting}`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::client::{Client, client, runtime};
use super::counting::{COUNTS, Refusal, TRIED, Tried};
use super::{Listed, PART_BYTES, PARTS_AT_ONCE, StoreCounts, StoreFault};
use crate::DataError;

pub(super) fn counts() -> StoreCounts {
    COUNTS.now()
}

pub(super) fn forget_counts() {
    COUNTS.forget();
}

pub(super) fn count_sample(is_cached: bool) {
    COUNTS.add_sample(is_cached);
}

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
    known.extend(
        found
            .into_iter()
            .map(|object| (object.location.clone(), object)),
    );
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
    run(async {
        match client.store.head(path).await {
            Err(Error::NotFound { .. }) => Ok(None),
            head => head.map(Some),
        }
    })
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
            None if !path.filename().is_some_and(|name| name.contains('.'))
                && !list_with(url, false)?.is_empty() =>
            {
                return Ok(None);
            }
            None => match look_up(&client, &path) {
                Ok(Some(meta)) => meta,
                Ok(None) => return Ok(None),
                // The answer to this kind of request has no words.
                Err(fault) => return Err(list_with(url, false).err().unwrap_or(fault)),
            },
        };
        Ok(Some(Object(Arc::new(Known {
            client,
            path,
            size: meta.size,
            version: meta.e_tag,
            changed: meta.last_modified.timestamp_millis(),
        }))))
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> u64 {
        self.0.size
    }

    /// What tells this version from others.
    pub(crate) fn version(&self) -> String {
        let Known {
            size,
            version,
            changed,
            ..
        } = &*self.0;
        format!(
            "{size} {changed} {}",
            version.as_deref().unwrap_or_default()
        )
    }

    /// Asks for the bytes in `range`, and does not wait.
    pub(crate) fn start(&self, range: Range<u64>) -> Arc<Request> {
        let request = Arc::new(Request::default());
        match runtime() {
            Err(fault) => request.answer(Err(fault)),
            Ok(runtime) => {
                let (object, answered) = (self.0.clone(), request.clone());
                runtime.spawn(async move {
                    let tried = RefCell::new(Tried::default());
                    answered.answer(TRIED.scope(tried, read(&object, range)).await);
                });
            }
        }
        request
    }

    /// The bytes in `range`, of which several parts are asked for at once.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes, StoreFault> {
        let length = range.end.saturating_sub(range.start);
        if length <= PART_BYTES {
            return self.start(range).wait();
        }
        let mut parts = range.clone().step_by(PART_BYTES as usize);
        let mut start = || {
            let start = parts.next()?;
            Some(self.start(start..range.end.min(start + PART_BYTES)))
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

impl Request {
    fn answer(&self, answer: Result<Bytes, StoreFault>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
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

/// Reads that are begun anew where an answer was not what it should be.
const TRIES: u32 = 3;
/// Before the second; twice that before the third.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the bytes in `range`, within the scope of a [`Tried`].
async fn read(object: &Known, range: Range<u64>) -> Result<Bytes, StoreFault> {
    let began = Instant::now();
    let wanted = range.end.saturating_sub(range.start);
    let mut last = None;
    for number in 0..TRIES {
        if number > 0 {
            tokio::time::sleep(PAUSE * number).await;
        }
        let options = GetOptions::new()
            .with_range(Some(range.clone()))
            .with_if_match(object.version.clone());
        let answer = async {
            object
                .client
                .store
                .get_opts(&object.path, options)
                .await?
                .bytes()
                .await
        };
        match answer.await {
            Ok(bytes) if bytes.len() as u64 == wanted => {
                let requests = TRIED.with(|tried| tried.borrow().requests);
                COUNTS.add_read(Some(wanted), (requests == 1).then(|| began.elapsed()));
                return Ok(bytes);
            }
            Ok(bytes) => {
                last = Some(StoreFault {
                    what: format!(
                        "of {wanted} bytes from {} on, the store answered with {}",
                        range.start,
                        bytes.len()
                    ),
                    remedy: "the object or the server is at fault: upload it again, or ask who runs the server",
                });
            }
            Err(error) => {
                let refusal = refusal();
                let is_final = refusal.is_some() && !is_cut_off(&error);
                last = Some(fault(&error, refusal.as_ref()));
                if is_final {
                    break;
                }
            }
        }
    }
    COUNTS.add_read(None, None);
    Err(last.unwrap_or_else(|| StoreFault {
        what: "the store did not answer".to_owned(),
        remedy: UNREACHABLE,
    }))
}

fn refusal() -> Option<Refusal> {
    TRIED.with(|tried| tried.borrow().refusal.clone())
}

/// The answer began well, and did not come to its end.
fn is_cut_off(error: &Error) -> bool {
    matches!(error, Error::Generic { source, .. } if source.downcast_ref::<object_store::client::HttpError>().is_some())
}

const UNREACHABLE: &str =
    "check the network, and where the store is (AWS_ENDPOINT_URL and AWS_REGION for s3://)";

/// What went wrong, without what could tell who asked.
fn fault(error: &Error, refusal: Option<&Refusal>) -> StoreFault {
    if let Some(Refusal { status, said }) = refusal.filter(|_| !is_cut_off(error)) {
        let said = said
            .as_ref()
            .map_or(String::new(), |said| format!(" ({said})"));
        let remedy = match status {
            401 | 403 => {
                "check the credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
                 AWS_SESSION_TOKEN for s3://), and whether they have expired"
            }
            400 if said.contains("Expired") || said.contains("Token") => {
                "the credentials in the environment have expired: get new ones"
            }
            404 => "check the URL",
            412 => "the object was written again: leave the data set alone during a run",
            405 | 501 => "an HTTP server lists no files: name one file",
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
    StoreFault {
        what: innermost.to_string(),
        remedy: UNREACHABLE,
    }
}

impl From<StoreFault> for std::io::Error {
    fn from(fault: StoreFault) -> std::io::Error {
        std::io::Error::other(fault)
    }
}
