//! What is simulated: the measured costs, cut into the batches that other settings make of them.

use super::replay::{BatchCost, Cost, LoaderSettings, PageCosts, PassCosts, Replay};

/// Nanoseconds that something waits, and that it computes.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) wait: f64,
    pub(super) cpu: f64,
}

impl Work {
    fn of(cost: Cost) -> Work {
        Work {
            wait: cost.wall.saturating_sub(cost.cpu) as f64,
            cpu: cost.cpu as f64,
        }
    }

    fn mean(cost: Cost, count: u64) -> Work {
        Work::of(cost).scaled(1.0 / count.max(1) as f64)
    }

    pub(super) fn scaled(self, factor: f64) -> Work {
        self.slower([factor; 2])
    }

    /// Waiting and computing so many times as long.
    fn slower(self, [wait, cpu]: [f64; 2]) -> Work {
        Work {
            wait: self.wait * wait,
            cpu: self.cpu * cpu,
        }
    }

    fn less(self, other: Work) -> Work {
        Work {
            wait: (self.wait - other.wait).max(0.0),
            cpu: (self.cpu - other.cpu).max(0.0),
        }
    }

    fn plus(self, other: Work) -> Work {
        Work {
            wait: self.wait + other.wait,
            cpu: self.cpu + other.cpu,
        }
    }

    pub(super) fn length(self) -> f64 {
        self.wait + self.cpu
    }
}

/// What a batch costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Batch {
    pub(super) samples: f64,
    /// Its samples, a few of them at a time.
    pub(super) fetch: Vec<Work>,
    pub(super) collate: Work,
    pub(super) pickle: Work,
    pub(super) bytes: f64,
    pub(super) receive: Work,
    pub(super) sampler: Work,
    /// On `width` cores at a time.
    pub(super) step: Work,
    pub(super) width: f64,
    /// Nanoseconds of the step in which the device is busy.
    pub(super) busy: f64,
}

/// What a worker's first batch takes beyond others: opening files, first touches of memory, threads that start.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct First {
    pub(super) fetch: Work,
    pub(super) collate: Work,
    pub(super) pickle: Work,
}

/// What is paid beside batches.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Starts {
    /// For each worker: making its process, in the main one; its own start; what its first batch takes beyond others.
    pub(super) process: Work,
    pub(super) own: Work,
    pub(super) first: First,
    /// Likewise, where workers are stopped: in the main process, and until each has ended.
    pub(super) stop: Work,
    pub(super) exit: Work,
    /// For each pass: the rest of `iter()`, and what the script does until the next.
    pub(super) iter: Work,
    pub(super) between: Work,
}

/// A training to simulate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scenario {
    pub(super) loader: LoaderSettings,
    /// Workers that get work: of an iterable data set with fewer shards, as many.
    pub(super) live: usize,
    pub(super) cores: f64,
    pub(super) others: f64,
    pub(super) starts: Starts,
    /// The batches of each pass that is simulated, one after another.
    pub(super) passes: Vec<Vec<Batch>>,
    /// Batches that each pass has in truth, and passes that the training has.
    pub(super) batches: u64,
    pub(super) count: u64,
}

/// Parts of a batch's fetching, between which others get their turn.
const PARTS: usize = 16;
/// Bytes of a page of memory.
const PAGE: f64 = 4096.0;
/// Putting samples together takes this much of what it takes into shared memory, at least.
const LEAST: f64 = 0.1;
/// Batches that are simulated at most, in all passes.
const MOST_BATCHES: usize = 4_000;

