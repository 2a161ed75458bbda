//! Data to measure tables with: found, or made on first use. May use: `config`, `data`, `reproduce`, `session`, `tune`.

use crate::cli::data::{generate_options, generate_with_progress, pack_with_progress};
use crate::config::{GenerateConfig, ImageFormat, Resolved};
use crate::data::DataError;
use crate::data::shard::{Container, PackOutcome};
use crate::reproduce::{DataOrigin, DataPlace, LabError};
use crate::session::{PackRequest, Packed};
use crate::tune::TrialError;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The pictures that `config` is about: the user's, or made.
pub fn images(
    config: &Resolved,
    own: Option<&Path>,
    stop: &AtomicBool,
) -> Result<DataPlace, LabError> {
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
    made(generate, &path, stop)
}

/// The same pictures as PNG files; of the user's there are none.
pub fn png(
    config: &Resolved,
    own: Option<&Path>,
    stop: &AtomicBool,
) -> Result<DataPlace, LabError> {
    if let Some(own) = own {
        return Err(LabError::Refused(format!(
            "only generated pictures are made as PNG, and not those in {}",
            own.display()
        )));
    }
    let Some(mut generate) = config.generate else {
        return Err(LabError::Refused(format!(
            "{} has no [generate], so there are no pictures to make as PNG\n  try: the file as it is in \
             configs/reproduce/",
            config.name
        )));
    };
    generate.format = ImageFormat::Png;
    let path = beside(&config.pipeline.source.path, "png");
    made(&generate, &path, stop)
}

fn made(generate: &GenerateConfig, path: &Path, stop: &AtomicBool) -> Result<DataPlace, LabError> {
    let options = generate_options(generate, path);
    generate_with_progress(&options, &|| stop.load(Ordering::Relaxed)).map_err(refused)?;
    Ok(place(path.to_owned(), DataOrigin::Generated))
}

/// The pictures at `images` packed into shards: beside them where stallscope has made them, and where it makes its own
/// data where they are the user's.
pub fn packed(
    images: &DataPlace,
    raw: Option<u32>,
    config: &Resolved,
    stop: &AtomicBool,
) -> Result<DataPlace, LabError> {
    let suffix = raw.map_or_else(|| "shards".to_owned(), |side| format!("raw{side}"));
    let beside_what = match images.origin {
        DataOrigin::Generated => images.path.clone(),
        DataOrigin::Real | DataOrigin::Unknown => own_in(&config.pipeline.source.path, images),
    };
    let target = beside(&beside_what, &suffix);
    let request = PackRequest {
        source: &images.path,
        kind: None,
        target: &target,
        packed: raw.map_or(Packed::Stored, |longest| Packed::Raw { longest }),
        container: Container::Shards,
        shuffle: None,
        samples_per_shard: None,
        jobs: None,
        skip_bad: false,
    };
    let summary = pack_with_progress(&request, stop).map_err(refused)?;
    if summary.outcome == PackOutcome::Stopped {
        return Err(TrialError::Stopped.into());
    }
    Ok(DataPlace {
        path: target,
        origin: images.origin,
        bytes_per_sample: (summary.records > 0)
            .then(|| summary.bytes as f64 / summary.records as f64),
    })
}

/// The user's pictures, named as if they lay where stallscope makes its own, whose path is `made`.
fn own_in(made: &Path, images: &DataPlace) -> PathBuf {
    let name = images.path.canonicalize();
    let name = name.unwrap_or_else(|_| images.path.clone());
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    made.with_file_name(format!("own-{name}"))
}

/// A folder beside `path`, named after it.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
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

/// What a file takes on average, of a folder of folders of pictures.
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

/// What was refused, in its own words.
pub(super) fn refused(error: impl Into<anyhow::Error>) -> LabError {
    let error = error.into();
    match error.downcast_ref() {
        Some(DataError::Stopped) => TrialError::Stopped.into(),
        _ => LabError::Refused(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::fs::File;

    /// The configuration of pictures to be made in `folder`.
    fn config(folder: &Path) -> Resolved {
        let file = folder.join("x.toml");
        let path = folder.join("pictures");
        let text = format!(
            "[source]\nkind = \"image-folder\"\npath = {:?}\n[generate]\nimages = 6\nclasses = 2\n[batch]\nsize = 2\n",
            path.display().to_string()
        );
        fs::write(&file, text).unwrap();
        Settings::load(&file, &[]).unwrap().resolve().unwrap()
    }

    #[test]
    fn each_format_is_made_of_the_same_pictures_and_its_bytes_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let stopped = images(&config, None, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(LabError::Trial(TrialError::Stopped))));
        assert!(!folder.path().join("pictures").exists());
        let go_on = AtomicBool::new(false);
        let jpeg = images(&config, None, &go_on).unwrap();
        let png = png(&config, None, &go_on).unwrap();
        let raw = packed(&jpeg, Some(64), &config, &go_on).unwrap();
        assert_eq!(png.path, folder.path().join("pictures-png"));
        assert_eq!(raw.path, folder.path().join("pictures-raw64"));
        let bytes = |place: &DataPlace| place.bytes_per_sample.unwrap();
        assert!(bytes(&png) > bytes(&jpeg));
        let file = |entry: fs::DirEntry| entry.metadata().unwrap().len();
        let shards = fs::read_dir(&raw.path).unwrap().flatten();
        let shards = shards.filter(|entry| entry.path().extension().is_some_and(|e| e == "shard"));
        let on_disk: u64 = shards.map(file).sum();
        assert_eq!(bytes(&raw), on_disk as f64 / 6.0);
        // Again, from what is there.
        assert_eq!(packed(&jpeg, Some(64), &config, &go_on).unwrap(), raw);
    }

    #[test]
    fn the_users_folder_is_only_read() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let own = folder.path().join("theirs/photos");
        fs::create_dir_all(own.join("class")).unwrap();
        let picture = own.join("class/a.png");
        let pixels = image::RgbImage::from_pixel(9, 9, image::Rgb([1, 2, 3]));
        pixels.save(&picture).unwrap();
        let go_on = AtomicBool::new(false);
        let theirs = images(&config, Some(&own), &go_on).unwrap();
        assert_eq!(theirs.origin, DataOrigin::Unknown);
        let length = File::open(&picture).unwrap().metadata().unwrap().len();
        assert_eq!(theirs.bytes_per_sample, Some(length as f64));
        let shards = packed(&theirs, None, &config, &go_on).unwrap();
        assert_eq!(shards.path, folder.path().join("own-photos-shards"));
        let said = png(&config, Some(&own), &go_on).unwrap_err().to_string();
        assert!(said.contains("only generated pictures"), "{said}");
        let stopped = packed(&theirs, Some(8), &config, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(LabError::Trial(TrialError::Stopped))));
    }
}
