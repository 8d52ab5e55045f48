/* Puts the routes of l3fwd rule files into grout, through the socket of its API.
 *
 *   grout_routes SOCKET RULES..
 *
 * A rule `R<prefix> P` becomes a route to next hop P + 1 (IPv4) or P + 101 (IPv6), which must exist. Exit 0: all routes are in. */
#include <gr_api_client_impl.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct gr_api_client *client, const char *address, unsigned length, unsigned port)
{
	if (strchr(address, ':') != NULL) {
		struct gr_ip6_route_add_req request = {.vrf_id = GR_VRF_DEFAULT_ID, .exist_ok = true, .origin = GR_NH_ORIGIN_STATIC, .nh_id = port + 101};
		request.dest.prefixlen = length;
		if (inet_pton(AF_INET6, address, &request.dest.ip) != 1)
			return -1;
		return gr_api_client_send_recv(client, GR_IP6_ROUTE_ADD, sizeof request, &request, NULL);
	}
	struct gr_ip4_route_add_req request = {.vrf_id = GR_VRF_DEFAULT_ID, .exist_ok = true, .origin = GR_NH_ORIGIN_STATIC, .nh_id = port + 1};
	request.dest.prefixlen = length;
	if (inet_pton(AF_INET, address, &request.dest.ip) != 1)
		return -1;
	return gr_api_client_send_recv(client, GR_IP4_ROUTE_ADD, sizeof request, &request, NULL);
}

int main(int count, char **arguments)
{
	unsigned long routes = 0;
	struct gr_api_client *client = count > 2 ? gr_api_client_connect(arguments[1]) : NULL;

	if (client == NULL) {
		fprintf(stderr, "grout_routes: wants SOCKET RULES.., and a grout at SOCKET: %s\n", strerror(errno));
		return 1;
	}
	for (int file = 2; file < count; file++) {
		FILE *rules = fopen(arguments[file], "r");
		char line[256], address[64];
		unsigned length, port;

		if (rules == NULL) {
			perror(arguments[file]);
			return 1;
		}
		while (fgets(line, sizeof line, rules) != NULL) {
			if (sscanf(line, "R%63[^/]/%u %u", address, &length, &port) != 3)
				continue;
			if (add(client, address, length, port) < 0) {
				fprintf(stderr, "grout_routes: after %lu routes: %s: %s", routes, strerror(errno), line);
				return 1;
			}
			routes++;
		}
		fclose(rules);
	}
	printf("grout_routes: %lu routes\n", routes);
	gr_api_client_disconnect(client);
	return 0;
}
