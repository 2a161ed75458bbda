//! MNIST's IDX files, plain or gzipped: images and labels of one part of the data, in memory.
//!
//! Invariants: there is a label for each image, and every image has the same size; what the headers promise is what
//! the files hold, to the byte. The format: <http://yann.lecun.com/exdb/mnist/>, "the IDX file format".
//!
//! May use: `data::{error, small}`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::DataError;
use super::small::{PublishedPart, SmallImages};

/// Unsigned bytes in one dimension, and in three.
const LABELS: [u8; 4] = [0, 0, 8, 1];
const IMAGES: [u8; 4] = [0, 0, 8, 3];
/// What gzipped bytes begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The sizes of a file's dimensions, and its bytes.
type Content<const DIMENSIONS: usize> = ([usize; DIMENSIONS], Vec<u8>);

impl SmallImages {
    /// Reads the IDX files of `part` in `folder`, each with or without `.gz`.
    ///
    /// # Errors
    /// Files that are missing, of another format, cut short, too long, or that do not belong together.
    pub fn open_idx(folder: &Path, part: PublishedPart) -> Result<SmallImages, DataError> {
        let images = IdxFile::find(folder, part, "images-idx3-ubyte")?;
        let image_content = images.unpack(images.open()?, IMAGES)?;
        let labels = IdxFile::find(folder, part, "labels-idx1-ubyte")?;
        let label_content = labels.unpack(labels.open()?, LABELS)?;
        pair(images, image_content, &labels, label_content)
    }

    /// How many images the files of `part` hold by the header of the labels, of which it reads none.
    ///
    /// # Errors
    /// A file that is missing or of another format.
    pub fn count_idx(folder: &Path, part: PublishedPart) -> Result<usize, DataError> {
        let labels = IdxFile::find(folder, part, "labels-idx1-ubyte")?;
        let [count] = labels.sizes(&mut labels.unpacked(labels.open()?), LABELS)?;
        Ok(count)
    }

    /// The same from the bytes of both files, each plain or gzipped: the entry for fuzzing and tests.
    ///
    /// # Errors
    /// As `open_idx`, where the bytes are what is wrong.
    pub fn from_idx(images: &[u8], labels: &[u8]) -> Result<SmallImages, DataError> {
        let file = |bytes: &[u8]| IdxFile {
            path: PathBuf::from("(bytes)"),
            gzipped: bytes.starts_with(&GZIP),
        };
        let (image_file, label_file) = (file(images), file(labels));
        let image_content = image_file.unpack(images, IMAGES)?;
        let label_content = label_file.unpack(labels, LABELS)?;
        pair(image_file, image_content, &label_file, label_content)
    }
}

/// The images of one file with the labels of the other, if they belong together.
fn pair(
    images: IdxFile,
    ([count, rows, columns], pixels): Content<3>,
    file: &IdxFile,
    ([label_count], labels): Content<1>,
) -> Result<SmallImages, DataError> {
    if count == 0 || rows * columns == 0 {
        return Err(images.broken(format!(
            "it holds {count} images of {rows}x{columns} pixels"
        )));
    }
    if count != label_count {
        return Err(file.broken(format!(
            "it has {label_count} labels, but {} has {count} images",
            images.path.display()
        )));
    }
    Ok(SmallImages {
        pixels: pixels.into(),
        // One more than the largest label.
        classes: labels
            .iter()
            .max()
            .map_or(0, |label| usize::from(*label) + 1),
        labels,
        shape: [1, rows, columns],
        files: vec![(images.path, count)],
    })
}

/// One file, found.
struct IdxFile {
    path: PathBuf,
    gzipped: bool,
}

impl IdxFile {
    fn find(folder: &Path, part: PublishedPart, kind: &str) -> Result<IdxFile, DataError> {
        let prefix = match part {
            PublishedPart::Train => "train",
            PublishedPart::Test => "t10k",
        };
        let plain = folder.join(format!("{prefix}-{kind}"));
        let zipped = folder.join(format!("{prefix}-{kind}.gz"));
        for (path, gzipped) in [(&plain, false), (&zipped, true)] {
            if path.is_file() {
                let path = path.clone();
                return Ok(IdxFile { path, gzipped });
            }
        }
        Err(DataError::MissingIdx { path: plain })
    }

    fn broken(&self, what: String) -> DataError {
        DataError::BrokenImages {
            path: self.path.clone(),
            kind: "MNIST",
            what,
        }
    }

