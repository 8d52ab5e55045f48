//! A libcuda for tests.
