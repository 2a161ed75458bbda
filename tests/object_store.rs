//! Data in object storage, read by the binary from a small server on loopback that speaks as much of S3 as is needed, with
//! the faults that stores have. `scripts/store-check.py` does the same with real servers.
#![cfg(feature = "object-store")]

mod program;
mod tar_entry;

use program::stallscope;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use tar_entry::tar_entry;
use tempfile::TempDir;

const KEY: &str = "a-key-nobody-may-see";
const SECRET: &str = "a-secret-nobody-may-see";

/// What is wrong with every so-manieth answer to a read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fault {
    Throttles,
    Fails,
    CutsOff,
    IsShort,
}

struct Store {
    objects: BTreeMap<String, Vec<u8>>,
    fault: Option<(Fault, u64)>,
    /// The credentials are too old.
    expired: bool,
    reads: AtomicU64,
    /// Answers that were spoilt.
    spoilt: AtomicU64,
}

impl Store {
    fn new(objects: &BTreeMap<String, Vec<u8>>) -> Store {
        Store {
            objects: objects.clone(),
            fault: None,
            expired: false,
            reads: AtomicU64::new(0),
            spoilt: AtomicU64::new(0),
        }
    }

    /// Serves it from now on; returns the address.
    fn serve(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let store = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, stream) = (store.clone(), stream.unwrap());
                // Who hangs up is in the right.
                thread::spawn(move || while store.answer(&stream).is_some() {});
            }
        });
        address
    }

    /// Answers one request; `None` ends the connection.
    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let first = lines.next()?;
        let fields: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let field = |name: &str| {
            let mut fields = fields.iter().filter_map(|line| line.split_once(": "));
            fields.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
        };
        assert!(
            field("authorization").unwrap().contains(KEY),
            "it is signed"
        );
        let mut words = first.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if self.expired {
            let body = error("ExpiredToken");
            return respond(stream, "400 Bad Request", &[], &body, method);
        }
        let key = decoded(path.strip_prefix("/bucket").unwrap_or(path));
        let key = key.trim_start_matches('/');
        if key.is_empty() {
            return respond(
                stream,
                "200 OK",
                &[],
                self.listing(query).as_bytes(),
                method,
            );
        }
        let Some(object) = self.objects.get(key) else {
            return respond(stream, "404 Not Found", &[], &error("NoSuchKey"), method);
        };
        let headers = [
            "ETag: \"one\"".to_owned(),
            "Last-Modified: Sun, 01 Nov 2026 00:00:00 GMT".to_owned(),
        ];
        let Some(range) = field("range").and_then(|range| range.strip_prefix("bytes=")) else {
            return respond(stream, "200 OK", &headers, object, method);
        };
        let (start, end) = range.split_once('-')?;
        let (start, end): (usize, usize) = (start.parse().ok()?, end.parse().ok()?);
        let part = &object[start..=end.min(object.len() - 1)];
        let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = self.fault.filter(|(_, each)| number.is_multiple_of(*each));
        self.spoilt
            .fetch_add(fault.is_some().into(), Ordering::SeqCst);
        let placed = format!("Content-Range: bytes {start}-{end}/{}", object.len());
        let headers = [&headers[..], &[placed]].concat();
        let half = part.len() / 2;
        match fault.map(|(fault, _)| fault) {
            Some(Fault::Throttles) => {
                respond(stream, "503 Slow Down", &[], &error("SlowDown"), method)
            }
            Some(Fault::Fails) => respond(
                stream,
                "500 Internal Server Error",
                &[],
                &error("InternalError"),
                method,
            ),
            Some(Fault::CutsOff) => {
                let mut all = Vec::new();
                respond(&mut all, "206 Partial Content", &headers, part, method)?;
                stream.write_all(&all[..all.len() - half]).ok()?;
                stream.shutdown(std::net::Shutdown::Both).ok()?;
                None
            }
            Some(Fault::IsShort) => respond(
                stream,
                "206 Partial Content",
                &headers,
                &part[..half],
                method,
            ),
            None => respond(stream, "206 Partial Content", &headers, part, method),
        }
    }

    fn listing(&self, query: &str) -> String {
        let parameter = |name: &str| {
            let mut all = query.split('&').filter_map(|part| part.split_once('='));
            all.find_map(|(key, value)| (key == name).then(|| decoded(value)))
        };
        let prefix = parameter("prefix").unwrap_or_default();
        let (mut folders, mut listed) = (BTreeSet::new(), String::new());
        for (key, object) in &self.objects {
            let Some(rest) = key.strip_prefix(&prefix) else {
                continue;
            };
            match rest.split_once('/').filter(|_| parameter("delimiter").is_some()) {
                Some((folder, _)) => drop(folders.insert(format!("{prefix}{folder}/"))),
                None => write!(
                    listed,
                    "<Contents><Key>{key}</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified>\
                     <ETag>\"one\"</ETag><Size>{}</Size></Contents>",
                    object.len()
                )
                .unwrap(),
            }
        }
        for folder in folders {
            write!(
                listed,
                "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"
            )
            .unwrap();
        }
        format!(
            "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>"
        )
    }
}

