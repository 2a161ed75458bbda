//! The probe: what it says of what is missing, and NVIDIA's own compilers and headers, which `scripts/nvrtc-setup.sh` fetches.

use super::compiler::{self, Nvrtc};
use super::headers::{self, Target};
use super::*;

fn piece() -> Result<Piece, Missing> {
    Ok(Piece {
        path: "/x".into(),
        version: None,
    })
}

fn missing(piece: &'static str) -> Missing {
    Missing {
        piece,
        detail: "gone".into(),
        remedy: "get it".into(),
    }
}

fn probe(driver: Result<Driver, Missing>) -> CudaProbe {
    CudaProbe {
        driver,
        nvml: piece(),
        cupti: piece(),
        cupti_others: Vec::new(),
        nvjpeg: None,
        nvrtc: piece(),
        headers: piece(),
    }
}

fn one_gpu() -> Result<Driver, Missing> {
    let gpu = Gpu {
        ordinal: 0,
        name: "H200".into(),
        memory_bytes: 1,
        pci_bus_id: None,
        compute_capability: None,
    };
    Ok(Driver {
        cuda_version: CudaVersion::new(13, 0),
        devices: vec![gpu],
    })
}

#[test]
fn a_complete_machine_has_its_device() {
    assert_eq!(probe(one_gpu()).require(0).unwrap().name, "H200");
    let missing = probe(one_gpu()).require(1).unwrap_err();
    assert!(
        missing[0].to_string().contains("cuda:0 (H200)"),
        "{}",
        missing[0]
    );
}

#[test]
fn every_missing_piece_is_named_but_optional_ones() {
    let mut probe = probe(Err(missing("driver")));
    probe.headers = Err(missing("headers"));
    probe.cupti = Err(missing("cupti"));
    let pieces: Vec<_> = probe
        .require(0)
        .unwrap_err()
        .iter()
        .map(|m| m.piece)
        .collect();
    assert_eq!(pieces, ["driver", "headers"]);
}

#[test]
fn probing_this_machine_never_panics() {
    let probe = cuda();
    if let Err(missing) = &probe.driver {
        assert!(!missing.detail.is_empty() && !missing.remedy.is_empty());
    }
}

/// The toolkit of `version`; `None` where it was not fetched.
fn fetched(version: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cuda");
    let folder = folder.join(version);
    if folder.join("include").is_dir() {
        return folder.canonicalize().ok();
    }
    let required = std::env::var_os("STALLSCOPE_REQUIRE_NVRTC").is_some();
    assert!(!required, "no {}", folder.display());
    println!(
        "skipped: no {}; `scripts/nvrtc-setup.sh {version}` fetches it from PyPI",
        folder.display()
    );
    None
}

