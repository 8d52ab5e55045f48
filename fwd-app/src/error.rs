//! Configuration errors: the kind decides the exit code, wherever the error is raised.

/// Why the forwarder cannot be set up as configured. Raise it with `?` or `return Err(ConfigError::..into())`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// Settings that contradict each other, or that cannot be fulfilled.
    #[error("{0}")]
    Invalid(String),
    /// A port or device that was named does not exist.
    #[error("{0}")]
    NoDevice(String),
}
