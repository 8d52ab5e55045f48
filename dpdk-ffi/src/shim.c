/* The definitions of shim.h's functions. */
#define _GNU_SOURCE /* CPU_ISSET, fopencookie */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_event_callback_register, which later releases keep as it is */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rust's mbuf::Line0 has this layout, byte for byte: a DPDK that moves a field fails here, at compile time. */
#define AT(field, offset) _Static_assert(offsetof(struct rte_mbuf, field) == (offset), "rte_mbuf." #field " moved")
AT(buf_addr, 0);
AT(data_off, 16);
AT(refcnt, 18);
AT(nb_segs, 20);
AT(port, 22);
AT(ol_flags, 24);
AT(packet_type, 32);
AT(pkt_len, 36);
AT(data_len, 40);
AT(vlan_tci, 42);
AT(hash.rss, 44);
AT(vlan_tci_outer, 52);
AT(buf_len, 54);
AT(pool, 56);
_Static_assert(sizeof(struct rte_mbuf) == 128, "rte_mbuf is not two cache lines");
_Static_assert(RTE_CACHE_LINE_SIZE == 64, "the cache line is not 64 bytes");

void dffi_compiled_version(char *text, size_t room)
{
	const int candidate = RTE_VER_RELEASE < 16 ? RTE_VER_RELEASE : RTE_VER_RELEASE - 16;

	if (sizeof(RTE_VER_SUFFIX) == 1)
		snprintf(text, room, "%s %d.%02d.%d", RTE_VER_PREFIX, RTE_VER_YEAR, RTE_VER_MONTH, RTE_VER_MINOR);
	else
		snprintf(text, room, "%s %d.%02d.%d%s%d", RTE_VER_PREFIX, RTE_VER_YEAR, RTE_VER_MONTH, RTE_VER_MINOR,
			 RTE_VER_SUFFIX, candidate);
}

int dffi_errno(void) { return rte_errno; }
unsigned dffi_lcore_id(void) { return rte_lcore_id(); }

unsigned dffi_lcore_cpus(unsigned lcore, uint16_t *cpus, unsigned room)
{
	rte_cpuset_t set = rte_lcore_cpuset(lcore);
	unsigned count = 0;

	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		if (count < room)
			cpus[count] = (uint16_t)cpu;
		count++;
	}
	return count;
}

uint16_t dffi_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t dffi_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

struct rte_mbuf *dffi_mbuf_new(struct rte_mempool *pool) { return rte_pktmbuf_alloc(pool); }

int dffi_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void dffi_mbuf_free(struct rte_mbuf *mbuf) { rte_pktmbuf_free(mbuf); }
struct rte_mbuf *dffi_mbuf_next(const struct rte_mbuf *mbuf) { return mbuf->next; }
int dffi_mbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail) { return rte_pktmbuf_chain(head, tail); }

int dffi_mbuf_linearize(struct rte_mbuf *mbuf) { return rte_pktmbuf_linearize(mbuf); }

uint8_t *dffi_mbuf_append(struct rte_mbuf *mbuf, uint16_t count)
{
	return (uint8_t *)rte_pktmbuf_append(mbuf, count);
}

uint16_t dffi_mbuf_tailroom(struct rte_mbuf *mbuf) { return rte_pktmbuf_tailroom(rte_pktmbuf_lastseg(mbuf)); }

const char *dffi_mempool_operations(const struct rte_mempool *pool)
{
	return rte_mempool_get_ops(pool->ops_index)->name;
}

/* The shortest Ethernet frame, without its checksum. Not every driver pads. */
#define SHORTEST (RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN)

struct rte_mbuf *dffi_mbuf_piece(const struct rte_mbuf *mbuf, uint32_t from, uint32_t count, const uint8_t *header,
				 uint16_t header_count)
{
	struct rte_mbuf *piece;
	char *start;

	if (from > mbuf->pkt_len || count > mbuf->pkt_len - from)
		return NULL;
	piece = rte_pktmbuf_copy(mbuf, mbuf->pool, from, count);
	if (piece == NULL)
		return NULL;
	start = rte_pktmbuf_prepend(piece, header_count);
	if (start == NULL) {
		rte_pktmbuf_free(piece);
		return NULL;
	}
	memcpy(start, header, header_count);
	if (piece->pkt_len < SHORTEST) {
		const uint16_t missing = SHORTEST - piece->pkt_len;
		char *end = rte_pktmbuf_append(piece, missing);

		if (end != NULL)
			memset(end, 0, missing);
	}
	return piece;
}

