//! A device that works beside the loop: it has a queue and a thread of its own, and tells when it has done what it was given.
//!
//!     cargo run --release -p stallscope-core --example async_device [TRACE.json]
//!
//! The loop only hands over, runs up to two steps ahead, and never waits for a result. First one worker parses, too slow for
//! the device; then three do, and the device is the limit. The trace of the first run opens in Perfetto.

use stallscope_core::loader::{LoaderBuilder, Submitted, source};
use stallscope_core::report::{Report, render};
use std::error::Error;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

type Batch = Vec<u64>;

/// Samples that take 0.2 ms to read and 1 ms to parse.
fn pipeline() -> LoaderBuilder<Batch> {
    source("read", 5_000, |key| {
        std::thread::sleep(Duration::from_micros(200));
        Ok(u64::from(key.index))
    })
    .then("parse", |_, number| {
        std::thread::sleep(Duration::from_millis(1));
        Ok(number * number)
    })
    .collate(Ok)
    .batch_size(8)
    .warmup_steps(5)
    .steps(150)
    .device("accelerator")
}

/// The device: it takes 4 ms for each batch, one after another. Whoever has a GPU has a callback instead, or asks its
/// events; both may come late, as they say when the work began and ended.
fn compute(queue: &Receiver<(Batch, Submitted)>) {
    for (batch, submitted) in queue {
        let began = submitted.now();
        std::hint::black_box(batch.iter().sum::<u64>());
        std::thread::sleep(Duration::from_millis(4));
        let ended = submitted.now();
        submitted.ran(began..ended);
    }
}

fn train(builder: LoaderBuilder<Batch>) -> Result<Report, Box<dyn Error>> {
    let mut loader = builder.start()?;
    let (give, queue) = channel();
    let device = std::thread::spawn(move || compute(&queue));
    while let Some(batch) = loader.next() {
        let batch = batch?;
        give.send((batch, loader.submit("accelerator")?))?;
        loader.wait_for_room(2);
    }
    loader.wait_for_room(0);
    drop(give);
    device.join().map_err(|_| "the device panicked")?;
    Ok(loader.finish())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut first = pipeline();
    if let Some(trace) = std::env::args().nth(1) {
        first = first.trace(trace);
    }
    println!("{}", render(&train(first)?));
    print!("{}", render(&train(pipeline().workers("parse", 3))?));
    Ok(())
}
