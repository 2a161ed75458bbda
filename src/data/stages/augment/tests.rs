//! Beside torchvision and Pillow, bit by bit.

use super::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const SIDES: [u32; 2] = [61, 64];

/// CRC-32 of what `scripts/augment-reference.py` says torchvision makes of the two pictures.
#[rustfmt::skip]
const REFERENCE: [(Change, [u32; 2]); 40] = [
    // torchvision 0.29.2+cu132, Pillow 13.0.0
    (Change::ShearX(0.09), [0xa2586e20, 0x7956725d]),
    (Change::ShearY(0.09), [0xf5d7ff52, 0xa88fc4a4]),
    (Change::ShearX(-0.3), [0x18b8fad8, 0x5ab890a6]),
    (Change::ShearY(-0.3), [0xab92c87f, 0x69e64857]),
    (Change::ShearX(0.17), [0x4cb5a480, 0xc0e00fe7]),
    (Change::ShearY(0.17), [0xcc9a8cb1, 0xf6b964c3]),
    (Change::TranslateX(13), [0xac09dcee, 0x63c137c0]),
    (Change::TranslateY(13), [0xbbbfba4a, 0x91845d33]),
    (Change::TranslateX(-27), [0x16b929ae, 0x8a0a7f62]),
    (Change::TranslateY(-27), [0x9141b28d, 0x06868ded]),
    (Change::Rotate(9.0), [0xbd078f85, 0x852ed1fd]),
    (Change::Rotate(-30.0), [0xcf91bc8d, 0x75634515]),
    (Change::Rotate(4.5), [0x51314c2e, 0xe917a6dd]),
    (Change::Brightness(0.1), [0x15cce074, 0xf4fdaf09]),
    (Change::Color(0.1), [0xd92c2c12, 0x652a963b]),
    (Change::Contrast(0.1), [0xc534046e, 0xb15b580e]),
    (Change::Sharpness(0.1), [0xbd46b3d3, 0x51b9ac26]),
    (Change::Brightness(0.73), [0x0d5e6595, 0x3cfd597e]),
    (Change::Color(0.73), [0x54b2453f, 0xc1f127c3]),
    (Change::Contrast(0.73), [0x11f7bd3c, 0x3d1a0da5]),
    (Change::Sharpness(0.73), [0x62f83656, 0x611b0f2f]),
    (Change::Brightness(1.27), [0xc6077614, 0xdfbd8bfd]),
    (Change::Color(1.27), [0x0662ce94, 0x29305e6d]),
    (Change::Contrast(1.27), [0x579e413e, 0xe11a970a]),
    (Change::Sharpness(1.27), [0x1fb35b90, 0x15f23014]),
    (Change::Brightness(1.9), [0xad7717c9, 0x027f80b1]),
    (Change::Color(1.9), [0xb03b87b7, 0x3d49e3fe]),
    (Change::Contrast(1.9), [0x9a6c9fd8, 0x0b96f668]),
    (Change::Sharpness(1.9), [0xa9979fdd, 0x9f11d175]),
    (Change::Posterize(4), [0xa0589366, 0x3edab302]),
    (Change::Posterize(7), [0x8f8bf493, 0x4f8c5b7e]),
    (Change::Posterize(8), [0xe033cb9b, 0x88cfaa85]),
    (Change::Solarize(178.5), [0x7991cc0f, 0xbac8dc07]),
    (Change::Solarize(0.0), [0x2e5b2c6b, 0xf31ca610]),
    (Change::Solarize(255.0), [0x86a2e671, 0x88cfaa85]),
    (Change::AutoContrast, [0xe033cb9b, 0xeb5fa290]),
    (Change::Equalize, [0x4a4fd24f, 0x24d55d3f]),
    (Change::Hue(0.1), [0xb9d2bc9f, 0xdc3a13ea]),
    (Change::Hue(-0.25), [0x26482a75, 0xc3fd0f56]),
    (Change::Hue(0.5), [0x0c4fe035, 0x31412b0d]),
];

