/* net_capture: a DPDK port for comparing forwarders. It receives the packets of a capture again and again, and counts what is sent.
 *
 *   --vdev net_capture0,pcap=FILE     receives FILE (pcap, little endian)
 *   --vdev net_capture1               only sends
 *
 * The packets lie ready in mbufs with two references, so that a forwarder that frees one gives back its own. Each time round an mbuf's
 * fields are set as a driver sets them, and the first 64 bytes, which forwarding changes, are restored. That is all: with a port this
 * cheap, the time measured is the forwarder's.
 *
 * A plugin (EAL's -d). It needs the driver headers of DPDK's source. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bus_vdev_driver.h>
#include <ethdev_driver.h>
#include <ethdev_vdev.h>
#include <rte_kvargs.h>
#include <rte_mbuf.h>

#define HEADER_BYTES 64
#define AHEAD 8
#define TX_QUEUES 16

/* On a cache line of their own: one lcore counts, another may count beside it. */
struct counts {
	uint64_t packets, bytes;
} __rte_cache_aligned;

struct port {
	struct counts rx, tx[TX_QUEUES];
	struct rte_mbuf **mbufs; /* `count` of them, then the first AHEAD again */
	uint8_t (*headers)[HEADER_BYTES];
	uint32_t count, next;
	uint64_t rearm; /* data_off, references, segments and port, as one word */
	struct rte_ether_addr mac;
	char pcap[PATH_MAX];
};

static uint16_t receive(void *queue, struct rte_mbuf **out, uint16_t room)
{
	struct port *port = queue;
	struct rte_mbuf **ready = port->mbufs + port->next;
	uint16_t count = RTE_MIN(room, port->count - port->next);
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = ready[i];
		rte_prefetch0(ready[i + AHEAD]);
		memcpy(&mbuf->rearm_data, &port->rearm, sizeof port->rearm);
		mbuf->ol_flags = 0;
		bytes += mbuf->pkt_len;
		out[i] = mbuf;
	}
	for (uint16_t i = 0; i < count; i++)
		memcpy(rte_pktmbuf_mtod(ready[i], void *), port->headers[port->next + i], HEADER_BYTES);
	port->next = port->next + count == port->count ? 0 : port->next + count;
	port->rx.packets += count;
	port->rx.bytes += bytes;
	return count;
}

static uint16_t transmit(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct counts *sent = queue;
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++)
		bytes += packets[i]->pkt_len;
	sent->packets += count;
	sent->bytes += bytes;
	return count;
}

/* Puts every packet of the capture in an mbuf of `pool`. */
static int load(struct port *port, struct rte_mempool *pool)
{
	struct { uint32_t seconds, fraction, captured, wire; } record;
	uint32_t magic = 0, room = 0;
	FILE *file = fopen(port->pcap, "rb");

	if (file == NULL)
		return -errno;
	if (fread(&magic, sizeof magic, 1, file) != 1 || (magic != 0xa1b2c3d4 && magic != 0xa1b23c4d) || fseek(file, 24, SEEK_SET) != 0)
		return -EINVAL;
	while (fread(&record, sizeof record, 1, file) == 1) {
		if (port->count == room) {
			room = room == 0 ? 4096 : room * 2;
			port->mbufs = realloc(port->mbufs, (room + AHEAD) * sizeof *port->mbufs);
			port->headers = realloc(port->headers, (size_t)room * HEADER_BYTES);
		}
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
		char *data = mbuf == NULL ? NULL : rte_pktmbuf_append(mbuf, record.captured);
		if (data == NULL || fread(data, record.captured, 1, file) != 1) {
			fprintf(stderr, "net_capture: no room for packet %u of %s\n", port->count + 1, port->pcap);
			return -ENOMEM;
		}
		uint16_t type = rte_be_to_cpu_16(*(rte_be16_t *)(data + 12));
		mbuf->packet_type = RTE_PTYPE_L2_ETHER;
		mbuf->packet_type |= type == RTE_ETHER_TYPE_IPV4 ? RTE_PTYPE_L3_IPV4 : type == RTE_ETHER_TYPE_IPV6 ? RTE_PTYPE_L3_IPV6 : 0;
		memcpy(port->headers[port->count], data, HEADER_BYTES);
		port->mbufs[port->count++] = mbuf;
	}
	fclose(file);
	if (port->count == 0)
		return -ENODATA;
	for (uint32_t i = 0; i < AHEAD; i++)
		port->mbufs[port->count + i] = port->mbufs[i % port->count];
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

	dev->data->tx_queues[queue] = &port->tx[queue];
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

static int stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	struct port *port = dev->data->dev_private;

	stats->ipackets = port->rx.packets;
	stats->ibytes = port->rx.bytes;
	for (int i = 0; i < TX_QUEUES; i++) {
		stats->opackets += port->tx[i].packets;
		stats->obytes += port->tx[i].bytes;
	}
	return 0;
}

static int stats_reset(struct rte_eth_dev *dev)
{
	struct port *port = dev->data->dev_private;

	memset(&port->rx, 0, sizeof port->rx);
	memset(port->tx, 0, sizeof port->tx);
	return 0;
}

/* l3fwd asks for these two, and parses in software without them. */
static const uint32_t *supported_ptypes(struct rte_eth_dev *dev __rte_unused)
{
	static const uint32_t types[] = {RTE_PTYPE_L3_IPV4, RTE_PTYPE_L3_IPV6, RTE_PTYPE_UNKNOWN};

	return types;
}

static int start(struct rte_eth_dev *dev)
{
	dev->data->dev_link.link_status = RTE_ETH_LINK_UP;
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
	.allmulticast_enable = nothing,
	.link_update = link_update,
	.mac_addr_set = mac_set,
	.mtu_set = mtu_set,
	.stats_get = stats_get,
	.stats_reset = stats_reset,
	.rx_queue_setup = rx_queue_setup,
	.tx_queue_setup = tx_queue_setup,
};

static int take_path(const char *key __rte_unused, const char *value, void *path)
{
	return snprintf(path, PATH_MAX, "%s", value) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int probe(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_vdev_allocate(vdev, sizeof(struct port));
	struct rte_kvargs *arguments = rte_kvargs_parse(rte_vdev_device_args(vdev), NULL);

	if (dev == NULL)
		return -ENOMEM;
	struct port *port = dev->data->dev_private;
	if (arguments != NULL) {
		rte_kvargs_process(arguments, "pcap", take_path, port->pcap);
		rte_kvargs_free(arguments);
	}
	rte_eth_random_addr(port->mac.addr_bytes);
	dev->data->mac_addrs = &port->mac;
	dev->data->dev_link = (struct rte_eth_link){.link_speed = RTE_ETH_SPEED_NUM_100G, .link_duplex = RTE_ETH_LINK_FULL_DUPLEX};
	dev->data->promiscuous = 1;
	dev->data->dev_flags |= RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
	dev->dev_ops = &OPS;
	dev->rx_pkt_burst = receive;
	dev->tx_pkt_burst = transmit;
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
