//! Takes measurements: CPU time, rounds, medians.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// A smoke test: small sizes, few rounds.
    pub(crate) quick: bool,
}

impl Plan {
    /// Returns `full`, or `quick` for a smoke test.
    pub(crate) const fn pick(self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Takes a value in each of several rounds.
    pub(crate) fn rounds<E>(
        self,
        full: usize,
        mut round: impl FnMut() -> Result<f64, E>,
    ) -> Result<Spread, E> {
        let values = (0..self.pick(full, 2)).map(|_| round()).collect::<Result<Vec<_>, E>>()?;
        Ok(Spread::of(values))
    }
}

/// The median of some values, with the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The middle one.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Sorts the values out; none at all give nothing but zero.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or_default();
        Self { median: at(values.len() / 2), min: at(0), max: at(values.len().saturating_sub(1)) }
    }

    /// Returns one value as it is.
    pub(crate) const fn exact(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

/// Returns the processor time this process has used.
pub(crate) fn cpu_now() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the nanoseconds of the clock that every process of the machine reads alike.
pub(crate) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}

/// Returns the microseconds of processor time that `work` takes.
pub(crate) fn cpu_micros<T>(work: impl FnOnce() -> T) -> f64 {
    let before = cpu_now();
    let result = work();
    let taken = cpu_now() - before;
    black_box(result);
    taken.as_secs_f64() * 1e6
}
