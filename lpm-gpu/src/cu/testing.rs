//! Which driver a test runs on: `mockcuda`, or the real one.