    fn open(&self) -> Result<File, DataError> {
        File::open(&self.path).map_err(DataError::io("open", &self.path))
    }

    /// Its content, from its bytes.
    fn unpack<const DIMENSIONS: usize>(
        &self,
        bytes: impl Read,
        magic: [u8; 4],
    ) -> Result<Content<DIMENSIONS>, DataError> {
        self.content(&mut self.unpacked(bytes), magic)
    }

    fn unpacked<'a>(&self, bytes: impl Read + 'a) -> Box<dyn Read + 'a> {
        match self.gzipped {
            true => Box::new(MultiGzDecoder::new(bytes)),
            false => Box::new(BufReader::new(bytes)),
        }
    }

    /// The sizes of its dimensions, with which its unpacked content begins.
    fn sizes<const DIMENSIONS: usize>(
        &self,
        reader: &mut impl Read,
        magic: [u8; 4],
    ) -> Result<[usize; DIMENSIONS], DataError> {
        let found: [u8; 4] = self.word(reader)?;
        if found != magic {
            return Err(self.broken(format!(
                "it begins with {found:02x?}, an IDX file of this kind with {magic:02x?}"
            )));
        }
        let mut sizes = [0; DIMENSIONS];
        for size in &mut sizes {
            *size = u32::from_be_bytes(self.word(reader)?) as usize;
        }
        Ok(sizes)
    }

    /// The same with its data.
    fn content<const DIMENSIONS: usize>(
        &self,
        reader: &mut impl Read,
        magic: [u8; 4],
    ) -> Result<Content<DIMENSIONS>, DataError> {
        let sizes: [usize; DIMENSIONS] = self.sizes(reader, magic)?;
        let bytes = sizes
            .iter()
            .try_fold(1usize, |bytes, size| bytes.checked_mul(*size))
            .filter(|bytes| *bytes <= MOST_BYTES)
            .ok_or_else(|| {
                let most = MOST_BYTES >> 20;
                self.broken(format!(
                    "its header asks for {sizes:?} bytes, and more than {most} MiB are not loaded"
                ))
            })?;
        // Neither the header nor what a small file unpacks to is believed before it is there: memory grows
        // with what is read, up to one byte more than promised, which shows what is too long.
        let mut data = Vec::new();
        reader
            .take(bytes as u64 + 1)
            .read_to_end(&mut data)
            .map_err(|error| self.unreadable(error))?;
        if data.len() != bytes {
            let amount = if data.len() > bytes { "more" } else { "fewer" };
            return Err(self.broken(format!(
                "it holds {amount} than the {bytes} bytes its header promises"
            )));
        }
        Ok((sizes, data))
    }

    fn word(&self, reader: &mut impl Read) -> Result<[u8; 4], DataError> {
        let mut word = [0; 4];
        reader
            .read_exact(&mut word)
            .map_err(|error| self.unreadable(error))?;
        Ok(word)
    }

    fn unreadable(&self, error: io::Error) -> DataError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.broken("it is cut short".to_owned()),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                self.broken(format!("it does not unpack: {error}"))
            }
            _ => DataError::io("read", &self.path)(error),
        }
    }
}

