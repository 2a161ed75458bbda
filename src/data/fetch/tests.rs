//! Folders: what is in them, what is taken from them. Mirrors are in `tests/fetch.rs`.

use super::provenance::of_release;
use super::*;
use crate::MANIFEST_NAME;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::io::Write;

fn known(name: &str, bytes: &[u8]) -> KnownFile {
    let digest = Sha256::digest(bytes);
    let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    KnownFile::new(name, bytes.len() as u64, &sum)
}

fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), level);
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

const IMAGES: &[u8] = b"many images, many images, many images, many images";
const LABELS: &[u8] = b"labels";

/// Two gzipped files.
fn gzipped() -> Release {
    let download = |name: &str, content: &[u8]| Download {
        file: known(&format!("{name}.gz"), &gzip(content, Compression::best())),
        packing: Packing::Gzip {
            unpacked: known(name, content),
        },
    };
    Release {
        title: "TEST".to_owned(),
        mirrors: Vec::new(),
        downloads: vec![download("images", IMAGES), download("labels", LABELS)],
    }
}

/// An archive of two files, whose own checksum nobody will need.
fn archived() -> Release {
    Release {
        title: "TEST".to_owned(),
        mirrors: Vec::new(),
        downloads: vec![Download {
            file: KnownFile::new("test.tar.gz", 1000, ""),
            packing: Packing::TarGz {
                folder: "inner".to_owned(),
                members: vec![known("images", IMAGES), known("labels", LABELS)],
            },
        }],
    }
}

fn from_folder(release: &Release, out: &Path, from: &Path) -> Result<FetchSummary, FetchError> {
    fetch(release, out, FetchFrom::Folder(from), &Watch::ALONE)
}

fn refused(fetched: Result<FetchSummary, FetchError>, parts: &[&str]) {
    let error = fetched.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn a_folder_gives_its_files_in_whatever_form_they_are() {
    let place = tempfile::tempdir().unwrap();
    let (from, out) = (place.path().join("from"), place.path().join("new/out"));
    fs::create_dir(&from).unwrap();
    // Packed otherwise than the published one, and unpacked.
    let packed = gzip(IMAGES, Compression::none());
    fs::write(from.join("images.gz"), &packed).unwrap();
    fs::write(from.join("labels"), LABELS).unwrap();
    fs::write(from.join("labels.gz"), "not looked at").unwrap();
    let doings = RefCell::new(Vec::new());
    let watch = Watch {
        progress: &|progress| {
            assert!(progress.done_bytes > 0 && progress.file != "labels.gz");
            let mut doings = doings.borrow_mut();
            doings.push(progress.doing);
            doings.dedup();
        },
        stop: &|| false,
    };
    let summary = fetch(&gzipped(), &out, FetchFrom::Folder(&from), &watch).unwrap();
    let path = from.clone();
    assert!(
        summary
            .files
            .iter()
            .all(|file| file.origin == FetchedFrom::Folder { path: path.clone() })
    );
    assert_eq!(fs::read(out.join("images.gz")).unwrap(), packed);
    assert_eq!(fs::read(out.join("labels")).unwrap(), LABELS);
    assert!(!out.join("labels.gz").exists());
    assert!(
        doings
            .into_inner()
            .starts_with(&["checking", "copying", "checking"])
    );
    assert_eq!(of_release(&gzipped(), &out).unwrap(), Provenance::Real);
    fs::remove_dir_all(&from).unwrap();
    let again = from_folder(&gzipped(), &out, &from).unwrap();
    assert!(
        again
            .files
            .iter()
            .all(|file| file.origin == FetchedFrom::AlreadyThere)
    );
    // A file that is lost comes back.
    fs::create_dir(&from).unwrap();
    fs::rename(out.join("labels"), from.join("labels")).unwrap();
    let again = from_folder(&gzipped(), &out, &from).unwrap();
    assert_eq!(again.files[0].origin, FetchedFrom::AlreadyThere);
    assert_eq!(again.files[1].origin, FetchedFrom::Folder { path: from });
}

#[test]
fn an_archives_files_may_lie_in_its_folder() {
    let place = tempfile::tempdir().unwrap();
    let (from, out) = (place.path().join("from"), place.path().join("out"));
    fs::create_dir_all(from.join("inner")).unwrap();
    fs::write(from.join("inner/images"), IMAGES).unwrap();
    let files = ["inner/labels: it is not there"];
    refused(from_folder(&archived(), &out, &from), &files);
    fs::write(from.join("inner/labels"), LABELS).unwrap();
    assert_eq!(of_release(&archived(), &from).unwrap(), Provenance::Real);
    from_folder(&archived(), &out, &from).unwrap();
    assert_eq!(fs::read(out.join("images")).unwrap(), IMAGES);
    assert_eq!(of_release(&archived(), &out).unwrap(), Provenance::Real);
    // The readers take those outside, if there is one.
    fs::write(from.join("labels"), LABELS).unwrap();
    assert_eq!(of_release(&archived(), &from).unwrap(), Provenance::Unknown);
}

/// A gzipped archive of these files, without its last `cut` bytes.
fn archive(files: &[(&str, &[u8])], cut: usize) -> Vec<u8> {
    let mut archive = ::tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = ::tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    let bytes = archive.into_inner().unwrap();
    gzip(&bytes[..bytes.len() - cut], Compression::fast())
}

#[test]
fn an_archives_files_come_whether_or_not_the_one_before_was_wanted() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.tar.gz");
    let long: Vec<u8> = (0..200_000u32).map(|at| (at / 3) as u8).collect();
    let files: [(&str, &[u8]); 4] = [
        ("f/a", b"one"),
        ("f/passed over", &long),
        ("f/b", &long),
        ("f/c", b""),
    ];
    let members = [known("a", b"one"), known("b", &long), known("c", b"")];
    let unpack = |cut| {
        fs::write(&path, archive(&files, cut)).unwrap();
        archive::unpack(&path, "f", &members, place.path(), &Watch::ALONE)
    };
    unpack(0).unwrap();
    let read = |name| fs::read(place.path().join(name)).unwrap();
    assert!(read("a") == b"one" && read("b") == long && read("c") == b"");
    assert!(!place.path().join("passed over").exists());
    let cut = unpack(2000).unwrap_err().to_string();
    assert!(
        cut.contains("cannot unpack") && cut.contains("a.tar.gz: "),
        "{cut}"
    );
}

