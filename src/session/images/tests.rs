//! The same pictures from every format, read mode and side of the bus.

use super::*;
use crate::config::{CacheConfig, Resolved, Settings, SourceKind};
use crate::data::shard::{Container, PackOutcome};
use crate::data::{GenerateOptions, generate};
use crate::pipeline::sampler::Share;
use crate::pipeline::{Discard, start};
use crate::pipeline::{HostBatch, HostToDevice, Layout, OnError, Plan, StageKnobs, StopSignal};
use crate::session::{PackRequest, Packed};
use crate::timeline::{Clock, MonotonicClock, Recorder, UnitRef};
use crate::train::{Architecture, ModelSpec, OptimizerSpec, Precision, on_cpu};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

mod evaluation;

const IMAGES: usize = 30;
const BATCH: usize = 10;

/// A folder of pictures, the same in shards of either kind, and in a tar file.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { folder };
        let options = GenerateOptions {
            images: IMAGES,
            classes: 3,
            grey_fraction: 0.2,
            ..GenerateOptions::new(place.path("folder"))
        };
        generate(&options, &|_| {}).unwrap();
        for (name, raw) in [("encoded", None), ("raw", Some(256))] {
            place.pack("folder", name, raw, None);
        }
        place.write_tar();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pack(&self, source: &str, name: &str, raw: Option<u32>, shuffle: Option<u64>) {
        let request = PackRequest {
            source: &self.path(source),
            kind: None,
            target: &self.path(name),
            packed: raw.map_or(Packed::Stored, |longest| Packed::Raw { longest }),
            container: Container::Shards,
            shuffle,
            samples_per_shard: Some(12),
            jobs: Some(2),
            skip_bad: false,
        };
        request.pack(&|_, _| {}, &|| false).unwrap();
    }

    /// The folder as WebDataset has it: a picture, then its class.
    fn write_tar(&self) {
        let Catalog::Folder(folder) =
            Catalog::open(SourceKind::ImageFolder, &self.path("folder")).unwrap()
        else {
            unreachable!();
        };
        let mut tar = Vec::new();
        for i in 0..folder.len() {
            let picture = fs::read(folder.path(i)).unwrap();
            let class = folder.label(i).to_string();
            for (extension, content) in [("jpg", picture.as_slice()), ("cls", class.as_bytes())] {
                append(&mut tar, &format!("{i:06}.{extension}"), content);
            }
        }
        tar.extend([0; 1024]);
        fs::create_dir(self.path("tar")).unwrap();
        fs::write(self.path("tar/train-0.tar"), tar).unwrap();
    }

    fn resolved(&self, kind: &str, name: &str, sets: &[&str]) -> Resolved {
        let config = self.path("x.toml");
        fs::write(&config, "").unwrap();
        let mut all = vec![
            format!("source.kind={kind}"),
            format!("source.path={}", self.path(name).display()),
            "preprocess.size=64".to_owned(),
            // libjpeg-turbo's crops differ from whole pictures by rounding.
            "decode.decoder=image".to_owned(),
        ];
        all.extend(sets.iter().map(|set| (*set).to_owned()));
        Settings::load(&config, &all).unwrap().resolve().unwrap()
    }

    fn work(&self, kind: &str, name: &str, sets: &[&str]) -> Arc<ImageWork> {
        let pipeline = self.resolved(kind, name, sets).pipeline;
        let catalog = Catalog::open(pipeline.source.kind, &pipeline.source.path).unwrap();
        Arc::new(ImageWork::new(catalog, &pipeline, Order::Sequential, None).unwrap())
    }
}

/// A member of a tar file, as ustar has it.
fn append(tar: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    tar.extend(header);
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

/// Hands every batch over.
struct Keep(Arc<Mutex<Vec<HostBatch>>>);

impl HostToDevice for Keep {
    type Batch = ();

    fn copy(&mut self, batch: &mut HostBatch, _: UnitRef) -> Result<(), SampleError> {
        let mut kept = HostBatch::default();
        kept.data.extend_from_slice(&batch.data);
        kept.labels.clone_from(&batch.labels);
        kept.samples.clone_from(&batch.samples);
        (kept.number, kept.epoch) = (batch.number, batch.epoch);
        (kept.sample_bytes, kept.seed) = (batch.sample_bytes, batch.seed);
        self.0.lock().unwrap().push(kept);
        Ok(())
    }
}

fn plan_of(order: Order) -> Plan {
    Plan {
        layout: Layout::WholeBatch {
            num_workers: 2,
            prefetch_factor: 2,
        },
        copy: StageKnobs {
            workers: 0,
            prefetch: 2,
        },
        batch_size: BATCH,
        claim_size: 1,
        batches: 2 * (IMAGES / BATCH) as u64,
        drop_last: true,
        order,
        first_epoch: 0,
        first_batch: 0,
        share: Share::WHOLE,
        ordered: true,
        seed: 5,
        part: None,
        on_error: OnError::Fail,
        keep: None,
    }
}

/// The batches of two epochs.
fn batches(work: &Arc<ImageWork>, order: Order) -> Vec<HostBatch> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let (plan, recorder) = (plan_of(order), Recorder::off());
    let keep = Keep(kept.clone());
    let mut feed = start(&plan, work.clone(), keep, &clock, &recorder, &stop).unwrap();
    while feed.next().unwrap().is_some() {}
    feed.shut_down();
    Arc::into_inner(kept)
        .map(|kept| kept.into_inner().unwrap())
        .unwrap_or_default()
}

