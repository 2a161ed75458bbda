//! How fast this build decodes JPEG files, on a generated picture.
//!
//! Invariants: takes about a fifth of a second a decoder; leaves nothing.
//!
//! May use: `checklist`, `data::{generate, stages::decode}`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::checklist::Row;
use crate::data::stages::decode::{
    DecodeError, DecodeOptions, Decoder, DecoderKind, Input, RgbBuffer,
};
use crate::data::{DataError, GenerateOptions, ImageFolder, generate};

const MEASURING: Duration = Duration::from_millis(200);
const SUBJECT: &str = "JPEG decoder";
const REMEDY: &str = "install cmake, make, nasm and a C compiler, and build stallscope with the feature `turbojpeg`, \
                      which is on by default";

/// Which decoder is used, and what the other takes.
pub fn row() -> Row {
    let picture = match picture() {
        Ok(picture) => picture,
        Err(error) => {
            return Row::warning(
                SUBJECT,
                error.to_string(),
                "set TMPDIR to a folder with free space",
            );
        }
    };
    let measured = |kind| milliseconds(kind, &picture);
    match (
        measured(DecoderKind::Turbojpeg),
        measured(DecoderKind::Image),
    ) {
        (Ok((turbo, size)), Ok((image, _))) => {
            let finding = format!(
                "libjpeg-turbo: {turbo:.1} ms for a picture of {size}; the `image` crate takes {image:.1} ms"
            );
            let row = Row::ok(SUBJECT, finding).fact("turbojpeg_ms", turbo);
            row.fact("image_ms", image)
        }
        (Err(DecodeError::WithoutTurbo), Ok((image, size))) => {
            let finding = format!(
                "the `image` crate: {image:.1} ms for a picture of {size}; libjpeg-turbo, which is faster, is not \
                 built in"
            );
            Row::missing(SUBJECT, finding, REMEDY).fact("image_ms", image)
        }
        (Err(error), _) | (_, Err(error)) => {
            let remedy = "run `stallscope demo`, which decodes JPEG files";
            Row::warning(SUBJECT, error.to_string(), remedy)
        }
    }
}

/// A generated photograph.
fn picture() -> Result<Vec<u8>, DataError> {
    let folder = tempfile::tempdir().map_err(DataError::io("create", Path::new("$TMPDIR")))?;
    let options = GenerateOptions {
        images: 1,
        classes: 1,
        jobs: 1,
        ..GenerateOptions::new(folder.path().join("pictures"))
    };
    generate(&options, &|_| {})?;
    let path = ImageFolder::open(&options.out)?.path(0).to_path_buf();
    fs::read(&path).map_err(DataError::io("read", &path))
}

/// Median time to decode `picture`, and its size in words.
fn milliseconds(kind: DecoderKind, picture: &[u8]) -> Result<(f64, String), DecodeError> {
    let options = DecodeOptions {
        decoder: kind,
        ..DecodeOptions::default()
    };
    let mut decoder = Decoder::new(options)?;
    let (mut out, mut times) = (RgbBuffer::default(), Vec::new());
    let begin = Instant::now();
    while times.is_empty() || begin.elapsed() < MEASURING {
        let start = Instant::now();
        let input = Input {
            bytes: picture,
            private: true,
        };
        decoder.decode(input, |_, _| None, &mut out)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64() * 1e3;
    Ok((median, format!("{}x{}", out.width, out.height)))
}
