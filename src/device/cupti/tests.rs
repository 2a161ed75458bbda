use super::decode::{KIND_RUNTIME, decode};
use super::synthetic::{Buffer, CUDA_11_8, CUDA_12_9, CUDA_13_5, DEVICE};
use super::*;
use super::{functions, library};
use stallscope_core::timeline::{Interval, MonotonicClock, Nanos};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn interval(start: u64, end: u64) -> Interval {
    Interval::new(Nanos(start), Nanos(end))
}

#[test]
fn records_of_every_known_cuda_are_read() {
    for layout in [CUDA_11_8, CUDA_12_9, CUDA_13_5] {
        let mut buffer = Buffer::new(layout);
        buffer.call(307, [5, 8], 77, 1);
        buffer.kernel("matmul", [10, 25], 7, 1);
        buffer.copy([1, 2, 3], 4096, [11, 19], 13, 2);
        buffer.copy([2, 3, 1], 8, [26, 27], 7, 3);
        buffer.copy([8, 3, 3], 64, [28, 29], 7, 4);
        buffer.set(512, [30, 31], 7, 5);
        let (activities, count) = buffer.read();
        let work = |kind, times, stream, correlation| {
            Activity::Work(DeviceWork {
                kind,
                interval: times,
                device: DEVICE,
                stream,
                correlation,
            })
        };
        let copy = |direction, bytes, host| WorkKind::Copy {
            direction,
            bytes,
            host,
        };
        let expected = [
            Activity::Call(ApiCall {
                api: Api::Driver,
                function: 307,
                interval: interval(5, 8),
                thread: 77,
                correlation: 1,
            }),
            work(
                WorkKind::Kernel {
                    name: "matmul".into(),
                },
                interval(10, 25),
                7,
                1,
            ),
            work(
                copy(Direction::HostToDevice, 4096, HostMemory::Pinned),
                interval(11, 19),
                13,
                2,
            ),
            work(
                copy(Direction::DeviceToHost, 8, HostMemory::Pageable),
                interval(26, 27),
                7,
                3,
            ),
            work(
                copy(Direction::OnDevice, 64, HostMemory::Unknown),
                interval(28, 29),
                7,
                4,
            ),
            work(WorkKind::Set { bytes: 512 }, interval(30, 31), 7, 5),
        ];
        assert_eq!(activities, expected, "{layout:?}");
        assert_eq!((count.read, count.lost()), (6, 0));
    }
}

#[test]
fn records_without_a_time_or_of_another_kind_are_counted() {
    let mut buffer = Buffer::new(CUDA_12_9);
    buffer.kernel("no start", [0, 25], 7, 1);
    buffer.kernel("not over", [10, 0], 7, 2);
    buffer.kernel("backwards", [10, 9], 7, 3);
    buffer.other(40);
    buffer.kernel("good", [10, 11], 7, 4);
    let (activities, count) = buffer.read();
    assert_eq!(activities.len(), 1);
    let expected = RecordCount {
        read: 1,
        dropped: 0,
        without_time: 2,
        unusable: 2,
        other_calls: 0,
    };
    assert_eq!(count, expected);
    assert_eq!(count.lost(), 4);
}

#[test]
fn a_record_cut_anywhere_is_no_record() {
    let mut buffer = Buffer::new(CUDA_12_9);
    buffer.kernel("kernel", [10, 25], 7, 1);
    for length in 0..112 {
        let cut = decode(&buffer.bytes[..length], |_| "kernel".into());
        assert_eq!(cut, Err(Rejected::Cut), "{length} bytes");
    }
    assert!(decode(&buffer.bytes[..112], |_| "kernel".into()).is_ok());
}

fn skipped(why: &str) {
    println!("skipped: {why}; scripts/cupti-setup.sh fetches CUPTI");
    let required = std::env::var_os("STALLSCOPE_REQUIRE_CUPTI").is_some();
    assert!(!required, "CUPTI is required: {why}");
}

/// `path`, where there is such a thing.
fn present(path: PathBuf) -> Option<PathBuf> {
    if !path.exists() {
        skipped(&format!("no {}", path.display()));
        return None;
    }
    Some(path)
}

/// Where `scripts/cupti-setup.sh` puts what it fetches.
fn fetched() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/cupti")
}

/// NVIDIA's own library.
fn real_library() -> Option<PathBuf> {
    let named = std::env::var_os("STALLSCOPE_CUPTI").map(PathBuf::from);
    present(named.unwrap_or(fetched().join("libcupti.so.12")))
}

/// What `tests/records.c`, compiled with NVIDIA's own header, writes and prints.
fn from_nvidias_header() -> Option<(Vec<u8>, String)> {
    let headers = present(fetched().join("include"))?;
    if Command::new("cc").arg("--version").output().is_err() {
        skipped("no C compiler `cc`");
        return None;
    }
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("cupti/tests");
    let folder = tempfile::tempdir().unwrap();
    let (program, records) = (folder.path().join("program"), folder.path().join("records"));
    let mut compiler = Command::new("cc");
    compiler
        .arg("-I")
        .arg(ours.join("include"))
        .arg("-I")
        .arg(headers);
    compiler.arg(ours.join("records.c")).arg("-o").arg(&program);
    let compiled = compiler.output().unwrap();
    let complaints = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{complaints}");
    let ran = Command::new(&program).arg(&records).output().unwrap();
    assert!(ran.status.success());
    let printed = String::from_utf8(ran.stdout).unwrap();
    Some((fs::read(&records).unwrap(), printed))
}

