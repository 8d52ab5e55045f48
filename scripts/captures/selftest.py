"""Examples worked by hand, most of them out of an RFC, that the builders, the formats and the golden forwarder have to agree with."""

import unittest
from ipaddress import ip_address

from . import bad, formats, forwarder, links, mix
from . import packets as p


class Checksums(unittest.TestCase):
    def test_rfc1071_section_3(self):
        data = bytes.fromhex("0001f203f4f5f6f7")
        self.assertEqual(p.ones_complement_sum(data), 0xDDF2)
        self.assertEqual(p.checksum(data), 0x220D)

    def test_odd_length_is_padded_behind(self):
        self.assertEqual(p.ones_complement_sum(b"\x01"), 0x0100)

    def test_rfc1624_section_4(self):
        # HC = DD2F, m = 5555, m' = 3285; equation 2 would give FFFF.
        self.assertEqual(forwarder.adjusted_checksum(0xDD2F, 0x5555, 0x3285), 0x0000)

    def test_known_ipv4_header(self):
        header = p.ipv4("192.168.0.1", "192.168.0.199", bytes(95), ttl=64, flags_offset=0x4000)[:20]
        self.assertEqual(header.hex(), "45000073000040004011b861c0a80001c0a800c7")

    def test_adjusting_equals_summing_anew(self):
        for ident in range(0, 65536, 251):
            packet = p.ipv4_udp("10.0.0.1", "10.0.0.2", ident=ident, ttl=64)
            anew = p.ipv4_udp("10.0.0.1", "10.0.0.2", ident=ident, ttl=63)
            value = forwarder.adjusted_checksum(int.from_bytes(packet[10:12], "big"), 0x4011, 0x3F11)
            self.assertEqual(value.to_bytes(2, "big"), anew[10:12])

    def test_udp_checksum_covers_the_pseudo_header(self):
        for src, dst in (("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")):
            datagram = p.udp(src, dst, b"odd")
            self.assertEqual(p.ones_complement_sum(p.pseudo_header(src, dst, p.UDP, 11) + datagram), 0xFFFF)


class Random(unittest.TestCase):
    def test_splitmix64_known_answers(self):
        rng = p.SplitMix64(1234567)
        self.assertEqual([rng.next() for _ in range(3)], [6457827717110365317, 3203168211198807973, 9817491932198370423])


class Lookup(unittest.TestCase):
    def test_longest_wins_in_both_families(self):
        table = forwarder.Table([("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.3/32", 3), ("2001:db8::/32", 4), ("2001:db8::1/128", 5)])
        for address, hop in (("10.2.0.1", 1), ("10.1.2.4", 2), ("10.1.2.3", 3), ("11.0.0.0", 0)):
            self.assertEqual(table.lookup(ip_address(address)), hop, address)
        for address, hop in (("2001:db8::2", 4), ("2001:db8::1", 5), ("2001:db9::", 0), ("::a00:1", 0)):
            self.assertEqual(table.lookup(ip_address(address)), hop, address)

    def test_default_route(self):
        self.assertEqual(forwarder.Table([("0.0.0.0/0", 7)]).lookup(ip_address("203.0.113.1")), 7)


