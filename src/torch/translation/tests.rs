//! Trainings of known costs: a small simulator makes the events that hooks would record, with the DataLoader's rules.
//!
//! The truth is the counterfactual: the same training without the cost.

use super::*;
use crate::event::{Main as Work, PartTime, Span, Used};
use stallscope_core::analysis::{Analysis, Cause, Summary, WindowRule};
use stallscope_core::timeline::Record;

const MS: u64 = 1_000_000;
const MAIN: u32 = 1000;
const PARTS: [&str; 4] = ["read", "decode", "crop", "lock"];
const LOCK: usize = 3;

/// What costs how long, in nanoseconds.
#[derive(Copy, Clone)]
struct Costs {
    /// Of each sample: of the parts by name, and what is in none.
    parts: [u64; 4],
    rest: u64,
    collate: u64,
    pickle: u64,
    receive: u64,
    sampler: u64,
    /// Starting each worker in the main process, its own start, and what its first sample takes more.
    start: u64,
    own: u64,
    lazy: u64,
    /// What its first collating, and its first sending, takes more, but for the first pass, where no other is known.
    cold: u64,
    stop: u64,
    /// One sample in so many takes so much longer in its decoding.
    slow: u64,
    slow_every: u64,
    /// One sample in so many holds the lock so much longer.
    hold: u64,
    hold_every: u64,
    /// The first sample of a worker waits for it so much longer, as where the others do not let go.
    unfair: u64,
    copy: u64,
    step: u64,
    between: u64,
    /// After each epoch, a pass without gradients whose first batch takes so long, and others.
    validation: Option<(u64, u64)>,
    /// Of an iterable data set.
    shards: Option<usize>,
}

const CHEAP: Costs = Costs {
    parts: [MS / 200, MS / 100, MS / 200, 0],
    rest: MS / 500,
    collate: MS / 50,
    pickle: MS / 100,
    receive: MS / 50,
    sampler: MS / 100,
    start: 0,
    own: 0,
    lazy: 0,
    cold: 0,
    stop: 0,
    slow: 0,
    slow_every: 1,
    hold: 0,
    hold_every: 1,
    unfair: 0,
    copy: 0,
    step: 4 * MS,
    between: 0,
    validation: None,
    shards: None,
};

#[derive(Copy, Clone)]
struct Shape {
    workers: usize,
    prefetch: usize,
    batches: u64,
    epochs: u32,
    size: u64,
}

/// One worker of the simulator: what it has to do, and how far it is.
#[derive(Default)]
struct Hand {
    queue: VecDeque<(u64, u64)>,
    free: u64,
    feeder_free: u64,
    batch: Option<(u64, u64, u64, u64)>,
    fresh: bool,
    cold: u64,
    left: Option<u64>,
}

struct Simulator {
    shape: Shape,
    costs: Costs,
    now: u64,
    busy: u64,
    events: Vec<(u64, u32, u32, Event)>,
    hands: Vec<Hand>,
    lock_free: u64,
    /// Batches that were sent, by when.
    sent: Vec<(u64, u64, bool)>,
    pass: Pass,
    samples: u64,
}

impl Simulator {
    fn say(&mut self, at: u64, pid: u32, event: Event) {
        let tid = match event {
            Event::Transport { .. } => pid + 500,
            _ => pid,
        };
        self.events.push((at, pid, tid, event));
    }

    fn main(&mut self, event: Event) {
        self.say(self.now, MAIN, event);
    }

    fn batch(&self, number: u64) -> Batch {
        Batch {
            pass: self.pass,
            number,
        }
    }

    fn pid(&self, worker: usize) -> u32 {
        2000 + 10 * self.pass.iterator + worker as u32
    }

