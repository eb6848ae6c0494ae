//! Receiving a program's output and keeping a bounded part of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Which of the two streams a chunk came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Receives output as it arrives.
///
/// The bytes come straight from the program, escape sequences included; the code that shows them must sanitise
/// them.
pub trait OutputSink {
    /// Receives the next chunk of a stream. The program may block until this returns.
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]);

    /// Returns when [`OutputSink::wake`] should be called even without output; `None` for never.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Called at the time that [`OutputSink::due`] returned, or a little later.
    fn wake(&mut self) {}
}

/// Wakes a sink that is due and returns how long to wait for output.
pub(super) fn time_to_wait(sink: &mut dyn OutputSink, now: Instant, deadline: Instant) -> Duration {
    if sink.due().is_some_and(|due| due <= now) {
        sink.wake();
    }
    let until = sink.due().map_or(deadline, |due| due.min(deadline));
    until.saturating_duration_since(now)
}

impl<F: FnMut(OutputStream, &[u8])> OutputSink for F {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        self(stream, bytes);
    }
}

/// Output in order of arrival: keeps its beginning and its end.
#[derive(Clone, Debug)]
pub struct BoundedOutput {
    half_bytes: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total_bytes: u64,
}

impl BoundedOutput {
    /// Keeps at most `max_bytes`: half from the beginning, half from the end.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { half_bytes: max_bytes / 2, head: Vec::new(), tail: VecDeque::new(), total_bytes: 0 }
    }

    /// Returns the total number of bytes received.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the number of bytes dropped from the middle.
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.total_bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the kept beginning and the kept end. If nothing was cut, they are adjacent.
    #[must_use]
    pub fn parts(&self) -> (&[u8], Vec<u8>) {
        (&self.head, self.tail.iter().copied().collect())
    }

    /// Returns the kept output, with a line that marks the cut.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        if self.cut_bytes() > 0 {
            all.extend(format!("\n[{} bytes cut here]\n", self.cut_bytes()).into_bytes());
        }
        let (front, back) = self.tail.as_slices();
        all.extend_from_slice(front);
        all.extend_from_slice(back);
        all
    }
}

impl OutputSink for BoundedOutput {
    fn chunk(&mut self, _stream: OutputStream, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.half_bytes - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.half_bytes)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.half_bytes);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_beginning_and_the_end_are_kept_for_any_chunks(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            half in 0_usize..50,
        ) {
            let mut captured = BoundedOutput::new(half * 2);
            for chunk in &chunks {
                captured.chunk(OutputStream::Out, chunk);
            }
            let all = chunks.concat();
            let kept = captured.bytes();
            prop_assert_eq!(captured.total_bytes(), all.len() as u64);
            if all.len() <= half * 2 {
                prop_assert_eq!(kept, all);
            } else {
                prop_assert!(kept.starts_with(&all[..half]));
                prop_assert!(kept.ends_with(&all[all.len() - half..]));
                prop_assert_eq!(captured.cut_bytes(), (all.len() - half * 2) as u64);
            }
        }
    }
}
