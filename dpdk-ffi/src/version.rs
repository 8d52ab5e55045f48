//! The DPDK version this crate was compiled for, the running version, and whether the two are compatible.
//!
//! Structure layouts, constants and inline functions come from the headers at compile time. If the library's release differs, a call may
//! write past one of our structures: `rte_fib_conf` has been 32 and 40 bytes long, `rte_eth_stats` 704 and 64. DPDK keeps the ABI of a
//! release through its stable updates (22.11.1, 22.11.2, ..). [`Eal::init`](crate::Eal::init) refuses all other combinations. The
//! libraries' SONAME (`librte_eal.so.23`) is a weaker guard: 22.11, 23.03 and 23.07 share one, and a program that is relinked after an
//! upgrade gets the new SONAME with bindings of the old DPDK. So the build script also reruns when DPDK's header folders change.

use std::ffi::CStr;

use crate::c_text::text_of;
use crate::error::DpdkError;
use crate::sys;

const TEXT_BYTES: usize = 32;

/// A version of DPDK: 22.11.11, or 23.03.0-rc1.
#[derive(Debug, PartialEq, Eq)]
struct Version<'a> {
    release: (u16, u16),
    minor: u16,
    /// The text after the numbers, such as `-rc1`; empty in a release.
    suffix: &'a str,
}

impl<'a> Version<'a> {
    /// Parses `DPDK 22.11.11`; the first word may differ or be missing.
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.split_whitespace().next_back()?;
        let (year, rest) = text.split_once('.')?;
        let (month, rest) = rest.split_once('.')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (minor, suffix) = rest.split_at(digits);
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        Some(Self { release: (number(year)?, number(month)?), minor: number(minor)?, suffix })
    }

    /// Code of one release runs on any of its stable updates. Code of a release candidate, whose interface may still change,
    /// runs only on it.
    fn is_compatible(&self, other: &Self) -> bool {
        let released = self.suffix.is_empty() && other.suffix.is_empty();
        self == other || released && self.release == other.release
    }
}

/// The version of the running library, as DPDK prints it: `DPDK 22.11.11`.
#[must_use]
pub fn version() -> String {
    // SAFETY: rte_version returns a NUL-terminated string that lives as long as the process; EAL is not needed.
    unsafe { CStr::from_ptr(sys::rte_version()) }.to_string_lossy().into_owned()
}

/// The version that this crate was compiled for, in the format of [`version`].
#[must_use]
pub fn compiled_text() -> String {
    let mut text = [0; TEXT_BYTES];
    // SAFETY: the array is writable for the call, which writes at most TEXT_BYTES bytes, including a NUL.
    unsafe { sys::dffi_compiled_version(text.as_mut_ptr(), TEXT_BYTES) };
    text_of(&text)
}

pub(crate) fn check() -> Result<(), DpdkError> {
    fits(&compiled_text(), &version())
}

/// Checks that code compiled for one version may run on the other; both are in the format of [`version`].
///
/// # Errors
/// [`DpdkError::Version`] with both strings if it may not, or if one of them is not a version.
pub fn fits(compiled: &str, running: &str) -> Result<(), DpdkError> {
    match (Version::parse(compiled), Version::parse(running)) {
        (Some(one), Some(other)) if one.is_compatible(&other) => Ok(()),
        _ => Err(DpdkError::Version { compiled: compiled.into(), running: running.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_compiled_for_is_the_installed_one() {
        let tool = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
        let asked = std::process::Command::new(tool).args(["--modversion", "libdpdk"]).output().unwrap();
        let installed = String::from_utf8(asked.stdout).unwrap();
        assert_eq!(compiled_text().strip_prefix("DPDK "), Some(installed.trim()));
        assert_eq!(compiled_text(), version(), "headers and library come from one package");
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn stable_updates_of_a_release_fit_and_nothing_else_does() {
        let fit = |compiled: &str, running: &str| fits(compiled, running).is_ok();
        for (compiled, running) in [
            ("DPDK 22.11.11", "DPDK 22.11.11"),
            ("DPDK 22.11.0", "DPDK 22.11.11"),
            ("DPDK 22.11.11", "DPDK 22.11.1"),
            ("DPDK 22.11.1", "Vendor's DPDK 22.11.2"),
            ("DPDK 23.03.0-rc1", "DPDK 23.03.0-rc1"),
        ] {
            assert!(fit(compiled, running), "{compiled} on {running}");
        }
        for (compiled, running) in [
            ("DPDK 22.11.11", "DPDK 23.11.0"),
            ("DPDK 22.11.11", "DPDK 22.07.0"),
            // One SONAME, three releases.
            ("DPDK 22.11.11", "DPDK 23.03.0"),
            ("DPDK 23.07.0", "DPDK 22.11.11"),
            ("DPDK 25.11.0", "DPDK 22.11.11"),
            ("DPDK 23.03.0-rc1", "DPDK 23.03.0"),
            ("DPDK 23.03.0", "DPDK 23.03.0-rc2"),
            ("DPDK 23.03.0-rc1", "DPDK 23.03.0-rc2"),
            ("DPDK 22.11.11", "DPDK"),
            ("DPDK 22.11.11", ""),
            ("DPDK 22.11.11", "DPDK 22.11"),
            ("DPDK 22.11.11", "DPDK 22.+11.11"),
            ("", ""),
        ] {
            let text = fits(compiled, running).unwrap_err().to_string();
            assert!(text.contains(compiled) && text.contains(running), "{text}");
        }
    }

    #[test]
    fn versions_are_read_as_dpdk_writes_them() {
        for (text, release, minor, suffix) in [
            ("DPDK 22.11.11", (22, 11), 11, ""),
            ("DPDK 23.03.0", (23, 3), 0, ""),
            ("DPDK 23.07.0-rc4", (23, 7), 0, "-rc4"),
            ("2.02.0", (2, 2), 0, ""),
        ] {
            assert_eq!(Version::parse(text), Some(Version { release, minor, suffix }), "{text}");
        }
    }
}
