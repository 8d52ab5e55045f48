//! The value of `--config` as written: ports by index or name, and `auto` ports, whose lcores follow from their NUMA node.

use super::queue_map::{QueueLcore, QueueMap, QueueMapError};
use crate::datapath::egress::{Named, find_port};
use fib::PortRef;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueEntry {
    /// `(PORT,QUEUE,LCORE)`: this lcore polls this queue.
    Queue { port: PortRef, queue: u16, lcore: u16 },
    /// `(PORT,auto)`: a queue for each free lcore of the port's NUMA node.
    Auto { port: PortRef },
}

#[derive(Clone, Debug)]
pub(crate) struct QueuePort {
    /// Name and device, either of which `--config` may use.
    pub(crate) name: String,
    pub(crate) device: String,
    /// NUMA node, if it has one.
    pub(crate) node: Option<u32>,
    pub(crate) queues_max: u16,
}

impl Named for QueuePort {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> &str {
        &self.device
    }
}

#[derive(Clone, Debug)]
pub(crate) struct QueueSite<'a> {
    /// By index.
    pub(crate) ports: &'a [QueuePort],
    /// The lcores that may poll queues, and their NUMA nodes.
    pub(crate) lcores: &'a [(u16, u32)],
    pub(crate) queues_max: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueSpec(Vec<QueueEntry>);

impl QueueEntry {
    pub(crate) fn port(&self) -> &PortRef {
        match self {
            Self::Queue { port, .. } | Self::Auto { port } => port,
        }
    }
}

impl QueueSpec {
    /// # Errors
    /// [`QueueMapError`].
    pub(crate) fn new(entries: Vec<QueueEntry>) -> Result<Self, QueueMapError> {
        for (at, entry) in entries.iter().enumerate() {
            let port = entry.port();
            let of_port: Vec<_> = entries.iter().filter(|other| other.port() == port).collect();
            if of_port.len() > 1 && of_port.iter().any(|entry| matches!(entry, QueueEntry::Auto { .. })) {
                return Err(QueueMapError::BesideAuto { port: port.to_string() });
            }
            if entries[..at].iter().all(|other| other.port() != port) {
                QueueMap::new(numbers(&of_port, 0)).map_err(|error| error.of_port(port))?;
            }
        }
        Ok(Self(entries))
    }

    pub(crate) fn entries(&self) -> &[QueueEntry] {
        &self.0
    }

    /// The lcores named explicitly, sorted.
    pub(crate) fn lcores(&self) -> Vec<u16> {
        let named = self.0.iter().filter_map(|entry| match entry {
            QueueEntry::Queue { lcore, .. } => Some(*lcore),
            QueueEntry::Auto { .. } => None,
        });
        let mut lcores: Vec<_> = named.collect();
        lcores.sort_unstable();
        lcores.dedup();
        lcores
    }

    /// The `auto` ports of a NUMA node share its unused lcores; without any they get lcores of other nodes, at worst a used one.
    ///
    /// # Errors
    /// [`QueueMapError`] for a port that does not exist, and for a port with both `auto` and explicit lcores.
    pub(crate) fn resolve(&self, site: &QueueSite<'_>) -> Result<QueueMap, QueueMapError> {
        let mut tuples = Vec::with_capacity(self.0.len());
        let mut chosen: Vec<(u16, Option<u32>)> = Vec::new();
        for entry in &self.0 {
            match entry {
                // The plan checks the index.
                QueueEntry::Queue { port: PortRef::Index(port), queue, lcore } => {
                    tuples.push(QueueLcore { port: *port, queue: *queue, lcore: *lcore });
                }
                QueueEntry::Queue { port, queue, lcore } => {
                    tuples.push(QueueLcore { port: site.index(port)?, queue: *queue, lcore: *lcore });
                }
                QueueEntry::Auto { port } => {
                    let port = site.index(port)?;
                    chosen.push((port, site.ports[usize::from(port)].node));
                }
            }
        }
        if let Some((port, _)) =
            chosen.iter().find(|(port, _)| tuples.iter().any(|tuple| tuple.port == *port))
        {
            return Err(QueueMapError::BesideAuto { port: port.to_string() });
        }
        let mut free = site.lcores.to_vec();
        free.retain(|(lcore, _)| !tuples.iter().any(|tuple| tuple.lcore == *lcore));
        let mut nodes: Vec<Option<u32>> = chosen.iter().map(|(_, node)| *node).collect();
        // Ports without a node come last and get the remaining lcores.
        nodes.sort_unstable_by_key(|node| (node.is_none(), *node));
        nodes.dedup();
        let has_lcores =
            |node: &Option<u32>, free: &[(u16, u32)]| free.iter().any(|(_, of)| Some(*of) == *node);
        let (near, far): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| has_lcores(node, &free));
        for node in near.into_iter().chain(far) {
            let ports: Vec<u16> =
                chosen.iter().filter(|(_, of)| *of == node).map(|(port, _)| *port).collect();
            let is_near = has_lcores(&node, &free);
            let here: Vec<u16> = free
                .iter()
                .filter(|(_, of)| !is_near || Some(*of) == node)
                .map(|(lcore, _)| *lcore)
                .collect();
            free.retain(|(lcore, _)| !here.contains(lcore));
            tuples.extend(site.deal(&ports, here));
        }
        QueueMap::new(tuples)
    }
}

