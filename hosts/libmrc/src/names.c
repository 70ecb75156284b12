/* Names of statuses, events and states, for programs that load this library in place of libibverbs. */
#include "libmrc.h"

#define NAME(names, number) \
	((unsigned)(number) < sizeof names / sizeof *names && names[number] ? names[number] : "unknown")

EXPORT const char *ibv_wc_status_str(uint32_t status)
{
	static const char *const names[] = {
		"success", "length refused here", "operation refused by the QP", NULL, "memory refused here",
		"flushed: the QP failed before", NULL, NULL, NULL, "request refused by the peer", "memory refused by the peer",
		"failed at the peer", "retries used up", [19] = "device failed", [21] = "failed"};

	return NAME(names, status);
}

EXPORT const char *ibv_event_type_str(uint32_t event)
{
	static const char *const names[] = {
		[IBV_EVENT_CQ_ERR] = "CQ overrun", [IBV_EVENT_QP_FATAL] = "QP failed",
		[IBV_EVENT_DEVICE_FATAL] = "device failed", [IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error"};

	return NAME(names, event);
}

EXPORT const char *ibv_port_state_str(uint32_t state)
{
	static const char *const names[] = {[IBV_PORT_DOWN] = "down", [IBV_PORT_ACTIVE] = "active"};

	return NAME(names, state);
}

EXPORT const char *ibv_node_type_str(uint32_t type)
{
	return type == IBV_NODE_CA ? "channel adapter" : "unknown";
}
