//! Samples from object storage: asked for ahead of their turn, so that one thread waits for many requests.
//!
//! A request is for one sample, or for several that lie one behind the other in their object. What was asked for and not
//! taken yet is bounded, so that memory is: by a number of requests, and those of several samples by their bytes.
//!
//! Invariants: a sample is asked for only while it is not asked for already; a request counts until the last of its
//! samples is taken or forgotten, as those are that nobody takes for a long time (of a pass that was given up). No lock is
//! held while a thread waits. May use: `data::objects`, `stages::reading` for its errors.

use super::{Extent, ReadError};
use crate::objects::{Counts, Object, Request, SampleCache, object_key};
use bytes::Bytes;
use stallscope_core::report::StoreReport;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A request for several samples has no more bytes than this.
const MOST_RUN_BYTES: u64 = 1 << 20;
/// Samples of a request, at most.
const MOST_IN_RUN: usize = 64;
/// What a sample is taken to have before one is known.
const USUAL_BYTES: u64 = 128 << 10;
/// What was asked for is forgotten once so many times as many samples were taken as there is room to ask for.
const STALE_AFTER: u64 = 4;

/// A sample: the number and the URL of its object, and its part of that; `None` is all of it.
pub type Wanted<'a> = (usize, &'a Path, Option<Extent>);

/// How a store is asked.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Requests under way, of all threads.
    pub requests: usize,
    /// Requests that it is worth to be ahead of a sample.
    pub ahead: usize,
    /// Samples of earlier epochs and runs.
    pub cache: Option<Arc<SampleCache>>,
}

/// The samples of a reader that were asked for.
pub(super) struct Fetching {
    options: StoreOptions,
    /// Neighbours in the order are neighbours in their object, too.
    follows: bool,
    counts: Arc<Counts>,
    state: Mutex<State>,
}

/// By the number of an object and where in it a sample begins.
type Key = (usize, u64);

struct State {
    /// Objects that were opened, by number. Not those that are a sample.
    objects: HashMap<usize, Known>,
    asked: HashMap<Key, Part>,
    requests: usize,
    /// Of a sample, as of late.
    usual_bytes: u64,
    /// Samples that were taken, and how many when stale ones were looked for last.
    taken: u64,
    looked: u64,
}

/// An opened object, and what stands for it in the cache.
#[derive(Clone)]
struct Known(Object, Option<u64>);

/// A sample in a request.
struct Part {
    run: Arc<Run>,
    range: Range<usize>,
    /// Samples that were taken before.
    since: u64,
}

struct Run {
    request: Arc<Request>,
    /// Samples that were neither taken nor forgotten, and those in all.
    left: AtomicUsize,
    samples: usize,
}

/// Samples that will be one request.
struct Open {
    file: usize,
    object: Object,
    extent: Extent,
    parts: Vec<(u64, Range<usize>)>,
}

impl Fetching {
    /// One that asks as `options` say; `follows` says that samples are asked for as they lie.
    pub(super) fn new(options: StoreOptions, follows: bool) -> Fetching {
        Fetching {
            options,
            follows,
            counts: Arc::default(),
            state: Mutex::new(State {
                objects: HashMap::new(),
                asked: HashMap::new(),
                requests: 0,
                usual_bytes: USUAL_BYTES,
                taken: 0,
                looked: 0,
            }),
        }
    }

    /// The same with nothing asked for.
    pub(super) fn again(&self) -> Fetching {
        Fetching {
            counts: self.counts.clone(),
            ..Fetching::new(self.options.clone(), self.follows)
        }
    }

    /// What its reads took so far.
    pub(super) fn counts(&self) -> StoreReport {
        self.counts.now()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many samples ahead it is worth to ask for, and how many there is room for now.
    pub(super) fn distance_and_room(&self) -> (usize, usize) {
        let (most, ahead) = (self.options.requests.max(1), self.options.ahead.max(1));
        let mut state = self.state();
        let each = match self.follows {
            true => (MOST_RUN_BYTES / state.usual_bytes.max(1)) as usize,
            false => 1,
        };
        let each = each.clamp(1, MOST_IN_RUN);
        let all = (most * each) as u64;
        if state.requests >= most && state.taken - state.looked > all {
            state.forget_stale(STALE_AFTER * all);
        }
        let free = most.saturating_sub(state.requests);
        // A request that is begun is filled.
        (ahead * each, free * each)
    }

    /// Asks for the samples `wanted` that were not asked for yet. Whoever takes one that cannot be had finds out.
    pub(super) fn ask<'a>(&self, wanted: impl Iterator<Item = Wanted<'a>>) {
        let placed = wanted.filter_map(|(file, url, extent)| {
            let (known, extent) = self.place(file, url, extent).ok()?;
            Some((file, known, extent))
        });
        // Opening objects may wait.
        let placed: Vec<(usize, Known, Extent)> = placed.collect();
        let mut open: Option<Open> = None;
        let mut state = self.state();
        for (file, Known(object, key), extent) in placed {
            if state.asked.contains_key(&(file, extent.offset)) || self.is_kept(key, extent) {
                continue;
            }
            let usual = state.usual_bytes;
            state.usual_bytes = usual - usual / 8 + extent.bytes / 8;
            match &mut open {
                Some(run) if run.takes(file, extent) => run.add(extent),
                _ => {
                    let before = open.replace(Open::new(file, object, extent));
                    state.start(before, &self.counts);
                }
            }
        }
        state.start(open, &self.counts);
    }

