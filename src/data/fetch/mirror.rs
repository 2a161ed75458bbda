//! Downloads one file from the first mirror that serves it right.
//!
//! Invariants: bytes that are there are not asked for again where a server sends parts; a file is whole only where
//! its checksum is right, and bytes with a wrong one are thrown away.
//!
//! May use: `fetch::{catalog, error, http, part, watch}`.

use std::path::Path;
use std::time::{Duration, Instant};

use ureq::Agent;

use super::catalog::KnownFile;
use super::error::FetchError;
use super::http::{Piece, Refusal, Request, agent};
use super::part::PartFile;
use super::watch::Watch;

/// How often a mirror is asked again whose connection broke off, as long as each time brings something.
const MORE_TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(300);

/// A file, and who served it.
pub(super) struct Served<'a> {
    /// Whole and right, and not yet published.
    pub(super) part: PartFile<'a>,
    /// The address of the file; none where all of it was in the part file.
    pub(super) url: Option<String>,
    /// How much of it was there before.
    pub(super) kept_bytes: u64,
    /// The addresses that were tried before, and what came of each.
    pub(super) failed: Vec<(String, String)>,
}

/// How one answer ended.
enum Ended {
    /// The file is as long as it shall be.
    Whole,
    /// The server does not send the rest alone.
    NoRest,
    /// The connection ended before the file did, after some bytes or none.
    BrokenOff {
        why: String,
        loaded_bytes: u64,
    },
    Failed(String),
}

/// Downloads `known`, a file of `title`, to `folder`.
///
/// # Errors
/// A mirror that is no address, none that serves it, whatever the file system refuses, an end that `watch` asks for.
pub(super) fn download<'a>(
    mirrors: &[String],
    known: &'a KnownFile,
    title: &str,
    folder: &Path,
    watch: &Watch,
) -> Result<Served<'a>, FetchError> {
    let mut part = PartFile::resume(folder, known)?;
    if part.is_whole() && part.fault().is_some() {
        part.restart()?;
    }
    let kept_bytes = part.bytes();
    let (mut url, mut failed) = (None, Vec::new());
    if !part.is_whole() {
        let agent = agent();
        for mirror in mirrors {
            let address = address(mirror, known);
            match from_mirror(&agent, &address, &mut part, known, watch) {
                Ok(Ok(())) => {
                    url = Some(address);
                    break;
                }
                Ok(Err(why)) => failed.push((address, why)),
                Err(error) => {
                    if part.bytes() == 0 {
                        part.discard()?;
                    }
                    return Err(error);
                }
            }
        }
        if url.is_none() {
            if part.bytes() == 0 {
                part.discard()?;
            }
            return Err(FetchError::NoMirror {
                title: title.to_owned(),
                file: known.name.clone(),
                folder: folder.to_path_buf(),
                tried: failed,
            });
        }
    }
    Ok(Served {
        part,
        url,
        kept_bytes,
        failed,
    })
}

/// Refuses what is no address of a mirror.
pub(super) fn check_mirrors(mirrors: &[String], title: &str) -> Result<(), FetchError> {
    if mirrors.is_empty() {
        let title = title.to_owned();
        return Err(FetchError::NoMirrors { title });
    }
    let is_address = |mirror: &&String| {
        let rest = mirror
            .strip_prefix("http://")
            .or(mirror.strip_prefix("https://"));
        rest.is_some_and(|rest| !rest.is_empty())
    };
    match mirrors.iter().find(|mirror| !is_address(mirror)) {
        Some(mirror) => Err(FetchError::BadMirror {
            mirror: mirror.clone(),
            what: "it must begin with https:// or http://, and the files lie directly below it; a folder of this \
                   machine is given with --from",
        }),
        None => Ok(()),
    }
}

fn address(mirror: &str, known: &KnownFile) -> String {
    format!("{}/{}", mirror.trim_end_matches('/'), known.name)
}

