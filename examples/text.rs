//! A pipeline of your own: texts of very different length, that are fetched, tokenized and padded.
//!
//!     cargo run --release -p stallscope-core --example text [TRACE.json]
//!
//! Fetching waits as for a network, tokenizing computes. The first run says which stage starves the loop. What it
//! measured predicts four other settings, which are then run. The trace of the first run opens in Perfetto.

use stallscope_core::loader::{LoaderBuilder, Predictor, source};
use stallscope_core::pipeline::SampleKey;
use stallscope_core::report::{Report, render};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Tokens of each text of a batch, all as many.
type Batch = Vec<Vec<u32>>;

/// From 20 to 2,000 words, most of them short texts.
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
    let number = |word: &str| {
        let mut hasher = DefaultHasher::new();
        // Some rounds, as the merges of a real tokenizer take.
        (0..8).for_each(|round| (word, round).hash(&mut hasher));
        (hasher.finish() % 32_000) as u32
    };
    text.split(' ').map(number).collect()
}

fn pipeline() -> LoaderBuilder<Batch> {
    source("fetch", 4_000, |key| {
        std::thread::sleep(Duration::from_millis(4));
        Ok(text(key))
    })
    .then("tokenize", |_, text: String| Ok(tokens(&text)))
    .collate(|mut texts: Batch| {
        let longest = texts.iter().map(Vec::len).max().unwrap_or_default();
        texts.iter_mut().for_each(|text| text.resize(longest, 0));
        Ok(texts)
    })
    .batch_size(16)
    .warmup_steps(10)
    .steps(150)
}

/// The loop that trains, here for 0.75 ms a text.
fn train(builder: LoaderBuilder<Batch>) -> Result<Report, Box<dyn Error>> {
    let mut loader = builder.start()?;
    while let Some(batch) = loader.next() {
        let batch = batch?;
        loader.step(|| {
            let began = Instant::now();
            let sum: u64 = batch.iter().flatten().map(|token| u64::from(*token)).sum();
            std::hint::black_box(sum);
            let length = Duration::from_micros(750) * batch.len() as u32;
            std::thread::sleep(length.saturating_sub(began.elapsed()));
        });
    }
    Ok(loader.finish())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut first = pipeline().workers("fetch", 1);
    if let Some(trace) = std::env::args().nth(1) {
        first = first.trace(trace);
    }
    let report = train(first)?;
    print!("{}", render(&report));
    let predictor = Predictor::from_report(&report)?;
    println!(
        "\n{:34} {:>9}  {:>20}  {:>8}",
        "samples/s", "predicted", "interval", "measured"
    );
    type Change = fn(LoaderBuilder<Batch>) -> LoaderBuilder<Batch>;
    let settings: [(&[&str], Change); 4] = [
        (&["fetch.workers=2"], |builder| builder.workers("fetch", 2)),
        (&["fetch.workers=4"], |builder| builder.workers("fetch", 4)),
        (&["num_workers=3"], |builder| builder.num_workers(3)),
        (&["num_workers=4", "batch.size=8"], |builder| {
            builder.num_workers(4).batch_size(8)
        }),
    ];
    for (sets, change) in settings {
        let rate = predictor.predict(sets)?.samples_per_second;
        let measured = train(change(pipeline()))?.samples_per_second;
        println!(
            "{:34} {:9.0}  {:8.0} .. {:8.0}  {measured:8.0}",
            sets.join(" "),
            rate.value,
            rate.low,
            rate.high
        );
    }
    Ok(())
}
