/* DPDK's lookup libraries for Rust: rte_lpm's inline lookup, and the IPv6 functions whose address type changed from
 * uint8_t[16] to struct rte_ipv6_addr in DPDK 24.11. One call a batch. */
#ifndef DFFI_FIB_SHIM_H
#define DFFI_FIB_SHIM_H

#include <stdint.h>

#include <rte_config.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_vect.h>

/* An address is 16 bytes in wire order; keys are an array of addresses. All return 0 or a negative errno. */
int dffi_fib6_add(struct rte_fib6 *fib, const uint8_t *address, uint8_t len, uint64_t next_hop);
int dffi_fib6_delete(struct rte_fib6 *fib, const uint8_t *address, uint8_t len);
int dffi_fib6_lookup_bulk(struct rte_fib6 *fib, const uint8_t *keys, uint64_t *next_hops, int count);
int dffi_lpm6_add(struct rte_lpm6 *lpm, const uint8_t *address, uint8_t len, uint32_t next_hop);
int dffi_lpm6_delete(struct rte_lpm6 *lpm, const uint8_t *address, uint8_t len);
int dffi_lpm6_lookup_bulk(const struct rte_lpm6 *lpm, const uint8_t *keys, int32_t *next_hops, unsigned count);

/* Writes table entries: the next hop in 24 bits, with DFFI_LPM_FOUND if a route matched. */
int dffi_lpm_lookup_bulk(const struct rte_lpm *lpm, const uint32_t *keys, uint32_t *entries, unsigned count);

static const uint32_t DFFI_LPM_FOUND = RTE_LPM_LOOKUP_SUCCESS;

#endif
