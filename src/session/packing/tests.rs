//! What is packed comes back, whichever way it went.

use super::*;
use crate::data::shard::PackOutcome;
use crate::data::{GenerateOptions, ImageFormat, generate};
use std::path::PathBuf;

const IMAGES: usize = 12;

/// A folder of pictures of 3 classes.
fn pictures(folder: &Path, format: ImageFormat) -> PathBuf {
    let options = GenerateOptions {
        images: IMAGES,
        classes: 3,
        format,
        ..GenerateOptions::new(folder.join("pictures"))
    };
    generate(&options, &|_| {}).unwrap();
    options.out
}

fn request<'a>(source: &'a Path, target: &'a Path, packed: Packed) -> PackRequest<'a> {
    PackRequest {
        source,
        kind: None,
        target,
        packed,
        container: Container::Shards,
        shuffle: None,
        samples_per_shard: Some(5),
        jobs: Some(2),
        skip_bad: false,
    }
}

fn packed(request: &PackRequest<'_>) -> PackSummary {
    let (summary, warnings) = request.pack(&|_, _| {}, &|| false).unwrap();
    assert_eq!((summary.records, summary.shards), (IMAGES as u64, 3));
    assert_eq!(warnings, [""; 0]);
    summary
}

/// Labels and stored bytes of the samples at `path`, in order.
fn samples(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let catalog = Catalog::open(recognise(path).unwrap(), path).unwrap();
    let reader = catalog.reader(ReadMode::Pread, Access::Sequential).unwrap();
    let sample = |i| {
        let encoded = catalog.read(&reader, i).unwrap();
        (catalog.label(i), reader.bytes(&encoded).to_vec())
    };
    (0..catalog.len()).map(sample).collect()
}

fn pixels(bytes: &[u8]) -> RgbBuffer {
    let mut out = RgbBuffer::default();
    let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
    let input = Input {
        bytes,
        private: true,
    };
    decoder.decode(input, |_, _| None, &mut out).unwrap();
    out
}

#[test]
fn tar_files_hold_what_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    let source = pictures(folder.path(), ImageFormat::Jpeg);
    let (shards, tars) = (folder.path().join("shards"), folder.path().join("tars"));
    packed(&request(&source, &shards, Packed::Stored));
    let to_tar = PackRequest {
        container: Container::Tar,
        ..request(&shards, &tars, Packed::Stored)
    };
    packed(&to_tar);
    assert_eq!(samples(&tars), samples(&source));
    let names = ["data-000000.tar", "data-000001.tar", "data-000002.tar"];
    assert!(names.iter().all(|name| tars.join(name).is_file()));
    let classes = fs::read_to_string(tars.join("classes.txt")).unwrap();
    let Catalog::Folder(of_source) = Catalog::open(SourceKind::ImageFolder, &source).unwrap()
    else {
        unreachable!("an image folder was opened");
    };
    assert_eq!(classes.lines().collect::<Vec<_>>(), of_source.classes());

    let again = to_tar.pack(&|_, _| {}, &|| false).err().unwrap();
    assert!(
        again.to_string().contains("cannot pack tar files beside"),
        "{again}"
    );
}

#[test]
fn pixels_become_png_files_and_shards_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = pictures(folder.path(), ImageFormat::Png);
    let at = |name: &str| folder.path().join(name);
    packed(&request(&source, &at("raw"), Packed::Raw { longest: 100 }));
    packed(&PackRequest {
        container: Container::Tar,
        ..request(&at("raw"), &at("tars"), Packed::Stored)
    });
    packed(&request(&at("raw"), &at("copy"), Packed::Stored));
    let raw = samples(&at("raw"));
    assert_eq!(samples(&at("copy")), raw);
    for ((label, png), (wanted_label, wanted)) in samples(&at("tars")).into_iter().zip(raw) {
        assert_eq!((label, pixels(&png).pixels), (wanted_label, wanted));
    }
}

#[test]
fn smaller_jpeg_files_are_close_and_small_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source = pictures(folder.path(), ImageFormat::Jpeg);
    let jpeg = |longest| Packed::Jpeg {
        longest,
        quality: 90,
    };
    packed(&request(&source, &at("as-they-are"), jpeg(5000)));
    assert_eq!(samples(&at("as-they-are")), samples(&source));

    let target = at("small");
    packed(&request(&source, &target, jpeg(200)));
    packed(&request(&source, &at("raw"), Packed::Raw { longest: 200 }));
    let again = request(&source, &target, jpeg(200));
    let (again, _) = again.pack(&|_, _| {}, &|| false).unwrap();
    assert_eq!(again.outcome, PackOutcome::AlreadyThere);
    for ((label, small), (wanted_label, wanted)) in
        samples(&target).into_iter().zip(samples(&at("raw")))
    {
        let found = pixels(&small);
        assert_eq!((label, found.width.max(found.height)), (wanted_label, 200));
        assert_eq!(found.pixels.len(), wanted.len());
        let differences = found.pixels.iter().zip(&wanted);
        let sum: u64 = differences.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        let mean = sum as f64 / wanted.len() as f64;
        assert!(mean < 6.0, "{mean} of 255 on average");
    }
    let other = request(&source, &target, jpeg(199));
    let other = other.pack(&|_, _| {}, &|| false).err().unwrap();
    assert!(other.to_string().contains("with other options"), "{other}");
}

/// Cameras write pictures lying on their side, and some programs a scan for each channel.
#[test]
fn pictures_are_upright_and_whatever_decodes_them_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source = pictures(folder.path(), ImageFormat::Jpeg);
    let Catalog::Folder(of_source) = Catalog::open(SourceKind::ImageFolder, &source).unwrap()
    else {
        unreachable!("an image folder was opened");
    };
    // The first picture turned by its EXIF block, the second in three scans.
    let first = of_source.path(0);
    let bytes = fs::read(first).unwrap();
    let exif =
        b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    fs::write(first, [&bytes[..2], exif, &bytes[2..]].concat()).unwrap();
    let (width, height) = image_size(&bytes).unwrap();
    let scans = fs::read("tests/pictures/scans.jpg").unwrap();
    fs::write(of_source.path(1), scans).unwrap();

    let target = at("small");
    let request = PackRequest {
        skip_bad: true,
        ..request(
            &source,
            &target,
            Packed::Jpeg {
                longest: 40,
                quality: 90,
            },
        )
    };
    let (summary, _) = request.pack(&|_, _| {}, &|| false).unwrap();
    let is_built_in = cfg!(feature = "turbojpeg");
    assert_eq!(
        summary.skipped.len(),
        usize::from(!is_built_in),
        "{:?}",
        summary.skipped
    );
    let small = samples(&target);
    let size = image_size(&small[0].1).unwrap();
    assert_eq!(
        size.0 > size.1,
        height > width,
        "{size:?} of {width}x{height}"
    );
    assert_eq!(size.0.max(size.1), 40);
}

#[test]
fn small_images_are_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train-images-idx3-ubyte"), [0; 16]).unwrap();
    fs::write(folder.path().join("train-labels-idx1-ubyte"), [0; 8]).unwrap();
    let target = folder.path().join("out");
    let refused = request(folder.path(), &target, Packed::Stored);
    let refused = refused.pack(&|_, _| {}, &|| false).err().unwrap();
    assert!(
        refused.to_string().contains("loaded into memory"),
        "{refused}"
    );
}
