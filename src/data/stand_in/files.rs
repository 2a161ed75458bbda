//! The files of a stand-in, in the formats that `data::{idx, cifar}` read.
//!
//! May use: `data::{cifar, error, fetch, sampler, small}`, `stand_in::pictures`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::StandInOptions;
use super::pictures::{PIXELS_MNIST, Pictures, SIDE_MNIST};
use crate::fetch::PublishedSet;
use crate::{CifarKind, DataError, PublishedPart};
use stallscope_core::pipeline::sampler::{Order, epoch_order};

/// Samples that are drawn before they are written.
const BLOCK_SAMPLES: usize = 2000;
/// Fine classes of CIFAR-100 in a coarse one.
const FINE_IN_COARSE: u32 = 5;

/// A run of samples in a file of their own, or two.
pub(super) struct Volume {
    /// Of which CIFAR it is; otherwise it is MNIST's.
    cifar: Option<CifarKind>,
    /// The file of the pictures, with their labels unless those have their own.
    images: &'static str,
    labels: Option<&'static str>,
    pub(super) samples: usize,
    /// 0 for training, 1 for the test.
    part: u64,
    /// Samples of the part in all, and before this volume.
    part_samples: usize,
    first: usize,
}

/// The files of `like`, in the order in which they are read.
pub(super) fn volumes(like: PublishedSet) -> Vec<Volume> {
    let mnist = |images, labels, samples, part| Volume {
        cifar: None,
        images,
        labels: Some(labels),
        samples,
        part,
        part_samples: samples,
        first: 0,
    };
    match like {
        PublishedSet::Mnist => vec![
            mnist(
                "train-images-idx3-ubyte",
                "train-labels-idx1-ubyte",
                60_000,
                0,
            ),
            mnist(
                "t10k-images-idx3-ubyte",
                "t10k-labels-idx1-ubyte",
                10_000,
                1,
            ),
        ],
        PublishedSet::Cifar10 => cifar(CifarKind::Ten),
        PublishedSet::Cifar100 => cifar(CifarKind::Hundred),
    }
}

fn cifar(kind: CifarKind) -> Vec<Volume> {
    let part = |published, part, part_samples| {
        let files = kind.files(published);
        let samples = part_samples / files.len();
        let volume = move |(number, images): (usize, &&'static str)| Volume {
            cifar: Some(kind),
            images,
            labels: None,
            samples,
            part,
            part_samples,
            first: number * samples,
        };
        files.iter().enumerate().map(volume)
    };
    let training = part(PublishedPart::Train, 0, 50_000);
    training
        .chain(part(PublishedPart::Test, 1, 10_000))
        .collect()
}

impl Volume {
    /// Of its files.
    pub(super) fn bytes(&self) -> u64 {
        let images = self.images_header().len() + self.samples * self.record_bytes();
        let labels = self
            .labels
            .map_or(0, |_| self.labels_header().len() + self.samples);
        (images + labels) as u64
    }

    /// Whether its files are in `folder`, by their sizes.
    pub(super) fn is_whole_in(&self, folder: &Path) -> bool {
        let names = [Some(self.images), self.labels].into_iter().flatten();
        let sizes = names.map(|name| fs::metadata(folder.join(name)).map_or(0, |file| file.len()));
        sizes.sum::<u64>() == self.bytes()
    }

    /// Draws and writes its samples; returns the bytes. `progress` is called with samples as they are written.
    ///
    /// # Errors
    /// Whatever the file system or `progress` refuses.
    pub(super) fn write(
        &self,
        folder: &Path,
        options: &StandInOptions,
        pictures: &Pictures,
        progress: &mut dyn FnMut(usize) -> Result<(), DataError>,
    ) -> Result<u64, DataError> {
        let labels = self.sample_labels(options.seed);
        if let Some(name) = self.labels {
            let bytes: Vec<u8> = labels.iter().map(|label| *label as u8).collect();
            let path = folder.join(name);
            let content = [self.labels_header(), bytes].concat();
            fs::write(&path, content).map_err(DataError::io("write", path))?;
        }
        let path = folder.join(self.images);
        let mut file = File::create(&path).map_err(DataError::io("create", &path))?;
        let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(DataError::io("write", &path));
        write(&self.images_header())?;
        let mut records = vec![0; BLOCK_SAMPLES * self.record_bytes()];
        for (number, labels) in labels.chunks(BLOCK_SAMPLES).enumerate() {
            let records = &mut records[..labels.len() * self.record_bytes()];
            let first = self.first + number * BLOCK_SAMPLES;
            self.draw(labels, first, pictures, options.jobs, records);
            write(records)?;
            progress(labels.len())?;
        }
        Ok(self.bytes())
    }

    /// Fills `records` with the samples from `first` on, on `jobs` threads.
    fn draw(
        &self,
        labels: &[u32],
        first: usize,
        pictures: &Pictures,
        jobs: usize,
        records: &mut [u8],
    ) {
        let share = labels.len().div_ceil(jobs.max(1));
        let record_bytes = self.record_bytes();
        std::thread::scope(|scope| {
            let shares = labels
                .chunks(share)
                .zip(records.chunks_mut(share * record_bytes));
            for (number, (labels, records)) in shares.enumerate() {
                scope.spawn(move || {
                    let mut artist = pictures.artist();
                    let records = records.chunks_exact_mut(record_bytes);
                    for (at, (label, record)) in labels.iter().zip(records).enumerate() {
                        let (head, pixels) = record.split_at_mut(self.label_bytes());
                        self.write_label(*label, head);
                        let index = first + number * share + at;
                        artist.draw(*label, (self.part, index as u64), pixels);
                    }
                });
            }
        });
    }

    /// As many of each class as of any other, in random order.
    fn sample_labels(&self, seed: u64) -> Vec<u32> {
        let order = epoch_order(self.part_samples, seed, self.part, Order::Random);
        let own = order.into_iter().skip(self.first).take(self.samples);
        own.map(|place| place % self.classes()).collect()
    }

    fn classes(&self) -> u32 {
        self.cifar.map_or(10, |kind| kind.classes().into())
    }

    /// Bytes before the pixels of a record.
    fn label_bytes(&self) -> usize {
        self.cifar.map_or(0, CifarKind::label_bytes)
    }

    fn write_label(&self, label: u32, head: &mut [u8]) {
        match head {
            [] => {}
            [only] => *only = label as u8,
            [coarse, fine, ..] => (*coarse, *fine) = ((label / FINE_IN_COARSE) as u8, label as u8),
        }
    }

    fn record_bytes(&self) -> usize {
        self.cifar.map_or(PIXELS_MNIST, CifarKind::record_bytes)
    }

    fn images_header(&self) -> Vec<u8> {
        let side = SIDE_MNIST as u32;
        match self.cifar {
            None => idx_header(&[self.samples as u32, side, side]),
            Some(_) => Vec::new(),
        }
    }

    fn labels_header(&self) -> Vec<u8> {
        idx_header(&[self.samples as u32])
    }
}

/// That of unsigned bytes.
fn idx_header(sizes: &[u32]) -> Vec<u8> {
    let magic = [0, 0, 8, sizes.len() as u8];
    let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
    magic.into_iter().chain(sizes).collect()
}
