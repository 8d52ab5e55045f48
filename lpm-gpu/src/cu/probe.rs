//! Looks for a usable GPU. Returns a typed error and never panics, whatever the host lacks.

use super::driver::{Driver, NO_DEVICE, call, driver};
use super::error::{DriverVersion, GpuError};

/// The oldest supported driver: CUDA 12.0 (R525), the first with the `_v2` parameters of the graph calls. The PTX
/// itself would load on any driver since CUDA 10.
pub const DRIVER_MIN: DriverVersion = DriverVersion(12_000);

/// What [`probe`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What the driver supports.
    pub driver: DriverVersion,
    /// The number of devices, at least one.
    pub devices: u32,
}

/// Looks for a driver with all functions that we call, initialises it, and counts its devices.
///
/// # Errors
/// In this order: [`GpuError::NoDriver`], [`GpuError::MissingSymbol`], [`GpuError::DriverTooOld`], [`GpuError::NoDevice`],
/// [`GpuError::Call`] when the driver itself fails.
pub fn probe() -> Result<Probe, GpuError> {
    init().map(|(_, found)| found)
}

/// As [`probe`], and returns the initialised driver.
pub(super) fn init() -> Result<(&'static Driver, Probe), GpuError> {
    let driver = driver()?;
    let mut version = 0;
    // SAFETY: takes an out pointer, and may be called before cuInit.
    unsafe { call!(driver, cuDriverGetVersion(&raw mut version)) }?;
    let version = DriverVersion(u32::try_from(version).unwrap_or(0));
    if version < DRIVER_MIN {
        return Err(GpuError::DriverTooOld { have: version, want: DRIVER_MIN });
    }
    let absent = |error| match error {
        GpuError::Call { code: NO_DEVICE, .. } => GpuError::NoDevice { wanted: 0, count: 0 },
        other => other,
    };
    // SAFETY: flags must be 0; may be called any number of times, from any thread.
    unsafe { call!(driver, cuInit(0)) }.map_err(absent)?;
    let mut count = 0;
    // SAFETY: takes an out pointer; the driver is initialised.
    unsafe { call!(driver, cuDeviceGetCount(&raw mut count)) }.map_err(absent)?;
    match u32::try_from(count).unwrap_or(0) {
        0 => Err(GpuError::NoDevice { wanted: 0, count: 0 }),
        devices => Ok((driver, Probe { driver: version, devices })),
    }
}
