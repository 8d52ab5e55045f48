//! Bloomfwd for AVX-512F hosts.