impl Scenario {
    /// The training of `replay` with its loader set as `loader` says.
    pub(super) fn new(replay: &Replay, loader: &LoaderSettings) -> Scenario {
        let kept = replay.batches();
        let first = first(replay, &kept);
        let passes = passes_of(replay, &kept);
        let own = passes.first().map_or(0, |pass| pass.len());
        let recut = |pass: &[&BatchCost]| cut(pass, replay, loader, first);
        let mut passes: Vec<Vec<Batch>> = passes.iter().map(|pass| recut(pass)).collect();
        let count = replay.passes.iter().map(|pass| u64::from(pass.number) + 1);
        let count = count.max().unwrap_or(1);
        let ahead = loader.num_workers * loader.prefetch_factor;
        let made = passes.first().map_or(0, Vec::len);
        // As many batches as the pass of the measured run had, cut anew.
        let known = replay.loader.batches.unwrap_or(own as u64).max(1);
        let cut_short = known as usize > own && replay.passes.len() < 2;
        let batches = match (cut_short, made) {
            (true, 1..) => (known as f64 * made as f64 / own as f64).round() as u64,
            _ => made as u64,
        };
        for pass in &mut passes {
            lengthen(pass, (batches as usize).min(4 * ahead));
        }
        let most = (MOST_BATCHES / made.max(1)).max(2);
        passes.truncate(most.min(usize::try_from(count).unwrap_or(most)));
        if let (1, Some(only)) = (passes.len(), passes.first().filter(|_| count > 1)) {
            passes.push(only.clone());
        }
        let used: std::collections::BTreeSet<u32> = kept.iter().map(|batch| batch.worker).collect();
        let too_few = loader.iterable && used.len() < replay.loader.num_workers;
        Scenario {
            live: match too_few {
                true => used.len().clamp(1, loader.num_workers.max(1)),
                false => loader.num_workers,
            },
            loader: loader.clone(),
            cores: replay.cores.max(1.0),
            others: replay.others,
            starts: starts(replay, first),
            passes,
            batches,
            count,
        }
    }

    /// With all that workers do `factor` times as long.
    pub(super) fn with_work(mut self, factor: f64) -> Scenario {
        for Batch {
            fetch,
            collate,
            pickle,
            ..
        } in self.passes.iter_mut().flatten()
        {
            let all = fetch.iter_mut().chain([collate, pickle]);
            all.for_each(|work| *work = work.scaled(factor));
        }
        self
    }

    /// With all that waits and all that computes so many times as long.
    pub(super) fn slower(mut self, factors: [f64; 2]) -> Scenario {
        let Starts {
            process,
            own,
            first:
                First {
                    fetch,
                    collate,
                    pickle,
                },
            stop,
            exit,
            iter,
            between,
        } = &mut self.starts;
        let starts = [
            process, own, fetch, collate, pickle, stop, exit, iter, between,
        ];
        starts
            .into_iter()
            .for_each(|work| *work = work.slower(factors));
        for batch in self.passes.iter_mut().flatten() {
            let step = batch.step.slower(factors);
            batch.busy *= step.length() / batch.step.length().max(1.0);
            let Batch {
                collate,
                pickle,
                receive,
                sampler,
                ..
            } = batch;
            let all = [collate, pickle, receive, sampler].into_iter();
            all.chain(&mut batch.fetch)
                .for_each(|work| *work = work.slower(factors));
            batch.step = step;
        }
        self
    }
}

/// Repeats the batches of `pass` until there are `length`.
fn lengthen(pass: &mut Vec<Batch>, length: usize) {
    let own = pass.len();
    for place in own..length {
        pass.push(pass[place % own.max(1)].clone());
    }
}

/// The passes of which all batches are kept; where there is none, all that are kept as one. A single pass that was left
/// early is no whole one; where there are several, leaving them is what the script does.
pub(super) fn passes_of<'a>(replay: &Replay, kept: &'a [BatchCost]) -> Vec<Vec<&'a BatchCost>> {
    let several = replay.passes.len() > 1;
    let ended = replay.passes.iter().filter(|pass| pass.whole || several);
    let whole = ended.filter_map(|pass| {
        let own = kept.iter().filter(|batch| batch.pass == pass.number);
        let own: Vec<&BatchCost> = own.collect();
        (own.len() as u64 == pass.batches && !own.is_empty()).then_some(own)
    });
    let whole: Vec<_> = whole.collect();
    match whole.is_empty() {
        true => vec![kept.iter().collect()],
        false => whole,
    }
}

