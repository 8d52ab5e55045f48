/* Parts of DPDK that Rust cannot use directly: inline functions, the thread-local errno, 64-bit macros, and structures with bit fields.
 * One call a burst, never a packet. All names begin with dffi_ or DFFI_. */
#ifndef DFFI_SHIM_H
#define DFFI_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_config.h>
#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_pdump.h>
#include <rte_ring.h>
#include <rte_telemetry.h>
#include <rte_version.h>

/* The version of the headers at compile time, in the format of rte_version. */
void dffi_compiled_version(char *text, size_t room);

/* The calling thread's rte_errno. */
int dffi_errno(void);
/* The calling thread's lcore id, LCORE_ID_ANY for a thread that is not registered with EAL. */
unsigned dffi_lcore_id(void);

/* The CPUs an lcore may run on: fills cpus, returns their number (may exceed room). */
unsigned dffi_lcore_cpus(unsigned lcore, uint16_t *cpus, unsigned room);

/* Queues: rte_eth_rx_burst and rte_eth_tx_burst. */
uint16_t dffi_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t dffi_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

/* Mbufs. If the pool is exhausted, dffi_mbuf_new returns NULL and dffi_mbuf_alloc_bulk a negative errno. */
struct rte_mbuf *dffi_mbuf_new(struct rte_mempool *pool);
int dffi_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count);
void dffi_mbuf_free(struct rte_mbuf *mbuf);
struct rte_mbuf *dffi_mbuf_next(const struct rte_mbuf *mbuf);
int dffi_mbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
/* Moves all bytes of a chain to its first segment: 0, or negative and unchanged if they do not fit there. */
int dffi_mbuf_linearize(struct rte_mbuf *mbuf);
/* Grows the last segment by count bytes and returns their address, NULL if they do not fit. */
uint8_t *dffi_mbuf_append(struct rte_mbuf *mbuf, uint16_t count);
uint16_t dffi_mbuf_tailroom(struct rte_mbuf *mbuf);
/* A packet from the pool of mbuf: a header, then count bytes of mbuf from `from` on, then zeros up to the shortest frame. NULL if the
 * pool is empty or mbuf has fewer bytes. */
struct rte_mbuf *dffi_mbuf_piece(const struct rte_mbuf *mbuf, uint32_t from, uint32_t count, const uint8_t *header,
				 uint16_t header_count);

/* The name of the operations of a pool. */
const char *dffi_mempool_operations(const struct rte_mempool *pool);

/* Rings. */
unsigned dffi_ring_enqueue_burst(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count);
unsigned dffi_ring_dequeue_burst(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count);
unsigned dffi_ring_count(const struct rte_ring *ring);
unsigned dffi_ring_capacity(const struct rte_ring *ring);

/* Ports: the structures with bit fields and deep nesting are filled here. All return 0 or a negative errno. */
struct dffi_port_config {
	uint16_t rx_queues, tx_queues;
	uint32_t mtu; /* 0: the driver's own */
	uint64_t rx_offloads, tx_offloads;
	uint64_t rss; /* 0: no RSS */
};
int dffi_port_configure(uint16_t port, const struct dffi_port_config *config);
int dffi_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned socket, uint64_t offloads,
			struct rte_mempool *pool);
int dffi_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned socket, uint64_t offloads);

struct dffi_link {
	uint32_t speed_mbps; /* UINT32_MAX: unknown */
	uint8_t up, full_duplex;
};
int dffi_link_get(uint16_t port, struct dffi_link *link);
/* Receives bytes of DPDK's log with their level as in rte_log.h. Called on the logging thread; must not unwind. */
typedef void (*dffi_log_take)(uint32_t level, const char *text, size_t bytes);
/* Redirects DPDK's log from stderr and syslog to `take` until the process ends, then calls `at_end`. 0 or a negative errno; called once. */
int dffi_log_to(dffi_log_take take, void (*at_end)(void));

/* Counts the drivers' reports of link changes after dffi_watch_ports. No interrupt is requested, so only drivers that report them anyway are
 * counted, such as vhost. */
int dffi_watch_ports(void);
uint64_t dffi_link_events(void);

/* Events of a port, reported by drivers and the kernel after dffi_watch_ports. */
static const uint8_t DFFI_PORT_RESET = 1;
static const uint8_t DFFI_PORT_REMOVED = 2;
/* Returns and clears the events of a port. */
uint8_t dffi_take_events(uint16_t port);
/* Called by the callbacks for DPDK's events. */
void dffi_report_event(uint16_t port, uint8_t event);

/* The device of a port: its bus, its name there, its arguments; EAL owns the strings, which live as long as the device. */
struct dffi_device {
	const char *bus, *name, *arguments;
};
int dffi_device_of(uint16_t port, struct dffi_device *device);
/* Adds a device with arguments of any length. Other processes are notified only if the arguments fit EAL's message; if they do not fit, the
 * result is 0 even when the driver refuses the device. */
int dffi_device_add(const char *bus, const char *name, const char *arguments);
/* A port's name into RTE_ETH_NAME_MAX_LEN bytes. */
int dffi_port_name(uint16_t port, char *name);

/* Telemetry: DPDK 23.03 renamed u64 to uint and later releases drop the old names. */
int dffi_tel_start_u64_array(struct rte_tel_data *data);
int dffi_tel_array_u64(struct rte_tel_data *data, uint64_t value);
int dffi_tel_dict_u64(struct rte_tel_data *data, const char *name, uint64_t value);

static const uint32_t DFFI_MBUF_HEADROOM_BYTES = RTE_PKTMBUF_HEADROOM;
static const uint32_t DFFI_MBUF_MAX_SEGMENTS = RTE_MBUF_MAX_NB_SEGS;
static const uint32_t DFFI_NAME_BYTES = RTE_ETH_NAME_MAX_LEN;
static const uint32_t DFFI_MAX_PORTS = RTE_MAX_ETHPORTS;
static const int DFFI_VLAN_FILTER = RTE_ETH_VLAN_FILTER_OFFLOAD;
static const uint64_t DFFI_NO_OWNER = RTE_ETH_DEV_NO_OWNER;
static const uint32_t DFFI_MAX_LCORES = RTE_MAX_LCORE;
static const uint32_t DFFI_RING_SP = RING_F_SP_ENQ;
static const uint32_t DFFI_RING_SC = RING_F_SC_DEQ;
static const uint32_t DFFI_LCORE_ID_ANY = LCORE_ID_ANY;

static const uint64_t DFFI_RX_VLAN_STRIP = RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
static const uint64_t DFFI_RX_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t DFFI_RX_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t DFFI_RX_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
static const uint64_t DFFI_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t DFFI_RX_RSS_HASH = RTE_ETH_RX_OFFLOAD_RSS_HASH;
static const uint64_t DFFI_TX_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t DFFI_TX_UDP_CKSUM = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
static const uint64_t DFFI_TX_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t DFFI_TX_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t DFFI_RSS_IPV4 = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_OTHER;
static const uint64_t DFFI_RSS_IPV6 =
	RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_FRAG_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_OTHER | RTE_ETH_RSS_IPV6_EX;
static const uint64_t DFFI_RSS_UDP = RTE_ETH_RSS_UDP;
static const uint64_t DFFI_RSS_TCP = RTE_ETH_RSS_TCP;
static const uint64_t DFFI_RSS_SCTP = RTE_ETH_RSS_SCTP;

#endif