/// Everything else here reads what [`Buffer`] writes: this holds that, byte by byte, against NVIDIA's structures.
#[test]
fn records_written_by_hand_are_those_of_nvidias_header() {
    let Some((records, printed)) = from_nvidias_header() else {
        return;
    };
    let mut buffer = Buffer::new(CUDA_12_9);
    buffer.call(307, [5, 8], 77, 1);
    buffer.kernel("matmul", [10, 25], 7, 2);
    buffer.copy([1, 2, 3], 4096, [11, 19], 13, 3);
    buffer.copy([2, 3, 1], 8, [26, 27], 7, 4);
    buffer.set(512, [30, 31], 7, 5);
    assert_eq!(buffer.bytes, records);
    assert_eq!(buffer.read().1.lost(), 0);
    let ours = [
        CUDA_11_8.kernel as u32,
        CUDA_11_8.copy as u32,
        CUDA_11_8.set as u32,
        KIND_RUNTIME,
        library::MAX_LIMIT_REACHED,
        library::FLUSH_FORCED,
        library::THREAD_ID_SYSTEM,
        functions::DOMAIN_DRIVER,
        functions::DOMAIN_RUNTIME,
    ];
    let theirs = printed.lines().map(|line| line.rsplit(' ').next().unwrap());
    assert_eq!(
        theirs.collect::<Vec<_>>(),
        ours.map(|n| n.to_string()),
        "{printed}"
    );
}

/// The walk over the records and how long each of them is are the library's; what they mean is ours.
#[test]
fn nvidias_own_library_walks_the_buffers_that_are_read_here() {
    let Some(path) = real_library() else { return };
    let fill = |mut buffer: Buffer| {
        for n in 1..=50_u32 {
            let at = 100 * u64::from(n);
            buffer.call(307, [at, at + 3], 77, n);
            buffer.kernel("matmul", [at + 10, at + 50], 7, n);
            buffer.copy([1, 2, 3], 4096, [at + 11, at + 19], 13, 1000 + n);
            buffer.set(512, [at + 51, at + 52], 7, 2000 + n);
        }
        buffer
    };
    let buffer = fill(Buffer::with_names_in_memory(CUDA_12_9));
    let (expected, _) = fill(Buffer::new(CUDA_12_9)).read();
    let cupti = Cupti::open(&path).unwrap();
    assert_eq!(cupti.version(), 28, "the layout is that of CUDA 12.9");
    let (activities, count) = cupti.read(&buffer.bytes, false);
    assert_eq!((count.read, count.lost()), (200, 0));
    assert_eq!(activities, expected);
}

#[test]
fn of_all_calls_that_an_old_library_records_the_launches_are_read() {
    let Some(path) = present(fetched().join("12.4/libcupti.so.12")) else {
        return;
    };
    // No cuptiActivityEnableDriverApi: that came with CUDA 12.5.
    let cupti = Cupti::open(&path).unwrap();
    assert_eq!(cupti.version(), 22);
    let header = fs::read_to_string(fetched().join("12.4/include/cupti_driver_cbid.h")).unwrap();
    let number = |name: &str| {
        let line = header
            .lines()
            .find(|line| line.contains(&format!("CBID_{name} ")));
        let value = line.unwrap().split('=').nth(1).unwrap();
        value.trim().trim_end_matches(',').parse::<u32>().unwrap()
    };
    let mut buffer = Buffer::with_names_in_memory(CUDA_12_9);
    let launches = ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async"];
    for (n, name) in (1..).zip(launches) {
        buffer.call(number(name), [n, n + 1], 77, n as u32);
    }
    for (n, name) in (50..).zip(["cuEventQuery", "cuEventRecord", "cuStreamSynchronize"]) {
        buffer.call(number(name), [n, n + 1], 77, n as u32);
    }
    let (activities, count) = cupti.read(&buffer.bytes, true);
    assert_eq!(activities.len(), launches.len());
    assert_eq!((count.read, count.other_calls, count.lost()), (3, 3, 0));
}

#[test]
fn without_a_driver_the_library_says_what_it_lacks() {
    let Some(path) = real_library() else { return };
    if crate::probe::cuda().driver.is_ok() {
        println!("skipped: there is a driver");
        return;
    }
    let recorded = Cupti::open(&path)
        .unwrap()
        .record(Arc::new(MonotonicClock::new()));
    let error = recorded.err().unwrap();
    let CuptiError::Refused { code, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*code, 15, "{error}");
    assert!(error.to_string().contains("CUPTI_ERROR_NOT_INITIALIZED"));
    assert!(!error.advice().is_empty());
}

#[test]
fn what_is_no_cupti_is_refused_by_name() {
    let missing = Cupti::open(&PathBuf::from("/nowhere/libcupti.so.12")).err();
    assert!(matches!(missing, Some(CuptiError::Unopened { .. })));
    let other = Cupti::open(&PathBuf::from("libc.so.6")).err().unwrap();
    assert!(
        other.to_string().contains("cuptiActivityRegisterCallbacks"),
        "{other}"
    );
}
