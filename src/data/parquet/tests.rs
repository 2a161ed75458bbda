//! Parquet files that the `parquet` crate writes, whole and damaged. Those that pyarrow wrote are in `tests/formats.rs`.

use super::*;
use ::parquet::basic::{Compression, Encoding};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

/// Rows of (picture or null, label), in groups of `group` rows.
fn file(schema: &str, rows: &[(Option<&[u8]>, i64)], group: usize, plain: bool) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    if plain {
        properties = properties
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::PLAIN);
    }
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for rows in rows.chunks(group) {
        let mut group = writer.next_row_group().unwrap();
        let mut pictures = group.next_column().unwrap().unwrap();
        let values = rows.iter().filter_map(|(picture, _)| *picture);
        let values: Vec<ByteArray> = values.map(|picture| picture.to_vec().into()).collect();
        let levels: Vec<i16> = rows
            .iter()
            .map(|(picture, _)| 2 * i16::from(picture.is_some()))
            .collect();
        pictures
            .typed::<ByteArrayType>()
            .write_batch(&values, Some(&levels), None)
            .unwrap();
        pictures.close().unwrap();
        let mut labels = group.next_column().unwrap().unwrap();
        let values: Vec<i64> = rows.iter().map(|(_, label)| *label).collect();
        labels
            .typed::<Int64Type>()
            .write_batch(&values, None, None)
            .unwrap();
        labels.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

const HUGGING_FACE: &str =
    "message m { optional group image { optional binary bytes; } required int64 label; }";

fn five(plain: bool) -> Vec<u8> {
    let rows: [(Option<&[u8]>, i64); 5] = [
        (Some(b"first"), 3),
        (Some(b"second"), 0),
        (None, 1),
        (Some(b"first"), 2),
        (Some(b""), 0),
    ];
    file(HUGGING_FACE, &rows, 2, plain)
}

fn pictures(index: &SampleIndex) -> Vec<Option<Vec<u8>>> {
    let tables = index.tables().unwrap();
    let picture = |row| tables.picture(0, row).ok().map(|row| row.bytes().to_vec());
    (0..index.len()).map(picture).collect()
}

#[test]
fn pictures_and_labels_are_those_of_the_rows() {
    for plain in [false, true] {
        let index = open_bytes(&five(plain)).unwrap();
        let labels: Vec<u32> = (0..5).map(|i| index.label(i)).collect();
        assert_eq!((labels, index.classes()), (vec![3, 0, 1, 2, 0], 4));
        let want = [
            Some(&b"first"[..]),
            Some(b"second"),
            None,
            Some(b"first"),
            Some(b""),
        ];
        assert_eq!(
            pictures(&index),
            want.map(|picture| picture.map(<[u8]>::to_vec))
        );
        let error = index.tables().unwrap().picture(0, 2).unwrap_err();
        assert!(error.contains("no picture"), "{error}");
        assert_eq!(
            (index.name(4), index.tables().unwrap().groups()),
            ("sample 4 of (bytes)".to_owned(), (3, 2, MOST_GROUPS))
        );
    }
}

#[test]
fn only_some_row_groups_are_kept() {
    let rows: Vec<(Option<&[u8]>, i64)> = (0..40).map(|i| (Some(&b"picture"[..]), i)).collect();
    let index = open_bytes(&file(HUGGING_FACE, &rows, 1, true)).unwrap();
    let read = pictures(&index);
    assert!(read.iter().all(Option::is_some));
    assert_eq!(index.tables().unwrap().kept(), MOST_GROUPS);
}

#[test]
fn files_without_pictures_say_which_columns_there_are() {
    let text =
        "message m { optional group cover { optional binary name (UTF8); } required int64 label; }";
    let error = open_bytes(&file(text, &[(Some(b"x"), 1)], 1, true))
        .unwrap_err()
        .to_string();
    assert!(error.contains("cover.name, label"), "{error}");
    let error = open_bytes(b"PAR1 no footer PAR1").unwrap_err().to_string();
    assert!(error.contains("(bytes)"), "{error}");
}

#[test]
fn a_folder_tells_its_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train-00000-of-00001.parquet");
    std::fs::write(&path, five(true)).unwrap();
    assert_eq!(rows_together(folder.path()), Some(2));
    let index = open(folder.path(), IndexOptions::default()).unwrap();
    assert_eq!(pictures(&index)[1], Some(b"second".to_vec()));
    std::fs::write(folder.path().join("train-1.parquet"), b"PAR1").unwrap();
    assert!(open(folder.path(), IndexOptions::default()).is_err());
    assert_eq!(
        open(folder.path(), IndexOptions::SKIP_BROKEN)
            .unwrap()
            .len(),
        5
    );
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(at in 0usize..900, to: u8, cut in 0usize..2000, plain: bool) {
        let mut bytes = five(plain);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = to;
        }
        bytes.truncate(cut.max(bytes.len().saturating_sub(cut)));
        if let Ok(index) = open_bytes(&bytes) {
            pictures(&index);
        }
    }
}

/// 2^31 - 1 pairs of booleans in field 9, none of which has a byte for the crate.
const PAIRS: &[u8] = b"\x9b\xff\xff\xff\xff\x07\x11\0";

