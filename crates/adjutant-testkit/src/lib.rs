//! Simulated clock, scripted model, in-memory journal, temporary trees; for tests only.