unsigned dffi_ring_enqueue_burst(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count)
{
	return rte_ring_enqueue_burst(ring, (void *const *)mbufs, count, NULL);
}

unsigned dffi_ring_dequeue_burst(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count)
{
	return rte_ring_dequeue_burst(ring, (void **)mbufs, count, NULL);
}

unsigned dffi_ring_count(const struct rte_ring *ring) { return rte_ring_count(ring); }
unsigned dffi_ring_capacity(const struct rte_ring *ring) { return rte_ring_get_capacity(ring); }

int dffi_port_configure(uint16_t port, const struct dffi_port_config *config)
{
	struct rte_eth_conf conf;

	/* No interrupt for the link: where one is asked for, ethdev answers from a cache that only the interrupt refreshes, and not
	 * every device that claims it has one that arrives. Without it, the driver reads the link when it is asked. */
	memset(&conf, 0, sizeof conf);
	conf.rxmode.mtu = config->mtu;
	conf.rxmode.offloads = config->rx_offloads;
	conf.txmode.offloads = config->tx_offloads;
	if (config->rss != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = config->rss;
	}
	return rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
}

int dffi_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned socket, uint64_t offloads,
			struct rte_mempool *pool)
{
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed != 0)
		return failed;
	info.default_rxconf.offloads = offloads;
	return rte_eth_rx_queue_setup(port, queue, descriptors, socket, &info.default_rxconf, pool);
}

int dffi_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned socket, uint64_t offloads)
{
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed != 0)
		return failed;
	info.default_txconf.offloads = offloads;
	return rte_eth_tx_queue_setup(port, queue, descriptors, socket, &info.default_txconf);
}

static uint64_t link_events;

static int on_link_event(uint16_t port, enum rte_eth_event_type event, void *user, void *result)
{
	(void)port, (void)event, (void)user, (void)result;
	__atomic_fetch_add(&link_events, 1, __ATOMIC_RELEASE);
	return 0;
}

/* Set by EAL's interrupt thread, cleared by the control thread. */
static uint8_t port_events[RTE_MAX_ETHPORTS];

void dffi_report_event(uint16_t port, uint8_t event)
{
	if (port < RTE_MAX_ETHPORTS)
		__atomic_fetch_or(&port_events[port], event, __ATOMIC_RELEASE);
}

uint8_t dffi_take_events(uint16_t port)
{
	if (port >= RTE_MAX_ETHPORTS || __atomic_load_n(&port_events[port], __ATOMIC_RELAXED) == 0)
		return 0;
	return __atomic_exchange_n(&port_events[port], 0, __ATOMIC_ACQUIRE);
}

static int on_port_event(uint16_t port, enum rte_eth_event_type event, void *user, void *result)
{
	(void)user, (void)result;
	dffi_report_event(port, event == RTE_ETH_EVENT_INTR_RMV ? DFFI_PORT_REMOVED : DFFI_PORT_RESET);
	return 0;
}

/* The kernel requests a device that is bound to vfio-pci. The device's driver gets no event for this. */
static void on_device_event(const char *device, enum rte_dev_event_type event, void *user)
{
	uint16_t port;

	(void)user;
	if (event == RTE_DEV_EVENT_REMOVE && device != NULL && rte_eth_dev_get_port_by_name(device, &port) == 0)
		dffi_report_event(port, DFFI_PORT_REMOVED);
}

static dffi_log_take log_take;

static ssize_t log_write(void *cookie, const char *text, size_t bytes)
{
	const int level = rte_log_cur_msg_loglevel();

	(void)cookie;
	log_take(level < 0 ? RTE_LOG_INFO : (uint32_t)level, text, bytes);
	return (ssize_t)bytes;
}

int dffi_log_to(dffi_log_take take, void (*at_end)(void))
{
	const cookie_io_functions_t functions = {.write = log_write};
	FILE *stream;

	if (atexit(at_end) != 0)
		return -ENOMEM;
	log_take = take;
	/* rte_log flushes the stream after each message. It is never closed: a thread may be in it at any time. */
	stream = fopencookie(NULL, "w", functions);
	return stream == NULL ? -errno : rte_openlog_stream(stream);
}