fn error(code: &str) -> Vec<u8> {
    format!(
        "<Error><Code>{code}</Code><Message>planted</Message><AWSAccessKeyId>{KEY}</AWSAccessKeyId></Error>"
    )
    .into_bytes()
}

fn respond(
    mut to: impl Write,
    status: &str,
    headers: &[String],
    body: &[u8],
    method: &str,
) -> Option<()> {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        write!(head, "{header}\r\n").unwrap();
    }
    head += "\r\n";
    let body = if method == "HEAD" { &[] } else { body };
    to.write_all(&[head.as_bytes(), body].concat()).ok()
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        out.push(char::from(u8::from_str_radix(code, 16).unwrap()));
        out += rest;
    }
    out
}

/// Pictures in a folder, in shards, and in tar files; and what libraries wrote in other formats.
fn objects() -> &'static BTreeMap<String, Vec<u8>> {
    static OBJECTS: OnceLock<BTreeMap<String, Vec<u8>>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let place = tempfile::tempdir().unwrap();
        for words in [
            &[
                "data",
                "generate",
                "photos",
                "--images",
                "96",
                "--classes",
                "3",
            ][..],
            &[
                "data",
                "pack",
                "photos",
                "shards",
                "--samples-per-shard",
                "40",
            ],
        ] {
            let mut command = stallscope();
            let out = command
                .args(words)
                .current_dir(place.path())
                .output()
                .unwrap();
            assert!(
                out.status.success(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        let mut objects = BTreeMap::new();
        take_in(&mut objects, place.path(), place.path());
        let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/data/tests/formats");
        take_in(&mut objects, &formats, &formats);
        let pictures = objects
            .iter()
            .filter(|(key, _)| key.starts_with("photos/") && key.ends_with(".jpg"));
        let pictures: Vec<&Vec<u8>> = pictures.map(|(_, bytes)| bytes).collect();
        let mut tars = Vec::new();
        for (number, part) in pictures.chunks(50).enumerate() {
            let mut tar = Vec::new();
            for (i, picture) in part.iter().enumerate() {
                tar.extend(tar_entry(&format!("{i:03}.jpg"), picture));
                tar.extend(tar_entry(&format!("{i:03}.cls"), b"1"));
            }
            tar.resize(tar.len() + 1024, 0);
            tars.push((format!("tars/{number}.tar"), tar));
        }
        objects.extend(tars);
        objects
    })
}

fn take_in(objects: &mut BTreeMap<String, Vec<u8>>, root: &Path, folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => take_in(objects, root, &path),
            false => {
                let key = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                objects.insert(key, fs::read(&path).unwrap());
            }
        }
    }
}