#[test]
fn claims_of_elements_without_bytes_are_refused_at_once() {
    for (bytes, what) in [
        (PAIRS, "a list or map of booleans"),
        (b"\x99\xf2\x05\x01\0", "a list or map of booleans"),
        // Numbers of eight bytes, most of them after the end.
        (b"\x99\xf7\xff\xff\xff\x07", "it is cut off"),
        (&[0x99; 40], "more than 32 deep"),
        // The crate would read a number and then fields in these bytes.
        (
            b"\x28\x03\x9b\xff\xff\0",
            "field 2 of a structure has type 8",
        ),
        (b"\x15", "it is cut off"),
        (
            b"\x15\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "more than 64 bits",
        ),
        (b"\x9e\0", "there is no type 14"),
    ] {
        let error = thrift::page_header(bytes).unwrap_err();
        assert!(error.contains(what), "{bytes:?}: {error}");
    }
}

#[test]
fn headers_may_have_what_the_crate_does_not_read() {
    for bytes in [
        // Statistics in a header of either version; a 64-bit integer where the format has 32.
        &b"\x5c\x5c\x18\x01a\x18\x01b\x16\0\x11\0\0\0"[..],
        b"\x8c\x8c\x18\x01a\0\0\0",
        b"\x16\x02\0",
        // Lists, maps and structures that there may be one day; lists and maps of nothing.
        b"\x99\x28\x01a\x02bc\x1b\x02\x58\x02\x01a\x04\x01b\x1c\x11\x1c\0\0\0",
        b"\x99\0\x1b\0\x19\x01\0",
        b"\x9d0123456789abcdef\x17ABCDEFGH\x13\x7f\0",
        // A field whose number is written out.
        b"\x05\xc8\x01\x02\0",
    ] {
        assert_eq!(thrift::page_header(bytes), Ok(()), "{bytes:?}");
    }
}

/// The bytes of a file with this metadata alone.
fn footer(metadata: &[u8]) -> Vec<u8> {
    let length = (metadata.len() as u32).to_le_bytes();
    [metadata, &length, b"PAR1"].concat()
}

#[test]
fn metadata_that_would_keep_its_reader_busy_is_refused() {
    // A column with one column in it, 2,000 times; the same with a number of which the crate reads 32 bits.
    let column = |children: &[u8]| [b"\x48\x01a\x15", children, b"\0"].concat();
    let nested = |count: usize, children| {
        let length = [(count % 128) as u8 | 128, (count / 128) as u8];
        [
            &b"\x29\xfc"[..],
            &length,
            &column(children).repeat(count),
            b"\0",
        ]
        .concat()
    };
    for (metadata, what) in [
        (PAIRS, "a list or map of booleans"),
        // A version whose bytes are a map of booleans.
        (
            b"\x18\x08\x9b\xff\xff\xff\xff\x07\x11\0\0",
            "field 1 of a structure has type 8",
        ),
        // One column with 2^31 - 1 columns, and with what the crate takes for so many.
        (
            b"\x29\x1c\x55\xfe\xff\xff\xff\x0f\0\0",
            "2147483647 columns in a column",
        ),
        (
            b"\x29\x1c\x55\x81\x80\x80\x80\x10\0\0",
            "-2147483649 columns in a column",
        ),
        (&nested(2000, b"\x02"), "nested more than 100 deep"),
        (
            &nested(2000, b"\xfd\xff\xff\xff\x1f"),
            "-4294967295 columns in a column",
        ),
        // Two million structures, of which there is none.
        (b"\x49\xfc\x80\x89\x7a\0", "a list of 2000000 structures"),
    ] {
        let error = open_bytes(&footer(metadata)).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    for (bytes, what) in [
        (&b"PAR1"[..], "it has 4 bytes"),
        (
            b"\x09\0\0\0PAR1",
            "should end with 9 bytes of metadata, but has only 0",
        ),
        (b"\0\0\0\0PARE", "write it without encryption"),
    ] {
        let error = open_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn names_that_would_be_copied_too_often_are_refused_and_wide_tables_are_not() {
    let wide: String = (0..3000)
        .map(|n| format!("optional group g{n} {{ optional int32 n; }} "))
        .collect();
    let wide = format!("message m {{ {wide} }}");
    let schema = Arc::new(parse_message_type(&wide).unwrap());
    let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let error = open_bytes(&writer.into_inner().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("g0.n"), "{error}");

    let long = "a".repeat(1 << 20);
    let leaves: String = (0..300).map(|n| format!("optional int32 n{n}; ")).collect();
    let schema = parse_message_type(&format!(
        "message m {{ optional group {long} {{ {leaves} }} }}"
    ));
    let writer =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema.unwrap()), Arc::default()).unwrap();
    let error = open_bytes(&writer.into_inner().unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("names of its columns are too long"),
        "{error}"
    );
}

#[test]
fn a_page_header_that_would_keep_its_reader_busy_is_refused() {
    let mut bytes = five(true);
    // The first page of pictures; its header is longer than this.
    bytes[4..4 + PAIRS.len()].copy_from_slice(PAIRS);
    let index = open_bytes(&bytes).unwrap();
    let error = index.tables().unwrap().picture(0, 0).unwrap_err();
    assert!(
        error.contains("larger than 16 MiB: a list or map"),
        "{error}"
    );
}
