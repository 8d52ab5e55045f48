//! Ports: devices, links, drivers' statistics, and switches of a device.

use crate::console::desk::Steering;
use crate::console::grammar::request::{PortFacts, Ports};
use crate::console::{Answer, Refusal};
use crate::datapath::egress::{Named as _, find_port};
use crate::ports::dpdk::PortCounts;
use crate::report::PortReport;
use crate::report::columns::{Columns, grouped, grouped_or_dash};
use anyhow::Context as _;
use dpdk_ffi::{DpdkError, Port};
use fib::PortRef;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

impl Steering<'_> {
    pub(in crate::console) fn indices(&self, ports: &Ports) -> Result<Vec<usize>, Refusal> {
        let there = &self.desk.site.ports;
        let one = match ports {
            Ports::All => return Ok((0..there.len()).collect()),
            Ports::One(port) => port,
        };
        let found = find_port(one, there, String::new).ok().flatten();
        found.map(|index| vec![usize::from(index)]).ok_or_else(|| {
            let known = there.iter().enumerate().map(|(index, port)| format!("{index} ({})", port.label()));
            let known = known.collect::<Vec<_>>().join(", ");
            anyhow::anyhow!("there is no port {one}; there are: {known}").into()
        })
    }

    /// Runs `work` for each port, and returns the first failure at the end. Stops when a driver is busy, since every port would be.
    pub(in crate::console) fn each_port(
        &self,
        ports: &Ports,
        work: impl Fn(&Port) -> Result<(), DpdkError>,
    ) -> Result<Answer, Refusal> {
        let mut outcome = Ok(());
        for index in self.indices(ports)? {
            let port = &self.desk.site.ports[index];
            let done = work(port);
            let is_busy = matches!(done, Err(DpdkError::Busy));
            outcome = outcome.and(done.with_context(|| port.title(index)));
            if is_busy {
                break;
            }
        }
        outcome?;
        Ok(Answer::done())
    }

    pub(in crate::console) fn show_ports(&self, what: PortFacts, ports: &Ports) -> Result<Answer, Refusal> {
        let site = &self.desk.site;
        let indices = self.indices(ports)?;
        let each = indices.into_iter().map(|index| (index, &site.ports[index]));
        Ok(match what {
            PortFacts::Stats => {
                let counts = PortCounts::read_all(&site.ports, &site.receives);
                let shown = each.map(|(index, _)| PortReport::new(index, &counts[index]));
                Answer::new(StatsShown(shown.collect()))
            }
            PortFacts::Xstats => {
                let shown = each.map(|(index, port)| XstatsOf::new(index, port));
                Answer::new(XstatsShown(shown.collect::<anyhow::Result<_>>()?))
            }
            PortFacts::Info => {
                Answer::new(InfosShown(each.map(|(index, port)| self.info(index, port)).collect()))
            }
        })
    }

    fn info(&self, index: usize, port: &Port) -> InfoShown {
        let link = port.try_link().ok();
        let table = self.forwarder.ports();
        let egress = table.ports.get(index);
        let view = port.try_view();
        let state = match view.as_ref().map(|view| (view.is_open, view.is_started)) {
            None => "being reset",
            Some((false, _)) => "removed",
            Some((true, false)) => "stopped",
            Some((true, true)) => "in use",
        };
        let [driver, device] = match port.try_device_info() {
            Ok(info) => [info.driver, info.device],
            Err(DpdkError::Busy) => self.desk.site.devices[index].clone(),
            // A removed device has neither.
            Err(_) => Default::default(),
        };
        let granted = view.and_then(|view| view.granted);
        let granted = granted.as_ref().unwrap_or(&self.desk.site.granted[index]);
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        InfoShown {
            port: index,
            name: port.label().to_owned(),
            dpdk_name: port.name().to_owned(),
            state,
            driver,
            device,
            mac: egress.map(|port| port.mac.to_string()).unwrap_or_default(),
            mtu_bytes: egress.map_or(granted.mtu, |port| port.mtu_bytes),
            link: egress.map(|port| if port.is_up { "up" } else { "down" }),
            speed_mbps: link.and_then(|link| link.speed_mbps),
            numa_node: port.socket().0,
            promiscuous: port.is_promiscuous(),
            rx_queues: granted.rx_queues,
            tx_queues: granted.tx_queues,
            rx_descriptors: granted.rx_descriptors,
            tx_descriptors: granted.tx_descriptors,
            rx_offloads: names(granted.rx_offloads.iter_names().map(|(name, _)| name).collect()),
            tx_offloads: names(granted.tx_offloads.iter_names().map(|(name, _)| name).collect()),
            rss: names(granted.rss.iter_names().map(|(name, _)| name).collect()),
        }
    }

    pub(in crate::console) fn set_promiscuous(&self, ports: &Ports, on: bool) -> Result<Answer, Refusal> {
        self.each_port(ports, |port| port.set_promiscuous(on))
    }

    pub(in crate::console) fn set_link(&self, port: &PortRef, up: bool) -> Result<Answer, Refusal> {
        self.each_port(&Ports::One(port.clone()), |port| port.set_link(up))
    }
}

