#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope_fuzz::checks;
use std::sync::Once;

static CAUGHT: Once = Once::new();

fuzz_target!(|bytes: &[u8]| {
    // A panic in the `parquet` crate is caught where it is called, so a panic does not end the run here; one that nobody
    // catches still does.
    CAUGHT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    checks::parquet(bytes);
});