    /// Makes the next sample, at `from`, in the process `pid`; returns when it was done.
    fn sample(&mut self, pid: u32, batch: Batch, place: u32, from: u64, fresh: bool) -> u64 {
        let number = batch.number * self.shape.size + u64::from(place);
        let costs = self.costs;
        let mut lengths = costs.parts;
        self.samples += 1;
        if number % costs.slow_every == costs.slow_every - 1 {
            lengths[1] += costs.slow;
        }
        if costs.parts[LOCK] > 0 {
            let begins = from + lengths[0] + lengths[1] + lengths[2];
            let longer = number % costs.hold_every == costs.hold_every - 1;
            let hold = costs.parts[LOCK] + if longer { costs.hold } else { 0 };
            let until = self.lock_free.max(begins) + hold;
            self.lock_free = until;
            lengths[LOCK] = until - begins + if fresh { costs.unfair } else { 0 };
        }
        let lazy = if fresh { costs.lazy } else { 0 };
        let end = from + lengths.iter().sum::<u64>() + costs.rest + lazy;
        let parts = lengths
            .iter()
            .enumerate()
            .filter(|(_, length)| **length > 0);
        let parts = parts.map(|(part, length)| PartTime {
            part: part as u16,
            count: 1,
            length: *length,
        });
        let event = Event::Sample {
            batch,
            place,
            index: number,
            samples: 1,
            span: Span { start: from, end },
            cpu: 0,
            parts: parts.collect(),
        };
        self.say(end, pid, event);
        end
    }

    fn fetched(
        &mut self,
        pid: u32,
        batch: Batch,
        worker: u32,
        wait: Span,
        start: u64,
        collate: Span,
    ) {
        let end = collate.end;
        let event = Event::Fetch {
            batch,
            worker,
            samples: self.shape.size as u32,
            wait,
            span: Span { start, end },
            collate,
            used: Used::default(),
            parts: Vec::new(),
            ended: false,
        };
        self.say(end, pid, event);
    }

    /// When a worker can go on; `None` where it has nothing to do.
    fn next_of(&self, worker: usize) -> Option<u64> {
        let hand = &self.hands[worker];
        match hand.batch {
            Some((_, _, _, until)) => Some(until),
            None => hand.queue.front().map(|(_, put)| hand.free.max(*put)),
        }
    }

    /// A worker does its next sample, or puts a batch together.
    fn go_on(&mut self, worker: usize) {
        let pid = self.pid(worker);
        let begun = match self.hands[worker].batch {
            Some(begun) => begun,
            None => {
                let hand = &mut self.hands[worker];
                let Some((number, put)) = hand.queue.pop_front() else {
                    return;
                };
                let start = hand.free.max(put);
                if hand.left == Some(0) {
                    return self.runs_out(worker, number, start);
                }
                hand.left = hand.left.map(|left| left - 1);
                hand.batch = Some((number, start, 0, start));
                return;
            }
        };
        let (number, start, place, until) = begun;
        let batch = self.batch(number);
        if place < self.shape.size {
            let fresh = std::mem::take(&mut self.hands[worker].fresh);
            let until = self.sample(pid, batch, place as u32, until, fresh);
            self.hands[worker].batch = Some((number, start, place + 1, until));
            return;
        }
        let cold = std::mem::take(&mut self.hands[worker].cold);
        let end = until + self.costs.collate + cold;
        let wait = Span {
            start: self.hands[worker].free,
            end: start,
        };
        let collate = Span { start: until, end };
        self.fetched(pid, batch, worker as u32, wait, start, collate);
        let hand = &mut self.hands[worker];
        (hand.batch, hand.free) = (None, end);
        let pickle = Span {
            start: hand.feeder_free.max(end),
            end: hand.feeder_free.max(end) + self.costs.pickle + cold,
        };
        hand.feeder_free = pickle.end;
        let event = Event::Transport {
            batch,
            worker: worker as u32,
            pickle,
            sent: pickle.end,
            bytes: 1000,
            shared: 0,
            used: Used::default(),
        };
        self.say(pickle.end, pid, event);
        self.sent.push((pickle.end, number, false));
    }

    fn runs_out(&mut self, worker: usize, number: u64, at: u64) {
        let event = Event::Fetch {
            batch: self.batch(number),
            worker: worker as u32,
            samples: 0,
            wait: Span {
                start: self.hands[worker].free,
                end: at,
            },
            span: Span { start: at, end: at },
            collate: Span::default(),
            used: Used::default(),
            parts: Vec::new(),
            ended: true,
        };
        self.say(at, self.pid(worker), event);
        self.hands[worker].left = None;
        self.sent.push((at, number, true));
    }