int dffi_watch_ports(void)
{
	int failed = rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_INTR_LSC, on_link_event, NULL);

	if (failed == 0)
		failed = rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_INTR_RESET, on_port_event, NULL);
	if (failed == 0)
		failed = rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_INTR_RMV, on_port_event, NULL);
	if (failed == 0)
		failed = rte_dev_event_callback_register(NULL, on_device_event, NULL);
	return failed;
}

/* Later releases of DPDK take the length of the name as well. The function's type distinguishes them; a call by the other type must compile
 * too, so both go through a pointer. */
int dffi_port_name(uint16_t port, char *name)
{
	typedef int (*without_size)(uint16_t, char *);
	typedef int (*with_size)(uint16_t, char *, size_t);
	void (*any)(void) = (void (*)(void))rte_eth_dev_get_name_by_port;

	return _Generic(&rte_eth_dev_get_name_by_port,
			without_size: ((without_size)any)(port, name),
			with_size: ((with_size)any)(port, name, RTE_ETH_NAME_MAX_LEN));
}

int dffi_device_of(uint16_t port, struct dffi_device *out)
{
	struct rte_eth_dev_info info;
	const struct rte_devargs *arguments;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed != 0)
		return failed;
	if (info.device == NULL)
		return -ENODEV;
	arguments = rte_dev_devargs(info.device);
	out->bus = rte_bus_name(rte_dev_bus(info.device));
	out->name = rte_dev_name(info.device);
	out->arguments = arguments != NULL && arguments->args != NULL ? arguments->args : "";
	return 0;
}

/* Bytes of "bus:name,arguments" and its NUL in EAL's message to other processes (EAL_DEV_MP_DEV_ARGS_MAX_LEN, in no public header; the same from
 * 22.11 to 26.07). Older releases truncate longer text there; 26.07, and 24.11 after 24.11.6, refuse it. */
#define MESSAGE_BYTES 128

int dffi_device_add(const char *bus, const char *name, const char *arguments)
{
	struct rte_devargs *device;
	int failed;

	if (snprintf(NULL, 0, "%s:%s,%s", bus, name, arguments) < MESSAGE_BYTES)
		return rte_eal_hotplug_add(bus, name, arguments);
	/* As at EAL's start. A PCI device has arguments only if there is an allowlist (-a), and the scan ignores devices outside that list. */
	device = calloc(1, sizeof *device);
	if (device == NULL)
		return -ENOMEM;
	failed = rte_devargs_parsef(device, "%s:%s,%s", bus, name, arguments);
	if (failed == 0)
		failed = rte_devargs_insert(&device);
	if (failed != 0) {
		rte_devargs_reset(device);
		free(device);
		return failed;
	}
	failed = rte_bus_scan();
	return failed != 0 ? failed : rte_bus_probe();
}

uint64_t dffi_link_events(void) { return __atomic_load_n(&link_events, __ATOMIC_ACQUIRE); }

int dffi_link_get(uint16_t port, struct dffi_link *out)
{
	struct rte_eth_link link;
	int failed;

	memset(&link, 0, sizeof link);
	failed = rte_eth_link_get_nowait(port, &link);
	if (failed != 0)
		return failed;
	out->speed_mbps = link.link_speed;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	out->full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return 0;
}

#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
int dffi_tel_start_u64_array(struct rte_tel_data *data) { return rte_tel_data_start_array(data, RTE_TEL_UINT_VAL); }
int dffi_tel_array_u64(struct rte_tel_data *data, uint64_t value) { return rte_tel_data_add_array_uint(data, value); }
int dffi_tel_dict_u64(struct rte_tel_data *data, const char *name, uint64_t value)
{
	return rte_tel_data_add_dict_uint(data, name, value);
}
#else
int dffi_tel_start_u64_array(struct rte_tel_data *data) { return rte_tel_data_start_array(data, RTE_TEL_U64_VAL); }
int dffi_tel_array_u64(struct rte_tel_data *data, uint64_t value) { return rte_tel_data_add_array_u64(data, value); }
int dffi_tel_dict_u64(struct rte_tel_data *data, const char *name, uint64_t value)
{
	return rte_tel_data_add_dict_u64(data, name, value);
}
#endif
