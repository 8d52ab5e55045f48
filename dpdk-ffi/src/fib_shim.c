/* The definitions of fib_shim.h's functions. */
#include "fib_shim.h"

#include <rte_version.h>

#if RTE_VERSION >= RTE_VERSION_NUM(24, 11, 0, 0)
#define ADDRESS(bytes) ((const struct rte_ipv6_addr *)(bytes))
#define KEYS(bytes) ((struct rte_ipv6_addr *)(uintptr_t)(bytes))
#else
#define ADDRESS(bytes) (bytes)
#define KEYS(bytes) ((uint8_t(*)[16])(uintptr_t)(bytes))
#endif

int dffi_fib6_add(struct rte_fib6 *fib, const uint8_t *address, uint8_t len, uint64_t next_hop)
{
	return rte_fib6_add(fib, ADDRESS(address), len, next_hop);
}

int dffi_fib6_delete(struct rte_fib6 *fib, const uint8_t *address, uint8_t len)
{
	return rte_fib6_delete(fib, ADDRESS(address), len);
}

int dffi_fib6_lookup_bulk(struct rte_fib6 *fib, const uint8_t *keys, uint64_t *next_hops, int count)
{
	return rte_fib6_lookup_bulk(fib, KEYS(keys), next_hops, count);
}

int dffi_lpm6_add(struct rte_lpm6 *lpm, const uint8_t *address, uint8_t len, uint32_t next_hop)
{
	return rte_lpm6_add(lpm, ADDRESS(address), len, next_hop);
}

int dffi_lpm6_delete(struct rte_lpm6 *lpm, const uint8_t *address, uint8_t len)
{
	return rte_lpm6_delete(lpm, ADDRESS(address), len);
}

int dffi_lpm6_lookup_bulk(const struct rte_lpm6 *lpm, const uint8_t *keys, int32_t *next_hops, unsigned count)
{
	return rte_lpm6_lookup_bulk_func(lpm, KEYS(keys), next_hops, count);
}

/* rte_lpm keeps an array of count on its stack and expects a constant count, so look up 256 keys at a time. */
int dffi_lpm_lookup_bulk(const struct rte_lpm *lpm, const uint32_t *keys, uint32_t *entries, unsigned count)
{
	const unsigned part = 256;
	int failed = 0;

	for (; count >= part; count -= part, keys += part, entries += part)
		failed |= rte_lpm_lookup_bulk_func(lpm, keys, entries, part);
	if (count > 0)
		failed |= rte_lpm_lookup_bulk_func(lpm, keys, entries, count);
	return failed;
}
