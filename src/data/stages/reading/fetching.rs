//! Samples from object storage: asked for ahead of their turn, so that one thread waits for many requests.
//!
//! A request is for one sample, or for several that lie one behind the other in their object. What was asked for and not
//! taken yet is bounded, so that memory is: by a number of requests, and those of several samples by their bytes.
//!
//! Invariants: what is asked for ahead is taken once; a request counts until the last of its samples is taken. No lock is
//! held while a thread waits. May use: `data::objects`, `stages::reading` for its errors.

use super::{Extent, ReadError};
use crate::objects::{Object, Request, SampleCache, count_sample, object_key};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request for several samples has no more bytes than this, beside its first sample.
const MOST_RUN_BYTES: u64 = 1 << 20;
/// Samples of a request, at most.
const MOST_IN_RUN: usize = 64;
/// What a sample is taken to have before one is known.
const USUAL_BYTES: u64 = 128 << 10;

/// A sample: the number and the URL of its object, and its part of that; `None` is all of it.
pub type Wanted<'a> = (usize, &'a Path, Option<Extent>);

/// The samples of a reader that were asked for.
pub(super) struct Fetching {
    /// Requests that are not taken, at most.
    limit: usize,
    /// Neighbours in the order are neighbours in their object, too.
    follows: bool,
    /// Samples of earlier epochs and runs.
    cache: Option<Arc<SampleCache>>,
    /// Of a sample, in bytes, as of late.
    usual: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Objects that were opened, by number. Not those that are a sample.
    objects: HashMap<usize, Known>,
    /// By the number of the object and where in it they begin.
    asked: HashMap<(usize, u64), Part>,
    requests: usize,
}

/// A sample in a request.
struct Part {
    run: Arc<Run>,
    range: Range<usize>,
}

/// An opened object, and what stands for it in the cache.
#[derive(Clone)]
struct Known(Object, u64);

struct Run {
    request: Arc<Request>,
    /// Samples that were not taken yet.
    left: AtomicUsize,
}

/// Samples that will be one request.
struct Open {
    file: usize,
    object: Object,
    extent: Extent,
    parts: Vec<(u64, Range<usize>)>,
}

impl Fetching {
    /// With at most `limit` requests at a time; `follows` says that samples are asked for as they lie.
    pub(super) fn new(limit: usize, follows: bool, cache: Option<Arc<SampleCache>>) -> Fetching {
        Fetching {
            limit: limit.max(1),
            follows,
            cache,
            usual: AtomicU64::new(USUAL_BYTES),
            state: Mutex::default(),
        }
    }

    /// The same with nothing asked for.
    pub(super) fn again(&self) -> Fetching {
        Fetching::new(self.limit, self.follows, self.cache.clone())
    }

    /// How many samples ahead it is worth to ask for, and how many there is room for now.
    pub(super) fn distance_and_room(&self) -> (usize, usize) {
        let each = match self.follows {
            true => (MOST_RUN_BYTES / self.usual.load(Ordering::Relaxed).max(1)) as usize,
            false => 1,
        };
        let each = each.clamp(1, MOST_IN_RUN);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.limit.saturating_sub(state.requests);
        // A request that is begun is filled.
        (self.limit * each, free * each)
    }

    /// Asks for the samples `wanted` that were not asked for yet. Whoever takes one that cannot be had finds out.
    pub(super) fn ask<'a>(&self, wanted: impl Iterator<Item = Wanted<'a>>) {
        let mut open: Option<Open> = None;
        for (file, url, extent) in wanted {
            let Ok((Known(object, key), extent)) = self.place(file, url, extent) else {
                continue;
            };
            if self
                .cache
                .as_ref()
                .is_some_and(|cache| cache.has((key, extent.offset)))
            {
                continue;
            }
            let known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if known.asked.contains_key(&(file, extent.offset)) {
                continue;
            }
            drop(known);
            let usual = self.usual.load(Ordering::Relaxed);
            let usual = usual - usual / 8 + extent.bytes / 8;
            self.usual.store(usual, Ordering::Relaxed);
            match &mut open {
                Some(run) if run.takes(file, extent) => run.add(extent),
                _ => {
                    let run = Open::new(file, object, extent);
                    open.replace(run)
                        .into_iter()
                        .for_each(|run| self.start(run));
                }
            }
        }
        open.into_iter().for_each(|run| self.start(run));
    }

    /// Takes a sample, waiting for it.
    pub(super) fn take(&self, (file, url, extent): Wanted<'_>) -> Result<Bytes, ReadError> {
        let (Known(_, key), extent) = self.place(file, url, extent)?;
        let key = (key, extent.offset);
        let kept = self
            .cache
            .as_ref()
            .and_then(|cache| cache.get(key, extent.bytes));
        if let Some(kept) = kept {
            count_sample(true);
            return Ok(kept.into());
        }
        let part = match self.find(file, extent) {
            Some(part) => part,
            None => {
                self.ask(std::iter::once((file, url, Some(extent))));
                let part = self.find(file, extent);
                part.ok_or_else(|| ReadError::Shrank {
                    path: url.to_path_buf(),
                })?
            }
        };
        let bytes = part.run.request.wait();
        if part.run.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests = state.requests.saturating_sub(1);
        }
        let bytes = bytes.map_err(|fault| ReadError::Store {
            path: url.to_path_buf(),
            fault,
        })?;
        count_sample(false);
        let sample = bytes.slice(part.range);
        if let Some(cache) = &self.cache {
            cache.put(key, &sample);
        }
        Ok(sample)
    }

    fn find(&self, file: usize, extent: Extent) -> Option<Part> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.remove(&(file, extent.offset))
    }

    /// The object of a sample, and where in it the sample lies.
    fn place(
        &self,
        file: usize,
        url: &Path,
        extent: Option<Extent>,
    ) -> Result<(Known, Extent), ReadError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.objects.get(&file).cloned();
        drop(state);
        let object = match known {
            Some(object) => object,
            None => {
                let object = Object::open(url).map_err(|error| ReadError::Object(error.into()))?;
                let key = match &self.cache {
                    Some(_) => object_key(url, &object.version()),
                    None => 0,
                };
                let object = Known(object, key);
                if extent.is_some() {
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.objects.insert(file, object.clone());
                }
                object
            }
        };
        let size = object.0.size();
        let extent = extent.unwrap_or(Extent {
            offset: 0,
            bytes: size,
        });
        super::check_length(url, extent.bytes)?;
        match extent.end() <= size {
            true => Ok((object, extent)),
            false => Err(super::short(url, extent)),
        }
    }

    fn start(&self, open: Open) {
        let Open {
            file,
            object,
            extent,
            parts,
        } = open;
        let request = object.start(extent.offset..extent.end());
        let left = AtomicUsize::new(parts.len());
        let run = Arc::new(Run { request, left });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests += 1;
        for (offset, range) in parts {
            let run = run.clone();
            state.asked.insert((file, offset), Part { run, range });
        }
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
