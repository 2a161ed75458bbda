//! What `--device cuda:N` needs, piece by piece.
//!
//! May use: `checklist`, `device`, `timeline`, `train`.

use super::checklist::{Row, Section, Status, size};
use crate::device::nvml;
use crate::device::probe::{self, CudaProbe, Gpu, Missing, Piece};
use crate::timeline::{GpuSample, Nanos};
use crate::train::TrainError;
use serde_json::json;

pub fn section() -> Section {
    Section {
        title: "GPU",
        rows: rows(&probe::cuda_with_compiling(), read_now),
    }
}

/// What NVML says of `gpu` at this moment.
fn read_now(gpu: &Gpu) -> Option<GpuSample> {
    let mut counters = nvml::open(gpu.pci_bus_id.as_ref()?).ok()?;
    Some(counters.read(Nanos::ZERO))
}

fn rows(probe: &CudaProbe, read: impl Fn(&Gpu) -> Option<GpuSample>) -> Vec<Row> {
    let mut rows = Vec::new();
    match &probe.driver {
        Ok(driver) => {
            let finding = format!("supports CUDA up to {}", driver.cuda_version);
            rows.push(
                Row::ok("driver", finding).fact("cuda_version", driver.cuda_version.to_string()),
            );
            for gpu in &driver.devices {
                let finding = format!("{}, {}", gpu.name, size(gpu.memory_bytes));
                let row = Row::ok(&format!("cuda:{}", gpu.ordinal), finding);
                rows.push(
                    row.fact("name", gpu.name.as_str())
                        .fact("memory_bytes", gpu.memory_bytes),
                );
            }
        }
        Err(missing) => rows.push(absent("driver", missing)),
    }
    rows.push(nvml_row(probe, read));
    rows.push(cupti_row(probe));
    rows.extend(probe.nvjpeg.iter().map(|nvjpeg| {
        let purpose = "decodes JPEG on the GPU, with decode.decoder = \"nvjpeg\"";
        piece("nvJPEG", nvjpeg, purpose)
    }));
    rows.push(piece("NVRTC", &probe.nvrtc, "compiles kernels"));
    rows.push(piece(
        "CUDA headers",
        &probe.headers,
        "what kernels are compiled with",
    ));
    rows.push(verdict(probe));
    rows
}

/// NVML with a reading of each GPU.
fn nvml_row(probe: &CudaProbe, read: impl Fn(&Gpu) -> Option<GpuSample>) -> Row {
    let row = piece("NVML", &probe.nvml, "GPU-Util, as nvidia-smi shows it");
    let (Ok(_), Ok(driver)) = (&probe.nvml, &probe.driver) else {
        return row;
    };
    let (mut finding, mut facts) = (row.finding.clone(), Vec::new());
    for gpu in &driver.devices {
        let sample = read(gpu).unwrap_or_default();
        let util = sample.gpu_util_percent.map(|util| format!("{util} %"));
        let used = sample
            .memory_used_bytes
            .map(|used| format!("{} used", size(used)));
        let said: Vec<String> = [util, used].into_iter().flatten().collect();
        let said = match said.is_empty() {
            true => "no reading".to_owned(),
            false => said.join(", "),
        };
        finding.push_str(&format!("; now cuda:{}: {said}", gpu.ordinal));
        facts.push(json!({
            "ordinal": gpu.ordinal,
            "gpu_util_percent": sample.gpu_util_percent,
            "memory_used_bytes": sample.memory_used_bytes,
        }));
    }
    Row { finding, ..row }.fact("readings", facts)
}

/// CUPTI, with a warning where none belongs to a CUDA that the driver supports.
fn cupti_row(probe: &CudaProbe) -> Row {
    let row = piece("CUPTI", &probe.cupti, "kernel and copy times");
    let (Ok(cupti), Ok(driver)) = (&probe.cupti, &probe.driver) else {
        return row;
    };
    let (_, major) = cupti
        .path
        .to_str()
        .unwrap_or("")
        .split_once(".so.")
        .unwrap_or_default();
    let version = driver.cuda_version;
    let too_new = major.parse().is_ok_and(|major: u32| major > version.major);
    if !too_new {
        return row;
    }
    Row {
        status: Status::Warning,
        finding: format!(
            "{}; it is for CUDA {major}, but the driver supports up to {version}",
            row.finding
        ),
        remedy: Some(probe::cupti_for(version)),
        ..row
    }
}