fn numbers(entries: &[&QueueEntry], port: u16) -> Vec<QueueLcore> {
    let number = |entry: &&QueueEntry| match entry {
        QueueEntry::Queue { queue, lcore, .. } => Some(QueueLcore { port, queue: *queue, lcore: *lcore }),
        QueueEntry::Auto { .. } => None,
    };
    entries.iter().filter_map(number).collect()
}

impl QueueSite<'_> {
    fn index(&self, port: &PortRef) -> Result<u16, QueueMapError> {
        // Every port of --config is named.
        Ok(find_port(port, self.ports, || "--config".to_owned())?.unwrap_or_default())
    }

    /// One queue per lcore. A port left without an lcore shares one.
    fn deal(&self, ports: &[u16], lcores: Vec<u16>) -> Vec<QueueLcore> {
        let mut tuples: Vec<QueueLcore> = Vec::new();
        let queues =
            |tuples: &[QueueLcore], port: u16| tuples.iter().filter(|tuple| tuple.port == port).count();
        let limit =
            |port: u16| usize::from(self.ports[usize::from(port)].queues_max.min(self.queues_max).max(1));
        let all: Vec<u16> = self.lcores.iter().map(|(lcore, _)| *lcore).collect();
        for lcore in &lcores {
            let open = ports.iter().copied().filter(|port| queues(&tuples, *port) < limit(*port));
            let Some(port) = open.min_by_key(|port| queues(&tuples, *port)) else { break };
            let queue = u16::try_from(queues(&tuples, port)).unwrap_or(u16::MAX);
            tuples.push(QueueLcore { port, queue, lcore: *lcore });
        }
        let shared = if lcores.is_empty() { all } else { lcores };
        let without: Vec<u16> = ports.iter().copied().filter(|port| queues(&tuples, *port) == 0).collect();
        tuples.extend(without.into_iter().zip(shared.iter().cycle()).map(|(port, lcore)| QueueLcore {
            port,
            queue: 0,
            lcore: *lcore,
        }));
        tuples.sort_by_key(|tuple| (ports.iter().position(|port| *port == tuple.port), tuple.queue));
        tuples
    }
}

