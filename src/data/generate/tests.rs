//! Tests of the generator: determinism, layout, resumption, refusals.

use super::*;
use crate::ImageFolder;
use std::collections::BTreeMap;

fn small(out: PathBuf) -> GenerateOptions {
    GenerateOptions {
        images: 23,
        classes: 3,
        width_range: 40..=60,
        height_range: 30..=50,
        grey_fraction: 0.3,
        seed: 5,
        jobs: 2,
        ..GenerateOptions::new(out)
    }
}

fn run(options: &GenerateOptions) -> GenerateReport {
    generate(options, &|_| {}).unwrap()
}

fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = ImageFolder::open(root).unwrap();
    let read = |i| {
        let path = folder.path(i);
        (
            path.strip_prefix(root).unwrap().to_path_buf(),
            fs::read(path).unwrap(),
        )
    };
    (0..folder.len()).map(read).collect()
}

#[test]
fn bytes_do_not_depend_on_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let one = GenerateOptions {
        jobs: 1,
        ..small(dir.path().join("one"))
    };
    let five = GenerateOptions {
        jobs: 5,
        ..small(dir.path().join("five"))
    };
    let calls = AtomicU64::new(0);
    let report = generate(&one, &|done| {
        calls.fetch_add(1, Ordering::Relaxed);
        assert!((1..=23).contains(&done));
    });
    assert_eq!(calls.into_inner(), 23);
    assert_eq!(report.unwrap(), run(&five));
    assert_eq!(contents(&one.out), contents(&five.out));
    let other = GenerateOptions {
        seed: 6,
        ..small(dir.path().join("other"))
    };
    run(&other);
    assert_ne!(contents(&one.out), contents(&other.out));
}

#[test]
fn the_layout_is_an_image_folder() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path().join("set"));
    let report = run(&options);
    let folder = ImageFolder::open(&options.out).unwrap();
    assert_eq!(folder.classes(), ["class_00", "class_01", "class_02"]);
    assert_eq!(folder.path(0), options.out.join("class_00/img_00000.jpg"));
    assert_eq!(
        (report.images, report.bytes),
        (23, folder.total_bytes().unwrap())
    );
    let mut grey = 0;
    for i in 0..folder.len() {
        let image = image::open(folder.path(i)).unwrap();
        assert!((40..=60).contains(&image.width()) && (30..=50).contains(&image.height()));
        grey += u32::from(image.color() == image::ColorType::L8);
    }
    assert!((2..=14).contains(&grey), "{grey} single-channel images");
}

#[test]
fn asking_again_is_free_and_asking_for_something_else_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path().join("set"));
    let first = run(&options);
    let again = run(&GenerateOptions {
        jobs: 7,
        ..options.clone()
    });
    assert_eq!(
        again,
        GenerateReport {
            outcome: GenerateOutcome::AlreadyThere,
            ..first
        }
    );
    let other = GenerateOptions {
        images: 24,
        quality: 80,
        ..options.clone()
    };
    let message = generate(&other, &|_| {}).unwrap_err().to_string();
    assert!(
        message.contains("images: 23 there, 24 asked; quality: 90 there, 80 asked"),
        "{message}"
    );
    fs::remove_file(options.out.join("class_00/img_00000.jpg")).unwrap();
    let message = generate(&options, &|_| {}).unwrap_err().to_string();
    assert!(
        message.contains("23 images by its manifest but holds 22"),
        "{message}"
    );
}

#[test]
fn an_interrupted_run_goes_on_and_one_with_other_options_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let whole = small(dir.path().join("whole"));
    run(&whole);
    let resumed = small(dir.path().join("resumed"));
    let partial = dir.path().join(".resumed.partial");
    let interrupted = std::panic::catch_unwind(|| {
        let one = GenerateOptions {
            jobs: 1,
            ..resumed.clone()
        };
        generate(&one, &|done| assert!(done < 9, "interrupted"))
    });
    assert!(
        interrupted.is_err()
            && !resumed.out.exists()
            && partial.join("class_00/img_00000.jpg").exists()
    );
    assert_eq!(run(&resumed).images, 23);
    assert!(!partial.exists());
    assert_eq!(contents(&whole.out), contents(&resumed.out));

    let other = GenerateOptions {
        seed: 77,
        images: 9,
        ..small(dir.path().join("other"))
    };
    fs::create_dir_all(dir.path().join(".other.partial/class_07")).unwrap();
    fs::write(dir.path().join(".other.partial").join(MANIFEST_NAME), "{").unwrap();
    assert_eq!(run(&other).images, 9);
    assert_eq!(ImageFolder::open(&other.out).unwrap().classes().len(), 3);
}

#[test]
fn a_folder_of_someone_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path().join("mine"));
    fs::create_dir(&options.out).unwrap();
    fs::write(options.out.join("thesis.tex"), "x").unwrap();
    assert!(matches!(
        generate(&options, &|_| {}),
        Err(DataError::NotOurs { .. })
    ));
    fs::remove_file(options.out.join("thesis.tex")).unwrap();
    assert_eq!(
        run(&options).outcome,
        GenerateOutcome::Written,
        "an empty folder may be filled"
    );
}

#[test]
fn two_runs_into_one_folder_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path().join("set"));
    fill_folder(&options.out, &Manifest::of(&options), |_| {
        let other = generate(&options, &|_| {});
        assert!(matches!(other, Err(DataError::Busy { .. })));
        Ok(())
    })
    .unwrap();
}

#[test]
fn nonsense_is_refused_by_name() {
    let base = small(PathBuf::from("/nonexistent/x"));
    let cases = [
        (
            GenerateOptions {
                classes: 0,
                ..base.clone()
            },
            "classes",
        ),
        (
            GenerateOptions {
                images: 2,
                ..base.clone()
            },
            "images",
        ),
        (
            GenerateOptions {
                width_range: 0..=10,
                ..base.clone()
            },
            "width",
        ),
        (
            GenerateOptions {
                height_range: RangeInclusive::new(90, 50),
                ..base.clone()
            },
            "height",
        ),
        (
            GenerateOptions {
                grey_fraction: f32::NAN,
                ..base.clone()
            },
            "grey fraction",
        ),
        (
            GenerateOptions {
                quality: 0,
                ..base.clone()
            },
            "quality",
        ),
        (
            GenerateOptions {
                jobs: 0,
                ..base.clone()
            },
            "jobs",
        ),
    ];
    for (options, name) in cases {
        let message = generate(&options, &|_| {}).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("cannot generate images with {name} =")),
            "{message}"
        );
    }
}

#[test]
fn png_is_lossless() {
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        format: ImageFormat::Png,
        ..small(dir.path().join("set"))
    };
    run(&options);
    let folder = ImageFolder::open(&options.out).unwrap();
    assert_eq!(folder.path(0).extension().unwrap(), "png");
    assert_eq!(
        image::open(folder.path(0)).unwrap().height().clamp(30, 50),
        image::open(folder.path(0)).unwrap().height()
    );
}
