//! A launch of a kernel, timed by the device's own clock.

use lpm_gpu::cu::{Arg, GpuError, Kernel, Shape, Stream};
use std::time::Duration;

/// How long anything may take before the device is given up.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Microseconds that a launch of `kernel` takes on the device.
///
/// # Errors
/// What the driver says.
pub fn time_us(
    stream: &mut Stream,
    kernel: &Kernel,
    shape: Shape,
    args: &mut [Arg<'_>],
) -> Result<f64, GpuError> {
    let (mut start, mut end) = (stream.event(true)?, stream.event(true)?);
    stream.record(&mut start)?;
    stream.launch(kernel, shape, args)?;
    stream.record(&mut end)?;
    end.wait(LIMIT)?;
    // The clock counts half microseconds: less than one tick is one.
    end.elapsed_us_since(&start).map(|us| us.max(0.5))
}
