/* net_capture: a DPDK port for comparing forwarders. It receives the packets of a capture repeatedly, and counts sent packets.
 *
 *   --vdev net_capture0,pcap=FILE,page=FILE     receives FILE (pcap, little endian)
 *   --vdev net_capture1,page=FILE               only sends
 *   .. ,sent=FOLDER                             receives FILE once; packets sent by port N go to FOLDER/portN.pcap
 *   .. ,paced=1                                 receives at a rate, and measures the latency of each packet
 *   .. ,checked=1                               marks the checksums of each packet as good, as a NIC does
 *
 * The packets are kept in mbufs with two references, so that a forwarder frees only its own reference. In each pass an mbuf's fields are set
 * as a driver sets them, and the first 64 bytes, which forwarding changes, are restored. So the port costs little of the measured time.
 * The MAC address of port N is 02:00:00:00:01:N.
 *
 * The page is a file that all ports of a process and the measuring script (page.py) map, an array of 64-bit words: the orders, the counters
 * of each port and the latencies. Nothing is received before the order `run`.
 *
 * A plugin (EAL's -d), or part of a static DPDK. It needs the driver headers of DPDK's source, 22.11 or newer. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bus_vdev_driver.h>
#include <ethdev_driver.h>
#include <ethdev_vdev.h>
#include <rte_cycles.h>
#include <rte_kvargs.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#define HEADER_BYTES 64
#define AHEAD 8
#define TX_QUEUES 16
#define LINE_WORDS 8
#define PORTS 64
/* Latencies in cycles: 64 slots for each power of two. */
#define SLOT_BITS 6
#define SLOTS ((64 - SLOT_BITS + 1) << SLOT_BITS)

struct orders {
	uint64_t run;    /* 0: receive nothing */
	uint64_t rate;   /* packets a second, with paced=1 */
	uint64_t epoch;  /* a new number restarts the schedule and the latencies, with paced=1 */
	uint64_t tsc_hz; /* written by the driver */
	uint64_t polls;  /* polls of the first port while run was 0, written by the driver */
	uint64_t unused[LINE_WORDS - 5];
};

/* On a separate cache line, since another lcore may count next to it. */
struct counts {
	uint64_t packets, bytes;
	uint64_t unused[LINE_WORDS - 2];
};

struct page {
	struct orders orders;
	struct {
		struct counts rx, tx[TX_QUEUES];
	} ports[PORTS];
	uint64_t latencies[SLOTS];
};

struct port {
	struct page *page;
	struct rte_mbuf **mbufs; /* `count` of them, then the first AHEAD again */
	uint8_t (*headers)[HEADER_BYTES];
	uint16_t *lengths;
	struct rte_mempool *pool; /* of the mbufs */
	uint32_t count, next, number;
	uint64_t rearm; /* data_off, references, segments and port, as one word */
	uint64_t flags;
	uint64_t epoch, start, given; /* of the schedule */
	double packets_per_cycle, cycles_per_packet;
	FILE *sent_file;
	struct rte_ether_addr mac;
	int paced, checked;
	char pcap[PATH_MAX], page_path[PATH_MAX], sent[PATH_MAX - 32];
};

struct tx_queue {
	struct counts *counts;
	struct port *port;
};

static inline uint16_t give(struct port *port, struct rte_mbuf **out, uint16_t count)
{
	struct rte_mbuf **ready = port->mbufs + port->next;
	const uint16_t *lengths = port->lengths + port->next;
	struct counts *counts = &port->page->ports[port->number].rx;
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = ready[i];
		rte_prefetch0(ready[i + AHEAD]);
		memcpy(&mbuf->rearm_data, &port->rearm, sizeof port->rearm);
		mbuf->ol_flags = port->flags;
		/* A forwarder that removes the Ethernet header leaves it removed when it drops the packet. */
		mbuf->pkt_len = mbuf->data_len = lengths[i];
		bytes += lengths[i];
		out[i] = mbuf;
	}
	for (uint16_t i = 0; i < count; i++)
		memcpy(rte_pktmbuf_mtod(ready[i], void *), port->headers[port->next + i], HEADER_BYTES);
	port->next = port->next + count == port->count ? 0 : port->next + count;
	counts->packets += count;
	counts->bytes += bytes;
	return count;
}

static inline bool may_run(struct port *port)
{
	volatile struct orders *orders = &port->page->orders;

	if (likely(orders->run != 0))
		return true;
	if (port->number == 0)
		orders->polls++;
	return false;
}

