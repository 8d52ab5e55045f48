"""The page shared with net_capture.c: orders, counters of ports, latencies. Its layout is the C file's `struct page`."""

import mmap

LINE_WORDS = 8
PORTS = 64
TX_QUEUES = 16
SLOT_BITS = 6
SLOTS = (64 - SLOT_BITS + 1) << SLOT_BITS

RUN, RATE, EPOCH, TSC_HZ, POLLS = range(5)
PORT_WORDS = (1 + TX_QUEUES) * LINE_WORDS
FIRST_PORT = LINE_WORDS
FIRST_SLOT = FIRST_PORT + PORTS * PORT_WORDS
BYTES = -(-(FIRST_SLOT + SLOTS) * 8 // mmap.PAGESIZE) * mmap.PAGESIZE


class Page:
    """A new page in a file."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(BYTES))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), BYTES)
        self.words = memoryview(self.map).cast("Q")

    def order(self, word, value):
        self.words[word] = value

    def polls(self):
        return self.words[POLLS]

    def received(self):
        """Packets received by all ports."""
        return sum(self.words[FIRST_PORT + port * PORT_WORDS] for port in range(PORTS))

    def sent(self):
        """Packets sent by all ports."""
        first = range(FIRST_PORT, FIRST_SLOT, PORT_WORDS)
        return sum(self.words[at + queue * LINE_WORDS] for at in first for queue in range(1, 1 + TX_QUEUES))

    def latencies(self):
        """The number of packets with the latency of each slot since the last epoch began."""
        return list(self.words[FIRST_SLOT : FIRST_SLOT + SLOTS])

    def percentiles_ns(self, counts, percentiles):
        """The latencies below which these percentages of the packets lie, and the greatest, each as the upper end of a slot."""
        total, hz = sum(counts), self.words[TSC_HZ]
        wanted = [max(1, -(-total * percentile // 100)) for percentile in percentiles]
        found, below, last = [], 0, 0
        for slot, count in enumerate(counts):
            below += count
            if count:
                last = slot
            while len(found) < len(wanted) and below >= wanted[len(found)]:
                found.append(slot)
        return [round(upper_cycles(slot) / hz * 1e9) for slot in (*found, last)]


def upper_cycles(slot):
    """The greatest latency of a slot."""
    if slot < 2 << SLOT_BITS:
        return slot
    shift = (slot >> SLOT_BITS) - 1
    return (((slot & ((1 << SLOT_BITS) - 1)) + (1 << SLOT_BITS) + 1) << shift) - 1