    /// The batch that is sent next: when, which, and whether there is none in it.
    fn next_sent(&mut self) -> (u64, u64, bool) {
        loop {
            let first = self.sent.iter().min().copied();
            let next = (0..self.hands.len())
                .filter_map(|own| Some((self.next_of(own)?, own)))
                .min();
            match (first, next) {
                (Some(first), next) if next.is_none_or(|(at, _)| first.0 <= at) => {
                    self.sent.retain(|sent| *sent != first);
                    return first;
                }
                (_, Some((_, worker))) => self.go_on(worker),
                (None, None) => panic!("nothing is out"),
                (Some(_), None) => unreachable!(),
            }
        }
    }

    fn deal(&mut self, number: u64, worker: usize) {
        let sampler = Span {
            start: self.now,
            end: self.now + self.costs.sampler,
        };
        self.now = sampler.end;
        let event = Event::Dispatch {
            batch: self.batch(number),
            worker: worker as u32,
            samples: self.shape.size as u32,
            sampler,
            put: self.now,
            cpu: 0,
        };
        self.main(event);
        if let Some(hand) = self.hands.get_mut(worker) {
            hand.queue.push_back((number, self.now));
        }
    }

    fn step(&mut self) {
        if self.costs.copy > 0 {
            let span = Span {
                start: self.now,
                end: self.now + self.costs.copy,
            };
            self.now = span.end;
            let (work, pass) = (Work::Copy, Pass::default());
            self.main(Event::Main {
                work,
                pass,
                subject: 0,
                span,
                used: Used::default(),
            });
        }
        let third = self.costs.step / 3;
        for phase in [Compute::Forward, Compute::Backward, Compute::Optimizer] {
            let span = Span {
                start: self.now,
                end: self.now + third,
            };
            self.now = span.end;
            self.busy += third;
            self.main(Event::Compute { phase, span });
        }
        self.now += self.costs.between;
    }

    fn next_begins(&mut self) {
        let (pass, at) = (self.pass, self.now);
        self.main(Event::NextBegins {
            pass,
            at,
            used: Used::default(),
        });
    }

    fn next_ends(&mut self, number: u64, is_some: bool, grad: bool) {
        let (batch, at, samples) = (self.batch(number), self.now, self.shape.size as u32);
        self.main(Event::NextEnds {
            batch,
            is_some,
            grad,
            samples,
            at,
            used: Used::default(),
        });
    }

    fn begin(&mut self, grad: bool) -> u64 {
        let (pass, at) = (self.pass, self.now);
        self.main(Event::PassBegins { pass, grad, at });
        let json = format!(
            r#"{{"num_workers": {}, "prefetch_factor": {}, "batch_size": null}}"#,
            self.shape.workers, self.shape.prefetch
        );
        let bytes = json.into_bytes();
        let subject = self.pass.iterator;
        self.main(Event::Text {
            kind: TextKind::Loader,
            subject,
            more: false,
            bytes,
        });
        at
    }

    fn work(&mut self, work: Work, subject: u32, start: u64) {
        let (pass, end) = (self.pass, self.now);
        let span = Span { start, end };
        self.main(Event::Main {
            work,
            pass,
            subject,
            span,
            used: Used::default(),
        });
    }