static uint16_t receive(void *queue, struct rte_mbuf **out, uint16_t room)
{
	struct port *port = queue;

	return may_run(port) ? give(port, out, RTE_MIN(room, port->count - port->next)) : 0;
}

static uint16_t receive_once(void *queue, struct rte_mbuf **out, uint16_t room)
{
	struct port *port = queue;
	uint64_t left = port->count - port->page->ports[port->number].rx.packets;

	return may_run(port) && left > 0 ? give(port, out, RTE_MIN(room, left)) : 0;
}

static void begin(struct port *port, uint64_t epoch)
{
	double hz = rte_get_tsc_hz();

	port->epoch = epoch;
	port->packets_per_cycle = port->page->orders.rate / hz;
	port->cycles_per_packet = hz / port->page->orders.rate;
	port->given = 0;
	memset(port->page->latencies, 0, sizeof port->page->latencies);
	port->start = rte_rdtsc();
}

/* Packet n is due at start + n / rate; the start of its mbuf's headroom holds that time. A late call gets all due packets. */
static uint16_t receive_paced(void *queue, struct rte_mbuf **out, uint16_t room)
{
	struct port *port = queue;
	volatile struct orders *orders = &port->page->orders;

	if (!may_run(port) || port->count == 0)
		return 0;
	if (unlikely(port->epoch != orders->epoch))
		begin(port, orders->epoch);
	uint64_t due = (rte_rdtsc() - port->start) * port->packets_per_cycle;
	uint16_t count = RTE_MIN(RTE_MIN(room, port->count - port->next), due - port->given);
	give(port, out, count);
	for (uint16_t i = 0; i < count; i++)
		*(uint64_t *)out[i]->buf_addr = port->start + (uint64_t)((port->given + i) * port->cycles_per_packet);
	port->given += count;
	return count;
}

static uint16_t transmit(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct counts *sent = ((struct tx_queue *)queue)->counts;
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++)
		bytes += packets[i]->pkt_len;
	sent->packets += count;
	sent->bytes += bytes;
	return count;
}

/* The slot of a latency: itself below 2^SLOT_BITS, then its highest bits. */
static inline unsigned slot_of(uint64_t cycles)
{
	if (cycles < 1 << SLOT_BITS)
		return cycles;
	unsigned shift = 63 - __builtin_clzll(cycles) - SLOT_BITS;

	return ((shift + 1) << SLOT_BITS) + (cycles >> shift) - (1 << SLOT_BITS);
}

static uint16_t transmit_timed(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct port *port = ((struct tx_queue *)queue)->port;
	uint64_t *latencies = port->page->latencies, now = rte_rdtsc();

	for (uint16_t i = 0; i < count; i++) {
		uint64_t due = *(uint64_t *)packets[i]->buf_addr;
		latencies[slot_of(now > due ? now - due : 0)]++;
	}
	return transmit(queue, packets, count);
}

static uint16_t transmit_to_file(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct port *port = ((struct tx_queue *)queue)->port;

	for (uint16_t i = 0; i < count; i++) {
		uint32_t record[4] = {0, 0, packets[i]->pkt_len, packets[i]->pkt_len};
		fwrite(record, sizeof record, 1, port->sent_file);
		for (const struct rte_mbuf *part = packets[i]; part != NULL; part = part->next)
			fwrite(rte_pktmbuf_mtod(part, void *), part->data_len, 1, port->sent_file);
	}
	fflush(port->sent_file);
	return transmit(queue, packets, count);
}

