//! Parts of work that are open inside one another: each has the time that those inside do not take.

use crate::timeline::Nanos;

/// The open parts, outermost first.
pub struct Nesting<P>(Vec<Open<P>>);

struct Open<P> {
    part: P,
    since: Nanos,
    /// Of that time, what parts inside took.
    inside: Nanos,
}

/// A part that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<P> {
    /// What was opened.
    pub part: P,
    /// How long it was open.
    pub length: Nanos,
    /// Of that, what parts inside did not take.
    pub own: Nanos,
}

impl<P> Nesting<P> {
    /// Nothing is open.
    pub const fn new() -> Nesting<P> {
        Nesting(Vec::new())
    }

    /// Opens `part` inside of those that are open.
    pub fn enter(&mut self, part: P, since: Nanos) {
        self.0.push(Open {
            part,
            since,
            inside: Nanos::ZERO,
        });
    }

    /// Ends the innermost part; `None` where none is open.
    pub fn exit(&mut self, now: Nanos) -> Option<Ended<P>> {
        let Open {
            part,
            since,
            inside,
        } = self.0.pop()?;
        let length = now - since;
        if let Some(around) = self.0.last_mut() {
            around.inside += length;
        }
        Some(Ended {
            part,
            length,
            own: length - inside,
        })
    }

    /// The innermost part that is open.
    pub fn innermost(&self) -> Option<&P> {
        self.0.last().map(|open| &open.part)
    }

    /// How many are open.
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// Forgets those that are open.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<P> Default for Nesting<P> {
    fn default() -> Nesting<P> {
        Nesting::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_time_that_those_inside_do_not_take() {
        let mut nesting = Nesting::new();
        nesting.enter("outer", Nanos(10));
        nesting.enter("inner", Nanos(20));
        assert_eq!((nesting.innermost(), nesting.depth()), (Some(&"inner"), 2));
        let ended = |part, length, own| {
            Some(Ended {
                part,
                length: Nanos(length),
                own: Nanos(own),
            })
        };
        assert_eq!(nesting.exit(Nanos(25)), ended("inner", 5, 5));
        nesting.enter("inner", Nanos(30));
        assert_eq!(nesting.exit(Nanos(37)), ended("inner", 7, 7));
        assert_eq!(nesting.exit(Nanos(50)), ended("outer", 40, 28));
        assert_eq!(nesting.exit(Nanos(60)), None);
    }
}
