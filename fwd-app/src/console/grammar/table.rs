//! The commands of the control socket: words, arguments and help.
//!
//! Parser, `help` and completion all use this table ([`crate::console::grammar`]). No command's path is a prefix of another path.

use crate::console::grammar::request::{
    Clear, PortCounters, PortFacts, Ports, Request, RouteList, SOURCES, Show, WatchFilter,
};
use crate::console::grammar::routes::{PROTOCOL_NAMES, flow, route_list};
use crate::console::grammar::words::{CommandWords, WordsError, address, pick, wrong};
use crate::console::grammar::{self, COUNT_OPTION, CtlLine, RouteDiff};
use crate::datapath::DropReason;
use crate::engines::ENGINES;
use fib::feed;
use fib::{IpPrefix, NextHop, PortRef};
use std::num::NonZeroU64;

#[derive(Debug)]
pub(crate) struct Command {
    /// Fixed first words, which may be abbreviated.
    pub(super) path: &'static [&'static str],
    pub(super) args: &'static [Arg],
    pub(super) help: &'static str,
    pub(super) make: Make,
}

type Make = fn(&mut CommandWords<'_>) -> Result<CtlLine, WordsError>;

#[derive(Debug)]
pub(super) struct Arg {
    /// As in help; brackets mark an optional argument.
    pub(super) usage: &'static str,
    /// Fixed words among its values, for completion.
    pub(super) choices: &'static [&'static str],
    /// Fixed words that may follow a given word of the argument.
    pub(super) after: &'static [(&'static str, &'static [&'static str])],
    #[cfg_attr(not(test), expect(dead_code, reason = "tests parse every command with them"))]
    pub(super) examples: &'static [&'static str],
}

