//! Where a program's output goes, and how much of it is kept.

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

/// Takes output as it comes.
///
/// The bytes are the program's own, escape sequences included; whoever shows them makes them safe.
pub trait OutputSink {
    /// Takes the next chunk of a stream. While this runs the program may have to wait.
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]);

    /// When it wants to be woken even if no output comes; `None` for never.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Wakes it at the time it asked for, or a little later.
    fn wake(&mut self) {}
}

/// Returns how long may be waited for output, after waking a sink whose time has come.
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

/// Output in the order it came, its beginning and its end kept.
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

    /// How much there was in all.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// How much of it was dropped from the middle.
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.total_bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns what was kept of the beginning and of the end; nothing lies between them when nothing was cut.
    #[must_use]
    pub fn parts(&self) -> (&[u8], Vec<u8>) {
        (&self.head, self.tail.iter().copied().collect())
    }

    /// Returns what was kept, with a line where the middle is missing.
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
        fn the_beginning_and_the_end_are_kept_whatever_the_chunks(
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
