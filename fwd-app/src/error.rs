//! Wrong configurations: the error whose kind decides the exit code, wherever it is found.

/// Why the forwarder cannot be set up as it was configured. Raise it with `?` or `return Err(ConfigError::..into())`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// Settings that contradict each other, or that cannot be met.
    #[error("{0}")]
    Invalid(String),
    /// A port or device that was named is absent.
    #[error("{0}")]
    NoDevice(String),
}
