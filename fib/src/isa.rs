//! Instruction sets: one value, detected at start, selects the kernels once per batch.

use std::fmt;
use std::str::FromStr;

/// An instruction set for which lookup kernels exist. [`Isa::checked`] tests whether this CPU supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: the readable reference, never tuned.
    Scalar,
    /// AVX2 with POPCNT, LZCNT, BMI1 and BMI2: every x86-64 server since 2013.
    Avx2,
    /// AVX-512 F and CD only, as on Knights Landing: no BW, DQ or VL. The scalar code around them may use POPCNT, LZCNT, BMI1 and BMI2.
    Avx512f,
}

/// An instruction set that this CPU has. Dispatchers take one, so that no kernel runs on a CPU without its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedIsa(Isa);

impl CheckedIsa {
    /// Plain Rust, which every CPU runs.
    pub const SCALAR: Self = Self(Isa::Scalar);

    /// The instruction set.
    #[inline]
    #[must_use]
    pub const fn get(self) -> Isa {
        self.0
    }
}

/// Why an instruction set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// This CPU lacks the instruction set.
    #[error("this CPU has no {isa}; it can run: {available}")]
    Unavailable {
        /// The instruction set requested.
        isa: Isa,
        /// The available instruction sets.
        available: String,
    },
    /// The name is unknown.
    #[error("'{name}' is no instruction set; known are: scalar, avx2, avx512f")]
    Unknown {
        /// The name as given.
        name: String,
    },
}

impl Isa {
    /// All instruction sets with kernels, the plainest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512f];

    /// Whether this CPU has the instruction set.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512f => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512cd")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512f => false,
        }
    }

    /// The best instruction set of this CPU.
    #[must_use]
    pub fn detect() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Scalar)
    }

    /// This instruction set, if the CPU supports it.
    ///
    /// # Errors
    /// [`IsaError::Unavailable`] otherwise, with the available ones.
    pub fn checked(self) -> Result<CheckedIsa, IsaError> {
        if self.is_available() {
            return Ok(CheckedIsa(self));
        }
        let available: Vec<_> =
            Self::ALL.iter().filter(|isa| isa.is_available()).map(ToString::to_string).collect();
        Err(IsaError::Unavailable { isa: self, available: available.join(", ") })
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512f => "avx512f",
        })
    }
}

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Self, IsaError> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.to_string() == name)
            .ok_or_else(|| IsaError::Unknown { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_scalar_is_everywhere() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert!(Isa::Scalar.is_available() && Isa::detect().is_available());
        assert_eq!(Isa::Scalar.checked(), Ok(CheckedIsa::SCALAR));
        for isa in Isa::ALL {
            assert_eq!(isa.checked().map(CheckedIsa::get).ok(), isa.is_available().then_some(isa));
        }
        assert!("sse9".parse::<Isa>().unwrap_err().to_string().contains("avx512f"));
    }
}