/// A folder to run in.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs one epoch of `data` in the store at `address`, and looks for what nobody may see in all that it says.
    fn run(&self, address: &str, data: &str, sets: &[&str]) -> Output {
        let mut command = stallscope();
        command.args(["run", data, "--run-dir", "out"]);
        for set in [
            "mode=loader-only",
            "epochs=1",
            "drop_last=false",
            "warmup_steps=0",
            "batch.size=8",
            "preprocess.size=32",
        ]
        .iter()
        .chain(sets)
        {
            command.args(["--set", set]);
        }
        command
            .current_dir(self.0.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("NO_PROXY", "127.0.0.1")
            .env("AWS_ENDPOINT_URL", address)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        let out = command.output().unwrap();
        let mut told = vec![out.stdout.clone(), out.stderr.clone()];
        if let Ok(files) = fs::read_dir(self.path("out")) {
            told.extend(files.map(|file| fs::read(file.unwrap().path()).unwrap()));
        }
        for text in told {
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains(KEY) && !text.contains(SECRET), "{text}");
        }
        out
    }

    /// The report of a run that must succeed.
    fn report(&self, address: &str, data: &str, sets: &[&str]) -> Value {
        let out = self.run(address, data, sets);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{data}: {errors}");
        let text = fs::read(self.path("out/report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

fn count(report: &Value, name: &str) -> u64 {
    report["data"]["store"][name].as_u64().unwrap()
}

#[test]
fn every_format_is_read_as_from_a_disk() {
    let store = Arc::new(Store::new(objects()));
    let address = store.serve();
    let local = tempfile::tempdir().unwrap();
    for (key, bytes) in objects() {
        let path = local.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let names: BTreeSet<&str> = objects()
        .keys()
        .filter_map(|key| Some(key.split_once('/')?.0))
        .collect();
    let mut read = 0;
    for name in names {
        let on_disk = local.path().join(name);
        let place = Place::new();
        let there = place.run(&address, on_disk.to_str().unwrap(), &[]);
        let packed = String::from_utf8_lossy(&there.stderr).contains("unpacked copies");
        if !there.status.success() || packed {
            continue;
        }
        let text = fs::read(place.path("out/report.json")).unwrap();
        let there: Value = serde_json::from_slice(&text).unwrap();
        let place = Place::new();
        let here = place.report(&address, &format!("s3://bucket/{name}"), &[]);
        for field in ["samples", "steps"] {
            assert_eq!(here[field], there[field], "{name}: {field}");
        }
        assert_eq!(
            here["config"]["model"]["classes"], there["config"]["model"]["classes"],
            "{name}"
        );
        if !name.contains("parquet") {
            assert_eq!(
                count(&here, "samples"),
                here["samples"].as_u64().unwrap(),
                "{name}"
            );
            assert!(count(&here, "reads") <= count(&here, "samples"), "{name}");
        }
        read += 1;
    }
    assert!(read >= 7, "{read} data sets were compared");
}

#[test]
fn neighbours_share_a_request_and_a_cache_asks_for_nothing() {
    let store = Arc::new(Store::new(objects()));
    let address = store.serve();
    let place = Place::new();
    let sets = ["shuffle=false", "read.cache=kept"];
    let report = place.report(&address, "s3://bucket/tars", &sets);
    assert_eq!(count(&report, "samples"), 96);
    assert!(count(&report, "reads") <= 96 / 4, "{report}");
    assert_eq!(count(&report, "cached"), 0);
    // In another order, too.
    let report = place.report(&address, "s3://bucket/tars", &["read.cache=kept"]);
    assert_eq!(
        (count(&report, "samples"), count(&report, "cached")),
        (96, 96)
    );
    assert_eq!(count(&report, "reads"), 0);
    // Nor for what lies where: the index was kept.
    let before = store.reads.load(Ordering::SeqCst);
    place.report(&address, "s3://bucket/tars", &["read.cache=kept"]);
    assert_eq!(store.reads.load(Ordering::SeqCst), before);
    // What predicts other settings knows what a request took.
    let mut predict = stallscope();
    let fetched = Place::new();
    fetched.report(&address, "s3://bucket/tars", &[]);
    predict.args(["predict", "out", "--set", "read.requests=1", "--json"]);
    let told = predict.current_dir(fetched.0.path()).output().unwrap();
    assert!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
}

#[test]
fn what_fails_for_the_moment_is_tried_again_and_counted() {
    let faults = [
        (Fault::Throttles, "throttled", "told to slow down"),
        (Fault::Fails, "server_errors", "another status from 500 on"),
        (Fault::CutsOff, "cut_off", "cut off"),
        (Fault::IsShort, "cut_off", "cut off"),
    ];
    for (fault, counter, words) in faults {
        let place = Place::new();
        // What is indexed is kept, so that all that follows are samples.
        place.report(
            &Arc::new(Store::new(objects())).serve(),
            "s3://bucket/tars",
            &[],
        );
        let mut store = Store::new(objects());
        store.fault = Some((fault, 12));
        let store = Arc::new(store);
        let address = store.serve();
        // A request for each sample.
        let sets = ["num_workers=2", "shuffle=true"];
        let out = place.run(&address, "s3://bucket/tars", &sets);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{fault:?}: {said}");
        assert!(said.contains(words), "{fault:?}: {said}");
        let report: Value =
            serde_json::from_slice(&fs::read(place.path("out/report.json")).unwrap()).unwrap();
        assert_eq!(report["samples"], 96);
        assert_eq!(count(&report, "samples"), 96);
        let spoilt = store.spoilt.load(Ordering::SeqCst);
        assert!(spoilt >= 4, "{spoilt}");
        assert_eq!(count(&report, counter), spoilt, "{fault:?}");
        assert_eq!(
            count(&report, "requests"),
            store.reads.load(Ordering::SeqCst)
        );
    }
}

#[test]
fn what_cannot_be_had_is_said_with_the_stores_words() {
    let fails = |store: Store, data: &str, parts: &[&str]| {
        let out = Place::new().run(&Arc::new(store).serve(), data, &[]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    };
    let expired = Store {
        expired: true,
        ..Store::new(objects())
    };
    fails(
        expired,
        "s3://bucket/tars",
        &["ExpiredToken", "have expired"],
    );
    let short = Store {
        fault: Some((Fault::IsShort, 1)),
        ..Store::new(objects())
    };
    fails(
        short,
        "s3://bucket/tars",
        &["0.tar", "the store answered with", "check the network"],
    );
    fails(
        Store::new(objects()),
        "s3://bucket/nothing",
        &["s3://bucket/nothing is empty"],
    );
    fails(
        Store::new(objects()),
        "s3://bucket/tars/9.tar",
        &["9.tar is not there"],
    );
    // Run looks for a secret in what is said.
    let url = &format!("s3://me:{SECRET}@bucket/tars");
    fails(
        Store::new(objects()),
        url,
        &["credentials do not belong in a URL"],
    );
}