/// What the first sample of a worker costs beyond others, where all first samples do.
fn lazy(replay: &Replay, kept: &[BatchCost]) -> Work {
    let mut all: Vec<Cost> = kept
        .iter()
        .flat_map(|batch| batch.samples.iter().copied())
        .collect();
    all.sort_unstable_by_key(|sample| sample.wall);
    let typical = all.get(all.len() / 2).copied().unwrap_or_default();
    let firsts = replay.passes.iter().flat_map(|pass| &pass.firsts);
    let least = firsts.min_by_key(|first| first.wall);
    least.map_or_else(Work::default, |first| {
        Work::of(Cost {
            wall: first.wall.saturating_sub(typical.wall),
            cpu: first.cpu.saturating_sub(typical.cpu),
        })
    })
}

/// How many batches of a pass, of which `kept` are known, are its workers' first: its first ones, where all are known.
fn firsts_of(replay: &Replay, number: u32, kept: usize) -> usize {
    let pass = replay.passes.iter().find(|pass| pass.number == number);
    let whole = pass.filter(|pass| pass.batches == kept as u64);
    whole.map_or(0, |pass| pass.firsts.len())
}

/// What the first batches of workers that were started cost beyond others.
fn first(replay: &Replay, kept: &[BatchCost]) -> First {
    let (mut firsts, mut others): (Vec<&BatchCost>, Vec<&BatchCost>) = (Vec::new(), Vec::new());
    for pass in kept.chunk_by(|one, next| one.pass == next.pass) {
        let started = firsts_of(replay, pass[0].pass, pass.len());
        let (first, other) = pass.split_at(started.min(pass.len()));
        firsts.extend(first);
        others.extend(other);
    }
    let opens = lazy(replay, kept);
    if firsts.is_empty() || others.is_empty() {
        return First {
            fetch: opens,
            ..First::default()
        };
    }
    let excess = |of: &dyn Fn(&BatchCost) -> Cost| {
        let [first, other] = [&firsts, &others].map(|batches| {
            let costs: Vec<Work> = batches.iter().map(|batch| Work::of(of(batch))).collect();
            let middle = |of: fn(&Work) -> f64| {
                let mut all: Vec<f64> = costs.iter().map(of).collect();
                all.sort_unstable_by(f64::total_cmp);
                all[all.len() / 2]
            };
            Work {
                wait: middle(|work| work.wait),
                cpu: middle(|work| work.cpu),
            }
        });
        first.less(other)
    };
    let fetched = excess(&|batch| {
        batch
            .samples
            .iter()
            .copied()
            .fold(Cost::default(), Cost::plus)
    });
    First {
        // Some samples wait for longer than others: only what all first ones wait for is the worker's.
        fetch: Work {
            wait: opens.wait,
            cpu: opens.cpu.max(fetched.cpu),
        },
        collate: excess(&|batch| batch.collate),
        pickle: excess(&|batch| batch.pickle),
    }
}

fn starts(replay: &Replay, first: First) -> Starts {
    let passes = &replay.passes;
    let count = passes.len() as u64;
    let sum = |of: fn(&PassCosts) -> Cost| passes.iter().map(of).fold(Cost::default(), Cost::plus);
    let started = passes.iter().map(|pass| u64::from(pass.started)).sum();
    let stopping = passes.iter().filter(|pass| pass.stop.wall > 0);
    let stopped = (stopping.count() * replay.loader.num_workers) as u64;
    let stop = sum(|pass| pass.stop);
    // All end at the same time, as far as there are cores.
    let workers = replay.loader.num_workers.max(1) as f64;
    let beside = workers.min(replay.cores.max(1.0));
    let exit = stop.wall.saturating_sub(stop.cpu);
    Starts {
        process: Work::mean(sum(|pass| pass.process), started),
        own: Work::mean(sum(|pass| pass.own), started),
        first,
        stop: Work::mean(Cost::computing(stop.cpu), stopped),
        exit: Work::mean(Cost::computing(exit), stopped).scaled(beside),
        iter: Work::mean(sum(|pass| pass.iter), count),
        between: Work::mean(sum(|pass| pass.between), count),
    }
}

/// A sample, and its share of what its batch costs beside.
struct Slice<'a> {
    own: Work,
    batch: &'a BatchCost,
    beside: Beside,
}

/// What a batch costs beside its samples, as far as its place or the loader changes that.
#[derive(Copy, Clone)]
struct Beside {
    collate: Work,
    pickle: Work,
    /// Of the step's CPU time.
    taken: u64,
}

