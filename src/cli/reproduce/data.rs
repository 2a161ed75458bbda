//! Data to measure tables with: found, or made on first use. May use: `config`, `data`, `session`.

use crate::cli::data::{generate_options, generate_with_progress};
use crate::cli::progress;
use crate::config::{GenerateConfig, ImageFormat, Resolved};
use crate::reproduce::{DataOrigin, DataPlace, LabError};
use crate::session::PackRequest;
use std::fs;
use std::path::{Path, PathBuf};

/// The pictures that `config` is about: the user's, or made.
pub fn images(config: &Resolved, own: Option<&Path>) -> Result<DataPlace, LabError> {
    if let Some(own) = own {
        return Ok(place(own.to_owned(), DataOrigin::Unknown));
    }
    let path = config.pipeline.source.path.clone();
    let Some(generate) = &config.generate else {
        return Err(LabError::Refused(format!(
            "{} has no [generate], so there are no pictures\n  try: --data FOLDER",
            config.name
        )));
    };
    made(generate, &path)
}

/// The same pictures as PNG files.
pub fn png(config: &Resolved) -> Result<DataPlace, LabError> {
    let Some(mut generate) = config.generate else {
        return Err(LabError::Refused(format!(
            "{} has no [generate]",
            config.name
        )));
    };
    generate.format = ImageFormat::Png;
    let path = beside(&config.pipeline.source.path, "png");
    made(&generate, &path)
}

fn made(generate: &GenerateConfig, path: &Path) -> Result<DataPlace, LabError> {
    generate_with_progress(&generate_options(generate, path), false).map_err(refused)?;
    Ok(place(path.to_owned(), DataOrigin::Generated))
}

/// The pictures at `images` packed into shards beside them.
pub fn packed(images: &DataPlace, raw: Option<u32>) -> Result<DataPlace, LabError> {
    let suffix = raw.map_or_else(|| "shards".to_owned(), |side| format!("raw{side}"));
    let target = beside(&images.path, &suffix);
    let request = PackRequest {
        source: &images.path,
        kind: None,
        target: &target,
        raw,
        shuffle: None,
        samples_per_shard: None,
        jobs: None,
        skip_bad: false,
    };
    let bar = progress::bar(
        0,
        "{bar:30} {msg} {pos}/{len}  [{elapsed}, {eta} left]",
        false,
    );
    bar.set_message(format!("packing {}:", target.display()));
    let packed = request.pack(&progress::shown(&bar), &|| false);
    bar.finish_and_clear();
    let (summary, _) = packed.map_err(refused)?;
    Ok(DataPlace {
        path: target,
        origin: images.origin,
        bytes_per_sample: Some(summary.bytes as f64 / summary.records.max(1) as f64),
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}-{suffix}"))
}

fn place(path: PathBuf, origin: DataOrigin) -> DataPlace {
    let bytes_per_sample = mean_file(&path);
    DataPlace {
        path,
        origin,
        bytes_per_sample,
    }
}

/// What a file takes on average, of a folder of folders of pictures; of shards it is not known from outside.
fn mean_file(path: &Path) -> Option<f64> {
    let classes = fs::read_dir(path).ok()?;
    let files = classes
        .flatten()
        .filter_map(|class| fs::read_dir(class.path()).ok());
    let sizes: Vec<u64> = files
        .flat_map(|files| {
            files
                .flatten()
                .filter_map(|file| Some(file.metadata().ok()?.len()))
        })
        .collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum::<u64>() as f64 / sizes.len() as f64)
}

fn refused(error: impl Into<anyhow::Error>) -> LabError {
    LabError::Refused(format!("{:#}", error.into()))
}