fn bytes(batches: &[HostBatch]) -> Vec<(&[u8], &[u32])> {
    batches
        .iter()
        .map(|batch| (batch.bytes(), &batch.labels[..]))
        .collect()
}

#[test]
fn every_format_and_read_mode_gives_the_same_batches() {
    let place = Place::new();
    let folder = batches(&place.work("image-folder", "folder", &[]), Order::Random);
    assert_eq!(folder.len(), 6);
    assert_ne!(folder[0].bytes(), folder[3].bytes());
    for (kind, name) in [
        ("image-folder", "folder"),
        ("shard", "encoded"),
        ("webdataset", "tar"),
    ] {
        for mode in ["mmap", "pread", "ram"] {
            let mode = format!("read.method={mode}");
            let work = place.work(kind, name, &[&mode]);
            let same = batches(&work, Order::Random);
            assert!(bytes(&same) == bytes(&folder), "{kind}, {mode}");
        }
    }
    // What is not decoded makes no difference to what is.
    for crop in ["random-resized", "center"] {
        let crop = format!("preprocess.crop={crop}");
        let [whole, part] = ["whole", "crop"].map(|part| {
            let part = format!("decode.part={part}");
            let work = place.work("image-folder", "folder", &[&crop, &part]);
            batches(&work, Order::Random)
        });
        assert!(bytes(&whole) == bytes(&part), "{crop}");
    }
    // Raw pixels are resized twice: they are close, as far as the crop is the same.
    let centre = ["preprocess.crop=center", "preprocess.flip=0"];
    let folder = batches(
        &place.work("image-folder", "folder", &centre),
        Order::Random,
    );
    let raw = batches(&place.work("shard", "raw", &centre), Order::Random);
    let floats: Vec<Vec<f32>> = raw
        .iter()
        .map(|batch| batch.floats().unwrap().to_vec())
        .collect();
    let (_, mean) = difference(&folder, &floats);
    assert!(mean < 0.1, "{mean}");
    for (raw, folder) in raw.iter().zip(&folder) {
        assert_eq!(raw.labels, folder.labels);
    }
}

#[test]
fn shards_packed_in_random_order_hold_every_sample_once() {
    let place = Place::new();
    place.pack("tar", "mixed", None, Some(3));
    let mut order = batches(&place.work("shard", "mixed", &[]), Order::Sequential);
    order.truncate(3);
    let labels: Vec<u32> = order
        .iter()
        .flat_map(|batch| batch.labels.clone())
        .collect();
    assert_ne!(labels, {
        let mut sorted = labels.clone();
        sorted.sort_unstable();
        sorted
    });
    for class in 0..3 {
        assert_eq!(
            labels.iter().filter(|label| **label == class).count(),
            IMAGES / 3
        );
    }
}

#[test]
fn a_damaged_record_loses_itself_alone() {
    let place = Place::new();
    let file = place.path("raw/data-00001-of-00003.shard");
    let Catalog::Shards(shards) = Catalog::open(SourceKind::Shard, &place.path("raw")).unwrap()
    else {
        unreachable!();
    };
    let mut content = fs::read(&file).unwrap();
    content[shards.record(17).entry.offset as usize + 1000] ^= 1;
    fs::write(&file, content).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    for mode in ["mmap", "pread", "ram"] {
        let work = place.work("shard", "raw", &[&format!("read.method={mode}")]);
        let plan = Plan {
            on_error: OnError::Skip,
            ..plan_of(Order::Sequential)
        };
        let mut feed = start(&plan, work, Discard, &clock, &Recorder::off(), &stop).unwrap();
        let mut samples = 0;
        while let Some(delivered) = feed.next().unwrap() {
            samples += delivered.samples;
        }
        feed.shut_down();
        assert_eq!(samples, 2 * IMAGES - 2, "once an epoch");
        let skipped = serde_json::to_string(&feed.skipped()).unwrap();
        assert!(
            skipped.contains("record 5 of data-00001-of-00003.shard"),
            "{skipped}"
        );
        assert!(skipped.contains("data verify"), "{skipped}");
    }
}

