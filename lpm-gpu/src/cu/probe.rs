//! Looks for a usable GPU. Returns a typed error on any host, and never panics.

use super::driver::{Driver, call, driver};
use super::error::{DRIVER_MIN, DriverVersion, GpuError, absence};

/// Result of [`probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// API version of the driver.
    pub driver: DriverVersion,
    /// Number of devices, at least one.
    pub devices: u32,
}

/// Loads the driver, initialises it, and counts its devices.
///
/// # Errors
/// In this order: [`GpuError::NoDriver`], [`GpuError::MissingSymbol`], [`GpuError::DriverTooOld`], [`GpuError::NoDevice`] or
/// [`GpuError::NotReady`], [`GpuError::Call`].
pub fn probe() -> Result<Probe, GpuError> {
    init().map(|(_, found)| found)
}

pub(super) fn init() -> Result<(&'static Driver, Probe), GpuError> {
    let driver = driver()?;
    let mut version = 0;
    // SAFETY: an out pointer; allowed before cuInit.
    unsafe { call!(driver, cuDriverGetVersion(&raw mut version)) }?;
    let version = DriverVersion(u32::try_from(version).unwrap_or(0));
    if version < DRIVER_MIN {
        return Err(GpuError::DriverTooOld { have: version, want: DRIVER_MIN });
    }
    let absent = |error| match error {
        GpuError::Call { code, .. } => absence(code).unwrap_or(error),
        other => other,
    };
    // SAFETY: flags must be 0; allowed any number of times, from any thread.
    unsafe { call!(driver, cuInit(0)) }.map_err(absent)?;
    let mut count = 0;
    // SAFETY: an out pointer; the driver is initialised.
    unsafe { call!(driver, cuDeviceGetCount(&raw mut count)) }.map_err(absent)?;
    match u32::try_from(count).unwrap_or(0) {
        0 => Err(GpuError::NoDevice { wanted: 0, count: 0 }),
        devices => Ok((driver, Probe { driver: version, devices })),
    }
}