impl Beside {
    /// Of `batch`, which may be a worker's first, or be made `inline`, without shared memory.
    fn of(batch: &BatchCost, first: First, is_first: bool, inline: Option<&Replay>) -> Beside {
        let (mut collate, mut pickle) = (Work::of(batch.collate), Work::of(batch.pickle));
        if is_first {
            collate = collate.less(first.collate);
            pickle = pickle.less(first.pickle);
        }
        let pages = batch.shared as f64 / PAGE;
        let PageCosts { made, taken } = inline.map_or_else(PageCosts::default, |own| own.pages);
        let [made, taken] = [made, taken].map(|ns| ns * pages);
        let pins = inline.is_some_and(|own| own.loader.pin_memory);
        collate.cpu = (collate.cpu - made).max(LEAST * collate.cpu);
        Beside {
            collate,
            pickle,
            // Whoever pins it has touched it before the step.
            taken: if pins { 0 } else { taken as u64 },
        }
    }
}

/// The batches that `loader` makes of the samples of `pass`.
fn cut<'a>(
    pass: &[&'a BatchCost],
    replay: &Replay,
    loader: &LoaderSettings,
    first: First,
) -> Vec<Batch> {
    let same = loader.batch_size == replay.loader.batch_size;
    let size = loader.batch_size.filter(|_| !same);
    let number = pass.first().map_or(0, |first| first.pass);
    let firsts = firsts_of(replay, number, pass.len());
    let inline = loader.num_workers == 0 && replay.loader.num_workers > 0;
    let slices = |(place, batch): (usize, &&'a BatchCost)| -> Vec<Slice<'a>> {
        let batch: &'a BatchCost = batch;
        let is_first = place < firsts;
        let beside = Beside::of(batch, first, is_first, inline.then_some(replay));
        let mut left = if is_first {
            first.fetch
        } else {
            Work::default()
        };
        let own = batch.samples.iter().map(|cost| {
            let own = Work::of(*cost).less(left);
            left = left.less(Work::of(*cost));
            own
        });
        own.map(|own| Slice { own, batch, beside }).collect()
    };
    let all: Vec<Vec<Slice<'_>>> = pass.iter().enumerate().map(slices).collect();
    let Some(size) = size.map(|size| size.max(1)) else {
        return all.iter().map(|batch| assembled(batch)).collect();
    };
    let all: Vec<Slice<'_>> = all.into_iter().flatten().collect();
    let full = |batch: &&[Slice<'_>]| batch.len() == size || !loader.drop_last;
    all.chunks(size).filter(full).map(assembled).collect()
}

fn assembled(slices: &[Slice<'_>]) -> Batch {
    let chunk = slices.len().div_ceil(PARTS).max(1);
    let fetch = slices.chunks(chunk).map(|part| {
        let works = part.iter().map(|slice| slice.own);
        works.fold(Work::default(), Work::plus)
    });
    let mut batch = Batch {
        samples: slices.len() as f64,
        fetch: fetch.collect(),
        ..Batch::default()
    };
    let mut step = Cost::default();
    for Slice {
        batch: from,
        beside,
        ..
    } in slices
    {
        let share = 1.0 / from.samples.len().max(1) as f64;
        let add = |work: &mut Work, cost| *work = work.plus(Work::of(cost).scaled(share));
        batch.collate = batch.collate.plus(beside.collate.scaled(share));
        batch.pickle = batch.pickle.plus(beside.pickle.scaled(share));
        add(&mut batch.receive, from.receive);
        add(&mut batch.sampler, from.sampler);
        batch.bytes += from.bytes as f64 * share;
        let taken = beside.taken.min(from.step.cpu);
        let wall = from.step.wall.saturating_sub(from.delay + taken);
        step.wall += (wall as f64 * share) as u64;
        // As much of it as before.
        let net = wall as f64 / from.step.wall.max(1) as f64;
        batch.busy += from.busy as f64 * net * share;
        step.cpu += ((from.step.cpu - taken) as f64 * share) as u64;
    }
    batch.width = (step.cpu as f64 / step.wall.max(1) as f64).max(1.0);
    batch.step = Work {
        wait: step.wall.saturating_sub(step.cpu) as f64,
        cpu: step.cpu as f64 / batch.width,
    };
    batch
}