/// Indices of the samples that a run over `part` skips, and how often in all.
fn skipped_of(work: &Arc<ImageWork>, part: Vec<u32>, batches: u64) -> (Vec<u32>, u64) {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let plan = Plan {
        on_error: OnError::Skip,
        batch_size: part.len().min(BATCH),
        batches,
        part: Some(part.into()),
        ..plan_of(Order::Sequential)
    };
    let work = work.clone();
    let mut feed = start(&plan, work, Discard, &clock, &Recorder::off(), &stop).unwrap();
    while let Ok(Some(_)) = feed.next() {}
    feed.shut_down();
    let skipped = feed.skipped();
    let mut listed: Vec<u32> = skipped.listed.iter().map(|of| of.sample as u32).collect();
    listed.sort_unstable();
    (listed, skipped.count)
}

/// Pages that cannot be read under a mapped file of many samples, later ones can.
#[test]
fn a_lost_page_costs_the_samples_on_it_and_no_others() {
    const PAGE: u64 = 4096;
    const LOST: usize = 7;
    let place = Place::new();
    for (kind, name, file) in [
        ("webdataset", "tar", "tar/train-0.tar"),
        ("shard", "encoded", "encoded/data-00000-of-00003.shard"),
    ] {
        let work = place.work(kind, name, &["read.method=mmap"]);
        let extents: Vec<(u64, u64)> = (0..12)
            .map(|i| match work.catalog() {
                Catalog::Indexed(index) => (index.location(i).offset, index.location(i).bytes),
                other => {
                    let entry = other.record(i).unwrap().entry;
                    (entry.offset, entry.bytes.into())
                }
            })
            .collect();
        let pages = |i: usize| {
            let (offset, bytes) = extents[i];
            (offset / PAGE, (offset + bytes - 1) / PAGE)
        };
        let (first, last) = pages(LOST);
        let on_them = |i: &usize| pages(*i).0 <= last && pages(*i).1 >= first;
        let hit: Vec<u32> = (0..12).filter(on_them).map(|i| i as u32).collect();
        assert!(hit.contains(&(LOST as u32)) && hit.len() < 5, "{hit:?}");
        // The file is cut under the map, one sample is read, and the file is what it was.
        let path = place.path(file);
        let content = fs::read(&path).unwrap();
        let opened = fs::File::options().write(true).open(&path).unwrap();
        opened.set_len(first * PAGE).unwrap();
        assert_eq!(
            skipped_of(&work, vec![LOST as u32], 1),
            (vec![LOST as u32], 1)
        );
        fs::write(&path, content).unwrap();
        let all = (0..12).collect();
        assert_eq!(
            skipped_of(&work, all, 2),
            (hit.clone(), 2 * hit.len() as u64),
            "{kind}"
        );
    }
}

#[test]
fn a_huge_picture_leaves_no_huge_buffer() {
    let place = Place::new();
    let huge = image::RgbImage::from_pixel(4000, 3000, image::Rgb([9, 8, 7]));
    let class = fs::read_dir(place.path("folder")).unwrap();
    let class = class.flatten().find(|entry| entry.path().is_dir()).unwrap();
    huge.save(class.path().join("zzz.png")).unwrap();
    for mode in ["read.method=mmap", "read.method=pread"] {
        let work = place.work("image-folder", "folder", &[mode, "num_workers=2"]);
        let is_huge = |i: &u32| work.catalog().name(*i as usize).ends_with("zzz.png");
        let (huge, others): (Vec<u32>, Vec<u32>) = (0..31).partition(|i| is_huge(i));
        assert_eq!(skipped_of(&work, huge, 4), (vec![], 0));
        assert!(work.spare.held() > 36_000_000, "{}", work.spare.held());
        assert_eq!(skipped_of(&work, others, 15), (vec![], 0));
        assert!(work.spare.held() < 10 << 20, "{}", work.spare.held());
    }
}

/// What a trainer's device makes of the batches of `work`.
fn on_the_device(work: &Arc<ImageWork>) -> Vec<Vec<f32>> {
    let spec = ModelSpec {
        architecture: Architecture::Linear,
        input: work.shape(),
        classes: 3,
        optimizer: OptimizerSpec::Sgd { momentum: 0.0 },
        learning_rate: 0.1,
        precision: Precision::F32,
        seed: 0,
    };
    let trainer = on_cpu(&spec, work.on_device()).unwrap();
    let mut copy = trainer.copy(0);
    let copied = batches(work, Order::Random).into_iter().map(|mut batch| {
        let copied = copy.copy(&mut batch, UnitRef::NONE).unwrap();
        trainer.images(copied).unwrap()
    });
    copied.collect()
}

