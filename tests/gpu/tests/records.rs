//! The program's own CUPTI client on the stand-in: what it reads is what was launched.

use libloading::Library;
use stallscope_core::timeline::{Clock, MonotonicClock};
use stallscope_device::cupti::{Activity, Cupti, WorkKind};
use stallscope_stand_in_gpu::settings::{Settings, VARIABLE};
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr::null;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KERNELS: usize = 300_000;
const NS: u64 = 2_000;
const EMPTY: &CStr =
    c".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n";

type Launch = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    usize,
    *const *const c_void,
    *const *const c_void,
) -> u32;

/// Calls a function of the library that takes these arguments, which must succeed.
macro_rules! call {
    ($library:expr, $name:literal, $($argument:expr => $type:ty),*) => {{
        // SAFETY: the function has these parameters.
        let status = unsafe {
            let function = $library.get::<unsafe extern "C" fn($($type),*) -> u32>($name).unwrap();
            function($($argument),*)
        };
        assert_eq!(status, 0);
    }};
}

/// At 100,000 kernels a second, for three seconds.
#[test]
fn no_record_of_many_kernels_is_lost() {
    let settings = Settings {
        kernel_ns: NS,
        checks: false,
        ..Settings::default()
    };
    let file = std::env::temp_dir().join(format!("stand-in-records-{}.json", std::process::id()));
    std::fs::write(&file, serde_json::to_vec(&settings).unwrap()).unwrap();
    // SAFETY: the only test of this process.
    unsafe { std::env::set_var(VARIABLE, &file) };
    let path: PathBuf = std::env::current_exe().unwrap();
    let path = path.with_file_name("libstallscope_stand_in_gpu.so");
    // SAFETY: the library's initialisers have no preconditions.
    let library = unsafe { Library::new(&path) }.unwrap();

    let (mut context, mut module, mut kernel, mut stream) = (0, 0, 0, 0);
    call!(library, b"cuInit", 0 => u32);
    call!(library, b"cuDevicePrimaryCtxRetain", &mut context => *mut usize, 0 => i32);
    call!(library, b"cuCtxSetCurrent", context => usize);
    call!(library, b"cuModuleLoadData", &mut module => *mut usize, EMPTY.as_ptr() => *const c_char);
    call!(library, b"cuModuleGetFunction", &mut kernel => *mut usize, module => usize, c"empty".as_ptr() => *const c_char);
    call!(library, b"cuStreamCreate", &mut stream => *mut usize, 1 => u32);

    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let mut recording = Cupti::open(&path).unwrap().record(clock.clone()).unwrap();
    let launcher = std::thread::spawn(move || {
        call!(library, b"cuCtxSetCurrent", context => usize);
        // SAFETY: the function has this type.
        let launch = unsafe { *library.get::<Launch>(b"cuLaunchKernel").unwrap() };
        let began = Instant::now();
        for number in 0..KERNELS {
            while began.elapsed() < Duration::from_micros(10) * number as u32 {
                std::hint::spin_loop();
            }
            // SAFETY: the kernel takes nothing.
            let status = unsafe { launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, null(), null()) };
            assert_eq!(status, 0);
        }
        call!(library, b"cuStreamSynchronize", stream => usize);
        began.elapsed()
    });
    let (mut kernels, mut calls, mut backwards, mut last) = (0, 0, 0, 0);
    let mut take = |activity: Activity| match activity {
        Activity::Work(work) => {
            assert_eq!(work.interval.end.0 - work.interval.start.0, NS);
            kernels += u64::from(matches!(work.kind, WorkKind::Kernel { .. }));
            backwards += u64::from(work.interval.start.0 < last);
            last = work.interval.end.0;
        }
        Activity::Call(_) => calls += 1,
    };
    // As often as a run asks.
    while !launcher.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        recording.poll(true, &mut take);
    }
    let took = launcher.join().unwrap();
    recording.finish(&mut take);
    assert_eq!((kernels, calls), (KERNELS as u64, KERNELS as u64));
    assert_eq!((recording.count().lost(), backwards), (0, 0));
    println!(
        "{:.0} kernels a second",
        KERNELS as f64 / took.as_secs_f64()
    );
    std::fs::remove_file(file).ok();
}