impl fmt::Display for QueueSpec {
    /// In the syntax of `--config`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match entry {
                QueueEntry::Queue { port, queue, lcore } => write!(f, "({port},{queue},{lcore})")?,
                QueueEntry::Auto { port } => write!(f, "({port},auto)")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCORES: [(u16, u32); 8] = [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)];

    fn queue(port: &str, queue: u16, lcore: u16) -> QueueEntry {
        QueueEntry::Queue { port: PortRef::parse(port), queue, lcore }
    }

    fn port(index: usize, node: Option<u32>, queues_max: u16) -> QueuePort {
        QueuePort { name: format!("p{index}"), device: format!("d{index}"), node, queues_max }
    }

    fn auto(port: &str) -> QueueEntry {
        QueueEntry::Auto { port: PortRef::parse(port) }
    }

    /// The map for ports `p0`, `p1`, .. on these nodes, of 16 queues each, in the syntax of `--config`.
    fn resolved(entries: Vec<QueueEntry>, nodes: &[Option<u32>], lcores: &[(u16, u32)]) -> String {
        let ports: Vec<_> = nodes.iter().enumerate().map(|(i, node)| port(i, *node, 16)).collect();
        let site = QueueSite { ports: &ports, lcores, queues_max: 16 };
        match QueueSpec::new(entries).and_then(|spec| spec.resolve(&site)) {
            Ok(map) => map.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn ports_are_found_by_name_and_index() {
        let nodes = [Some(0), Some(1)];
        assert_eq!(resolved(vec![queue("p1", 0, 3), queue("0", 0, 2)], &nodes, &LCORES), "(1,0,3),(0,0,2)");
        let twice = resolved(vec![queue("p1", 0, 3), queue("1", 0, 3)], &nodes, &LCORES);
        assert_eq!(twice, "(1,0,3) is given twice");
        let absent = resolved(vec![queue("p2", 0, 3)], &nodes, &LCORES);
        assert_eq!(absent, "--config names port p2, which does not exist; there are: 0 (p0), 1 (p1)");
        let hole = resolved(vec![queue("p1", 1, 3)], &nodes, &LCORES);
        assert_eq!(hole, "port p1 has queue 1 but no queue 0; its queues must be 0, 1, ..");
        assert_eq!(
            resolved(vec![queue("p1", 0, 3), auto("p1")], &nodes, &LCORES),
            "port p1 has both auto and named lcores; give only one of them"
        );
        assert!(
            resolved(vec![queue("1", 0, 3), auto("p1")], &nodes, &LCORES).starts_with("port 1 has both auto")
        );
    }

    #[test]
    fn a_port_gets_the_free_lcores_of_its_node() {
        let map = |entries, nodes: &[Option<u32>]| resolved(entries, nodes, &LCORES);
        let both = || vec![auto("p0"), auto("p1")];
        assert_eq!(map(vec![auto("p0")], &[Some(0)]), "(0,0,1),(0,1,2),(0,2,3)");
        assert_eq!(
            map(both(), &[Some(0), Some(1)]),
            "(0,0,1),(0,1,2),(0,2,3),(1,0,4),(1,1,5),(1,2,6),(1,3,7),(1,4,8)"
        );
        assert_eq!(map(both(), &[Some(0), Some(0)]), "(0,0,1),(0,1,3),(1,0,2)");
        // Lcores used by others are not free.
        assert_eq!(map(vec![queue("p1", 0, 2), auto("p0")], &[Some(0), Some(0)]), "(1,0,2),(0,0,1),(0,1,3)");
    }

    #[test]
    fn a_port_whose_node_has_none_gets_what_is_left() {
        let both = || vec![auto("p0"), auto("p1")];
        // Node 2 has no lcores; node 1 is served first, although its port comes later.
        assert_eq!(resolved(both(), &[Some(2), Some(1)], &[(1, 0), (2, 1)]), "(1,0,2),(0,0,1)");
        assert_eq!(resolved(both(), &[None, Some(1)], &[(1, 0), (2, 1)]), "(1,0,2),(0,0,1)");
        assert_eq!(resolved(both(), &[Some(0), Some(0)], &[(1, 0)]), "(0,0,1),(1,0,1)");
        let all_used = vec![queue("p0", 0, 1), auto("p1")];
        assert_eq!(resolved(all_used, &[Some(0), Some(0)], &[(1, 0)]), "(0,0,1),(1,0,1)");
    }

    #[test]
    fn a_device_has_its_limit_and_a_pipeline_receives_on_one_lcore() {
        let ports = [port(0, Some(0), 2), port(1, Some(0), 16)];
        let spec = QueueSpec::new(vec![auto("p0"), auto("p1")]).unwrap();
        let site = QueueSite { ports: &ports, lcores: &LCORES.map(|(lcore, _)| (lcore, 0)), queues_max: 16 };
        assert_eq!(
            spec.resolve(&site).unwrap().to_string(),
            "(0,0,1),(0,1,3),(1,0,2),(1,1,4),(1,2,5),(1,3,6),(1,4,7),(1,5,8)"
        );
        let site = QueueSite { queues_max: 1, ..site };
        assert_eq!(spec.resolve(&site).unwrap().to_string(), "(0,0,1),(1,0,2)");
    }
}