#[test]
fn a_folder_that_lacks_files_is_told_what_it_lacks_and_nothing_is_copied() {
    let place = tempfile::tempdir().unwrap();
    let (from, out) = (place.path().join("from"), place.path().join("out"));
    fs::create_dir(&from).unwrap();
    let neither = "images.gz: neither it nor what it unpacks to is there";
    refused(
        from_folder(&gzipped(), &out, &from),
        &["does not have TEST", neither],
    );
    fs::write(from.join("images"), IMAGES).unwrap();
    for (labels, what) in [
        (
            gzip(b"LABELS", Compression::fast()),
            "unpacked, its SHA-256 is",
        ),
        (
            gzip(b"label", Compression::fast()),
            "unpacked, it has 5 bytes, not 6",
        ),
        (
            gzip(&[7; 1000], Compression::fast()),
            "unpacked it has more than 6 bytes",
        ),
        (b"labels".to_vec(), "it does not unpack"),
    ] {
        fs::write(from.join("labels.gz"), labels).unwrap();
        refused(from_folder(&gzipped(), &out, &from), &["labels.gz: ", what]);
    }
    assert!(!out.join("images").exists());
    fs::write(from.join("test.tar.gz"), "an archive").unwrap();
    refused(
        from_folder(&archived(), &out, &from),
        &[
            "labels: it is not there",
            "test.tar.gz: it has 10 bytes, not 1000",
        ],
    );
}

#[test]
fn nothing_is_touched_that_is_something_else() {
    let place = tempfile::tempdir().unwrap();
    let out = &place.path().join("out");
    fs::create_dir(out).unwrap();
    let fetched = || from_folder(&gzipped(), out, Path::new("/nowhere"));
    fs::write(out.join("labels"), "LABELS").unwrap();
    refused(
        fetched(),
        &["labels is not TEST's (its SHA-256 is", "in the way"],
    );
    assert_eq!(fs::read(out.join("labels")).unwrap(), b"LABELS");
    fs::remove_file(out.join("labels")).unwrap();
    let lock = lock(out).unwrap();
    refused(fetched(), &["another process is fetching into"]);
    drop(lock);
    refused(fetched(), &["/nowhere does not have TEST"]);
    fs::write(out.join(MANIFEST_NAME), "{}").unwrap();
    refused(fetched(), &["holds generated data in the format of TEST"]);
}

#[test]
fn only_all_of_the_published_files_are_real() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let provenance = || of_release(&gzipped(), at).unwrap();
    assert_eq!(provenance(), Provenance::Unknown);
    fs::write(at.join("images.gz"), gzip(IMAGES, Compression::best())).unwrap();
    assert_eq!(provenance(), Provenance::Unknown);
    fs::write(at.join("labels"), LABELS).unwrap();
    assert_eq!(provenance(), Provenance::Real);
    // Read before the gzipped one.
    fs::write(at.join("images"), "other").unwrap();
    assert_eq!(provenance(), Provenance::Unknown);
    fs::write(at.join(MANIFEST_NAME), "{}").unwrap();
    assert_eq!(provenance(), Provenance::Generated);
    // Whoever put the real files there has real files there.
    fs::write(at.join("images"), IMAGES).unwrap();
    assert_eq!(provenance(), Provenance::Real);
}

#[test]
fn a_full_disk_says_what_to_do() {
    let full = |kind: std::io::ErrorKind| {
        let error = DataError::io("write", "/data/a.part")(kind.into());
        FetchError::from(error).to_string()
    };
    let text = full(std::io::ErrorKind::StorageFull);
    assert!(
        text.starts_with("cannot write /data/a.part: ") && text.contains("free space there"),
        "{text}"
    );
    assert!(full(std::io::ErrorKind::ReadOnlyFilesystem).contains("you may write to"));
}

#[test]
fn the_real_mnist_is_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/mnist");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    // The checksums of the gzipped files and of what they unpack to.
    assert_eq!(
        provenance(PublishedSet::Mnist, &folder).unwrap(),
        Provenance::Real
    );
    for download in PublishedSet::Mnist.release().downloads {
        let path = folder.join(&download.file.name);
        let fault = Member::plain(&download.file).fault(&path, &Watch::ALONE);
        assert_eq!(fault.unwrap(), None);
    }
    for set in [PublishedSet::Cifar10, PublishedSet::Cifar100] {
        assert_eq!(provenance(set, &folder).unwrap(), Provenance::Unknown);
    }
}
