//! A pipeline of your own: texts of very different length, that are fetched, tokenized and padded.
//!
//!     cargo run --release -p stallscope-core --example text [TRACE.json]
//!
//! Fetching waits as for a network, tokenizing computes in two named parts. The first run says which stage starves the loop.
//! What it measured predicts other settings, which are then run: 1 to 4 workers that fetch, and 3 that make whole batches.
//! However many workers there are, few texts are in memory. The trace of the first run opens in Perfetto.

use stallscope_core::loader::{LoaderBuilder, Predictor, source};
use stallscope_core::part;
use stallscope_core::pipeline::SampleKey;
use stallscope_core::report::{Report, render};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Tokens of each text of a batch, all as many.
type Batch = Vec<Vec<u32>>;

/// Texts that are fetched and not yet trained on, and the most there were.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST_HELD: AtomicUsize = AtomicUsize::new(0);

/// From 20 to 1,000 words, most of them short texts.
fn text(key: SampleKey) -> String {
    let mut hasher = DefaultHasher::new();
    key.index.hash(&mut hasher);
    let draw = hasher.finish();
    let words = 20 * 100f64.powf((draw % 1_000) as f64 / 1_000.0) as usize / 2;
    let word = |place: usize| format!("w{}", (draw >> (place % 48)) % 5_000);
    (0..words.max(20)).map(word).collect::<Vec<_>>().join(" ")
}

/// A number for each word, the same every time.
fn tokens(text: &str) -> Vec<u32> {
    let words: Vec<&str> = {
        let _split = part("split");
        text.split(' ').collect()
    };
    let _merge = part("merge");
    let number = |word: &&str| {
        let mut hasher = DefaultHasher::new();
        // Some rounds, as the merges of a real tokenizer take.
        (0..8).for_each(|round| (word, round).hash(&mut hasher));
        (hasher.finish() % 32_000) as u32
    };
    words.iter().map(number).collect()
}

fn pipeline() -> LoaderBuilder<Batch> {
    source("fetch", 4_000, |key| {
        let held = 1 + HELD.fetch_add(1, Ordering::Relaxed);
        MOST_HELD.fetch_max(held, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(4));
        Ok(text(key))
    })
    .then("tokenize", |_, text: String| Ok(tokens(&text)))
    .parts(&["split", "merge"])
    .collate(|mut texts: Batch| {
        let longest = texts.iter().map(Vec::len).max().unwrap_or_default();
        texts.iter_mut().for_each(|text| text.resize(longest, 0));
        Ok(texts)
    })
    .batch_size(16)
    .warmup_steps(8)
    .steps(48)
}

/// What came of a run: its report, and how many texts were held at once, of how many there was room for.
struct Run {
    report: Report,
    held: usize,
    room: usize,
}

/// The loop that trains, here for 0.75 ms a text.
fn train(builder: LoaderBuilder<Batch>) -> Result<Run, Box<dyn Error>> {
    HELD.store(0, Ordering::Relaxed);
    MOST_HELD.store(0, Ordering::Relaxed);
    let mut loader = builder.start()?;
    // With the batch that is trained on.
    let room = loader.samples_at_most() + 16;
    while let Some(batch) = loader.next() {
        let batch = batch?;
        loader.step(|| {
            let began = Instant::now();
            let sum: u64 = batch.iter().flatten().map(|token| u64::from(*token)).sum();
            std::hint::black_box(sum);
            let length = Duration::from_micros(750) * batch.len() as u32;
            std::thread::sleep(length.saturating_sub(began.elapsed()));
        });
        HELD.fetch_sub(batch.len(), Ordering::Relaxed);
    }
    Ok(Run {
        report: loader.finish(),
        held: MOST_HELD.load(Ordering::Relaxed),
        room,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut first = pipeline();
    if let Some(trace) = std::env::args().nth(1) {
        first = first.trace(trace);
    }
    let Run { report, held, room } = train(first)?;
    print!("{}", render(&report));
    let predictor = Predictor::from_report(&report)?;
    println!(
        "\n{:16} {:>9} {:>18} {:>8} {:>6}  texts in memory",
        "samples/s", "predicted", "interval", "measured", "error"
    );
    let measured = report.samples_per_second;
    println!(
        "{:53.0} {:>6}  at most {held}, room for {room}",
        measured, ""
    );
    type Change = fn(LoaderBuilder<Batch>) -> LoaderBuilder<Batch>;
    let settings: [(&str, Change); 4] = [
        ("fetch.workers=2", |builder| builder.workers("fetch", 2)),
        ("fetch.workers=3", |builder| builder.workers("fetch", 3)),
        ("fetch.workers=4", |builder| builder.workers("fetch", 4)),
        ("num_workers=3", |builder| builder.num_workers(3)),
    ];
    for (set, change) in settings {
        let rate = predictor.predict(&[set])?.samples_per_second;
        let Run { report, held, room } = train(change(pipeline()))?;
        let measured = report.samples_per_second;
        let error = 100.0 * (rate.value / measured - 1.0).abs();
        println!(
            "{set:16} {:9.0} {:7.0} .. {:7.0} {measured:8.0} {error:4.1} %  at most {held}, room for {room}",
            rate.value, rate.low, rate.high
        );
    }
    let without = predictor.predict(&["fetch.cost=0.25"])?.samples_per_second;
    println!("if a fetch took a quarter: {:.0} samples/s", without.value);
    Ok(())
}