/// Loads what `part` lacks from one address; the inner error is why it does not serve it.
fn from_mirror(
    agent: &Agent,
    url: &str,
    part: &mut PartFile,
    known: &KnownFile,
    watch: &Watch,
) -> Result<Result<(), String>, FetchError> {
    let mut tries_left = MORE_TRIES;
    // What was there before may be what is wrong: then this mirror is asked for all of it, once.
    let mut is_suspect = part.bytes() > 0;
    loop {
        match transfer(agent, url, part, known, watch)? {
            Ended::Whole => match part.fault() {
                None => return Ok(Ok(())),
                Some(fault) => {
                    part.restart()?;
                    if !std::mem::take(&mut is_suspect) {
                        return Ok(Err(format!("what it serves is another file: {fault}")));
                    }
                }
            },
            Ended::NoRest => part.restart()?,
            Ended::BrokenOff { loaded_bytes, .. } if loaded_bytes > 0 && tries_left > 0 => {
                tries_left -= 1;
                pause(watch)?;
            }
            Ended::BrokenOff { why, .. } | Ended::Failed(why) => return Ok(Err(why)),
        }
    }
}

fn pause(watch: &Watch) -> Result<(), FetchError> {
    let end = Instant::now() + PAUSE;
    while Instant::now() < end {
        watch.go_on()?;
        std::thread::sleep(PAUSE / 10);
    }
    Ok(())
}

/// One request for what `part` lacks, and its answer.
fn transfer(
    agent: &Agent,
    url: &str,
    part: &mut PartFile,
    known: &KnownFile,
    watch: &Watch,
) -> Result<Ended, FetchError> {
    let request = Request::send(agent, url, part.bytes())?;
    let mut loaded_bytes = 0;
    loop {
        match request.next(watch)? {
            Ok(Piece::Begin { offset, size }) => {
                if let Some(ended) = begun(offset, size, part, known)? {
                    return Ok(ended);
                }
            }
            Ok(Piece::Bytes(bytes)) => {
                if part.bytes() + bytes.len() as u64 > known.bytes {
                    part.restart()?;
                    let what = format!("it sends more than the {} bytes of it", known.bytes);
                    return Ok(Ended::Failed(what));
                }
                part.append(&bytes)?;
                loaded_bytes += bytes.len() as u64;
                watch.seen("loading", &known.name, part.bytes(), known.bytes)?;
                if part.is_whole() {
                    return Ok(Ended::Whole);
                }
            }
            Ok(Piece::End) => {
                let why = format!("it ended after {} of {} bytes", part.bytes(), known.bytes);
                return Ok(Ended::BrokenOff { why, loaded_bytes });
            }
            Err(Refusal::NoSuchRange) if part.bytes() > 0 => return Ok(Ended::NoRest),
            Err(Refusal::NoSuchRange) => {
                let what = "HTTP status 416, though all of it was asked for".to_owned();
                return Ok(Ended::Failed(what));
            }
            Err(Refusal::BrokenOff(why)) => return Ok(Ended::BrokenOff { why, loaded_bytes }),
            Err(Refusal::Failed(why)) => return Ok(Ended::Failed(why)),
        }
    }
}

/// What follows from the head of an answer, where that is not to read on.
fn begun(
    offset: u64,
    size: Option<u64>,
    part: &mut PartFile,
    known: &KnownFile,
) -> Result<Option<Ended>, FetchError> {
    if let Some(size) = size.filter(|size| *size != known.bytes) {
        let what = format!("its file has {size} bytes, not {}", known.bytes);
        return Ok(Some(Ended::Failed(what)));
    }
    if offset == part.bytes() {
        return Ok(None);
    }
    if offset == 0 {
        // It sends all of it, whatever it was asked for.
        part.restart()?;
        return Ok(None);
    }
    if part.bytes() > 0 {
        return Ok(Some(Ended::NoRest));
    }
    let what = format!("it sends the bytes from {offset} on, though all were asked for");
    Ok(Some(Ended::Failed(what)))
}
