//! Fetching published data sets: from mirrors on the loopback address, with the faults that mirrors have, and from
//! folders.

mod file_server;
mod program;
mod tar_entry;

use file_server::files::{One, gzipped, known, noise, release};
use file_server::{FileServer, Manner};
use program::stallscope;
use stallscope::data::fetch::{
    Download, FetchError, FetchFrom, FetchedFrom, Packing, Watch, fetch,
};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tar_entry::tar_entry;

fn kept(origin: &FetchedFrom) -> u64 {
    match origin {
        FetchedFrom::Mirror { kept_bytes, .. } => *kept_bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_comes_whole_and_is_not_fetched_again() {
    for manner in [Manner::Ranges, Manner::Whole] {
        let one = One::new();
        let server = one.server(manner);
        // With and without a slash at its end.
        let mirror = server.url().trim_end_matches('/').to_owned();
        let (origin, failed) = one.succeeds(&[mirror]);
        assert_eq!((kept(&origin), failed.len()), (0, 0));
        assert_eq!(server.asked(), [("/a.gz".to_owned(), None)]);
        let (origin, _) = one.succeeds(&[server.url()]);
        assert_eq!(origin, FetchedFrom::AlreadyThere);
        assert_eq!(server.asked().len(), 1);
    }
}

#[test]
fn after_a_cut_connection_only_the_rest_is_fetched() {
    let one = One::new();
    let server = one.server(Manner::CutAfter(120_000));
    let (origin, failed) = one.succeeds(&[server.url()]);
    assert_eq!((kept(&origin), failed.len()), (0, 0));
    let from: Vec<_> = server.asked().into_iter().map(|(_, from)| from).collect();
    assert_eq!(from, [None, Some(120_000), Some(240_000)]);
    assert_eq!(server.served_bytes(), one.file.len());
}

#[test]
fn another_mirror_goes_on_where_one_gave_up() {
    let one = One::new();
    let cutting = one.server(Manner::CutAfter(20_000));
    let whole = one.server(Manner::Ranges);
    let (_, failed) = one.succeeds(&[cutting.url(), whole.url()]);
    assert_eq!(failed.len(), 1);
    let (url, why) = &failed[0];
    assert_eq!(*url, format!("{}a.gz", cutting.url()));
    assert!(why.contains("broke off"), "{why}");
    let [(_, Some(from))] = whole.asked()[..] else {
        panic!("{:?}", whole.asked());
    };
    assert_eq!(from, cutting.served_bytes());
    assert_eq!(from + whole.served_bytes(), one.file.len());
}

#[test]
fn what_was_stopped_goes_on_the_next_time() {
    let one = One::new();
    let server = one.server(Manner::Ranges);
    let loaded = Cell::new(0);
    let watch = Watch {
        progress: &|progress| loaded.set(progress.done_bytes),
        stop: &|| loaded.get() > 100_000,
    };
    let mirrors = [server.url()];
    let from = FetchFrom::Mirrors(&mirrors);
    let stopped = fetch(&one.release, &one.out(), from, &watch).unwrap_err();
    assert!(matches!(stopped, FetchError::Stopped), "{stopped}");
    assert!(!one.path("a.gz").exists());
    let part = fs::metadata(one.path("a.gz.part")).unwrap().len();
    assert!(part > 100_000 && part < one.file.len() as u64, "{part}");
    let (origin, _) = one.succeeds(&mirrors);
    assert_eq!(kept(&origin), part);
    let last = server.asked().pop().unwrap();
    assert_eq!(last.1, Some(part as usize));
}

#[test]
fn servers_without_ranges_send_all_of_it_again() {
    for manner in [Manner::Whole, Manner::RefusesRanges] {
        let one = One::new();
        fs::create_dir(one.out()).unwrap();
        fs::write(one.path("a.gz.part"), &one.file[..50_000]).unwrap();
        let server = one.server(manner);
        one.succeeds(&[server.url()]);
        assert_eq!(server.asked()[0].1, Some(50_000));
        assert_eq!(server.served_bytes(), one.file.len());
    }
}

/// Though what came then is less than what had been there.
#[test]
fn a_server_without_ranges_is_asked_again_when_it_breaks_off() {
    let one = One::new();
    fs::create_dir(one.out()).unwrap();
    fs::write(one.path("a.gz.part"), &one.file[..50_000]).unwrap();
    let server = one.server(Manner::WholeCutOnce(30_000));
    let (_, failed) = one.succeeds(&[server.url()]);
    assert_eq!(failed.len(), 0);
    let from: Vec<_> = server.asked().into_iter().map(|(_, from)| from).collect();
    assert_eq!(from, [Some(50_000), Some(30_000)]);
}

#[test]
fn a_part_that_is_wrong_is_thrown_away_and_the_mirror_asked_again() {
    let one = One::new();
    let server = one.server(Manner::Ranges);
    fs::create_dir(one.out()).unwrap();
    fs::write(one.path("a.gz.part"), vec![7; 50_000]).unwrap();
    let (_, failed) = one.succeeds(&[server.url()]);
    assert_eq!(failed.len(), 0);
    let from: Vec<_> = server.asked().into_iter().map(|(_, from)| from).collect();
    assert_eq!(from, [Some(50_000), None]);
    // A whole one that is right needs no mirror, and a wrong one is begun again.
    for (part, asked) in [(one.file.clone(), 2), (vec![7; one.file.len()], 3)] {
        fs::rename(one.path("a.gz"), one.path("elsewhere")).unwrap();
        fs::write(one.path("a.gz.part"), part).unwrap();
        one.succeeds(&[server.url()]);
        assert_eq!(server.asked().len(), asked);
    }
}

#[test]
fn wrong_bytes_are_thrown_away_and_the_next_mirror_is_asked() {
    let one = One::new();
    let (liar, honest) = (one.liar(), one.server(Manner::Ranges));
    let (origin, failed) = one.succeeds(&[liar.url(), honest.url()]);
    let from_honest = FetchedFrom::Mirror {
        url: format!("{}a.gz", honest.url()),
        kept_bytes: 0,
    };
    assert_eq!(origin, from_honest);
    assert_eq!(honest.asked(), [("/a.gz".to_owned(), None)]);
    assert!(failed[0].1.contains("SHA-256"), "{failed:?}");
}

#[test]
fn redirects_are_followed_with_the_range() {
    let one = One::new();
    let server = one.server(Manner::Ranges);
    let gate = FileServer::new(Manner::Redirects(server.url()), &[]);
    fs::create_dir(one.out()).unwrap();
    fs::write(one.path("a.gz.part"), &one.file[..50_000]).unwrap();
    one.succeeds(&[gate.url()]);
    assert_eq!(server.asked(), [("/a.gz".to_owned(), Some(50_000))]);
}

#[test]
fn where_all_mirrors_fail_each_is_listed_with_its_reason() {
    let one = One::new();
    let liar = one.liar();
    let empty = FileServer::new(Manner::Ranges, &[]);
    let short = FileServer::new(Manner::Ranges, &[("a.gz", b"short")]);
    // Nobody listens there.
    let closed = "http://127.0.0.1:1/".to_owned();
    let mirrors = [liar.url(), empty.url(), short.url(), closed.clone()];
    let error = one.fetch(&mirrors).unwrap_err().to_string();
    for part in [
        "a.gz of NOISE".to_owned(),
        one.out().display().to_string(),
        format!(
            "{}a.gz: what it serves is another file: its SHA-256",
            liar.url()
        ),
        format!("{}a.gz: HTTP status 404", empty.url()),
        format!("{}a.gz: its file has 5 bytes, not", short.url()),
        format!("{closed}a.gz: no connection"),
        "--mirror URL".to_owned(),
        "--from DIR".to_owned(),
        "data generate --like".to_owned(),
    ] {
        assert!(error.contains(&part), "{part:?} is not in {error}");
    }
    // Nothing came, so that nothing stands where data would.
    assert!(!one.out().exists());
    for (mirrors, part) in [
        (vec!["/data/mnist".to_owned()], "--from"),
        (vec!["https://".to_owned()], "https://"),
        (vec![], "--mirror URL"),
    ] {
        let error = one.fetch(&mirrors).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_archive_is_unpacked_and_not_kept() {
    let (one, other) = (noise(), noise()[..100_000].to_vec());
    let mut tar = [
        tar_entry("inner/readme.html", b"not wanted"),
        tar_entry("inner/one.bin", &one),
        tar_entry("other.bin", b"of another folder"),
        tar_entry("inner/other.bin", &other),
    ]
    .concat();
    tar.resize(tar.len() + 1024, 0);
    let archive = gzipped(&tar);
    let release = release(vec![Download {
        file: known("a.tar.gz", &archive),
        packing: Packing::TarGz {
            folder: "inner".to_owned(),
            members: vec![known("one.bin", &one), known("other.bin", &other)],
        },
    }]);
    let server = FileServer::new(Manner::Ranges, &[("a.tar.gz", &archive)]);
    let mirrors = [server.url()];
    let folder = tempfile::tempdir().unwrap();
    let at = &folder.path().join("out");
    let fetch = || fetch(&release, at, FetchFrom::Mirrors(&mirrors), &Watch::ALONE).unwrap();
    let all = || {
        let entries = fs::read_dir(at).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(kept(&fetch().files[0].origin), 0);
    assert!(fs::read(at.join("one.bin")).unwrap() == one);
    assert!(fs::read(at.join("other.bin")).unwrap() == other);
    assert_eq!(all(), ["one.bin", "other.bin"]);
    assert_eq!(fetch().files[0].origin, FetchedFrom::AlreadyThere);
    // Interrupted while it was unpacked: all of the archive is loaded.
    fs::remove_file(at.join("other.bin")).unwrap();
    fs::write(at.join("a.tar.gz.part"), &archive).unwrap();
    assert_eq!(fetch().files[0].origin, FetchedFrom::Part);
    assert_eq!(all(), ["one.bin", "other.bin"]);
    // The user's archive stays.
    fs::remove_file(at.join("one.bin")).unwrap();
    fs::write(at.join("a.tar.gz"), &archive).unwrap();
    assert_eq!(fetch().files[0].origin, FetchedFrom::Part);
    assert_eq!(all(), ["a.tar.gz", "one.bin", "other.bin"]);
    assert!(fs::read(at.join("a.tar.gz")).unwrap() == archive);
    assert_eq!(server.asked().len(), 1);
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = stallscope();
    command.current_dir(folder).args(arguments);
    command.env_remove("STALLSCOPE_MIRRORS");
    command.env("NO_PROXY", "127.0.0.1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output: Output = command(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_real_mnist_through_the_command_line() {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/mnist");
    let names = [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ];
    if !names.iter().all(|name| real.join(name).is_file()) {
        eprintln!("skipped: {} does not have MNIST", real.display());
        return;
    }
    let files = names.map(|name| (name, fs::read(real.join(name)).unwrap()));
    let files = files
        .each_ref()
        .map(|(name, bytes)| (*name, bytes.as_slice()));
    let server = FileServer::new(Manner::CutAfter(5_000_000), &files);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let out = succeeds(at, &["data", "fetch", "mnist", "--mirror", &server.url()]);
    assert!(
        out.starts_with("fetched MNIST into data/mnist: 4 files, 11.6 MB from http://127.0.0.1:")
            && out.contains("--set source.kind=mnist --set source.path=data/mnist"),
        "{out}"
    );
    let sizes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(server.served_bytes(), sizes);
    let again = succeeds(at, &["data", "fetch", "mnist", "--quiet"]);
    assert!(
        again.starts_with("already there, with the right checksums: MNIST"),
        "{again}"
    );
    // From the folder, one of the files unpacked.
    let labels = at.join("data/mnist/t10k-labels-idx1-ubyte.gz");
    let mut unpacked = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(fs::File::open(&labels).unwrap());
    std::io::Read::read_to_end(&mut gzip, &mut unpacked).unwrap();
    fs::write(at.join("data/mnist/t10k-labels-idx1-ubyte"), unpacked).unwrap();
    fs::remove_file(labels).unwrap();
    let json = succeeds(
        at,
        &[
            "data",
            "fetch",
            "mnist",
            "copy",
            "--from",
            "data/mnist",
            "--json",
        ],
    );
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (
            &json["data"],
            &json["provenance"],
            &json["files"][3]["from"]
        ),
        (&"mnist".into(), &"real".into(), &"folder".into())
    );
    assert!(at.join("copy/t10k-labels-idx1-ubyte").is_file());
    assert!(at.join("copy/train-images-idx3-ubyte.gz").is_file());
}

#[test]
fn ctrl_c_keeps_what_was_loaded() {
    // Of the right size, so that nothing else ends it.
    let file = vec![7; 9_912_422];
    let server = FileServer::new(Manner::Slow, &[("train-images-idx3-ubyte.gz", &file)]);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut fetch = command(at, &["data", "fetch", "mnist", "out"]);
    let fetch = fetch.env("STALLSCOPE_MIRRORS", format!(" {},", server.url()));
    let child = fetch.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let part = at.join("out/train-images-idx3-ubyte.gz.part");
    let loaded = || fs::metadata(&part).map_or(0, |part| part.len());
    let limit = Instant::now() + Duration::from_secs(60);
    while loaded() == 0 {
        assert!(Instant::now() < limit, "nothing was loaded");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "stopped; run the same command again to resume\n"
    );
    assert!(loaded() > 0 && !part.with_extension("").exists());
}

#[test]
fn what_cannot_be_fetched_says_what_to_try() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let empty = FileServer::new(Manner::Ranges, &[]);
    let fails = |arguments: &[&str], parts: &[&str]| {
        let output = command(at, arguments).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success(), "{}", text(&output.stdout));
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
    };
    fails(
        &["data", "fetch", "cifar100", "--mirror", &empty.url()],
        &[
            "cifar-100-binary.tar.gz of CIFAR-100 into data/cifar100",
            "HTTP status 404",
            "--from DIR",
        ],
    );
    fails(
        &["data", "fetch", "cifar10", "out", "--from", "."],
        &["does not have CIFAR-10", "./cifar-10-binary.tar.gz"],
    );
    fs::write(at.join("file"), "").unwrap();
    fails(
        &[
            "data",
            "fetch",
            "mnist",
            "file/out",
            "--mirror",
            &empty.url(),
        ],
        &["cannot create file/out"],
    );
    fs::create_dir(at.join("fashion")).unwrap();
    fs::write(at.join("fashion/train-images-idx3-ubyte.gz"), "other").unwrap();
    fails(
        &[
            "data",
            "fetch",
            "mnist",
            "fashion",
            "--mirror",
            &empty.url(),
        ],
        &[
            "fashion/train-images-idx3-ubyte.gz is not MNIST's",
            "in the way",
        ],
    );
    assert_eq!(
        fs::read(at.join("fashion/train-images-idx3-ubyte.gz")).unwrap(),
        b"other"
    );
}

#[test]
fn a_fetch_that_failed_leaves_room_for_a_stand_in() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Nobody listens there.
    let offline = ["data", "fetch", "mnist", "--mirror", "http://127.0.0.1:1/"];
    let output = command(at, &offline).output().unwrap();
    assert!(!output.status.success());
    assert!(!at.join("data/mnist").exists());
    // The user's own folder is not removed, and stays empty.
    fs::create_dir(at.join("data/mnist")).unwrap();
    assert!(!command(at, &offline).output().unwrap().status.success());
    assert_eq!(fs::read_dir(at.join("data/mnist")).unwrap().count(), 0);
    succeeds(at, &["data", "generate", "data/mnist", "--like", "mnist"]);
}

/// The stand-in is used as the real one would be, and cannot be taken for it.
#[test]
fn a_stand_in_is_made_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let made = succeeds(at, &["data", "generate", "data/mnist", "--like", "mnist"]);
    assert!(
        made.starts_with("wrote 70000 images in data/mnist (55.0 MB") && made.contains("not MNIST"),
        "{made}"
    );
    let again = succeeds(at, &["data", "generate", "data/mnist", "--like", "mnist"]);
    assert!(again.starts_with("already there"), "{again}");
    let config = "mode = \"loader-only\"\nepochs = 1\nbatch.size = 1000\nwarmup_steps = 0\n";
    fs::write(at.join("x.toml"), config).unwrap();
    let run = [
        "run",
        "x.toml",
        "--quiet",
        "--trace",
        "none",
        "--run-dir",
        "out",
    ];
    let sets = [
        "--set",
        "source.kind=mnist",
        "--set",
        "source.path=data/mnist",
    ];
    succeeds(at, &[&run[..], &sets].concat());
    let report = fs::read_to_string(at.join("out/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["samples"], 60_000);
    let fetched = command(at, &["data", "fetch", "mnist", "--from", "."]).output();
    let error = text(&fetched.unwrap().stderr);
    assert!(error.contains("data/mnist holds generated data"), "{error}");
}
