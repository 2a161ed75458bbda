use super::*;

fn batch(number: u64, samples: usize) -> BatchCost {
    let mut batch = BatchCost {
        worker: number as u32 % 3,
        bytes: 500 + number,
        collate: Cost::computing(1_000 * number),
        step: Cost {
            wall: 7_000_000,
            cpu: 12_000_000,
        },
        ..BatchCost::default()
    };
    batch.fetched(samples as u32, Cost::waiting(samples as u64 * 300 * number));
    batch
}

#[test]
fn the_last_steps_can_be_without_their_waits() {
    let mut replay = Replay::default();
    for number in 0..4 {
        let mut batch = batch(number, 1);
        batch.step = Cost {
            wall: 5_000_000,
            cpu: [4_000_000, 9_000_000][number as usize % 2],
        };
        batch.busy = 5_000_000;
        replay.batch(&batch);
    }
    replay.without_waits(&[0, 2_000_000, 3_000_000]);
    let steps: Vec<(Cost, u64)> = { replay.batches().into_iter() }
        .map(|batch| (batch.step, batch.busy))
        .collect();
    let step = |wall, cpu, busy| (Cost { wall, cpu }, busy);
    let as_before = |cpu| step(5_000_000, cpu, 5_000_000);
    assert_eq!(steps[..2], [as_before(4_000_000), as_before(9_000_000)]);
    // The core that waits is free; several cores compute as long as they did.
    assert_eq!(steps[2], step(3_000_000, 3_000_000, 3_000_000));
    assert_eq!(steps[3], step(2_000_000, 9_000_000, 2_000_000));
}

#[test]
fn costs_are_read_as_they_were_written() {
    let mut replay = Replay::default();
    (0..40).for_each(|number| replay.batch(&batch(number, 5)));
    replay.pass(PassCosts {
        started: 3,
        ..PassCosts::default()
    });
    assert_eq!(replay.passes[0].firsts.len(), 3);
    let json = serde_json::to_string(&replay).unwrap();
    assert_eq!(serde_json::from_str::<Replay>(&json).unwrap(), replay);
    assert_eq!(replay.batches()[39], batch(39, 5));
    let broken = json.replacen("\"pass\":\"0 0", "\"pass\":\"0 x", 1);
    assert!(serde_json::from_str::<Replay>(&broken).is_err());
}

#[test]
fn of_a_long_training_the_last_whole_batches_stay() {
    let mut replay = Replay::default();
    for number in 0..1_000 {
        replay.batch(&batch(number, 64));
        replay.pass(PassCosts {
            number: number as u32,
            ..PassCosts::default()
        });
    }
    let kept = replay.batches();
    assert_eq!(kept.len(), 20_000 / 64);
    assert_eq!(kept.last(), Some(&batch(999, 64)));
    let passes: Vec<u32> = replay.passes.iter().map(|pass| pass.number).collect();
    assert_eq!((passes[..3].to_vec(), passes[31]), (vec![0, 1, 2], 999));
    assert!(serde_json::to_string(&replay).unwrap().len() < 300_000);
}

#[test]
fn lacking_a_core_is_no_cost() {
    let mut batch = BatchCost {
        samples: vec![
            Cost::waiting(2_000),
            Cost::waiting(6_000),
            Cost::computing(3_000),
        ],
        collate: Cost::computing(1_000),
        ..BatchCost::default()
    };
    batch.without_delay(4_000);
    let walls: Vec<u64> = batch.samples.iter().map(|sample| sample.wall).collect();
    assert_eq!(
        (walls, batch.collate.wall),
        (vec![1_000, 3_000, 3_000], 1_000)
    );
    batch.without_delay(9_000);
    assert_eq!(batch.samples[1], Cost::default());
    assert_eq!(batch.samples[2], Cost::computing(3_000));
}

#[test]
fn what_fetching_takes_beside_the_samples_is_theirs() {
    let mut batch = BatchCost::default();
    batch.fetched(2, Cost::computing(2_000));
    batch.fetched(2, Cost::waiting(6_000));
    batch.fetch(Cost {
        wall: 10_000,
        cpu: 4_000,
    });
    let sums = |of: fn(&Cost) -> u64| batch.samples.iter().map(of).sum::<u64>();
    assert_eq!((sums(|one| one.wall), sums(|one| one.cpu)), (10_000, 4_000));
}