/// The largest of these data sets, EMNIST's, has 638 MB.
const MOST_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write;

    fn images(count: u32, pixels: &[u8]) -> Vec<u8> {
        let sizes = [count, 2, 3].map(u32::to_be_bytes).concat();
        [&IMAGES[..], &sizes, pixels].concat()
    }

    fn labels(labels: &[u8]) -> Vec<u8> {
        let count = (labels.len() as u32).to_be_bytes();
        [&LABELS[..], &count, labels].concat()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn open(image_bytes: &[u8], label_bytes: &[u8]) -> Result<SmallImages, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train-images-idx3-ubyte"), image_bytes).unwrap();
        fs::write(
            folder.path().join("train-labels-idx1-ubyte.gz"),
            gzip(label_bytes),
        )
        .unwrap();
        SmallImages::open_idx(folder.path(), PublishedPart::Train)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn reads_plain_and_gzipped_files() {
        let pixels: Vec<u8> = (0..12).collect();
        let opened = open(&images(2, &pixels), &labels(&[7, 1])).unwrap();
        assert_eq!(
            (opened.len(), opened.shape(), opened.classes()),
            (2, [1, 2, 3], 8)
        );
        assert_eq!(opened.pixels(1), &pixels[6..]);
        assert_eq!((opened.label(0), opened.label(1)), (7, 1));
    }

    #[test]
    fn bytes_are_read_as_files_are() {
        let (image_bytes, label_bytes) = (images(2, &[5; 12]), labels(&[7, 1]));
        for (image_bytes, label_bytes) in [
            (image_bytes.clone(), gzip(&label_bytes)),
            (gzip(&image_bytes), label_bytes.clone()),
        ] {
            let read = SmallImages::from_idx(&image_bytes, &label_bytes).unwrap();
            assert_eq!(
                (read.len(), read.shape(), read.classes()),
                (2, [1, 2, 3], 8)
            );
            assert_eq!((read.pixels(1), read.label(1)), (&[5; 6][..], 1));
        }
        let error = SmallImages::from_idx(&image_bytes, &gzip(&label_bytes)[..20]).unwrap_err();
        assert!(error.to_string().starts_with("(bytes) is not"), "{error}");
    }

    #[test]
    fn files_that_lie_are_refused_with_their_name() {
        let pixels = [0; 12];
        let good = images(2, &pixels);
        let refused = |image_bytes: &[u8], label_bytes: &[u8], parts: &[&str]| {
            let error = open(image_bytes, label_bytes).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in {error}");
            }
        };
        refused(
            &good,
            &labels(&[1, 2, 3]),
            &["labels-idx1-ubyte.gz", "3 labels", "2 images"],
        );
        refused(
            &good[..20],
            &labels(&[1, 2]),
            &["images-idx3-ubyte", "fewer"],
        );
        refused(&good[..7], &labels(&[1, 2]), &["cut short"]);
        refused(
            &images(2, &[0; 13]),
            &labels(&[1, 2]),
            &["more than the 12 bytes"],
        );
        refused(&labels(&[1]), &labels(&[1]), &["begins with"]);
        refused(
            &images(u32::MAX, &pixels),
            &labels(&[1]),
            &["header asks for"],
        );
        refused(
            &images(1 << 30, &pixels),
            &labels(&[1]),
            &["header asks for", "MiB are not loaded"],
        );
        refused(&images(0, &[]), &labels(&[]), &["0 images"]);
        let nowhere =
            SmallImages::open_idx(Path::new("/nowhere"), PublishedPart::Test).unwrap_err();
        assert!(
            nowhere
                .to_string()
                .contains("/nowhere/t10k-images-idx3-ubyte")
        );
    }

    #[test]
    fn a_gzip_bomb_is_read_no_further_than_its_header_promises() {
        // 64 MiB of labels in 64 KiB, where the header promises two.
        let mut bomb = labels(&[1, 2]);
        bomb.resize(64 << 20, 0);
        assert!(gzip(&bomb).len() < 1 << 20);
        let file = IdxFile {
            path: PathBuf::from("labels.gz"),
            gzipped: true,
        };
        let mut unpacked = MultiGzDecoder::new(io::Cursor::new(gzip(&bomb)));
        let error = file.content::<1>(&mut unpacked, LABELS).unwrap_err();
        assert!(
            error.to_string().contains("more than the 2 bytes"),
            "{error}"
        );
        // What is left in it has not been unpacked.
        assert!(unpacked.get_ref().position() <= 32 << 10);
        let refused = open(&images(2, &[0; 12]), &bomb).unwrap_err();
        assert!(refused.contains("labels-idx1-ubyte.gz"), "{refused}");
    }

    #[test]
    fn the_real_mnist_opens() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/mnist");
        if !folder.is_dir() {
            eprintln!("skipped: {} is not there", folder.display());
            return;
        }
        let train = SmallImages::open_idx(&folder, PublishedPart::Train).unwrap();
        assert_eq!(
            (train.len(), train.shape(), train.classes()),
            (60_000, [1, 28, 28], 10)
        );
        // The mean that MNIST is normalised with everywhere.
        let sum: u64 = train.pixels.iter().map(|pixel| u64::from(*pixel)).sum();
        let mean = sum as f64 / train.pixels.len() as f64 / 255.0;
        assert!((mean - 0.1307).abs() < 5e-5, "{mean}");
        assert_eq!((train.label(0), train.label(1), train.label(2)), (5, 0, 4));
        assert_eq!(
            SmallImages::open_idx(&folder, PublishedPart::Test)
                .unwrap()
                .len(),
            10_000
        );
    }
}