/* Puts every packet of the capture in an mbuf of `pool`, unless a set-up with the same pool has done so. */
static int load(struct port *port, struct rte_mempool *pool)
{
	struct { uint32_t seconds, fraction, captured, wire; } record;
	uint32_t magic = 0, room = 0;

	if (port->pool == pool)
		return 0;
	FILE *file = fopen(port->pcap, "rb");
	if (file == NULL)
		return -errno;
	if (fread(&magic, sizeof magic, 1, file) != 1 || (magic != 0xa1b2c3d4 && magic != 0xa1b23c4d) || fseek(file, 24, SEEK_SET) != 0)
		return -EINVAL;
	port->count = port->next = 0;
	while (fread(&record, sizeof record, 1, file) == 1) {
		if (port->count == room) {
			room = room == 0 ? 4096 : room * 2;
			port->mbufs = realloc(port->mbufs, (room + AHEAD) * sizeof *port->mbufs);
			port->headers = realloc(port->headers, (size_t)room * HEADER_BYTES);
			port->lengths = realloc(port->lengths, room * sizeof *port->lengths);
		}
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
		char *data = mbuf == NULL ? NULL : rte_pktmbuf_append(mbuf, RTE_MAX(record.captured, (uint32_t)HEADER_BYTES));
		if (data == NULL || fread(data, record.captured, 1, file) != 1) {
			fprintf(stderr, "net_capture: no room for packet %u of %s\n", port->count + 1, port->pcap);
			return -ENOMEM;
		}
		uint16_t type = rte_be_to_cpu_16(*(rte_be16_t *)(data + 12));
		mbuf->packet_type = RTE_PTYPE_L2_ETHER;
		mbuf->packet_type |= type == RTE_ETHER_TYPE_IPV4 ? RTE_PTYPE_L3_IPV4 : type == RTE_ETHER_TYPE_IPV6 ? RTE_PTYPE_L3_IPV6 : 0;
		memcpy(port->headers[port->count], data, HEADER_BYTES);
		port->lengths[port->count] = record.captured;
		port->mbufs[port->count++] = mbuf;
	}
	fclose(file);
	if (port->count == 0)
		return -ENODATA;
	for (uint32_t i = 0; i < AHEAD; i++)
		port->mbufs[port->count + i] = port->mbufs[i % port->count];
	port->pool = pool;
	return 0;
}

static int rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t descriptors __rte_unused, unsigned int socket __rte_unused,
			  const struct rte_eth_rxconf *config __rte_unused, struct rte_mempool *pool)
{
	struct port *port = dev->data->dev_private;
	struct rte_mbuf fresh = {.data_off = RTE_PKTMBUF_HEADROOM, .refcnt = 2, .nb_segs = 1, .port = dev->data->port_id};

	memcpy(&port->rearm, &fresh.rearm_data, sizeof port->rearm);
	dev->data->rx_queues[queue] = port;
	return port->pcap[0] == 0 ? 0 : load(port, pool);
}

static int tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t descriptors __rte_unused, unsigned int socket __rte_unused,
			  const struct rte_eth_txconf *config __rte_unused)
{
	struct port *port = dev->data->dev_private;
	struct tx_queue *tx = dev->data->tx_queues[queue];

	if (tx == NULL)
		tx = calloc(1, sizeof *tx);
	if (tx == NULL)
		return -ENOMEM;
	*tx = (struct tx_queue){.counts = &port->page->ports[port->number].tx[queue], .port = port};
	dev->data->tx_queues[queue] = tx;
	return 0;
}

static int infos_get(struct rte_eth_dev *dev __rte_unused, struct rte_eth_dev_info *info)
{
	info->max_mac_addrs = 1;
	info->max_rx_pktlen = 9600;
	info->max_rx_queues = 1;
	info->max_tx_queues = TX_QUEUES;
	info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	info->rx_offload_capa = RTE_ETH_RX_OFFLOAD_CHECKSUM;
	return 0;
}

#if RTE_VERSION >= RTE_VERSION_NUM(25, 11, 0, 0)
static int stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats, struct eth_queue_stats *queues __rte_unused)
#else
static int stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
#endif
{
	struct port *port = dev->data->dev_private;

	stats->ipackets = port->page->ports[port->number].rx.packets;
	stats->ibytes = port->page->ports[port->number].rx.bytes;
	for (int i = 0; i < TX_QUEUES; i++) {
		stats->opackets += port->page->ports[port->number].tx[i].packets;
		stats->obytes += port->page->ports[port->number].tx[i].bytes;
	}
	return 0;
}

/* l3fwd requests these two; without them it parses in software. */
static const uint32_t ptypes[] = {RTE_PTYPE_L3_IPV4, RTE_PTYPE_L3_IPV6, RTE_PTYPE_UNKNOWN};
#if RTE_VERSION >= RTE_VERSION_NUM(24, 3, 0, 0)
static const uint32_t *supported_ptypes(struct rte_eth_dev *dev __rte_unused, size_t *count)
{
	*count = 2;
	return ptypes;
}
#else
static const uint32_t *supported_ptypes(struct rte_eth_dev *dev __rte_unused) { return ptypes; }
#endif