impl Arg {
    const fn new(usage: &'static str, examples: &'static [&'static str]) -> Self {
        Self { usage, choices: &[], after: &[], examples }
    }

    const fn with_choices(usage: &'static str, choices: &'static [&'static str]) -> Self {
        Self { usage, choices, after: &[], examples: choices }
    }

    /// Completions after the word `previous`.
    pub(super) fn words_after(&self, previous: Option<&str>) -> Vec<&'static str> {
        let after = self.after.iter().find(|(word, _)| Some(*word) == previous);
        match (after, self.usage) {
            (Some((_, words)), _) => words.to_vec(),
            (None, ENGINE) => ENGINES.names(),
            (None, _) => self.choices.to_vec(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_optional(&self) -> bool {
        self.usage.starts_with('[')
    }
}

const SOME_PORTS: Arg = Arg { choices: &["all"], ..Arg::new("[PORT|all]", &["0", "all", "0000:03:00.0"]) };
const PORTS: Arg = Arg { usage: "PORT|all", ..SOME_PORTS };
const PORT: Arg = Arg::new("PORT", &["1", "net_null0"]);
const ADDRESS: Arg = Arg::new("ADDR", &["192.0.2.1", "2001:db8::1"]);
const PREFIX: Arg = Arg { choices: &["default"], ..Arg::new("PREFIX", &["198.51.100.0/24", "0.0.0.0/0"]) };
const HOP: Arg = Arg {
    usage: "(ID | via GATEWAY [dev PORT] | nexthop .. | blackhole | unreachable | prohibit)",
    choices: &["via", "dev", "nexthop", "blackhole", "unreachable", "prohibit"],
    after: &[],
    examples: &[
        "7",
        "via 192.0.2.1",
        "via 192.0.2.1 dev 1",
        "via inet6 fe80::1 dev p1",
        "dev 1",
        "nexthop via 192.0.2.1 dev 1 weight 2 nexthop via 192.0.2.5 dev 0 weight 1",
        "blackhole",
        "unreachable",
        "prohibit",
    ],
};

const SOURCE: Arg = Arg {
    usage: "[source S]",
    choices: &["source"],
    after: &[("source", SOURCES)],
    examples: &["source files", "source fpm"],
};
const LISTED: Arg = Arg {
    usage: "[PREFIX [longer]] [source S] [stale] [after PREFIX]",
    choices: &["longer", "source", "stale", "after"],
    after: &[("source", SOURCES), ("after", &[])],
    examples: &[
        "198.51.100.0/24",
        "default longer",
        "2001:db8::/32 longer source kernel",
        "source ctl",
        "stale",
        "source fpm stale",
        "sou files after 198.51.100.0/24",
        "::/0 longer stale after 2001:db8::/32",
    ],
};

const FLOW: Arg = Arg {
    usage: "[from ADDR [proto P] [ports A,B] [label N]]",
    choices: &["from", "proto", "ports", "label"],
    after: &[("from", &[]), ("proto", &PROTOCOL_NAMES), ("ports", &[]), ("label", &[])],
    examples: &[
        "from 2001:db8::2",
        "from 2001:db8::2 proto icmp6",
        "from 2001:db8::2 proto tcp ports 49152,443 label 77",
        "fr ::1 pr 255 la 1048575",
    ],
};

const fn plain(path: &'static [&'static str], help: &'static str, make: Make) -> Command {
    Command { path, args: &[], help, make }
}

pub(super) const VRF: &[&str] = &["vrf"];

/// Every command, in the order of `help`.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        path: &["show", "port", "stats"],
        args: &[SOME_PORTS],
        help: "packets, bytes, misses and errors of ports, as their drivers count them",
        make: |words| show_port(PortFacts::Stats, words),
    },
    Command {
        path: &["show", "port", "xstats"],
        args: &[SOME_PORTS],
        help: "every counter that the drivers of ports have",
        make: |words| show_port(PortFacts::Xstats, words),
    },
    Command {
        path: &["show", "port", "info"],
        args: &[SOME_PORTS],
        help: "device, link, MTU, queues and offloads of ports",
        make: |words| show_port(PortFacts::Info, words),
    },
    plain(&["show", "drops"], "dropped packets by reason; --json also lists reasons without drops", |_| {
        ask(Request::Show(Show::Drops))
    }),
    plain(&["show", "engine"], "the engine, its table and its statistics", |_| {
        ask(Request::Show(Show::Engine))
    }),
    plain(&["show", "fib"], "routes, next hops, updates and memory of the table in service", |_| {
        ask(Request::Show(Show::Fib))
    }),
    plain(&["show", "neigh"], "neighbours by port", |_| ask(Request::Show(Show::Neigh))),
    plain(&["show", "addresses"], "addresses of ports, and their origin", |_| {
        ask(Request::Show(Show::Addresses))
    }),
    plain(&["show", "latency"], "latency percentiles", |_| ask(Request::Show(Show::Latency))),
    plain(&["show", "lcores"], "lcores, their stages and how busy they are", |_| {
        ask(Request::Show(Show::Lcores))
    }),
    plain(&["show", "queues"], "packets received by each queue", |_| ask(Request::Show(Show::Queues))),
    plain(
        &["show", "rates"],
        "packets, bits and losses a second of ports, lcores and VRFs, over 1 s and 10 s",
        |_| ask(Request::Show(Show::Rates)),
    ),
    plain(&["show", "config"], "configuration of the forwarder", |_| ask(Request::Show(Show::Config))),
    plain(&["show", "stats"], "the summary so far; --json has the keys of the report", |_| {
        ask(Request::Show(Show::Stats))
    }),
    plain(&["show", "routes"], "number of routes by prefix length", |_| ask(Request::Show(Show::Routes))),
    plain(&["show", "feeds"], "sources of routes, and their state", |_| ask(Request::Show(Show::Feeds))),
    plain(&["show", "vrfs"], "VRFs, with their ports, routes, engines and memory", |_| {
        ask(Request::Show(Show::Vrfs))
    }),
    plain(
        &["show", "next-hops"],
        "packets and bytes by next hop; set next-hop-counters on starts to count",
        |_| ask(Request::Show(Show::NextHops)),
    ),
    Command {
        path: VRF,
        args: &[
            Arg::new("NAME", &["red", "default"]),
            Arg::new("WORDS..", &["show fib", "route get 192.0.2.1", "set engine host a=1", "clear neigh"]),
        ],
        help: "a command about one VRF: route, neigh, clear neigh, set engine, or show engine, fib, neigh, routes, feeds or next-hops",
        make: vrf,
    },
    Command {
        path: &["clear", "port", "stats"],
        args: &[SOME_PORTS],
        help: "set the statistics of ports to 0",
        make: |words| clear_port(PortCounters::Stats, words),
    },
    Command {
        path: &["clear", "port", "xstats"],
        args: &[SOME_PORTS],
        help: "set the drivers' own counters to 0",
        make: |words| clear_port(PortCounters::Xstats, words),
    },
    plain(&["clear", "drops"], "set the counters of dropped packets to 0", |_| {
        ask(Request::Clear(Clear::Drops))
    }),
    plain(&["clear", "latency"], "clear the latency histogram", |_| ask(Request::Clear(Clear::Latency))),
    Command {
        path: &["clear", "neigh"],
        args: &[Arg { usage: "[ADDR]", ..ADDRESS }],
        help: "delete one learned neighbour, or all; they are resolved again",
        make: |words| {
            let address = words.next().map(address).transpose()?;
            ask(Request::ClearNeigh { address })
        },
    },
    Command {
        path: &["route", "get"],
        args: &[Arg { examples: &["2001:db8::1"], ..ADDRESS }, FLOW],
        help: "the route of an address, with its source, next hop and neighbour; for a flow also the chosen path",
        make: |words| {
            let address = words.want_address()?;
            ask(Request::RouteGet { address, flow: flow(address, words)? })
        },
    },
    Command {
        path: &["route", "list"],
        args: &[LISTED],
        help: "routes in service, in the format of --fib: all, one prefix, or with longer all within the prefix; by source; stale only",
        make: |words| ask(Request::RouteList(route_list(words)?)),
    },
    Command {
        path: &["route", "diff"],
        args: &[Arg::new("FILE", &["routes.txt"]), SOURCE],
        help: "compare the routes in service with a local route file: - is only in the file, + only in service; exit code 1 if they differ",
        make: |words| {
            let file = words.want("a route file")?.to_owned();
            let list = RouteList { source: words.source()?, ..RouteList::default() };
            Ok(CtlLine::RouteDiff(RouteDiff { file, list: Request::RouteList(list) }))
        },
    },
    Command {
        path: &["route", "add"],
        args: &[PREFIX, HOP],
        help: "add a route, or replace the route of ctl for this prefix",
        make: route_add,
    },
    Command {
        path: &["route", "del"],
        args: &[PREFIX],
        help: "withdraw a route",
        make: |words| ask(Request::RouteDel { prefix: words.want_prefix()? }),
    },
    Command {
        path: &["neigh", "add"],
        args: &[
            ADDRESS,
            Arg::with_choices("lladdr", &["lladdr"]),
            Arg::new("MAC", &["02:00:00:00:00:01"]),
            DEV,
            PORT,
        ],
        help: "add a static neighbour, or replace the neighbour with this address",
        make: |words| Ok(CtlLine::Ask(feed::parse_neighbour(&words.rest())?.into())),
    },
    Command {
        path: &["neigh", "del"],
        args: &[ADDRESS],
        help: "delete a static neighbour",
        make: |words| ask(Request::NeighDel { address: words.want_address()? }),
    },
    plain(
        &["reload"],
        "read the configuration and the route files again, apply changes that need no restart, and list the others",
        |_| ask(Request::Reload),
    ),
    plain(&["start"], "receive again after stop", |_| ask(Request::Start)),
    Command {
        path: &["stop"],
        args: &[Arg::with_choices("[--drain]", &["--drain"])],
        help: "stop receiving; with --drain, run --drain-hook, wait until no more packets arrive, then until all have left",
        make: |words| {
            let drain = words.next().map(|word| pick(word, &["--drain"])).transpose()?;
            ask(Request::Stop { drain: drain.is_some() })
        },
    },
    Command {
        path: &["set", "engine"],
        args: &[
            Arg::new(ENGINE, &["host", "bloom"]),
            Arg::new("[key=value..]", &["a=1", "a=1 b=c=d e="]),
            Arg::with_choices("[force]", &["force"]),
        ],
        help: "change the engine of all VRFs, or of one after vrf NAME; force accepts an engine without IPv6, and leaves out IPv6 routes of feeds and addresses",
        make: set_engine,
    },
    Command {
        path: &["set", "promisc"],
        args: &[PORTS, Arg::with_choices("on|off", &["on", "off"])],
        help: "receive frames for every MAC (on), or only for the MAC of the port (off)",
        make: |words| {
            let ports = Ports::parse(words.want("a port or all")?);
            ask(Request::SetPromiscuous { ports, on: words.want_one_of(["on", "off"])? })
        },
    },
    Command {
        path: &["set", "link"],
        args: &[PORT, Arg::with_choices("up|down", &["up", "down"])],
        help: "set a link up or down",
        make: |words| {
            let port = PortRef::parse(words.want("a port")?);
            ask(Request::SetLink { port, up: words.want_one_of(["up", "down"])? })
        },
    },
    Command {
        path: &["set", "audit"],
        args: &[Arg::new("N", &["65536", "0"])],
        help: "compare one looked-up address in N with the routes, 0 for none; show stats has the counts",
        make: |words| {
            let word = words.want("a number of addresses, or 0")?;
            let one_in = fib::units::count(word).and_then(|number| u32::try_from(number).ok());
            let one_in = one_in.ok_or_else(|| wrong(word, "a number from 0 to 4294967295"))?;
            ask(Request::SetAudit { one_in })
        },
    },
    Command {
        path: &["set", "next-hop-counters"],
        args: &[Arg::with_choices("on|off", &["on", "off"])],
        help: "count packets by next hop, starting from 0; off costs lcores no time",
        make: |words| ask(Request::SetNextHopCounters { on: words.want_one_of(["on", "off"])? }),
    },
    Command {
        path: &["trace"],
        args: &[COUNT, FILTERS],
        help: "show how the next N packets are forwarded, stage by stage; the filters after N select packets",
        make: |words| ask(Request::Trace { packets: words.want_count("packets")?, filter: words.filter()? }),
    },
    Command {
        path: &["top"],
        args: &[SCREENS],
        help: "show rates again each second, until q or Ctrl-C, or N times",
        make: |words| {
            let option = words.next().map(|word| pick(word, &[COUNT_OPTION])).transpose()?;
            Ok(CtlLine::Top { count: option.map(|_| words.want_count("screens")).transpose()? })
        },
    },
    Command {
        path: &["capture", "drops"],
        args: &[Arg::new("FILE", &["/tmp/drops.pcapng"]), COUNT, FILTERS],
        help: "write the next N dropped packets and their reasons to a file, opened by fwd-app ctl; filters as for trace",
        make: |words| {
            let file = words.want("a file")?.to_owned();
            let packets = words.want_count("packets")?;
            ask(Request::CaptureDrops { file, packets, filter: words.filter()? })
        },
    },
    plain(&["capture", "stop"], "end the running capture", |_| ask(Request::CaptureStop)),
    Command {
        path: &["help"],
        args: &[Arg::new("[WORD..]", &["show", "show port"])],
        help: "list the commands, or the commands that start with these words",
        make: |words| {
            let start: Vec<_> = words.by_ref().collect();
            Ok(CtlLine::Help(crate::console::grammar::help(&start)?))
        },
    },
    plain(&["quit"], "leave the prompt; the forwarder keeps running", |_| Ok(CtlLine::Quit)),
];

/// Usage of an argument whose completions are the engines' names.
const ENGINE: &str = "ENGINE";
const DEV: Arg = Arg::with_choices("dev", &["dev"]);
const SCREENS: Arg = Arg {
    usage: "[--count N]",
    choices: &[COUNT_OPTION],
    after: &[(COUNT_OPTION, &[])],
    examples: &["--count 1"],
};
const COUNT: Arg = Arg::new("N", &["1", "100"]);
const FILTERS: Arg = Arg {
    usage: "[port P] [vrf V] [to PREFIX] [reason R]",
    choices: &FILTER_WORDS,
    after: &[("port", &[]), ("vrf", &[]), ("to", &[]), ("reason", &DropReason::NAMES)],
    examples: &["port 1", "reason no_route to 2001:db8::/32 port net_null0 vrf red", "to 192.0.2.1"],
};
const FILTER_WORDS: [&str; 4] = ["port", "vrf", "to", "reason"];

#[expect(clippy::unnecessary_wraps, reason = "the type of `Command::make`")]
fn ask(request: Request) -> Result<CtlLine, WordsError> {
    Ok(CtlLine::Ask(request))
}

fn show_port(what: PortFacts, words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
    ask(Request::ShowPort { what, ports: words.next().map_or(Ports::All, Ports::parse) })
}

fn clear_port(what: PortCounters, words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
    ask(Request::ClearPort { what, ports: words.next().map_or(Ports::All, Ports::parse) })
}

/// Reads a prefix and a next hop. In route text a word such as `blackhole` precedes the prefix.
fn route_add(words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
    let prefix = words.want("a prefix")?;
    if prefix != "default" {
        prefix.parse::<IpPrefix>()?;
    }
    let wanted = "a next-hop id, 'via GATEWAY', 'dev PORT', 'blackhole', 'unreachable' or 'prohibit'";
    let hop = words.want(wanted)?;
    let rest = words.rest();
    let text = match NextHop::discarding(hop) {
        Some(_) => format!("{hop} {prefix} {rest}"),
        None => format!("{prefix} {hop} {rest}"),
    };
    let (prefix, hop) = feed::parse_route(&text)?;
    ask(Request::RouteAdd { prefix, hop })
}

fn vrf(words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
    let name = words.want("the name of a VRF")?.to_owned();
    let (is_nested, text) = (std::mem::replace(&mut words.is_about_vrf, true), words.clone().rest());
    let of_vrf = |request| Request::Vrf { name, request: Box::new(request) };
    if !is_nested {
        match grammar::parse_next(words)? {
            CtlLine::Ask(request) if request.is_about_vrf() => return ask(of_vrf(request)),
            CtlLine::RouteDiff(diff) => {
                return Ok(CtlLine::RouteDiff(RouteDiff { list: of_vrf(diff.list), ..diff }));
            }
            _ => {}
        }
    }
    Err(wrong(&text, "a command about a VRF (help vrf)"))
}

fn set_engine(words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
    let name = words.want("an engine")?.to_owned();
    let (mut parameters, mut force) = (Vec::new(), false);
    for word in words.by_ref() {
        match fib::units::named_value(word) {
            Some(parameter) if !force => parameters.push(parameter),
            None if word == "force" && !force => force = true,
            _ => return Err(wrong(word, "key=value, or force at the end")),
        }
    }
    ask(Request::SetEngine { name, parameters, force })
}

impl Ports {
    fn parse(word: &str) -> Self {
        if word == "all" { Self::All } else { Self::One(PortRef::parse(word)) }
    }
}

impl CommandWords<'_> {
    pub(super) fn want_prefix(&mut self) -> Result<IpPrefix, WordsError> {
        match self.want("a prefix")? {
            // As in route text, where the rest of the line may select IPv6.
            "default" => Ok(IpPrefix::V4(fib::Prefix::DEFAULT)),
            word => Ok(word.parse()?),
        }
    }