#[derive(Serialize)]
struct StatsShown(Vec<PortReport>);

impl fmt::Display for StatsShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = [
            "port",
            "name",
            "rx",
            "tx",
            "rx bytes",
            "tx bytes",
            "missed",
            "rx errors",
            "tx errors",
            "no mbuf",
        ];
        let mut columns = Columns::new(headings);
        for report in &self.0 {
            let PortReport { rx, tx, rx_bytes, tx_bytes, rx_missed, rx_errors, tx_errors, rx_nombuf, .. } =
                report;
            let numbers = [rx, tx, rx_bytes, tx_bytes, rx_missed, rx_errors, tx_errors, rx_nombuf];
            let [a, b, c, d, e, g, h, i] = numbers.map(|count| grouped_or_dash(*count));
            columns.row([report.port.to_string(), report.name.clone(), a, b, c, d, e, g, h, i]);
        }
        columns.fmt(f)
    }
}

#[derive(Serialize)]
struct XstatsOf {
    port: usize,
    name: String,
    xstats: BTreeMap<String, u64>,
}

impl XstatsOf {
    fn new(index: usize, port: &Port) -> anyhow::Result<Self> {
        let is_removed = port.try_view().is_some_and(|view| !view.is_open);
        let xstats = if is_removed { Ok(Vec::new()) } else { port.xstats() };
        let xstats = xstats.with_context(|| port.title(index))?;
        Ok(Self { port: index, name: port.label().to_owned(), xstats: xstats.into_iter().collect() })
    }
}

#[derive(Serialize)]
struct XstatsShown(Vec<XstatsOf>);

impl fmt::Display for XstatsShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for XstatsOf { port, name, xstats } in &self.0 {
            writeln!(f, "port {port} ({name})")?;
            let mut columns = Columns::new([]);
            xstats.iter().for_each(|(name, count)| columns.row([format!("  {name}"), grouped(count)]));
            columns.fmt(f)?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct InfoShown {
    port: usize,
    name: String,
    /// Its name in DPDK, which options and routes may use, too.
    dpdk_name: String,
    /// `in use`; `removed`, `stopped` or `being reset` while the device is unavailable.
    state: &'static str,
    driver: String,
    /// The device on its bus, which may have several ports.
    device: String,
    mac: String,
    mtu_bytes: u16,
    /// `up`, `down`; `None` when the driver cannot report it.
    link: Option<&'static str>,
    speed_mbps: Option<u32>,
    numa_node: i32,
    promiscuous: bool,
    rx_queues: u16,
    tx_queues: u16,
    rx_descriptors: u16,
    tx_descriptors: u16,
    rx_offloads: Vec<String>,
    tx_offloads: Vec<String>,
    rss: Vec<String>,
}

#[derive(Serialize)]
struct InfosShown(Vec<InfoShown>);

impl fmt::Display for InfosShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for info in &self.0 {
            let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(" ") };
            let speed = info.speed_mbps.map_or_else(|| "unknown".to_owned(), |mbps| format!("{mbps} Mbit/s"));
            writeln!(f, "port {} ({})", info.port, info.name)?;
            let mut columns = Columns::new([]);
            columns.row(["  state".to_owned(), info.state.to_owned()]);
            columns.row(["  driver".to_owned(), format!("{} {}", info.driver, info.device)]);
            columns.row(["  link".to_owned(), format!("{}, speed {speed}", info.link.unwrap_or("unknown"))]);
            columns.row(["  MAC".to_owned(), info.mac.clone()]);
            columns.row(["  MTU".to_owned(), format!("{} bytes", info.mtu_bytes)]);
            columns.row(["  promiscuous".to_owned(), if info.promiscuous { "on" } else { "off" }.to_owned()]);
            columns.row(["  NUMA node".to_owned(), format!("node {}", info.numa_node)]);
            let queues = format!("{} RX of {} descriptors", info.rx_queues, info.rx_descriptors);
            columns.row([
                "  queues".to_owned(),
                format!("{queues}, {} TX of {}", info.tx_queues, info.tx_descriptors),
            ]);
            columns.row(["  RX offloads".to_owned(), list(&info.rx_offloads)]);
            columns.row(["  TX offloads".to_owned(), list(&info.tx_offloads)]);
            columns.row(["  RSS".to_owned(), list(&info.rss)]);
            columns.fmt(f)?;
        }
        Ok(())
    }
}