static int start(struct rte_eth_dev *dev)
{
	dev->data->dev_link.link_status = RTE_ETH_LINK_UP;
	dev->data->rx_queue_state[0] = RTE_ETH_QUEUE_STATE_STARTED;
	for (int i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queue_state[i] = RTE_ETH_QUEUE_STATE_STARTED;
	return 0;
}

static int nothing(struct rte_eth_dev *dev __rte_unused) { return 0; }
static int link_update(struct rte_eth_dev *dev __rte_unused, int wait __rte_unused) { return 0; }
static int mac_set(struct rte_eth_dev *dev __rte_unused, struct rte_ether_addr *mac __rte_unused) { return 0; }
static int mtu_set(struct rte_eth_dev *dev __rte_unused, uint16_t mtu __rte_unused) { return 0; }

static const struct eth_dev_ops OPS = {
	.dev_configure = nothing,
	.dev_start = start,
	.dev_stop = nothing,
	.dev_close = nothing,
	.dev_infos_get = infos_get,
	.dev_supported_ptypes_get = supported_ptypes,
	.promiscuous_enable = nothing,
	.promiscuous_disable = nothing,
	.allmulticast_enable = nothing,
	.allmulticast_disable = nothing,
	.link_update = link_update,
	.mac_addr_set = mac_set,
	.mtu_set = mtu_set,
	.stats_get = stats_get,
	.stats_reset = nothing,
	.rx_queue_setup = rx_queue_setup,
	.tx_queue_setup = tx_queue_setup,
};

static int take_path(const char *key __rte_unused, const char *value, void *path)
{
	return snprintf(path, PATH_MAX - 32, "%s", value) < PATH_MAX - 32 ? 0 : -ENAMETOOLONG;
}

static int take_number(const char *key __rte_unused, const char *value, void *number)
{
	*(int *)number = atoi(value);
	return 0;
}

static int map_page(struct port *port)
{
	int file = open(port->page_path, O_RDWR);

	if (file < 0) {
		fprintf(stderr, "net_capture: no page=FILE: %s\n", strerror(errno));
		return -errno;
	}
	port->page = mmap(NULL, sizeof *port->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (port->page == MAP_FAILED)
		return -errno;
	port->page->orders.tsc_hz = rte_get_tsc_hz();
	return 0;
}

static int open_sent(struct port *port)
{
	static const uint32_t head[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/port%u.pcap", port->sent, port->number);
	port->sent_file = fopen(path, "wb");
	return port->sent_file != NULL && fwrite(head, sizeof head, 1, port->sent_file) == 1 ? 0 : -EIO;
}

static int probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev);
	struct rte_eth_dev *dev = rte_eth_vdev_allocate(vdev, sizeof(struct port));
	struct rte_kvargs *arguments = rte_kvargs_parse(rte_vdev_device_args(vdev), NULL);

	if (dev == NULL || arguments == NULL)
		return -ENOMEM;
	struct port *port = dev->data->dev_private;
	rte_kvargs_process(arguments, "pcap", take_path, port->pcap);
	rte_kvargs_process(arguments, "page", take_path, port->page_path);
	rte_kvargs_process(arguments, "sent", take_path, port->sent);
	rte_kvargs_process(arguments, "paced", take_number, &port->paced);
	rte_kvargs_process(arguments, "checked", take_number, &port->checked);
	rte_kvargs_free(arguments);
	port->number = strtoul(name + strcspn(name, "0123456789"), NULL, 10);
	if (port->number >= PORTS)
		return -EINVAL;
	int error = map_page(port);
	if (error == 0 && port->sent[0] != 0)
		error = open_sent(port);
	if (error != 0)
		return error;
	port->epoch = UINT64_MAX;
	port->flags = port->checked ? RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD : 0;
	port->mac = (struct rte_ether_addr){{2, 0, 0, 0, 1, port->number}};
	dev->data->mac_addrs = &port->mac;
	dev->data->dev_link = (struct rte_eth_link){.link_speed = RTE_ETH_SPEED_NUM_100G, .link_duplex = RTE_ETH_LINK_FULL_DUPLEX};
	dev->data->promiscuous = 1;
	dev->dev_ops = &OPS;
	dev->rx_pkt_burst = port->sent[0] != 0 ? receive_once : port->paced ? receive_paced : receive;
	dev->tx_pkt_burst = port->sent[0] != 0 ? transmit_to_file : port->paced ? transmit_timed : transmit;
	rte_eth_dev_probing_finish(dev);
	return 0;
}

static int forget(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(rte_vdev_device_name(vdev));

	if (dev != NULL) {
		dev->data->mac_addrs = NULL; /* it lies in the private data */
		rte_eth_dev_release_port(dev);
	}
	return 0;
}

static struct rte_vdev_driver net_capture_driver = {.probe = probe, .remove = forget};
RTE_PMD_REGISTER_VDEV(net_capture, net_capture_driver);
