use super::*;
use crate::fetch::{Provenance, provenance};
use crate::{CifarKind, PublishedPart, SmallImages};
use files::volumes;
use std::fs;

fn options(like: PublishedSet, out: PathBuf) -> StandInOptions {
    StandInOptions {
        out,
        like,
        seed: 3,
        jobs: 2,
    }
}

/// So many pictures of a part, sample `i` of class `i % classes`.
fn drawn(like: PublishedSet, classes: usize, part: u64, samples: usize) -> Vec<Vec<u8>> {
    let bytes = match like {
        PublishedSet::Mnist => 28 * 28,
        PublishedSet::Cifar10 | PublishedSet::Cifar100 => 3 * 32 * 32,
    };
    let pictures = Pictures::new(like, 3);
    let mut artist = pictures.artist();
    let draw = |i| {
        let mut pixels = vec![0xaa; bytes];
        artist.draw((i % classes) as u32, (part, i as u64), &mut pixels);
        pixels
    };
    (0..samples).map(draw).collect()
}

/// How much of the second part is nearest to the mean of its class in the first: what a linear model can do without
/// effort.
fn nearest_mean(like: PublishedSet, classes: usize, samples: usize) -> f64 {
    let training = drawn(like, classes, 0, samples);
    let mut means = vec![vec![0.0f32; training[0].len()]; classes];
    for (i, pixels) in training.iter().enumerate() {
        let share = classes as f32 / samples as f32;
        for (mean, pixel) in means[i % classes].iter_mut().zip(pixels) {
            *mean += share * f32::from(*pixel);
        }
    }
    let distance = |mean: &[f32], pixels: &[u8]| -> f32 {
        let pairs = mean.iter().zip(pixels);
        pairs.map(|(a, b)| (a - f32::from(*b)).powi(2)).sum()
    };
    let test = drawn(like, classes, 1, 400);
    let is_right = |(i, pixels): &(usize, &Vec<u8>)| {
        let by = |a: &usize, b: &usize| {
            distance(&means[*a], pixels).total_cmp(&distance(&means[*b], pixels))
        };
        (0..classes).min_by(by) == Some(i % classes)
    };
    let right = test.iter().enumerate().filter(is_right).count();
    right as f64 / test.len() as f64
}

#[test]
fn classes_can_be_learned_and_not_perfectly() {
    for (like, classes, samples, low) in [
        (PublishedSet::Mnist, 10, 1000, 0.5),
        (PublishedSet::Cifar10, 10, 1000, 0.2),
        (PublishedSet::Cifar100, 100, 2000, 0.02),
    ] {
        let accuracy = nearest_mean(like, classes, samples);
        assert!((low..0.9).contains(&accuracy), "{like:?}: {accuracy}");
    }
}

#[test]
fn pictures_differ_by_sample_part_and_seed_and_nothing_else() {
    for like in PublishedSet::ALL {
        let all = drawn(like, 10, 0, 20);
        assert!(all == drawn(like, 10, 0, 20), "{like:?}");
        assert!(all[3] != all[13] && all[3] != drawn(like, 10, 1, 4)[3]);
        let mut other = vec![0; all[3].len()];
        let pictures = Pictures::new(like, 4);
        pictures.artist().draw(3, (0, 3), &mut other);
        assert!(all[3] != other, "{like:?}");
    }
}

#[test]
fn volumes_have_the_sizes_of_the_published_files() {
    for (like, bytes) in [
        (
            PublishedSet::Mnist,
            47_040_016 + 60_008 + 7_840_016 + 10_008,
        ),
        (PublishedSet::Cifar10, 6 * 30_730_000),
        (PublishedSet::Cifar100, 60_000 * 3074),
    ] {
        let volumes = volumes(like);
        assert_eq!(volumes.iter().map(Volume::bytes).sum::<u64>(), bytes);
        assert_eq!(
            volumes.iter().map(|volume| volume.samples).sum::<usize>(),
            60_000
                + if like == PublishedSet::Mnist {
                    10_000
                } else {
                    0
                }
        );
    }
}

