//! Threads that will go on at some time, the earliest first.

/// A thread that will go on at some time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pending {
    /// On the clock of its heap.
    pub(super) at: f64,
    pub(super) thread: u32,
}

/// A heap of pending threads, the earliest first; of equal ones the one that came first need not be.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    pending: Vec<Pending>,
}

/// Children of a node of the heap: four lie in one or two cache lines.
const ARITY: usize = 4;

impl Heap {
    #[inline]
    pub(super) fn first(&self) -> Option<Pending> {
        self.pending.first().copied()
    }

    #[inline]
    pub(super) fn push(&mut self, at: f64, thread: u32) {
        let mut hole = self.pending.len();
        let new = Pending { at, thread };
        self.pending.push(new);
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.pending[parent].at <= at {
                break;
            }
            self.pending[hole] = self.pending[parent];
            hole = parent;
        }
        self.pending[hole] = new;
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        let Some(last) = self.pending.pop() else {
            return;
        };
        let count = self.pending.len();
        if count == 0 {
            return;
        }
        let mut hole = 0;
        loop {
            let first = ARITY * hole + 1;
            if first >= count {
                break;
            }
            let mut least = first;
            for child in first + 1..count.min(first + ARITY) {
                if self.pending[child].at < self.pending[least].at {
                    least = child;
                }
            }
            if self.pending[least].at >= last.at {
                break;
            }
            self.pending[hole] = self.pending[least];
            hole = least;
        }
        self.pending[hole] = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_gives_the_earliest() {
        let mut heap = Heap::default();
        let mut times: Vec<u32> = (0..200).map(|n| n * 7919 % 211).collect();
        for (thread, time) in times.iter().enumerate() {
            heap.push(f64::from(*time), thread as u32);
        }
        let mut got = Vec::new();
        while let Some(first) = heap.first() {
            got.push(first.at as u32);
            heap.pop();
        }
        times.sort_unstable();
        assert_eq!(got, times);
    }
}
