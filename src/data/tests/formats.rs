//! Data sets that the libraries of each format wrote (`scripts/formats-check.py --fixtures`), against what the libraries
//! read of them: `formats/NAME.jsonl` has a label and the SHA-256 of the bytes for each sample of `formats/NAME`.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use stallscope_data::stages::decode::{DecodeOptions, Decoder, Input, RgbBuffer, image_size};
use stallscope_data::stages::reading::{Access, Extent, ReadMode, Reader};
use stallscope_data::{
    ImageFolder, IndexOptions, SampleIndex, SourceKind, mds, parquet, recognise, tar, tfrecord,
};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Row {
    label: u32,
    /// None where the library gives a decoded picture.
    sha256: Option<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

fn index(path: &Path) -> SampleIndex {
    let opened = match recognise(path).unwrap() {
        SourceKind::WebDataset => tar::open(path, IndexOptions::default()),
        SourceKind::Tfrecord => tfrecord::open(path, IndexOptions::default()),
        SourceKind::Mds => mds::open(path, IndexOptions::default()),
        SourceKind::Parquet => parquet::open(path, IndexOptions::default()),
        kind => panic!("{kind:?}"),
    };
    opened.unwrap()
}

/// Label and bytes of each sample.
fn read(path: &Path, mode: ReadMode) -> Vec<(u32, Vec<u8>)> {
    if recognise(path).unwrap() == SourceKind::ImageFolder {
        let folder = ImageFolder::open(path).unwrap();
        let class = |i| folder.classes()[folder.label(i) as usize].clone();
        let label = |i| class(i).trim_start_matches("class-").parse().unwrap();
        let read = (0..folder.len()).map(|i| (label(i), fs::read(folder.path(i)).unwrap()));
        return read.collect();
    }
    let index = index(path);
    let reader = match index.tables() {
        Some(tables) => Reader::of_rows(mode, tables, index.files()),
        None => Reader::of_parts(mode, Access::Random, index.files()),
    };
    let reader = reader.unwrap();
    let sample = |i| {
        let at = index.location(i);
        let (offset, bytes) = (at.offset, at.bytes);
        let file = at.file as usize;
        let encoded = reader.read_part(file, &index.files()[file], Extent { offset, bytes });
        let encoded = encoded.unwrap();
        let picture = reader.bytes(&encoded).to_vec();
        assert!(index.is_sound(i, &picture), "{}", index.name(i));
        reader.give_back(encoded);
        (index.label(i), picture)
    };
    (0..index.len()).map(sample).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[test]
fn samples_are_what_the_libraries_read() {
    let mut checked = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let rows = fs::read_to_string(path.with_extension("jsonl")).unwrap();
        let rows: Vec<Row> = rows
            .lines()
            .map(|row| serde_json::from_str(row).unwrap())
            .collect();
        // Compressed files are unpacked beside them.
        let place = tempfile::tempdir().unwrap();
        copy(&path, place.path());
        for mode in [ReadMode::Pread, ReadMode::Ram] {
            let read = read(place.path(), mode);
            let name = path.file_name().unwrap().display();
            assert_eq!(read.len(), rows.len(), "{name}");
            for ((label, bytes), row) in read.iter().zip(&rows) {
                assert_eq!(*label, row.label, "{name}");
                if let Some(want) = &row.sha256 {
                    assert_eq!(sha256(bytes), *want, "{name}");
                }
                decodes(bytes);
            }
        }
        checked += 1;
    }
    assert_eq!(checked, DATA_SETS);
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Folders with fixtures.
const DATA_SETS: usize = 12;

fn decodes(bytes: &[u8]) {
    let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
    let (mut image, input) = (
        RgbBuffer::default(),
        Input {
            bytes,
            private: true,
        },
    );
    decoder.decode(input, |_, _| None, &mut image).unwrap();
    assert_eq!(image_size(bytes).unwrap(), (image.width, image.height));
    assert!(image.width >= 24 && image.pixels.len() == (3 * image.width * image.height) as usize);
}
