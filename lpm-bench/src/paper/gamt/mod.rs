//! `lpm-bench paper gamt`: the figures and tables of the GAMT paper (section 5).
//!
//! | module | contents |
//! |---|---|
//! | `routing` | tables 1 and 2 |
//! | `host_tables` | updates of the tables on the host: off line, and accesses on the device |
//! | `memory` | memory on the device |
//! | `accesses` | memory transactions of a warp; GALE's two stages, and the poster's single one: bytes, accesses of lookups and updates |
//! | `kernels` | lookup kernels alone, by the device's clock |
//! | `timeline` | copies and kernels of streams, by the device's clock |
//! | `subjects` | the engines over a device, and a measurement of one |
//! | `device_figures` | figures that need a device, except for MAMT's lines |
//! | `levels` | speed and memory by the number of levels; memory, and MAMT's lines, need no device |
//!
//! Without a device, a figure that needs one is skipped with a message. The paper used a Tesla C2075 with PCIe 2: only shapes are comparable.

mod accesses;
mod device_figures;
mod host_tables;
mod kernels;
mod levels;
mod memory;
mod routing;
mod subjects;
mod timeline;

pub(super) use host_tables::load;
pub(super) use subjects::measure;

use super::bench::{Bench, DeviceNeed, Fault, Isa, Known, Paper, Result};
use crate::wanted::ENGINES;
use fib::{EngineOptions, EngineWriter};

pub(super) const PAPER: Paper = Paper {
    title: "GAMT: A Fast and Scalable IP Lookup Engine for GPU-based Software Routers (ANCS 2013)",
    claims: include_str!("../claims/gamt.txt"),
    figures: include_str!("figures.toml"),
    generated: &[("generated-2013", "v4=450752,v6=11841"), ("generated-2024", "v4=950000,v6=200000")],
    has_updates: true,
    further_sets: |_| Ok(Vec::new()),
    known: &[
        Known { id: "table1", device: DeviceNeed::Unused, make: routing::table_1 },
        Known { id: "table2", device: DeviceNeed::Used, make: routing::table_2 },
        Known { id: "fig06", device: DeviceNeed::Unused, make: accesses::figure_6 },
        Known { id: "fig13", device: DeviceNeed::Unused, make: host_tables::figure_13 },
        Known { id: "fig14", device: DeviceNeed::Unused, make: host_tables::figure_14 },
        Known { id: "fig19", device: DeviceNeed::Unused, make: memory::figure_19 },
        Known { id: "stages", device: DeviceNeed::Unused, make: accesses::stages },
        Known { id: "fig09", device: DeviceNeed::Used, make: device_figures::figure_9 },
        Known { id: "fig10", device: DeviceNeed::Used, make: device_figures::figure_10 },
        Known { id: "fig11", device: DeviceNeed::Used, make: levels::figure_11 },
        Known { id: "fig15", device: DeviceNeed::Used, make: levels::figure_15 },
        Known { id: "fig08", device: DeviceNeed::Needed, make: timeline::figure_8 },
        Known { id: "kernels", device: DeviceNeed::Needed, make: kernels::table },
        Known { id: "blocks", device: DeviceNeed::Needed, make: kernels::by_block_size },
        Known { id: "fig12", device: DeviceNeed::Needed, make: device_figures::figure_12 },
        Known { id: "fig16", device: DeviceNeed::Needed, make: device_figures::figure_16 },
        Known { id: "fig17", device: DeviceNeed::Needed, make: device_figures::figure_17 },
        Known { id: "fig18", device: DeviceNeed::Needed, make: device_figures::figure_18 },
    ],
};

impl Bench {
    pub(super) fn engine(
        &self,
        name: &'static str,
        isa: Option<Isa>,
        parameters: &[(&str, String)],
    ) -> Result<Box<dyn EngineWriter>> {
        let own = parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        // The command line's parameters are for GPU engines; a figure's parameters override them.
        let is_inherited = |name_given: &str| {
            ENGINES.is_device(name) && parameters.iter().all(|(own, _)| *own != name_given)
        };
        let inherited = self.args.parameters.iter().filter(|(name, _)| is_inherited(name));
        // Batches are copied, as in the papers, unless another mode is given.
        let copy = is_inherited("mode").then(|| ("mode".to_owned(), "copy".to_owned()));
        let parameters = copy.into_iter().chain(inherited.cloned()).chain(own).collect();
        let options = EngineOptions { isa, parameters, ..EngineOptions::default() };
        ENGINES.make(name, &options).map_err(Fault::refused_by(name))
    }
}