    /// One epoch with workers.
    fn epoch(&mut self) {
        let Shape {
            workers,
            prefetch,
            batches,
            ..
        } = self.shape;
        let called = self.begin(true);
        self.hands.clear();
        self.sent.clear();
        for worker in 0..workers {
            let start = self.now;
            self.now += self.costs.start;
            self.work(Work::StartWorkers, worker as u32, start);
            let ready = self.now + self.costs.own;
            let shards = self.costs.shards;
            let left = shards.map(|shards| {
                if worker < shards {
                    batches / shards.min(workers) as u64
                } else {
                    0
                }
            });
            self.hands.push(Hand {
                free: ready,
                feeder_free: ready,
                fresh: true,
                cold: if self.samples > 0 { self.costs.cold } else { 0 },
                left,
                ..Hand::default()
            });
            let (pass, span) = (
                self.pass,
                Span {
                    start: self.now,
                    end: ready,
                },
            );
            let pid = self.pid(worker);
            self.say(
                ready,
                pid,
                Event::WorkerBegins {
                    pass,
                    worker: worker as u32,
                    span,
                    used: Used::default(),
                },
            );
        }
        let (mut dealt, mut turn) = (0, 0);
        let mut live = vec![true; workers];
        let most = if self.costs.shards.is_some() {
            u64::MAX
        } else {
            batches
        };
        for _ in 0..workers * prefetch {
            if dealt < most {
                self.deal(dealt, turn % workers);
                (dealt, turn) = (dealt + 1, turn + 1);
            }
        }
        self.work(Work::Iter, 0, called);
        let mut parked: HashMap<u64, bool> = HashMap::new();
        let (mut wanted, mut taken) = (0, 0);
        while taken < batches {
            self.next_begins();
            loop {
                if parked.remove(&wanted) == Some(true) {
                    break;
                }
                let since = self.now;
                let (at, number, is_end) = self.next_sent();
                let work = Span {
                    start: at.max(self.now),
                    end: at.max(self.now) + self.costs.receive,
                };
                self.now = work.end;
                let worker = (0..workers)
                    .find(|w| number % workers as u64 == *w as u64)
                    .unwrap_or(0);
                let is_parked = number != wanted && !is_end;
                let event = Event::Receive {
                    batch: self.batch(number),
                    worker: worker as u32,
                    parked: is_parked,
                    waited_from: since,
                    work,
                    bytes: 1000,
                };
                self.main(event);
                if is_end {
                    live[number as usize % workers] = false;
                    parked.insert(number, false);
                    while parked.get(&wanted) == Some(&false) {
                        wanted += 1;
                    }
                    let next = (0..workers)
                        .map(|more| (turn + more) % workers)
                        .find(|own| live[*own]);
                    if let Some(next) = next {
                        self.deal_aligned(&mut dealt, &mut turn, next, &mut parked);
                    }
                } else if is_parked {
                    parked.insert(number, true);
                } else {
                    break;
                }
            }
            if dealt < most {
                let next = (0..workers)
                    .map(|more| (turn + more) % workers)
                    .find(|own| live[*own]);
                if let Some(next) = next {
                    self.deal_aligned(&mut dealt, &mut turn, next, &mut parked);
                }
            }
            self.next_ends(wanted, true, true);
            self.step();
            (wanted, taken) = (wanted + 1, taken + 1);
            while parked.get(&wanted) == Some(&false) {
                wanted += 1;
            }
        }
        self.next_begins();
        let start = self.now;
        self.now += self.costs.stop;
        self.work(Work::StopWorkers, 0, start);
        self.pass_ends(batches);
        // What ended workers were dealt is nobody's; batches that are left end with them.
    }

    /// Deals to `worker`, whose batches are those of its number, so that a batch's number says who made it.
    fn deal_aligned(
        &mut self,
        dealt: &mut u64,
        turn: &mut usize,
        worker: usize,
        parked: &mut HashMap<u64, bool>,
    ) {
        while *dealt % self.shape.workers as u64 != worker as u64 {
            parked.insert(*dealt, false);
            *dealt += 1;
        }
        self.deal(*dealt, worker);
        (*dealt, *turn) = (*dealt + 1, worker + 1);
    }

    fn pass_ends(&mut self, batches: u64) {
        self.next_ends(batches, false, false);
        let (pass, at) = (self.pass, self.now);
        self.main(Event::PassEnds {
            pass,
            early: false,
            at,
        });
    }

    /// The pass is asked for more than its batches, and ends.
    fn runs_dry(&mut self, batches: u64) {
        self.next_begins();
        self.pass_ends(batches);
    }

    /// One epoch without workers.
    fn inline(&mut self) {
        let called = self.begin(true);
        self.work(Work::Iter, 0, called);
        for number in 0..self.shape.batches {
            self.next_begins();
            self.deal(number, 0);
            let (batch, start) = (self.batch(number), self.now);
            for place in 0..self.shape.size {
                self.now = self.sample(MAIN, batch, place as u32, self.now, false);
            }
            let collate = Span {
                start: self.now,
                end: self.now + self.costs.collate,
            };
            self.now = collate.end;
            let wait = Span { start, end: start };
            self.fetched(MAIN, batch, 0, wait, start, collate);
            self.next_ends(number, true, true);
            self.step();
        }
        self.runs_dry(self.shape.batches);
    }