/// The pictures of the script, with a fourth byte.
fn picture(side: u32) -> Vec<u8> {
    let mut state = u64::from(side);
    let mut pixels = Vec::new();
    for i in 0..u64::from(side * side * 3) {
        state = (state * 1_103_515_245 + 12345) % (1 << 31);
        let noise = (state >> 16) % 256;
        let side = u64::from(side);
        let (y, x, channel) = (i / (side * 3), i / 3 % side, i % 3);
        let slope = (x * 2 + y * (channel + 1)) % 256;
        let value = match side % 2 {
            1 => noise,
            _ => (slope * 3 + noise % 32) / 4 % 256,
        };
        pixels.push(value as u8);
        if channel == 2 {
            pixels.push(0);
        }
    }
    pixels
}

fn sum(pixels: &[u8]) -> u32 {
    let rgb: Vec<u8> = pixels
        .chunks(4)
        .flat_map(|pixel| &pixel[..3])
        .copied()
        .collect();
    crc32fast::hash(&rgb)
}

#[test]
fn each_change_is_torchvisions() {
    let mut augmenter = Augmenter::default();
    let mut others = Vec::new();
    for (change, wanted) in REFERENCE {
        for (side, wanted) in SIDES.into_iter().zip(wanted) {
            let mut pixels = picture(side);
            augmenter.make(change, &mut pixels, side);
            if sum(&pixels) != wanted {
                others.push((change, side));
            }
        }
    }
    assert!(others.is_empty(), "other than torchvision's: {others:?}");
}

#[test]
fn what_is_drawn_stays_within_its_bounds_and_repeats() {
    let randaugment = RandAugment {
        operations: 2,
        magnitude: 9,
    };
    let draw = |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..20_000)
            .map(|_| randaugment.draw(224, &mut rng))
            .collect::<Vec<_>>()
    };
    let drawn = draw(1);
    assert_eq!(drawn, draw(1));
    // 9 of 30, in either direction.
    for change in [
        Change::ShearX(0.09),
        Change::ShearY(-0.09),
        Change::TranslateX(30),
        Change::TranslateY(-30),
        Change::Rotate(9.0),
        Change::Brightness(1.27),
        Change::Color(0.73),
        Change::Contrast(1.27),
        Change::Sharpness(0.73),
        Change::Posterize(7),
        Change::Solarize(178.5),
        Change::AutoContrast,
        Change::Equalize,
        Change::Identity,
    ] {
        let same = drawn.iter().filter(|found| close(found, &change)).count();
        let directions = if matches!(
            change,
            Change::Posterize(_)
                | Change::Solarize(_)
                | Change::AutoContrast
                | Change::Equalize
                | Change::Identity
        ) {
            1
        } else {
            2
        };
        let wanted = drawn.len() / 14 / directions;
        assert!(
            same.abs_diff(wanted) < 200,
            "{change:?}: {same} times, not about {wanted}"
        );
    }
}

fn close(one: &Change, other: &Change) -> bool {
    let numbers = |change: &Change| match *change {
        Change::ShearX(n) | Change::ShearY(n) | Change::Rotate(n) => n,
        Change::Brightness(n) | Change::Color(n) | Change::Contrast(n) | Change::Sharpness(n) => {
            f64::from(n)
        }
        Change::Solarize(n) | Change::Hue(n) => f64::from(n),
        Change::TranslateX(n) | Change::TranslateY(n) => f64::from(n),
        Change::Posterize(n) => f64::from(n),
        Change::Identity | Change::AutoContrast | Change::Equalize => 0.0,
    };
    std::mem::discriminant(one) == std::mem::discriminant(other)
        && (numbers(one) - numbers(other)).abs() < 1e-5
}

#[test]
fn jitter_draws_each_factor_from_its_range_in_any_order() {
    let jitter = ColorJitter {
        brightness: 0.4,
        contrast: 1.5,
        saturation: 0.0,
        hue: 0.1,
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut first = std::collections::BTreeMap::new();
    for _ in 0..4_000 {
        let changes = jitter.draw(&mut rng);
        for change in changes {
            match change {
                Change::Brightness(factor) => assert!((0.6..=1.4).contains(&factor)),
                Change::Contrast(factor) => assert!((0.0..=2.5).contains(&factor)),
                // Of the saturation, which does not change.
                Change::Identity => {}
                Change::Hue(turn) => assert!((-0.1..=0.1).contains(&turn)),
                other => panic!("{other:?}"),
            }
        }
        let name = format!("{:?}", std::mem::discriminant(&changes[0]));
        *first.entry(name).or_insert(0) += 1;
    }
    assert!(
        first.len() == 4 && first.values().all(|count| (850..=1150).contains(count)),
        "{first:?}"
    );
}
