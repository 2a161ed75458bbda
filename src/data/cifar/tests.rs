use super::*;
use std::fs;

/// A record whose pixels tell its seed and where they are.
fn record(labels: &[u8], seed: usize) -> Vec<u8> {
    let pixels = (0..PIXEL_BYTES).map(|at| (at * 7 + seed) as u8);
    labels.iter().copied().chain(pixels).collect()
}

/// The five training files of CIFAR-10: file `n`, from one, holds `n` records with the label `n`.
fn write_ten(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for n in 1..=5 {
        let records: Vec<u8> = (0..n)
            .flat_map(|k| record(&[n as u8], n * 10 + k))
            .collect();
        fs::write(folder.join(format!("data_batch_{n}.bin")), records).unwrap();
    }
}

fn message(folder: &Path, kind: CifarKind, part: PublishedPart) -> String {
    let opened = SmallImages::open_cifar(folder, kind, part);
    opened.unwrap_err().to_string()
}

#[test]
fn reads_the_five_files_in_order() {
    let folder = tempfile::tempdir().unwrap();
    write_ten(folder.path());
    let images =
        SmallImages::open_cifar(folder.path(), CifarKind::Ten, PublishedPart::Train).unwrap();
    assert_eq!((images.len(), images.is_empty()), (15, false));
    assert_eq!((images.shape(), images.classes()), ([3, 32, 32], 10));
    let mut i = 0;
    for n in 1..=5 {
        for k in 0..n {
            assert_eq!(images.label(i), n as u32);
            assert_eq!(images.pixels(i), &record(&[], n * 10 + k));
            let file = folder.path().join(format!("data_batch_{n}.bin"));
            assert_eq!(images.name(i), format!("image {k} of {}", file.display()));
            i += 1;
        }
    }
}

#[test]
fn reads_the_fine_labels_in_the_folder_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("cifar-100-binary");
    fs::create_dir(&own).unwrap();
    let records = [record(&[19, 99], 1), record(&[0, 42], 2)].concat();
    fs::write(own.join("test.bin"), records).unwrap();
    let images =
        SmallImages::open_cifar(folder.path(), CifarKind::Hundred, PublishedPart::Test).unwrap();
    assert_eq!((images.len(), images.classes()), (2, 100));
    assert_eq!((images.label(0), images.label(1)), (99, 42));
    assert_eq!(images.pixels(1), &record(&[], 2));
    let name = format!("image 1 of {}", own.join("test.bin").display());
    assert_eq!(images.name(1), name);
    let own = folder.path().join("cifar-10-batches-bin");
    write_ten(&own);
    let images =
        SmallImages::open_cifar(folder.path(), CifarKind::Ten, PublishedPart::Train).unwrap();
    assert_eq!(images.len(), 15);
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write_ten(folder.path());
    let test = message(folder.path(), CifarKind::Ten, PublishedPart::Test);
    assert!(
        test.contains("test_batch.bin is not there") && test.contains("binary version of CIFAR-10"),
        "{test}"
    );
    for n in [5, 3] {
        let name = format!("data_batch_{n}.bin");
        fs::remove_file(folder.path().join(&name)).unwrap();
        let error = message(folder.path(), CifarKind::Ten, PublishedPart::Train);
        assert!(error.contains(&format!("{name} is not there")), "{error}");
    }
    let nowhere = message(
        Path::new("/nowhere"),
        CifarKind::Hundred,
        PublishedPart::Train,
    );
    assert!(nowhere.contains("/nowhere/train.bin"), "{nowhere}");
}

#[test]
fn files_that_are_cut_short_are_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    write_ten(folder.path());
    let path = folder.path().join("data_batch_4.bin");
    let refused = |bytes: &[u8], parts: &[&str]| {
        fs::write(&path, bytes).unwrap();
        let error = message(folder.path(), CifarKind::Ten, PublishedPart::Train);
        for part in ["data_batch_4.bin", "CIFAR-10"].iter().chain(parts) {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
    };
    let whole = [record(&[1], 0), record(&[2], 0)].concat();
    refused(
        &whole[..3073 + 100],
        &["100 bytes into record 1", "at byte 3073;"],
    );
    refused(&whole[..1], &["1 bytes into record 0"]);
    refused(&[], &["it is empty"]);
    refused(
        &[record(&[9], 0), record(&[10], 0)].concat(),
        &["record 1", "label 10"],
    );
    // Sparse, so that it takes no room; and it is refused without being read.
    let long = fs::File::create(&path).unwrap();
    long.set_len((1 << 30) + 1).unwrap();
    let error = message(folder.path(), CifarKind::Ten, PublishedPart::Train);
    assert!(
        error.contains("more than 1024 MiB are not loaded"),
        "{error}"
    );
}

#[test]
fn labels_out_of_range_are_refused() {
    let refused = |kind, labels: &[u8]| {
        let error = SmallImages::from_cifar(kind, record(labels, 0)).unwrap_err();
        assert!(
            error.to_string().contains("record 0 has the label"),
            "{error}"
        );
    };
    refused(CifarKind::Ten, &[10]);
    refused(CifarKind::Hundred, &[20, 0]);
    refused(CifarKind::Hundred, &[0, 100]);
    assert!(SmallImages::from_cifar(CifarKind::Hundred, record(&[19, 99], 0)).is_ok());
}

#[test]
fn a_file_is_held_once() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = record(&[3], 0).repeat(50);
    fs::write(folder.path().join("test_batch.bin"), &bytes).unwrap();
    let images =
        SmallImages::open_cifar(folder.path(), CifarKind::Ten, PublishedPart::Test).unwrap();
    assert!(images.pixels.taken() <= bytes.len() + 1);
}