    /// One epoch with one worker, whose batches are so large that sending them takes until `read` of what receiving takes
    /// has passed.
    fn piped(&mut self, read: u64) {
        let called = self.begin(true);
        let ready = self.now;
        let pid = self.pid(0);
        let (pass, span) = (
            self.pass,
            Span {
                start: ready,
                end: ready,
            },
        );
        let worker_begins = Event::WorkerBegins {
            pass,
            worker: 0,
            span,
            used: Used::default(),
        };
        self.say(ready, pid, worker_begins);
        let mut dealt = 0;
        let (mut free, mut written) = (ready, ready);
        let mut made = Vec::new();
        let mut deal = |this: &mut Simulator, made: &mut Vec<u64>| {
            if dealt == this.shape.batches {
                return;
            }
            this.deal(dealt, 0);
            let (batch, start) = (this.batch(dealt), this.now.max(free));
            let mut end = start;
            for place in 0..this.shape.size {
                end = this.sample(pid, batch, place as u32, end, false);
            }
            end += this.costs.collate;
            let wait = Span {
                start: free,
                end: start,
            };
            let collate = Span {
                start: end - this.costs.collate,
                end,
            };
            this.fetched(pid, batch, 0, wait, start, collate);
            made.push(end);
            (dealt, free) = (dealt + 1, end);
        };
        for _ in 0..self.shape.prefetch {
            deal(self, &mut made);
        }
        self.work(Work::Iter, 0, called);
        for number in 0..self.shape.batches {
            self.next_begins();
            let (batch, since) = (self.batch(number), self.now);
            let start = made[number as usize].max(written);
            let pickle = Span {
                start,
                end: start + self.costs.pickle,
            };
            let work = Span {
                start: since.max(pickle.end),
                end: since.max(pickle.end) + self.costs.receive,
            };
            written = work.start + read;
            let transport = Event::Transport {
                batch,
                worker: 0,
                pickle,
                sent: written,
                bytes: 1000,
                shared: 0,
                used: Used::default(),
            };
            self.say(written, pid, transport);
            self.now = work.end;
            self.main(Event::Receive {
                batch,
                worker: 0,
                parked: false,
                waited_from: since,
                work,
                bytes: 1000,
            });
            deal(self, &mut made);
            self.next_ends(number, true, true);
            self.step();
        }
        self.runs_dry(self.shape.batches);
    }

    fn validate(&mut self, first: u64, others: u64) {
        self.begin(false);
        for number in 0..3 {
            self.next_begins();
            self.now += if number == 0 { first } else { others };
            self.next_ends(number, true, false);
            let span = Span {
                start: self.now,
                end: self.now + MS,
            };
            (self.now, self.busy) = (span.end, self.busy + MS);
            self.main(Event::Compute {
                phase: Compute::Inference,
                span,
            });
        }
        self.runs_dry(3);
    }

    fn run(shape: Shape, costs: Costs) -> Simulator {
        let mut simulator = Simulator::new(shape, costs);
        simulator.train();
        simulator
    }

    fn new(shape: Shape, costs: Costs) -> Simulator {
        let mut simulator = Simulator {
            shape,
            costs,
            now: 5_000 * MS,
            busy: 0,
            events: Vec::new(),
            hands: Vec::new(),
            lock_free: 0,
            sent: Vec::new(),
            pass: Pass::default(),
            samples: 0,
        };
        for (subject, name) in PARTS.iter().enumerate() {
            let bytes = name.as_bytes().to_vec();
            let subject = subject as u32;
            simulator.main(Event::Text {
                kind: TextKind::Part,
                subject,
                more: false,
                bytes,
            });
        }
        simulator
    }

