//! A launch of a kernel, timed by the device's own clock.

use lpm_gpu::cu::{Arg, GpuError, Kernel, Shape, Stream};
use std::time::Duration;

/// Time limit of an operation, after which the device counts as lost.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Microseconds of a launch of `kernel` on the device.
///
/// # Errors
/// The errors of the driver.
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
    // The clock's resolution is half a microsecond: round up to one tick.
    end.elapsed_us_since(&start).map(|us| us.max(0.5))
}
