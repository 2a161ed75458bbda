//! What must hold for any bytes that a parser is given: it returns, within its memory, and what it accepts is what the
//! bytes say.
//!
//! Invariants: a check tells whether the bytes were accepted, and panics where the parser is wrong. What it compares
//! with it finds out itself. Limits on memory follow from the length of the bytes, with IDX files from what they unpack
//! to, and never from what a header claims alone.
//!
//! May use: `data`, `memory`, the core, `torch`.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::data::DataError;
use crate::data::cifar::CifarKind;
use crate::data::shard::{HEADER_BYTES, RECORD_ALIGNMENT, RecordKind, Shard};
use crate::data::small::SmallImages;
use crate::data::tar::index_bytes;
use crate::data::{SampleIndex, mds, parquet, tfrecord};
use crate::memory::measure;
use stallscope_core::timeline::Nanos;
use stallscope_torch::kineto::{AnalyzeOptions, analyze_from};

/// Room for paths, messages and what else does not depend on the input.
const SMALL: usize = 1 << 10;

/// Bytes of one image; the byte before them is its label.
const CIFAR_PIXELS: usize = 3072;

/// A file of CIFAR-10 and of CIFAR-100: besides the bytes themselves nothing grows with them.
pub fn cifar(bytes: &[u8]) -> bool {
    let mut accepted = false;
    for kind in [CifarKind::Ten, CifarKind::Hundred] {
        let (read, used) = measure(|| SmallImages::from_cifar(kind, bytes.to_vec()));
        used.check(bytes.len().max(SMALL), bytes.len() + SMALL);
        let images = match read {
            Ok(images) => images,
            Err(error) => {
                check_message(&error, SMALL);
                continue;
            }
        };
        accepted = true;
        let record = bytes.len() / images.len();
        assert_eq!(images.len() * record, bytes.len());
        for i in 0..images.len() {
            let whole = &bytes[i * record..(i + 1) * record];
            let pixels = record - CIFAR_PIXELS;
            assert_eq!(images.pixels(i), &whole[pixels..]);
            assert_eq!(images.label(i), u32::from(whole[pixels - 1]));
            assert!((images.label(i) as usize) < images.classes());
        }
    }
    accepted
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// A reader's buffer.
const READER: usize = 8 << 10;
/// A gzip decoder's with its window and tables, and an extra field in the header, for which flate2 makes room before
/// it is there.
const UNPACKER: usize = (75 + 64) << 10;
/// As often as deflate can repeat a byte that it was given.
const MOST_UNPACKED: usize = 1032;

/// A file of images and one of labels. The first byte says which of them are gzipped here, since hardly any mutation
/// makes a gzip file whose CRC is right; the next two, how long the first file is.
///
/// Read is what there is, up to a byte more than the header promises, into memory that doubles as it grows: at the
/// moment it does, both are there. The names in a gzip file's header grow likewise.
pub fn idx(bytes: &[u8]) -> bool {
    let [packed, low, high, rest @ ..] = bytes else {
        return false;
    };
    let length = u16::from_le_bytes([*low, *high]);
    let (images, labels) = rest.split_at(rest.len().min(length.into()));
    let file = |content: &[u8], bit| match packed & bit {
        0 => content.to_vec(),
        _ => gzip(content),
    };
    let (images, labels) = (file(images, 1), file(labels, 2));
    let (image_content, label_content) = (unpack(&images), unpack(&labels));
    let (read, used) = measure(|| SmallImages::from_idx(&images, &labels));
    let held = |file: &[u8], content: &Option<Vec<u8>>, dimensions| match content {
        Some(content) => promised(content, dimensions),
        None => MOST_UNPACKED * file.len(),
    };
    let sizes = [
        held(&images, &image_content, 3),
        held(&labels, &label_content, 1),
    ];
    let reader = match images.starts_with(&GZIP) || labels.starts_with(&GZIP) {
        true => UNPACKER + 3 * bytes.len(),
        false => READER,
    };
    let (most, all) = (sizes[0].max(sizes[1]), sizes[0] + sizes[1]);
    used.check(2 * most + reader + SMALL, 3 * all + reader + SMALL);
    match read {
        Ok(read) => {
            let (image_content, label_content) = (image_content.unwrap(), label_content.unwrap());
            check_idx(&read, &image_content[16..], &label_content[8..])
        }
        Err(error) => check_message(&error, SMALL),
    }
}

fn check_idx(read: &SmallImages, pixels: &[u8], labels: &[u8]) -> bool {
    let [_, rows, columns] = read.shape();
    assert!(read.len() == labels.len() && !read.is_empty());
    assert_eq!(read.len() * rows * columns, pixels.len());
    for (i, image) in pixels.chunks_exact(rows * columns).enumerate() {
        assert_eq!(read.pixels(i), image);
        assert_eq!(read.label(i), u32::from(labels[i]));
        assert!((read.label(i) as usize) < read.classes());
    }
    true
}

/// Of the bytes after the header those that may be read.
fn promised(content: &[u8], dimensions: usize) -> usize {
    let Some((header, data)) = content.split_at_checked(4 + 4 * dimensions) else {
        return 0;
    };
    let sizes = header[4..].as_chunks().0.iter();
    let promise = sizes.fold(1usize, |bytes, size| {
        bytes.saturating_mul(u32::from_be_bytes(*size) as usize)
    });
    promise.saturating_add(1).min(data.len())
}

/// A gzip file of one stored block.
fn gzip(content: &[u8]) -> Vec<u8> {
    let length = content.len().min(usize::from(u16::MAX)) as u16;
    let content = &content[..length.into()];
    let mut file = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01".to_vec();
    file.extend(length.to_le_bytes());
    file.extend((!length).to_le_bytes());
    file.extend_from_slice(content);
    file.extend(crc32fast::hash(content).to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file
}

/// What a file holds; none if it is gzipped and broken, because how much comes before the error depends on how it is
/// read.
fn unpack(file: &[u8]) -> Option<Vec<u8>> {
    if !file.starts_with(&GZIP) {
        return Some(file.to_vec());
    }
    let mut content = Vec::new();
    let read = MultiGzDecoder::new(file).read_to_end(&mut content);
    read.is_ok().then_some(content)
}

const BLOCK: usize = 512;

/// A tar file. Blocks that call themselves ustar get the right checksum, past which a fuzzer hardly ever gets.
///
/// An image costs 32 bytes of index, while its header alone has 512, and names, of which each image has one, are in
/// the file too. Both tables double as they grow; the name of the member at hand exists in two copies more. A member
/// that is refused is named in a message, where a byte that is no text takes three.
pub fn tar(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    let (indexed, used) = measure(|| index_bytes(&bytes));
    let times = |times: usize| times * bytes.len() + SMALL;
    let shards = match indexed {
        Ok(shards) => shards,
        Err(error) => {
            used.check(times(6), times(16));
            return check_message(&error, times(3));
        }
    };
    used.check(times(2), times(4));
    assert!(!shards.is_empty() && shards.files().len() == 1);
    assert!(shards.len() <= bytes.len() / BLOCK);
    let mut end = 0;
    for i in 0..shards.len() {
        let at = shards.location(i);
        assert_eq!((at.file, at.offset % BLOCK as u64), (0, 0));
        // Each image has a header of its own.
        assert!(at.offset >= end + BLOCK as u64);
        end = at.offset + at.bytes;
        assert!(end <= bytes.len() as u64);
        assert!((shards.label(i) as usize) < shards.classes());
        assert!(shards.name(i).len() <= 3 * bytes.len() + " of (bytes)".len());
    }
    true
}

/// A TFRecord file, once its CRCs are made right: pictures lie within it, one behind the other, and match their CRCs as
/// long as the record does.
pub fn tfrecord(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    seal_records(&mut bytes);
    let mut accepted = false;
    for skip in [false, true] {
        let (indexed, used) = measure(|| tfrecord::index_bytes(&bytes, skip));
        // A label and a picture of no bytes take 45 with their frame, and an entry and its checksum 40 in memory that doubles.
        used.check(2 * bytes.len() + SMALL, 4 * bytes.len() + 2 * SMALL);
        match indexed {
            Ok(index) => {
                check_extents(&index, bytes.len());
                for i in 0..index.len() {
                    let at = index.location(i);
                    let picture = &bytes[at.offset as usize..][..at.bytes as usize];
                    assert!(index.is_sound(i, picture));
                }
                accepted |= !skip;
            }
            Err(error) => accepted |= check_message(&error, 3 * SMALL),
        }
    }
    accepted
}

/// Makes the CRCs right of records whose lengths are.
fn seal_records(bytes: &mut [u8]) {
    let mask = |crc: u32| crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let mut rest = bytes;
    while let Some((length, tail)) = rest.split_first_chunk_mut::<8>() {
        let Some((crc, tail)) = tail.split_first_chunk_mut::<4>() else {
            return;
        };
        *crc = mask(crc32c::crc32c(length));
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((data, tail)) = tail.split_at_mut_checked(length) else {
            return;
        };
        let Some((crc, tail)) = tail.split_first_chunk_mut::<4>() else {
            return;
        };
        *crc = mask(crc32c::crc32c(data));
        rest = tail;
    }
}

/// Samples of one file lie within its `length` bytes, in order, with labels below the number of classes.
fn check_extents(index: &SampleIndex, length: usize) {
    assert!(!index.is_empty() && index.files().len() == 1);
    let mut end = 0;
    for i in 0..index.len() {
        let at = index.location(i);
        assert!(at.file == 0 && at.offset >= end);
        end = at.offset + at.bytes;
        assert!(end <= length as u64);
        assert!((index.label(i) as usize) < index.classes());
        assert!(index.name(i).ends_with(" of (bytes)"));
    }
}

/// A list of MDS shards and its first shard, behind the length of the list: pictures lie within the shard.
pub fn mds(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return false;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (list, shard) = rest.split_at(length);
    let mut accepted = false;
    for skip in [false, true] {
        let (indexed, used) = measure(|| mds::index_bytes(list, shard, skip));
        // An offset takes 4 bytes of a shard, and an entry 32 in memory that doubles; a column 3 of the list and up to 40.
        let most = 32 * bytes.len() + 2 * SMALL;
        used.check(most, most);
        match indexed {
            Ok(index) => {
                assert!(!index.is_empty() && index.len() <= shard.len() / 4);
                for i in 0..index.len() {
                    let at = index.location(i);
                    assert!(at.offset + at.bytes <= shard.len() as u64);
                    assert!((index.label(i) as usize) < index.classes());
                }
                accepted |= !skip;
            }
            Err(error) => accepted |= check_message(&error, 10 * bytes.len() + SMALL),
        }
    }
    accepted
}

/// A Parquet file: its rows are no more than its bytes, and each has a picture or says why it has none. Pages may unpack to
/// more than the file has, so memory is left to libFuzzer's limits.
pub fn parquet(bytes: &[u8]) -> bool {
    let index = match parquet::open_bytes(bytes) {
        Ok(index) => index,
        Err(error) => return check_message(&error, 16 * (bytes.len() + SMALL)),
    };
    assert!(!index.is_empty() && index.len() <= bytes.len());
    let Some(tables) = index.tables() else {
        return false;
    };
    let mut accepted = true;
    for row in 0..index.len() {
        assert_eq!(index.location(row).offset, row as u64);
        assert!((index.label(row) as usize) < index.classes());
        accepted &= tables.picture(0, row).is_ok();
    }
    accepted
}

/// What an analysis has whatever the trace: a buffer to read into, and histograms of waits, steps and stages.
const ANALYSIS: usize = 16 << 20;
/// So many bytes are kept for a byte of a trace, at most: the shortest event that counts has about 40, and becomes a step.
const KEPT: usize = 256;

/// A trace of PyTorch's profiler: the causes add up to the idle time, and each step's categories to the step.
pub fn kineto(bytes: &[u8]) -> bool {
    let options = AnalyzeOptions {
        trace: "fuzzed.json".into(),
        ..AnalyzeOptions::default()
    };
    let (analysed, used) = measure(|| analyze_from(&mut &*bytes, &options));
    let unpacked = match bytes.starts_with(&GZIP) {
        true => UNPACKER + MOST_UNPACKED * bytes.len(),
        false => bytes.len(),
    };
    let most = ANALYSIS + KEPT * unpacked;
    used.check(most, most);
    let report = match analysed {
        Ok(report) => report,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let idle: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
    if let Some(device) = &report.device {
        assert_eq!(device.idle_ns, idle);
        assert_eq!(device.busy_ns + idle, report.window_ns);
    }
    for step in report.profiler_trace.iter().flat_map(|trace| &trace.steps) {
        let all: Nanos = step.by_category.values().copied().sum();
        assert_eq!(all, step.ns, "{}", step.name);
    }
    true
}

/// The header, index and names of a shard: at one time there are no more than the bytes of a section as they are read
/// and what they were parsed to, which is as large.
pub fn shard(bytes: &[u8]) -> bool {
    let (parsed, used) = measure(|| Shard::parse(bytes));
    used.check(bytes.len() + SMALL, 2 * bytes.len() + SMALL);
    let shard = match parsed {
        Ok(shard) => shard,
        Err(fault) => {
            assert!(!fault.what.is_empty() && fault.what.len() <= SMALL);
            assert!(fault.bytes.start <= fault.bytes.end);
            return false;
        }
    };
    let header = shard.header();
    assert_eq!(header.encode()[..], bytes[..HEADER_BYTES]);
    assert_eq!(header.file_bytes, bytes.len() as u64);
    assert_eq!(header.records, shard.entries().len() as u64);
    let mut end = HEADER_BYTES as u64;
    for (number, entry) in shard.entries().iter().enumerate() {
        assert!(entry.offset >= end && entry.offset.is_multiple_of(RECORD_ALIGNMENT));
        end = entry.offset + u64::from(entry.bytes);
        assert!(end <= header.index.offset && entry.bytes > 0);
        assert!(entry.bytes <= header.largest_record_bytes && entry.label < header.classes);
        assert!(u64::from(entry.source) < header.samples);
        if header.kind == RecordKind::Rgb {
            let pixels = u64::from(entry.width) * u64::from(entry.height);
            assert_eq!(u64::from(entry.bytes), pixels * 3);
        }
        assert!(shard.name(number).is_some());
    }
    assert!(shard.name(shard.entries().len()).is_none());
    assert!(end <= bytes.len() as u64);
    let class_names = shard.class_names().count();
    assert_eq!(class_names as u64, u64::from(header.classes));
    true
}

/// The same once magic, version and every CRC are made right, so that the rules behind them are reached.
pub fn shard_sealed(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    if let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>() {
        header[..16].copy_from_slice(b"\x89STSHD\r\n\x01\0\0\0\xc0\0\0\0");
        seal(&mut bytes);
    }
    shard(&bytes)
}

/// Makes the CRCs right of what has a header.
fn seal(bytes: &mut [u8]) {
    // Where offset and length of index, names and class names are, and their CRC.
    for (place, crc) in [(88, 136), (104, 140), (120, 144)] {
        let [start, length] = [place, place + 8].map(|at| {
            let word = bytes[at..].first_chunk().copied().unwrap_or_default();
            u64::from_le_bytes(word) as usize
        });
        let section = bytes.get(start..start.saturating_add(length));
        if let Some(sum) = section.map(crc32fast::hash) {
            bytes[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sum = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// A message that names its file and is not endless; the bytes were not accepted.
fn check_message(error: &DataError, most: usize) -> bool {
    let message = error.to_string();
    assert!(message.contains("(bytes)") && message.len() <= most);
    false
}