#[test]
fn a_mnist_of_our_own_is_read_as_the_real_one_is_and_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("mnist");
    // What another run left behind.
    let partial = folder.path().join(".mnist.partial");
    fs::create_dir_all(partial.join("class_00")).unwrap();
    fs::write(partial.join("leftover"), "x").unwrap();
    let wanted = options(PublishedSet::Mnist, out.clone());
    let watched = |done, all| assert!(done <= all && all == 70_000);
    let stopped = generate_stand_in(&wanted, &watched, &|| true);
    assert!(matches!(stopped, Err(DataError::Stopped)) && !out.exists());
    let report = generate_stand_in(&wanted, &watched, &|| false).unwrap();
    assert_eq!(
        (report.outcome, report.images),
        (GenerateOutcome::Written, 70_000)
    );
    assert!(!out.join("leftover").exists() && !out.join("class_00").exists());
    let train = SmallImages::open_idx(&out, PublishedPart::Train).unwrap();
    let test = SmallImages::open_idx(&out, PublishedPart::Test).unwrap();
    assert_eq!(
        (train.len(), train.shape(), train.classes()),
        (60_000, [1, 28, 28], 10)
    );
    assert_eq!(
        (test.len(), test.shape(), test.classes()),
        (10_000, [1, 28, 28], 10)
    );
    for (images, each) in [(&train, 6_000), (&test, 1_000)] {
        for class in 0..10 {
            let count = (0..images.len())
                .filter(|i| images.label(*i) == class)
                .count();
            assert_eq!(count, each);
        }
    }
    // Sample 5 is what is drawn for it.
    let mut pixels = vec![0; 28 * 28];
    let pictures = Pictures::new(PublishedSet::Mnist, 3);
    pictures
        .artist()
        .draw(train.label(5_005), (0, 5_005), &mut pixels);
    assert!(train.pixels(5_005) == pixels);
    assert_eq!(
        provenance(PublishedSet::Mnist, &out).unwrap(),
        Provenance::Generated
    );
    let manifest = fs::read_to_string(out.join(MANIFEST_NAME)).unwrap();
    assert!(
        manifest.contains("not MNIST, only in its format"),
        "{manifest}"
    );
    again(&wanted);
}

/// The same again is there already; anything else is refused.
fn again(wanted: &StandInOptions) {
    let generate = |options: &StandInOptions| generate_stand_in(options, &|_, _| {}, &|| false);
    let report = generate(wanted).unwrap();
    assert_eq!(
        (report.outcome, report.bytes),
        (GenerateOutcome::AlreadyThere, 54_950_048)
    );
    let refused = |options: &StandInOptions, part: &str| {
        let error = generate(options).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let other = StandInOptions {
        seed: 4,
        ..wanted.clone()
    };
    refused(&other, "seed: 3 there, 4 asked");
    refused(
        &options(PublishedSet::Cifar10, wanted.out.clone()),
        "like: mnist there, cifar10 asked",
    );
    fs::write(wanted.out.join("t10k-labels-idx1-ubyte"), "short").unwrap();
    refused(wanted, "holds 60000");
    fs::remove_file(wanted.out.join(MANIFEST_NAME)).unwrap();
    refused(wanted, "was not written by");
    assert_eq!(
        provenance(PublishedSet::Mnist, &wanted.out).unwrap(),
        Provenance::Unknown
    );
}

/// One volume of each: all of them would take long without optimisation.
#[test]
fn cifar_files_are_read_as_the_real_ones_are() {
    let folder = tempfile::tempdir().unwrap();
    for (like, kind, part) in [
        (PublishedSet::Cifar10, CifarKind::Ten, PublishedPart::Test),
        (
            PublishedSet::Cifar100,
            CifarKind::Hundred,
            PublishedPart::Test,
        ),
    ] {
        let options = options(like, folder.path().to_path_buf());
        let pictures = Pictures::new(like, options.seed);
        let volume = volumes(like).pop().unwrap();
        let bytes = volume.write(folder.path(), &options, &pictures, &mut |_| Ok(()));
        assert_eq!(bytes.unwrap(), volume.bytes());
        let images = SmallImages::open_cifar(folder.path(), kind, part).unwrap();
        assert_eq!(images.len(), 10_000);
        let classes = images.classes() as u32;
        let of_last = (0..images.len()).filter(|i| images.label(*i) == classes - 1);
        assert_eq!(of_last.count() as u32, 10_000 / classes);
        let mut pixels = vec![0; 3 * 32 * 32];
        pictures
            .artist()
            .draw(images.label(9_999), (1, 9_999), &mut pixels);
        assert!(images.pixels(9_999) == pixels);
    }
}

#[test]
fn bytes_do_not_depend_on_jobs() {
    let like = PublishedSet::Mnist;
    let pictures = Pictures::new(like, 3);
    let volume = volumes(like).pop().unwrap();
    let [one, three] = [1, 3].map(|jobs| {
        let folder = tempfile::tempdir().unwrap();
        let options = StandInOptions {
            jobs,
            ..options(like, folder.path().to_path_buf())
        };
        volume
            .write(folder.path(), &options, &pictures, &mut |_| Ok(()))
            .unwrap();
        fs::read(folder.path().join("t10k-images-idx3-ubyte")).unwrap()
    });
    assert!(one == three);
}