    fn is_kept(&self, key: Option<u64>, extent: Extent) -> bool {
        let cache = self.options.cache.as_ref().zip(key);
        cache.is_some_and(|(cache, key)| cache.has((key, extent.offset)))
    }

    /// Takes a sample, waiting for it.
    pub(super) fn take(&self, (file, url, extent): Wanted<'_>) -> Result<Bytes, ReadError> {
        let (Known(object, key), extent) = self.place(file, url, extent)?;
        let cache = self.options.cache.as_ref().zip(key);
        let cache = cache.map(|(cache, key)| (cache, (key, extent.offset)));
        let part = self.state().take((file, extent.offset));
        if part.is_none()
            && let Some(kept) = cache.and_then(|(cache, key)| cache.get(key, extent.bytes))
        {
            self.counts.add_sample(true);
            return Ok(kept.into());
        }
        let alone = || {
            let request = object.start(extent.offset..extent.end(), &self.counts);
            request.wait()
        };
        let bytes = match part {
            None => alone(),
            Some(Part { run, range, .. }) => match run.request.wait() {
                Ok(bytes) => Ok(bytes.slice(range)),
                // What failed may be a neighbour's.
                Err(_) if run.samples > 1 => alone(),
                Err(fault) => Err(fault),
            },
        };
        let bytes = bytes.map_err(|fault| ReadError::Store {
            path: url.to_path_buf(),
            fault,
        })?;
        self.counts.add_sample(false);
        if let Some((cache, key)) = cache {
            cache.put(key, &bytes);
        }
        Ok(bytes)
    }

    /// The object of a sample, and where in it the sample lies.
    fn place(
        &self,
        file: usize,
        url: &Path,
        extent: Option<Extent>,
    ) -> Result<(Known, Extent), ReadError> {
        let known = self.state().objects.get(&file).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let object = Object::open(url).map_err(|error| ReadError::Object(error.into()))?;
                let version = self.options.cache.as_ref().and_then(|_| object.version());
                let key = version.map(|version| object_key(url, &version));
                let known = Known(object, key);
                if extent.is_some() {
                    self.state().objects.insert(file, known.clone());
                }
                known
            }
        };
        let size = known.0.size();
        let extent = extent.unwrap_or(Extent {
            offset: 0,
            bytes: size,
        });
        super::check_length(url, extent.bytes)?;
        match extent.end() <= size {
            true => Ok((known, extent)),
            false => Err(super::short(url, extent)),
        }
    }
}

impl State {
    /// Sends a request for the samples of `open`; that does not wait.
    fn start(&mut self, open: Option<Open>, counts: &Arc<Counts>) {
        let Some(Open {
            file,
            object,
            extent,
            parts,
        }) = open
        else {
            return;
        };
        let run = Arc::new(Run {
            request: object.start(extent.offset..extent.end(), counts),
            left: AtomicUsize::new(parts.len()),
            samples: parts.len(),
        });
        self.requests += 1;
        for (offset, range) in parts {
            let (run, since) = (run.clone(), self.taken);
            let part = Part { run, range, since };
            // Named twice at once.
            if let Some(before) = self.asked.insert((file, offset), part) {
                self.gone(&before);
            }
        }
    }

    /// Takes a sample that was asked for.
    fn take(&mut self, key: Key) -> Option<Part> {
        self.taken += 1;
        let part = self.asked.remove(&key)?;
        self.gone(&part);
        Some(part)
    }

    /// `part` is no longer among those that were asked for.
    fn gone(&mut self, part: &Part) {
        if part.run.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.requests -= 1;
        }
    }

    /// Forgets what was asked for more than `most` taken samples ago.
    fn forget_stale(&mut self, most: u64) {
        self.looked = self.taken;
        let oldest = self.taken.saturating_sub(most);
        let stale = self.asked.extract_if(|_, part| part.since < oldest);
        let stale: Vec<Part> = stale.map(|(_, part)| part).collect();
        stale.iter().for_each(|part| self.gone(part));
    }
}

impl Open {
    fn new(file: usize, object: Object, extent: Extent) -> Open {
        Open {
            file,
            object,
            extent,
            parts: vec![(extent.offset, 0..extent.bytes as usize)],
        }
    }

    /// Whether a sample follows closely enough: what lies between, such as a label, is fetched too.
    fn takes(&self, file: usize, extent: Extent) -> bool {
        let between = extent.offset.checked_sub(self.extent.end());
        let bytes = extent.end().saturating_sub(self.extent.offset);
        self.file == file
            && self.parts.len() < MOST_IN_RUN
            && bytes <= MOST_RUN_BYTES
            && between.is_some_and(|between| between <= extent.bytes.max(4096))
    }

    fn add(&mut self, extent: Extent) {
        let start = (extent.offset - self.extent.offset) as usize;
        let range = start..start + extent.bytes as usize;
        self.parts.push((extent.offset, range));
        self.extent.bytes = extent.end() - self.extent.offset;
    }
}