    fn train(&mut self) {
        for epoch in 0..self.shape.epochs {
            self.pass = Pass {
                iterator: 2 * epoch,
                epoch: 0,
            };
            match self.shape.workers {
                0 => self.inline(),
                _ => self.epoch(),
            }
            if let Some((first, others)) = self.costs.validation
                && epoch + 1 < self.shape.epochs
            {
                self.pass = Pass {
                    iterator: 2 * epoch + 1,
                    epoch: 0,
                };
                self.validate(first, others);
            }
        }
        self.events.sort_by_key(|(at, ..)| *at);
    }
}

/// What the analysis makes of the events, in pieces of `at_once`; and the idle time that the simulator knows.
fn analysed(simulator: &Simulator, at_once: usize) -> (Summary, Translation, Nanos) {
    let mut translation = Translation::new(Wanted {
        main: MAIN,
        steps: None,
    });
    let mut analysis: Option<Analysis> = None;
    let pieces: Vec<_> = simulator.events.chunks(at_once).collect();
    for (number, piece) in pieces.iter().enumerate() {
        for (_, pid, tid, event) in *piece {
            translation.take(*pid, *tid, event.clone());
        }
        let now = piece.last().map_or(0, |(at, ..)| *at);
        let chunks = translation.translate(now, number + 1 == pieces.len());
        let Some(run_start) = translation.begun() else {
            continue;
        };
        let rule = WindowRule {
            warmup_steps: 0,
            steps: None,
            run_start,
            device_beside: false,
        };
        let analysis = analysis.get_or_insert_with(|| Analysis::new(rule, 64));
        for chunk in chunks {
            sent_batches_come_from_workers(&chunk);
            analysis.absorb(&chunk.records, 0, None, || {});
            analysis.settle();
        }
    }
    let mut analysis = analysis.expect("a training");
    analysis.finish();
    let summary = analysis.summary(translation.lanes()).expect("steps");
    let known = summary.time() - Nanos(simulator.busy);
    (summary, translation, known)
}

/// Whatever a batch waited for on its way, it came from the worker that made it.
fn sent_batches_come_from_workers(chunk: &Chunk) {
    for (_, record) in &chunk.records {
        if let Record::Unit(unit) = record
            && (unit.stage.name(), unit.samples) == ("transport", 1)
        {
            let maker = &chunk.lanes[usize::from(unit.lineage.lane())].name;
            assert!(maker.starts_with("worker"), "{maker}: {unit:?}");
        }
    }
}

fn is_of(cause: &Cause, named: &str) -> bool {
    cause.to_string().contains(named)
}

/// Plants what `planted` makes of cheap costs, and holds the share of `named` against the training without.
fn plants(title: &str, shape: Shape, named: &str, without: Costs, planted: Costs) {
    let simulated = Simulator::run(shape, planted);
    let (summary, translation, idle) = analysed(&simulated, 100);
    assert_eq!(translation.held, 0, "{title}: events are left over");
    let sum: Nanos = summary.causes.iter().map(|(_, length)| *length).sum();
    assert_eq!(sum, summary.device_idle(), "{title}: causes do not add up");
    assert_eq!(summary.device_idle(), idle, "{title}: idle is another");
    assert_eq!(
        summary.steps,
        shape.batches * u64::from(shape.epochs),
        "{title}"
    );
    let (cheap, _, cheap_idle) = analysed(&Simulator::run(shape, without), usize::MAX);
    let recovered = idle.0 as f64 - cheap_idle.0 as f64;
    let own: Nanos = summary
        .causes
        .iter()
        .filter(|(cause, _)| is_of(cause, named))
        .map(|(_, length)| *length)
        .sum();
    let first = summary.causes[0].0;
    let off = (own.0 as f64 - recovered) / summary.time().0 as f64;
    assert!(
        is_of(&first, named) && off.abs() < 0.01,
        "{title} with {} workers: {named} {own}, recovered {recovered:.0}, off {off:.4} of {}; {:?}\nwithout: {:?}",
        shape.workers,
        summary.time(),
        summary.causes,
        cheap.causes,
    );
}

fn shape(workers: usize) -> Shape {
    Shape {
        workers,
        prefetch: 2,
        batches: 200,
        epochs: 1,
        size: 4,
    }
}

