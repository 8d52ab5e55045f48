//! Frames for the kernel behind a TAP. A neighbour's answer goes there only if the kernel has requested it, since its neighbour
//! table accepts unsolicited ones. All other frames are rate-limited per TAP.

use super::RouterLoop;
use crate::neighbours::arp;
use crate::neighbours::entries::Key;
use crate::neighbours::frame::{ARP, IPV6, Layer2};
use crate::neighbours::ip::V6;
use crate::neighbours::limiter::{Bucket, LimitRate, Pace};
use crate::neighbours::ndp;
use crate::ports::InterfaceId;
use crate::ports::taps::Sent;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::Duration;

/// How long an answer goes to the kernel. Linux asks three times, a second apart.
const PATIENCE: Duration = Duration::from_secs(5);
/// Remembered requests. Strangers can make the kernel ask for any address of a link, so the oldest are dropped.
const ASKED_MAX: usize = 4096;
/// Rate per TAP. Routing sessions use a tenth of it while they exchange full tables.
const TAP_RATE: LimitRate = LimitRate { per_second: 50_000, burst: 5000 };

#[derive(Debug, Default)]
pub(super) struct ToKernel {
    asked: FxHashMap<Key, Duration>,
    /// Requests, oldest first; some have been answered or repeated since.
    order: VecDeque<(Key, Duration)>,
    buckets: FxHashMap<InterfaceId, Bucket>,
}

impl ToKernel {
    pub(super) fn sends(&mut self, now: Duration, on: InterfaceId, frame: &[u8]) {
        let Some(key) = asked_for(on, frame) else { return };
        if self.asked.insert(key, now) == Some(now) {
            return;
        }
        self.order.push_back((key, now));
        if self.order.len() > ASKED_MAX
            && let Some((oldest, at)) = self.order.pop_front()
            && self.asked.get(&oldest) == Some(&at)
        {
            self.asked.remove(&oldest);
        }
    }

    /// Whether the kernel has requested this neighbour; removes the request.
    pub(super) fn takes_answer(&mut self, now: Duration, key: Key) -> bool {
        self.asked.remove(&key).is_some_and(|at| now < at.saturating_add(PATIENCE))
    }

    fn allows(&mut self, now: Duration, on: InterfaceId) -> bool {
        let bucket = self.buckets.entry(on).or_default();
        let taken = Pace::new(TAP_RATE).taken(*bucket, now);
        *bucket = taken.unwrap_or(*bucket);
        taken.is_some()
    }
}

impl RouterLoop {
    pub(super) fn give_kernel(&mut self, on: InterfaceId, frame: &[u8]) -> Sent {
        let has_tap = self.taps.ids().any(|id| id == on);
        if has_tap && !self.to_kernel.allows(self.now(), on) {
            return Sent::Refused;
        }
        self.taps.send(on, frame)
    }
}

fn asked_for(on: InterfaceId, frame: &[u8]) -> Option<Key> {
    let layer2 = Layer2::parse(frame).ok()?;
    let address = match layer2.ethertype {
        ARP => {
            let message = arp::ArpMessage::parse(&layer2).filter(|message| message.is_request)?;
            message.target.into()
        }
        IPV6 => {
            let packet = V6::parse(layer2.payload, layer2.payload.len()).ok()?;
            match ndp::NdpMessage::parse(&packet)? {
                ndp::NdpMessage::Solicitation { target, .. } => target.into(),
                ndp::NdpMessage::Advertisement { .. } => return None,
            }
        }
        _ => return None,
    };
    Some(Key::new(on, address, &layer2.tags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::frame::Tags;
    use crate::ports::record::tests::interface;

    const ON: InterfaceId = InterfaceId(3);

    #[test]
    fn an_answer_is_for_the_kernel_once_and_soon_after_its_question() {
        let port = interface(3, &["192.0.2.1/24", "2001:db8::1/64"]);
        let v6 = |text: &str| text.parse().unwrap();
        let questions = [
            arp::request(&port, [192, 0, 2, 1].into(), [192, 0, 2, 9].into(), None, Tags::NONE),
            ndp::solicitation(&port, v6("2001:db8::1"), v6("2001:db8::9"), None, Tags::NONE),
        ];
        let keys = ["192.0.2.9", "2001:db8::9"].map(|text| Key::untagged(ON, text.parse().unwrap()));
        let second = Duration::from_secs;
        for (question, key) in questions.iter().zip(keys) {
            let mut kernel = ToKernel::default();
            assert!(!kernel.takes_answer(second(0), key));
            kernel.sends(second(0), ON, question);
            let elsewhere = Key { vlans: [7, 0], ..key };
            assert!(!kernel.takes_answer(second(4), elsewhere) && kernel.takes_answer(second(4), key));
            assert!(!kernel.takes_answer(second(4), key), "a second answer");
            kernel.sends(second(5), ON, question);
            assert!(!kernel.takes_answer(second(10), key), "too late");
        }
        let mut kernel = ToKernel::default();
        for other in [arp::announcement(&port, [192, 0, 2, 1].into(), Tags::NONE), vec![0; 9]] {
            kernel.sends(second(0), ON, &other);
            assert!(!kernel.takes_answer(second(0), keys[0]));
        }
    }

    #[test]
    fn questions_and_frames_have_limits() {
        let (mut kernel, port, now) = (ToKernel::default(), interface(3, &["192.0.2.1/16"]), Duration::ZERO);
        let question = |host: u16| {
            let [a, b] = host.to_be_bytes();
            arp::request(&port, [192, 0, 2, 1].into(), [192, 0, a, b].into(), None, Tags::NONE)
        };
        let key = |host: u16| {
            let [a, b] = host.to_be_bytes();
            Key::untagged(ON, std::net::Ipv4Addr::new(192, 0, a, b).into())
        };
        (0..10_000).for_each(|host| kernel.sends(now, ON, &question(host)));
        assert_eq!((kernel.asked.len(), kernel.order.len()), (ASKED_MAX, ASKED_MAX));
        assert!(kernel.takes_answer(now, key(9999)) && !kernel.takes_answer(now, key(0)), "the latest count");
        // A repeated request is not the oldest.
        kernel.sends(Duration::from_secs(1), ON, &question(9000));
        (0..4000).for_each(|host| kernel.sends(Duration::from_secs(2), ON, &question(host)));
        assert!(kernel.takes_answer(Duration::from_secs(3), key(9000)));
        (0..100_000).for_each(|ms| kernel.sends(Duration::from_millis(ms), ON, &question(7)));
        assert_eq!((kernel.asked.len(), kernel.order.len()), (1, ASKED_MAX));
        let mut allowed =
            |on, ms| (0..100_000).filter(|_| kernel.allows(Duration::from_millis(ms), on)).count();
        assert_eq!((allowed(ON, 0), allowed(ON, 10), allowed(InterfaceId(4), 10)), (5000, 500, 5000));
    }
}
