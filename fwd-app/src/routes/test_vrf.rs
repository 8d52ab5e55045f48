//! For tests: a VRF over the bundled routes, without ports.

use super::Vrf;
use super::files::Replacement;
use super::spec::{DEFAULT, TableSpec};
use crate::engines::EngineSpec;
use crate::ports::table::SharedPorts;
use fib::{EngineWriter, IpPrefix, NextHopId, NextHopTable, Rib};
use std::path::{Path, PathBuf};
use std::task::Poll;

impl Vrf {
    pub(crate) fn replace_engine(&mut self, mut engine: Box<dyn EngineWriter>) {
        self.rib.load(engine.as_mut()).unwrap();
        self.engine.writer = engine;
        self.set_families();
    }

    /// Sets the next hop of `prefix` in the table of the engine alone.
    pub(crate) fn plant(&mut self, prefix: IpPrefix, new: NextHopId) {
        let mut other = self.rib.clone();
        other.set(prefix, new);
        other.commit_to(self.engine.writer.as_mut()).unwrap();
    }

    /// Runs [`Self::replace_routes`] to its end.
    pub(crate) fn replace_all(&mut self, rib: Rib, hops: NextHopTable) -> anyhow::Result<u64> {
        self.replace_routes(rib, hops)?.finish(self)
    }
}

impl Replacement {
    /// Runs [`Self::advance`] to the end.
    pub(crate) fn finish(&mut self, vrf: &mut Vrf) -> anyhow::Result<u64> {
        loop {
            if let Poll::Ready(result) = self.advance(vrf) {
                return result;
            }
        }
    }
}

pub(crate) fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcap").join(name)
}

pub(crate) fn vrf() -> Vrf {
    vrf_over(SharedPorts::default())
}

pub(crate) fn vrf_over(ports: SharedPorts) -> Vrf {
    let engine = EngineSpec::named("oracle");
    let made = engine.make_with_fallback().unwrap();
    let spec = TableSpec { files: vec![bundled("routes.txt")], routes_max: None, engine };
    Vrf::open(spec, (0, DEFAULT), made, ports, &mut |_| ()).unwrap()
}