/// Nobody is woken late where the worker waits for the main process to read what it sends.
#[test]
fn sending_that_waits_for_its_reader_is_receiving() {
    let costs = Costs {
        pickle: 20 * MS,
        receive: 60 * MS,
        step: 6 * MS,
        ..CHEAP
    };
    let mut simulator = Simulator::new(shape(1), costs);
    simulator.piped(55 * MS);
    simulator.events.sort_by_key(|(at, ..)| *at);
    let (summary, translation, idle) = analysed(&simulator, 100);
    assert_eq!(translation.held, 0, "events are left over");
    assert_eq!(summary.device_idle(), idle);
    // 55 ms until the worker can go on, and its 20 ms, of which the step hides 6.
    for (named, each) in [("receiving", 55), ("transport", 14)] {
        let own = summary.causes.iter();
        let own = own.filter(|(cause, _)| is_of(cause, named));
        let own: Nanos = own.map(|(_, length)| *length).sum();
        let share = own.0 as f64 / (200 * each * MS) as f64;
        assert!(
            (share - 1.0).abs() < 0.02,
            "{named}: {own}; {:?}",
            summary.causes
        );
    }
}

#[test]
fn what_samples_and_batches_take_is_named_and_comes_back() {
    for workers in [0, 1, 2, 4] {
        let each = workers.max(1) as u64;
        let part = |place: usize| {
            let mut costs = CHEAP;
            costs.parts[place] += 3 * MS * each;
            costs
        };
        plants("read", shape(workers), "read", CHEAP, part(0));
        plants("decode", shape(workers), "decode", CHEAP, part(1));
        let thrice = Shape {
            epochs: 3,
            ..shape(workers)
        };
        plants("decode, thrice", thrice, "decode", CHEAP, part(1));
        plants("crop", shape(workers), "crop", CHEAP, part(2));
        let collate = Costs {
            collate: CHEAP.collate + 12 * MS * each,
            ..CHEAP
        };
        plants("collate", shape(workers), "collate", CHEAP, collate);
        let rest = Costs {
            rest: CHEAP.rest + 3 * MS * each,
            ..CHEAP
        };
        plants("fetch", shape(workers), "fetch", CHEAP, rest);
    }
}

#[test]
fn what_the_main_process_does_is_named_and_comes_back() {
    for workers in [0, 1, 2, 4] {
        let sampler = Costs {
            sampler: 9 * MS,
            ..CHEAP
        };
        plants("sampler", shape(workers), "sampler", CHEAP, sampler);
        let between = Costs {
            between: 9 * MS,
            ..CHEAP
        };
        plants("between", shape(workers), "between steps", CHEAP, between);
        let copy = Costs {
            copy: 9 * MS,
            ..CHEAP
        };
        plants("copy", shape(workers), "host: copying", CHEAP, copy);
        if workers > 0 {
            let receive = Costs {
                receive: 9 * MS,
                ..CHEAP
            };
            plants("receive", shape(workers), "receiving", CHEAP, receive);
            let pickle = Costs {
                pickle: 12 * MS * workers as u64,
                ..CHEAP
            };
            plants("transport", shape(workers), "transport", CHEAP, pickle);
        }
    }
}

#[test]
fn starts_of_passes_are_named_and_come_back() {
    for workers in [1, 2, 4] {
        let short = Shape {
            batches: 20,
            epochs: 10,
            ..shape(workers)
        };
        let own = Costs {
            own: 200 * MS,
            ..CHEAP
        };
        plants("own start-up", short, "worker start-up", CHEAP, own);
        let lazy = Costs {
            lazy: 200 * MS,
            ..CHEAP
        };
        plants("lazy opens", short, "worker start-up", CHEAP, lazy);
        let cold = Costs {
            cold: 100 * MS,
            ..CHEAP
        };
        plants("first batches", short, "worker start-up", CHEAP, cold);
        let start = Costs {
            start: 50 * MS,
            ..CHEAP
        };
        plants("starting", short, "starting workers", CHEAP, start);
        let stop = Costs {
            stop: 100 * MS,
            ..CHEAP
        };
        plants("stopping", short, "stopping workers", CHEAP, stop);
        let cheap = Costs {
            validation: Some((MS / 100, MS / 100)),
            ..CHEAP
        };
        let validation = Costs {
            validation: Some((100 * MS, MS / 100)),
            ..CHEAP
        };
        plants(
            "validation start",
            short,
            "validation start-up",
            cheap,
            validation,
        );
        let validation = Costs {
            validation: Some((MS / 100, 100 * MS)),
            ..CHEAP
        };
        plants("validation", short, "validation", cheap, validation);
    }
}