class Forwarding(unittest.TestCase):
    TABLE = forwarder.Table([("10.0.0.0/8", 0x010206), ("2001:db8::/32", 2)])

    def test_ipv4_rewrite_byte_for_byte(self):
        # TTL 40 -> 3f at offset 22; checksum ~(4500+0014+4000+4011+0a00+0001+0a00+0002) = ~d928 = 26d7 becomes 27d7.
        frame = bytes.fromhex("02f000000000" "02aa00000001" "0800" "4500001400004000401126d70a0000010a000002")
        verdict, port, hop, out = forwarder.forward(frame, self.TABLE)
        self.assertEqual((verdict, port, hop), ("tx", 1, 0x010206))
        self.assertEqual(out.hex(), "020000010206" "02f000000001" "0800" "45000014000040003f1127d70a0000010a000002")

    def test_ipv6_rewrite_changes_the_hop_limit_only(self):
        frame = p.ethernet(p.ETHERTYPE_IPV6, p.ipv6_udp("2001:db8::1", "2001:db8::2"), [(p.TPID_C, 5)])
        verdict, port, hop, out = forwarder.forward(frame, self.TABLE)
        self.assertEqual((verdict, port, hop), ("tx", 1, 2))
        self.assertEqual([i for i in range(12, len(frame)) if frame[i] != out[i]], [18 + 7])

    def test_hand_written_verdicts_of_bad_pcap(self):
        table = forwarder.Table(mix.routes())
        for note, expected, frame in bad.cases():
            self.assertEqual(forwarder.forward(frame, table)[0], expected, note)

    def test_hand_written_results_of_links_pcap(self):
        table = forwarder.Table(links.routes(), links.neighbours())
        for note, expected, port, mac, frame in links.cases():
            verdict, egress, _, out = forwarder.forward(frame, table)
            self.assertEqual((verdict, egress), (expected, port), note)
            if out:
                self.assertEqual(out[:6].hex(":"), mac, note)

    def test_notes_are_unique_and_reasons_all_met(self):
        cases = bad.cases()
        self.assertEqual(len({note for note, _, _ in cases}), len(cases))
        met = {verdict for _, verdict, _ in cases}
        wanted = {"tx", "not_ip", "malformed", "bad_checksum", "ttl_expired", "martian", "multicast", "no_route", "mtu_exceeded"}
        self.assertEqual(met, wanted)


class Formats(unittest.TestCase):
    RECORDS = [(1_704_067_200_123_456_789, b"\x01\x02\x03", 3), (1_704_067_201_999_999_999, b"", 60), (1_704_067_202_000_000_000, b"abcd", 4)]

    def test_pcap_round_trip(self):
        for order in "<>":
            self.assertEqual(formats.read_pcap(formats.pcap(self.RECORDS, order, ns=True)), self.RECORDS)
            coarse = [(time - time % 1000, frame, wire) for time, frame, wire in self.RECORDS]
            self.assertEqual(formats.read_pcap(formats.pcap(self.RECORDS, order)), coarse)

    def test_pcapng_round_trip(self):
        for order in "<>":
            data = formats.pcapng(self.RECORDS, order, ns=True, comments={1: "cut"})
            self.assertEqual(formats.read_pcapng(data), self.RECORDS)
            self.assertEqual(len(data) % 4, 0)

    def test_magic_bytes(self):
        self.assertEqual(formats.pcap([])[:4].hex(), "d4c3b2a1")
        self.assertEqual(formats.pcap([], ">")[:4].hex(), "a1b2c3d4")
        self.assertEqual(formats.pcap([], ns=True)[:4].hex(), "4d3cb2a1")


class Mix(unittest.TestCase):
    def test_every_route_is_an_answer_and_some_packets_have_none(self):
        table, records = forwarder.Table(mix.routes()), mix.mix()[0]
        verdicts = [forwarder.forward(frame, table) for _, frame, _ in records]
        self.assertEqual({v[0] for v in verdicts}, {"tx", "no_route"})
        self.assertEqual({v[2] for v in verdicts if v[2]}, {hop for _, hop in mix.routes()})
        self.assertEqual({v[1] for v in verdicts if v[0] == "tx"}, set(range(forwarder.PORTS)))

    def test_no_default_route_and_lengths_up_to_the_address(self):
        lengths = {(":" in prefix, int(prefix.split("/")[1])) for prefix, _ in mix.routes()}
        self.assertTrue({(False, 32), (True, 128), (True, 65)} <= lengths)
        self.assertFalse({(False, 0), (True, 0)} & lengths)


def run():
    """Runs every test; true where all passed."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(__import__("sys").modules[__name__])
    return unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful()
