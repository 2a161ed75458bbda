//! What the loader allocates once it runs: nothing for a sample, but what decoder and resizer allocate by themselves,
//! which is printed. Counted by the program's own allocator, so this file has one test.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x4;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use stallscope::config::{Settings, SourceKind};
use stallscope::data::shard::Container;
use stallscope::data::stages::decode::{DecodeOptions, Decoder, Input, RgbBuffer};
use stallscope::data::{GenerateOptions, generate};
use stallscope::pipeline::sampler::{Order, Share};
use stallscope::pipeline::{Discard, Layout, OnError, Plan, StageKnobs, StopSignal, start};
use stallscope::session::{Catalog, ImageWork, PackRequest, Packed};
use stallscope::timeline::{Clock, MonotonicClock, Recorder};
use std::alloc::{GlobalAlloc, Layout as Shape, System};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the count is beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, shape: Shape) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(shape) }
    }
    unsafe fn dealloc(&self, at: *mut u8, shape: Shape) {
        unsafe { System.dealloc(at, shape) }
    }
    unsafe fn alloc_zeroed(&self, shape: Shape) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc_zeroed(shape) }
    }
    unsafe fn realloc(&self, at: *mut u8, shape: Shape, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(at, shape, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const IMAGES: usize = 64;
/// Of a preprocessed image, in pixels.
const SIDE: u32 = 64;

fn layouts() -> [Layout; 2] {
    let stage = StageKnobs {
        workers: 1,
        prefetch: 4,
    };
    [
        Layout::WholeBatch {
            num_workers: 2,
            prefetch_factor: 2,
        },
        Layout::PerStage {
            samples: vec![stage, stage, stage],
            batch: stage,
        },
    ]
}

/// Allocations of a whole run of `epochs` epochs, with batches of `size`.
fn allocations(work: &Arc<ImageWork>, layout: Layout, size: usize, epochs: u64) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let per_epoch = (IMAGES / size) as u64;
    let plan = Plan {
        layout,
        copy: StageKnobs {
            workers: 1,
            prefetch: 2,
        },
        batch_size: size,
        claim_size: 1,
        batches: epochs * per_epoch,
        drop_last: true,
        order: Order::Random,
        first_epoch: 0,
        first_batch: 0,
        share: Share::WHOLE,
        ordered: true,
        seed: 0,
        part: None,
        on_error: OnError::Fail,
        keep: None,
    };
    let recorder = Recorder::new();
    let mut feed = start(&plan, work.clone(), Discard, &clock, &recorder, &stop).unwrap();
    for _ in 0..epochs * per_epoch {
        feed.next().unwrap().unwrap();
    }
    feed.shut_down();
    drop(feed);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// What a sample allocates, and what a batch does: from what a long run allocates more than a short one, with
/// batches of 8 and of 32.
fn per_sample_and_batch(work: &Arc<ImageWork>, layout: Layout) -> (f64, f64) {
    let [short, long] = [2, 8];
    let samples = ((long - short) as usize * IMAGES) as f64;
    // Buffers that a run happens to need more of.
    allocations(work, layout.clone(), 32, long);
    let [small, large] = [8, 32].map(|size| {
        let more = |_| {
            let short = allocations(work, layout.clone(), size, short);
            allocations(work, layout.clone(), size, long) as f64 - short as f64
        };
        (0..2).map(more).fold(f64::MAX, f64::min) / samples
    });
    let batch = (small - large) / (1.0 / 8.0 - 1.0 / 32.0);
    (large - batch / 32.0, batch)
}

fn work(folder: &Path, kind: &str, name: &str, mode: &str, on: &str) -> Arc<ImageWork> {
    let config = folder.join("x.toml");
    fs::write(&config, "").unwrap();
    let path = folder.join(name);
    let sets = [
        format!("source.kind={kind}"),
        format!("source.path={}", path.display()),
        format!("preprocess.size={SIDE}"),
        format!("preprocess.on={on}"),
        format!("read.method={mode}"),
        "num_workers=2".to_owned(),
        // Whose own allocations are known.
        "decode.decoder=image".to_owned(),
    ];
    let pipeline = Settings::load(&config, &sets)
        .unwrap()
        .resolve()
        .unwrap()
        .pipeline;
    let catalog = Catalog::open(pipeline.source.kind, &path).unwrap();
    Arc::new(ImageWork::new(catalog, &pipeline, Order::Random, None).unwrap())
}

/// What the decoder allocates for an image of the folder, by itself.
fn decoders_own(folder: &Path) -> f64 {
    let Catalog::Folder(folder) = Catalog::open(SourceKind::ImageFolder, folder).unwrap() else {
        unreachable!();
    };
    let files: Vec<Vec<u8>> = (0..folder.len())
        .map(|i| fs::read(folder.path(i)).unwrap())
        .collect();
    let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
    let mut image = RgbBuffer::default();
    let mut all = |image: &mut RgbBuffer| {
        for bytes in &files {
            let input = Input {
                bytes,
                private: true,
            };
            decoder.decode(input, |_, _| None, image).unwrap();
        }
    };
    all(&mut image);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    all(&mut image);
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / files.len() as f64
}

/// What the resizer allocates for an image, by itself.
fn resizers_own() -> f64 {
    let pixels = vec![7; 96 * 72 * 4];
    let source = TypedImageRef::<U8x4>::from_buffer(96, 72, &pixels).unwrap();
    let mut target = vec![0; (SIDE * SIDE * 4) as usize];
    let mut resizer = Resizer::new();
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .use_alpha(false);
    let mut resize = |times: u64| {
        for _ in 0..times {
            let mut target = TypedImage::<U8x4>::from_buffer(SIDE, SIDE, &mut target).unwrap();
            let part = TypedCroppedImage::from_ref(&source, 3, 4, 90, 60).unwrap();
            resizer.resize_typed(&part, &mut target, &options).unwrap();
        }
    };
    resize(2);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    resize(10);
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / 10.0
}

#[test]
fn a_sample_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        images: IMAGES,
        classes: 2,
        ..GenerateOptions::new(folder.path().join("folder"))
    };
    generate(&options, &|_| {}).unwrap();
    let request = PackRequest {
        source: &options.out,
        kind: None,
        target: &folder.path().join("raw"),
        packed: Packed::Raw { longest: 96 },
        container: Container::Shards,
        shuffle: None,
        samples_per_shard: None,
        jobs: None,
        skip_bad: false,
    };
    request.pack(&|_, _| {}, &|| false).unwrap();
    let (decoder, resizer) = (decoders_own(&options.out), resizers_own());
    println!(
        "by themselves, an image: the image crate {decoder:.1} allocations, fast_image_resize {resizer:.1}"
    );
    for (kind, name, mode, on, own) in [
        ("shard", "raw", "mmap", "device", 0.0),
        ("shard", "raw", "pread", "device", 0.0),
        ("shard", "raw", "ram", "device", 0.0),
        ("shard", "raw", "mmap", "host", resizer),
        ("image-folder", "folder", "mmap", "host", decoder + resizer),
        ("image-folder", "folder", "pread", "host", decoder + resizer),
    ] {
        let work = work(folder.path(), kind, name, mode, on);
        for layout in layouts() {
            let (sample, batch) = per_sample_and_batch(&work, layout.clone());
            println!("{kind}, {mode}, {on}: {sample:.3} a sample, {batch:.1} a batch; {layout:?}");
            // Crops that need one pass only, and pictures whose decoding takes one more.
            let near = if own == 0.0 { 0.1 } else { 0.02 * own };
            let apart = (sample - own).abs();
            assert!(
                apart < near,
                "{kind}, {mode}, {on}, {layout:?}: {sample} and not {own}"
            );
        }
    }
}