/// Lightning fetches a pass's first batch after validation, still without gradients.
#[test]
fn a_first_batch_that_is_fetched_without_gradients_is_trained_on() {
    let (training, costs) = (
        Shape {
            batches: 12,
            epochs: 3,
            ..shape(2)
        },
        Costs {
            validation: Some((MS, MS)),
            ..CHEAP
        },
    );
    let mut simulated = Simulator::run(training, costs);
    for (_, _, _, event) in &mut simulated.events {
        if let Event::NextEnds { batch, grad, .. } = event
            && batch.number == 0
        {
            *grad = false;
        }
    }
    let (summary, ..) = analysed(&simulated, 100);
    assert_eq!(summary.steps, 3 * 12);
}

/// Lightning does not ask for a batch after the last: no pass says that it is over.
#[test]
fn passes_that_are_left_after_their_last_batch_are_over() {
    let training = Shape {
        batches: 12,
        epochs: 3,
        ..shape(2)
    };
    let costs = Costs {
        validation: Some((MS, MS)),
        ..CHEAP
    };
    let mut simulated = Simulator::run(training, costs);
    let batches = |iterator: u32| if iterator.is_multiple_of(2) { 12 } else { 3 };
    for (_, _, _, event) in &mut simulated.events {
        if let Event::Text {
            kind: TextKind::Loader,
            subject,
            bytes,
            ..
        } = event
        {
            bytes.pop();
            bytes.extend(format!(r#", "batches": {}}}"#, batches(*subject)).bytes());
        }
    }
    let mut asked = std::collections::HashMap::new();
    simulated.events.retain(|(_, _, _, event)| match event {
        Event::NextBegins { pass, .. } => {
            let count = asked.entry(*pass).or_insert(0);
            *count += 1;
            *count <= batches(pass.iterator)
        }
        Event::PassEnds { .. } | Event::NextEnds { is_some: false, .. } => false,
        _ => true,
    });
    let (summary, translation, _) = analysed(&simulated, 100);
    assert_eq!(summary.steps, 3 * 12);
    let whole: Vec<bool> = translation
        .replay()
        .passes
        .iter()
        .map(|pass| pass.whole)
        .collect();
    assert_eq!(whole[..2], [true; 2]);
}

#[test]
fn locks_and_slow_samples_and_few_shards_are_named_and_come_back() {
    for workers in [1, 2, 4] {
        let mut lock = CHEAP;
        lock.parts[LOCK] = 4 * MS;
        plants("lock", shape(workers), "lock", CHEAP, lock);
        let uneven = Costs {
            hold: 80 * MS,
            hold_every: 11,
            ..lock
        };
        plants("uneven lock", shape(workers), "lock", CHEAP, uneven);
        let unfair = Costs {
            unfair: 200 * MS,
            ..lock
        };
        let short = Shape {
            batches: 20,
            epochs: 10,
            ..shape(workers)
        };
        plants("unfair lock", short, "lock", CHEAP, unfair);
        let long = Shape {
            batches: 600,
            ..shape(workers)
        };
        // Spread over workers, and all on the last one.
        let spread = Costs {
            slow: 400 * MS,
            slow_every: 41,
            ..CHEAP
        };
        plants("spread", long, "slow-samples", CHEAP, spread);
        let one = Costs {
            slow: 60 * MS,
            slow_every: 4 * workers as u64,
            ..CHEAP
        };
        plants("on one worker", long, "slow-samples", CHEAP, one);
    }
    for workers in [2, 4] {
        let mut slow = Costs {
            shards: Some(workers),
            ..CHEAP
        };
        slow.parts[0] = 4 * MS;
        let few = Costs {
            shards: Some(1),
            ..slow
        };
        plants("shards", shape(workers), "too few shards", slow, few);
    }
}
