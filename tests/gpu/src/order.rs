//! Which work happens before which: vector clocks of the streams, and the accesses to each allocation.
//!
//! The host counts as one thread: what any of its threads has waited for, all know. That can hide a mistake between
//! two host threads, and never reports one that is none.

use std::collections::BTreeMap;

/// How many pieces of work of each stream happen before something; streams are numbered from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past(Vec<u64>);

impl Past {
    pub fn of(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    pub fn learn(&mut self, other: &Past) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, theirs) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*theirs);
        }
    }

    /// One more piece of work of `stream`.
    pub fn advance(&mut self, stream: usize) -> u64 {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        self.0[stream]
    }
}

/// Who accesses memory.
#[derive(Clone, Debug)]
pub struct Actor<'a> {
    pub stream: usize,
    pub number: u64,
    pub past: &'a Past,
    pub what: &'a str,
}

#[derive(Clone, Debug)]
struct Access {
    end: u64,
    stream: usize,
    number: u64,
    writes: bool,
    what: String,
}

/// Accesses to an allocation, by where they begin.
#[derive(Debug, Default)]
pub struct Accesses {
    by_start: BTreeMap<u64, Vec<Access>>,
    longest: u64,
}

impl Accesses {
    /// Notes an access to the bytes from `start` to before `end`. Returns what it conflicts with.
    pub fn add(&mut self, (start, end): (u64, u64), writes: bool, actor: &Actor) -> Option<String> {
        let from = start.saturating_sub(self.longest);
        let mut conflict = None;
        let mut emptied = Vec::new();
        for (&begin, accesses) in self.by_start.range_mut(from..end) {
            accesses.retain(|access| {
                if access.end <= start {
                    return true;
                }
                let is_before = actor.past.of(access.stream) >= access.number;
                if !is_before && (writes || access.writes) {
                    conflict.get_or_insert_with(|| access.what.clone());
                }
                // What comes later than this comes later than that, too.
                let is_covered = begin >= start && access.end <= end && (writes || !access.writes);
                let repeats = access.stream == actor.stream
                    && access.writes == writes
                    && (begin, access.end) == (start, end);
                !((is_before && is_covered) || repeats)
            });
            if accesses.is_empty() {
                emptied.push(begin);
            }
        }
        for begin in emptied {
            self.by_start.remove(&begin);
        }
        self.longest = self.longest.max(end - start);
        self.by_start.entry(start).or_default().push(Access {
            end,
            stream: actor.stream,
            number: actor.number,
            writes,
            what: actor.what.to_owned(),
        });
        conflict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(
        accesses: &mut Accesses,
        range: (u64, u64),
        writes: bool,
        past: &Past,
        at: (usize, u64),
    ) -> bool {
        let actor = Actor {
            stream: at.0,
            number: at.1,
            past,
            what: "work",
        };
        accesses.add(range, writes, &actor).is_some()
    }

    #[test]
    fn a_write_that_nothing_orders_after_a_read_conflicts_with_it() {
        let mut accesses = Accesses::default();
        let (mut first, second) = (Past::default(), Past::default());
        let number = first.advance(0);
        assert!(!access(&mut accesses, (0, 8), false, &first, (0, number)));
        let mut unordered = second.clone();
        let number = unordered.advance(1);
        assert!(
            !access(&mut accesses, (4, 12), false, &unordered, (1, number)),
            "two reads"
        );
        let number = unordered.advance(1);
        assert!(access(
            &mut accesses,
            (4, 12),
            true,
            &unordered,
            (1, number)
        ));
        let number = unordered.advance(1);
        assert!(
            !access(&mut accesses, (16, 20), true, &unordered, (1, number)),
            "elsewhere"
        );
    }

    #[test]
    fn an_event_orders() {
        let mut accesses = Accesses::default();
        let mut first = Past::default();
        let number = first.advance(0);
        access(&mut accesses, (0, 8), true, &first, (0, number));
        let mut second = Past::default();
        second.learn(&first);
        let number = second.advance(1);
        assert!(!access(&mut accesses, (0, 8), true, &second, (1, number)));
        assert_eq!(accesses.by_start[&0].len(), 1, "the earlier one is covered");
    }
}