    fn filter(&mut self) -> Result<WatchFilter, WordsError> {
        let mut filter = WatchFilter::default();
        while let Some(word) = self.next() {
            let is_first = match pick(word, &FILTER_WORDS)? {
                "port" => filter.port.replace(PortRef::parse(self.want("a port")?)).is_none(),
                "vrf" => filter.vrf.replace(self.want("the name of a VRF")?.to_owned()).is_none(),
                "to" => filter.to.replace(self.want_prefix()?).is_none(),
                _ => {
                    let name = pick(self.want("a drop reason")?, &DropReason::NAMES)?;
                    let reason = DropReason::ALL.into_iter().find(|reason| reason.name() == name);
                    std::mem::replace(&mut filter.reason, reason).is_none()
                }
            };
            if !is_first {
                return Err(wrong(word, "each filter once"));
            }
        }
        Ok(filter)
    }

    fn want_count(&mut self, things: &str) -> Result<NonZeroU64, WordsError> {
        let word = self.want(&format!("a number of {things}"))?;
        let number = fib::units::count(word).and_then(NonZeroU64::new);
        number.ok_or_else(|| wrong(word, &format!("a number of {things} from 1")))
    }

    fn want_one_of(&mut self, both: [&'static str; 2]) -> Result<bool, WordsError> {
        let word = self.want(if both[0] == "on" { "on or off" } else { "up or down" })?;
        Ok(pick(word, &both)? == both[0])
    }
}