/// Largest and mean absolute difference.
fn difference(host: &[HostBatch], device: &[Vec<f32>]) -> (f32, f32) {
    let (mut most, mut sum, mut count) = (0f32, 0f64, 0);
    for (host, device) in host.iter().zip(device) {
        let host = host.floats().unwrap();
        assert_eq!(host.len(), device.len());
        for (a, b) in host.iter().zip(device) {
            most = most.max((a - b).abs());
            sum += f64::from((a - b).abs());
            count += 1;
        }
    }
    (most, (sum / f64::from(count)) as f32)
}

/// The host crops and resizes decoded pictures; flip and normalisation are the same arithmetic on both sides.
#[test]
fn pictures_finished_on_the_device_are_the_same() {
    let place = Place::new();
    for crop in ["random-resized", "center"] {
        let crop = format!("preprocess.crop={crop}");
        let host = place.work("image-folder", "folder", &[&crop]);
        let device = place.work("image-folder", "folder", &[&crop, "preprocess.on=device"]);
        assert_eq!(host.sample_bytes(), 4 * device.sample_bytes());
        let (most, _) = difference(&batches(&host, Order::Random), &on_the_device(&device));
        assert!(most < 1e-3, "{crop}: {most}");
    }
}

/// The device crops and resizes raw pixels without rounding to 8 bits between the passes: half a level in each,
/// 1 / 255 / 0.225 = 0.0174 in all.
#[test]
fn pictures_cropped_on_the_device_are_close() {
    let place = Place::new();
    for crop in ["random-resized", "center"] {
        let crop = format!("preprocess.crop={crop}");
        let host = place.work("shard", "raw", &[&crop]);
        let device = place.work("shard", "raw", &[&crop, "preprocess.on=device"]);
        let (most, mean) = difference(&batches(&host, Order::Random), &on_the_device(&device));
        assert!(most < 0.04 && mean < 0.006, "{crop}: {most}, {mean}");
    }
}

#[test]
fn the_page_cache_is_looked_at() {
    use super::super::cache::CacheWatch;
    let place = Place::new();
    let files = |name: &str| vec![place.path(name)];
    let shard = "encoded/data-00000-of-00003.shard";
    let warm = CacheWatch::prepare(CacheConfig::Warm, files(shard))
        .unwrap()
        .unwrap();
    assert_eq!(warm.report.epochs[0].resident_share, 1.0);
    let cold = CacheWatch::prepare(CacheConfig::Cold, files(shard))
        .unwrap()
        .unwrap();
    assert_eq!(cold.report.asked, "cold");
    assert!(
        CacheWatch::prepare(CacheConfig::Cold, Vec::new())
            .unwrap()
            .is_none()
    );
    let absent = CacheWatch::prepare(CacheConfig::Cold, files("absent"))
        .err()
        .unwrap();
    assert!(absent.to_string().contains("absent"), "{absent}");
}

#[test]
fn a_folder_that_could_be_either_is_not_guessed() {
    let place = Place::new();
    fs::write(place.path("folder/n01.tar"), [0; 1024]).unwrap();
    let request = PackRequest {
        source: &place.path("folder"),
        kind: None,
        target: &place.path("either"),
        packed: Packed::Stored,
        container: Container::Shards,
        shuffle: None,
        samples_per_shard: None,
        jobs: None,
        skip_bad: false,
    };
    let refused = request.pack(&|_, _| {}, &|| false).err().unwrap();
    assert!(
        refused.to_string().contains("--from webdataset"),
        "{refused}"
    );
    let folder = PackRequest {
        kind: Some(SourceKind::ImageFolder),
        ..request
    };
    let (packed, warnings) = folder.pack(&|_, _| {}, &|| false).unwrap();
    assert_eq!((packed.records, warnings.len()), (IMAGES as u64, 0));
}

/// A set of shards is the same wherever it was packed from.
#[test]
fn packing_goes_on_under_another_path() {
    let place = Place::new();
    place.pack("tar", "from-tar", None, None);
    fs::rename(place.path("tar"), place.path("moved")).unwrap();
    let request = PackRequest {
        source: &place.path("moved"),
        kind: None,
        target: &place.path("from-tar"),
        packed: Packed::Stored,
        container: Container::Shards,
        shuffle: None,
        samples_per_shard: Some(12),
        jobs: Some(1),
        skip_bad: false,
    };
    let (summary, _) = request.pack(&|_, _| {}, &|| false).unwrap();
    assert_eq!(summary.outcome, PackOutcome::AlreadyThere);
}