/// A toolkit's folder with those `packages` of the whole one at `from`.
fn toolkit(from: &Path, packages: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for inside in ["include", "lib"] {
        let to = folder.path().join(inside);
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(from.join(inside)).unwrap().flatten() {
            let package = match entry.file_name().to_str().unwrap() {
                _ if inside == "lib" => "nvrtc",
                "crt" => "crt",
                "cccl" | "cuda" | "nv" | "cub" | "thrust" => "cccl",
                _ => "runtime",
            };
            if packages.contains(&package) {
                std::os::unix::fs::symlink(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }
    folder
}

fn nvrtc(version: &str, toolkit: &Path) -> Nvrtc {
    let major = version.split('.').next().unwrap();
    let library = toolkit.join("lib").join(format!("libnvrtc.so.{major}"));
    let found = compiler::find_among(&[], || vec![library], None).unwrap();
    assert_eq!(found.version.to_string(), version);
    found
}

const VERSIONS: [&str; 3] = ["12.4", "12.9", "13.0"];
const ALL: [&str; 4] = ["nvrtc", "runtime", "crt", "cccl"];

/// An H100 with packages of `version`.
fn hopper(version: &Nvrtc) -> Target {
    Target {
        capability: 90,
        version: version.version,
    }
}

#[test]
fn every_header_that_kernels_include_compiles_where_all_packages_are_there() {
    for version in VERSIONS {
        let Some(from) = fetched(version) else {
            return;
        };
        let toolkit = toolkit(&from, &ALL);
        let nvrtc = nvrtc(version, toolkit.path());
        let include = toolkit.path().join("include");
        let found = headers::find_in(&include, hopper(&nvrtc)).unwrap();
        assert_eq!(found.version.as_deref(), Some(version));
        if let Err(missing) = headers::compile(&nvrtc, &include, hopper(&nvrtc)) {
            panic!("{version}: {missing}");
        }
    }
}

#[test]
fn each_package_that_is_left_out_is_named() {
    let expected = |version: &str, package: &str| match (package, version) {
        ("runtime", _) => ("cuda_runtime.h", "nvidia-cuda-runtime"),
        ("crt", "13.0") => ("crt/mma.h", "nvidia-cuda-crt>=13"),
        ("crt", _) => ("crt/mma.h", "nvidia-cuda-nvcc-cu12"),
        _ => ("cuda/barrier", "nvidia-cuda-cccl"),
    };
    for version in VERSIONS {
        let Some(from) = fetched(version) else {
            return;
        };
        let whole = toolkit(&from, &ALL);
        let nvrtc = nvrtc(version, whole.path());
        for left_out in ["runtime", "crt", "cccl"] {
            let kept = ALL.into_iter().filter(|package| *package != left_out);
            let part = toolkit(&from, &kept.collect::<Vec<_>>());
            let include = part.path().join("include");
            let (header, package) = expected(version, left_out);
            let seen = headers::find_in(&include, hopper(&nvrtc)).unwrap_err();
            let compiled = headers::compile(&nvrtc, &include, hopper(&nvrtc)).unwrap_err();
            for missing in [seen, compiled] {
                let apt = format!("-{}`", version.replace('.', "-"));
                assert!(missing.detail.contains(header), "{version}: {missing}");
                assert!(missing.remedy.contains(package), "{version}: {missing}");
                assert!(missing.remedy.contains(&apt), "{version}: {missing}");
                let others = ["runtime", "nvcc", "crt", "cccl"];
                let named = others.iter().filter(|other| {
                    let name = format!("nvidia-cuda-{other}");
                    missing.remedy.contains(&name)
                });
                assert_eq!(named.count(), 1, "{version}: {missing}");
            }
        }
    }
}

#[test]
fn a_gpu_that_the_compiler_does_not_know_is_told() {
    let Some(from) = fetched("12.4") else { return };
    let toolkit = toolkit(&from, &ALL);
    let nvrtc = nvrtc("12.4", toolkit.path());
    let blackwell = Target {
        capability: 100,
        ..hopper(&nvrtc)
    };
    let include = toolkit.path().join("include");
    let missing = headers::compile(&nvrtc, &include, blackwell).unwrap_err();
    assert_eq!(missing.piece, compiler::PIECE);
    assert!(missing.detail.contains("10.0"), "{missing}");
    // It lacks the headers of that GPU's types of numbers, too.
    let missing = headers::find_in(&include, blackwell).unwrap_err();
    assert!(missing.detail.contains("cuda_fp4.h"), "{missing}");
}

#[test]
fn a_compiler_newer_than_the_driver_is_refused_and_one_that_matches_is_preferred() {
    let (Some(old), Some(new)) = (fetched("12.4"), fetched("13.0")) else {
        return;
    };
    let (old, new) = (toolkit(&old, &["nvrtc"]), toolkit(&new, &["nvrtc"]));
    let old = old.path().join("lib/libnvrtc.so.12");
    let new = new.path().join("lib/libnvrtc.so.13");
    let both = || vec![new.clone(), old.clone()];
    let find = |driver| compiler::find_among(&[], both, Some(driver));
    let version = CudaVersion::new;
    assert_eq!(find(version(12, 8)).unwrap().version, version(12, 4));
    assert_eq!(find(version(13, 0)).unwrap().version, version(13, 0));
    // What burn's backend opens by that name is the one that was chosen.
    assert!(libraries::open(Path::new("libnvrtc.so.13")).is_ok());
    let too_new = find(version(12, 2)).err().unwrap();
    assert!(
        too_new.detail.contains("supports CUDA up to 12.2") && too_new.remedy.contains("<12.3"),
        "{too_new}"
    );
    // On the loader's path the newer one hides the one that matches.
    let name = new.to_str().unwrap();
    let hidden = compiler::find_among(&[name], || vec![old.clone()], Some(version(12, 8)));
    let hidden = hidden.err().unwrap();
    assert!(
        hidden.detail.contains("NVRTC 13.0") && hidden.remedy.contains(old.to_str().unwrap()),
        "{hidden}"
    );
}
