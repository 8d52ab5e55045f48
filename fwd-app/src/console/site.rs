//! The ports and lcores that the console reports on.

use crate::report::Setup;
use crate::topology::plan::LcorePlan;
use dpdk_ffi::{Granted, Port};

/// The ports and lcores at the start.
pub(crate) struct Site {
    pub(super) ports: Vec<Port>,
    pub(super) granted: Vec<Granted>,
    /// Driver and device of each port.
    pub(super) devices: Vec<[String; 2]>,
    pub(super) receives: Vec<bool>,
    /// Port and queue of each input.
    pub(super) inputs: Vec<(u16, u16)>,
    pub(super) setup: Setup,
    pub(super) tsc_hz: u64,
}

impl Site {
    pub(crate) fn new(ports: &[Port], plan: &LcorePlan, setup: Setup, tsc_hz: u64) -> Self {
        let inputs = plan.inputs.iter().map(|input| (input.port, input.queue)).collect();
        let granted = ports.iter().filter_map(Port::granted).collect();
        let device =
            |port: &Port| port.device_info().map(|info| [info.driver, info.device]).unwrap_or_default();
        let devices = ports.iter().map(device).collect();
        Self {
            ports: ports.to_vec(),
            granted,
            devices,
            receives: plan.receives(ports.len()),
            inputs,
            setup,
            tsc_hz,
        }
    }
}
