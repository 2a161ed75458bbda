#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope_fuzz::checks;

fuzz_target!(|bytes: &[u8]| {
    checks::mds(bytes);
});