fn piece(subject: &str, piece: &Result<Piece, Missing>, purpose: &str) -> Row {
    match piece {
        Ok(piece) => {
            let version = piece
                .version
                .as_ref()
                .map_or_else(String::new, |version| format!("{version} "));
            let finding = format!("{version}({}): {purpose}", piece.path.display());
            let row = Row::ok(subject, finding).fact("path", piece.path.to_string_lossy());
            row.fact("version", piece.version.clone())
        }
        Err(missing) => absent(subject, missing),
    }
}

fn absent(subject: &str, missing: &Missing) -> Row {
    // The subject is the piece's name already: what is left to say is the file in brackets.
    let file = missing
        .piece
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    let finding = format!("{}: {}", file.unwrap_or(missing.piece), missing.detail);
    Row::missing(subject, finding, missing.remedy.as_str())
}

fn verdict(probe: &CudaProbe) -> Row {
    if TrainError::require_built("cuda:0").is_err() {
        let finding = "this build has no CUDA".to_owned();
        return Row::missing("--device cuda:0", finding, "see Build, below");
    }
    match probe.require(0) {
        Ok(gpu) => Row::ok("--device cuda:0", format!("ready ({})", gpu.name)),
        Err(missing) => {
            let pieces: Vec<&str> = missing.iter().map(|missing| missing.piece).collect();
            let finding = format!("needs {}", pieces.join(", "));
            Row::missing(
                "--device cuda:0",
                finding,
                "`--device cpu` needs none of this",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::checklist::Checklist;
    use super::*;
    use crate::device::probe::{CudaVersion, Driver};
    use crate::text::Look;

    fn found(path: &str, version: &str) -> Result<Piece, Missing> {
        Ok(Piece {
            path: path.into(),
            version: Some(version.to_owned()),
        })
    }

    fn shown(probe: &CudaProbe, reading: GpuSample) -> String {
        let sections = vec![Section {
            title: "GPU",
            rows: rows(probe, |_| Some(reading)),
        }];
        let look = Look {
            width: 80,
            ..Look::plain()
        };
        Checklist { sections }.text(&look, false)
    }

    #[test]
    fn says_what_is_there_and_what_is_not() {
        let gpu = Gpu {
            ordinal: 0,
            name: "NVIDIA H200".to_owned(),
            memory_bytes: 143_771 << 20,
            pci_bus_id: Some("0000:3B:00.0".to_owned()),
            compute_capability: Some(90),
        };
        let mut probe = CudaProbe {
            driver: Ok(Driver {
                cuda_version: CudaVersion::new(13, 0),
                devices: vec![gpu],
            }),
            nvml: found("libnvidia-ml.so.1", "580.159.03"),
            cupti: found(
                "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                "API 130000",
            ),
            cupti_others: Vec::new(),
            nvjpeg: Some(found("libnvjpeg.so.13", "13.0.0")),
            nvrtc: found("libnvrtc.so", "13.0"),
            headers: found("/usr/local/cuda/include", "13.0"),
        };
        let reading = GpuSample {
            gpu_util_percent: Some(37),
            memory_used_bytes: Some(5 << 30),
            ..GpuSample::default()
        };
        // Without CUDA the last row says that there is none.
        let built = TrainError::require_built("cuda:0").is_ok();
        let text = shown(&probe, reading);
        if built {
            insta::assert_snapshot!("complete", text);
        }
        let piece = "CUDA headers (include/cuda_runtime.h)";
        let (detail, remedy) = (
            "not in /x/include".to_owned(),
            "install the toolkit".to_owned(),
        );
        probe.headers = Err(Missing {
            piece,
            detail,
            remedy,
        });
        let text = shown(&probe, GpuSample::default());
        if built {
            insta::assert_snapshot!("without_headers", text);
        }
        if let Ok(driver) = &mut probe.driver {
            driver.cuda_version = CudaVersion::new(12, 9);
        }
        let cupti = cupti_row(&probe);
        assert_eq!(cupti.status, Status::Warning);
        assert!(
            cupti
                .finding
                .contains("for CUDA 13, but the driver supports up to 12.9")
        );
        assert!(
            cupti
                .remedy
                .unwrap()
                .contains("nvidia-cuda-cupti-cu12<12.10")
        );
    }
}
