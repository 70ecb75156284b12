/* What a program's library and its host's NIC process (hosts/nicd) say to each other. The one owner of these numbers:
 * hosts/nicd/layout.py reads the #defines below from this file.
 *
 * Two ways lead from the program to the NIC process:
 *
 * 1. A Unix socket of packets (SOCK_SEQPACKET), for everything but posting and polling. A request is a header of four
 *    u32 {magic, operation, number of values, bytes of text} followed by u64 values and the text; a reply the same,
 *    with an errno in place of the operation, and a text that says why. Descriptors come as SCM_RIGHTS.
 * 2. Rings in shared memory. Each index counts slots since the ring was made, is written by one side only, by one
 *    aligned store, and lies in a line of its own. The submission ring belongs to the program's context; each
 *    completion queue has a ring of its own.
 *
 * Memory that the program registers is moved into one sealed memfd, each page at the offset that is its address. So
 * the NIC process maps any range of addresses as one piece, and nothing that the program does later can take it away.
 */
#ifndef NICD_H
#define NICD_H

#include <stdint.h>

#define NICD_MAGIC 0x4d524331      /* "MRC1" */
#define NICD_VERSION 2
#define NICD_MAX_VALUES 256        /* u64 values of a request or a reply */
#define NICD_MAX_TEXT 2048         /* bytes */
#define NICD_PAGES_BYTES 0x800000000000 /* size of the memfd of registered pages: all addresses of a program */

/* Operations: values of the request -> values of the reply [descriptors]. */
#define NICD_OP_HELLO 1            /* version [pages] -> ring bytes, slots, planes [ring, doorbell, async events] */
#define NICD_OP_QUERY_DEVICE 2     /* -> NICD_DEVICE_* */
#define NICD_OP_QUERY_PORT 3       /* port -> state, mtu, gid (two values, big-endian halves) */
#define NICD_OP_ALLOC_PD 4         /* -> pd */
#define NICD_OP_DEALLOC_PD 5       /* pd */
#define NICD_OP_REG_MR 6           /* pd, address, length, iova, access -> key */
#define NICD_OP_DEREG_MR 7         /* key */
#define NICD_OP_CREATE_CHANNEL 8   /* -> channel [events] */
#define NICD_OP_DESTROY_CHANNEL 9  /* channel */
#define NICD_OP_CREATE_CQ 10       /* entries, channel or 0 -> cq, slots [ring] */
#define NICD_OP_DESTROY_CQ 11      /* cq */
#define NICD_OP_CREATE_QP 12       /* pd, send cq, recv cq, 5 capacities, sq_sig_all, transport -> qpn */
#define NICD_OP_MODIFY_QP 13       /* qpn, mask, mrc mask, attributes (NICD_QP_VALUES) -> state */
#define NICD_OP_QUERY_QP 14        /* qpn -> attributes */
#define NICD_OP_DESTROY_QP 15      /* qpn */
#define NICD_OP_STATUS 16          /* without HELLO: -> NICD_STATUS_VALUES for each program */

/* Values of a program in a reply to STATUS: its pid and objects, and packets of all its QPs. */
#define NICD_STATUS_PID 0
#define NICD_STATUS_QPS 1
#define NICD_STATUS_CQS 2
#define NICD_STATUS_REGIONS 3
#define NICD_STATUS_REGISTERED 4   /* bytes */
#define NICD_STATUS_SENT 5         /* packets */
#define NICD_STATUS_RETRANSMITTED 6
#define NICD_STATUS_LOST 7
#define NICD_STATUS_BYTES_SENT 8
#define NICD_STATUS_BYTES_RECEIVED 9
#define NICD_STATUS_EVS_OUT 10     /* EVs of its QPs that carry nothing */
#define NICD_STATUS_VALUES 11

/* Operations of the device's controller (mrc_ctl.h). Bit n of a mask says that value n after it is given: the bits of
 * mrc_ctl.h, without VENDOR_CFG. EVs are two big-endian halves of 128 bits, left-aligned. */
#define NICD_OP_CREATE_EV_EVENT_CQ 32 /* entries, channel or 0 -> cq, slots [ring of EV events] */
#define NICD_OP_CTL_QUERY_DEVICE 33 /* -> NICD_CTL_DEVICE_VALUES, names of the algorithms */
#define NICD_OP_CTL_QUERY_PORT 34  /* port -> is enabled */
#define NICD_OP_CTL_MODIFY_PORT 35 /* port, mask, is enabled */
#define NICD_OP_CTL_QUERY_EV_FMT 36 /* id -> state, mode, widths */
#define NICD_OP_CTL_MODIFY_EV_FMT 37 /* id, mask, state, current state, mode, widths (value 3) */
#define NICD_OP_CTL_QUERY_EV_PROFILE 38 /* id -> state, mode, format, count, min active, event mask, fields */
#define NICD_OP_CTL_MODIFY_EV_PROFILE 39 /* id, mask, state, current state, mode, ..., event mask, fields (value 8) */
#define NICD_OP_CTL_EV_OP 40       /* id, MRC_CTL_EV_OP_*, entries of the whole call, some of these -> their states */
#define NICD_OP_CTL_QUERY_EVS 41   /* id, first -> EVs of the profile, some of these with their states */
#define NICD_OP_CTL_QUERY_CC_PROFILE 42 /* id -> state, has configuration, algorithm, configuration */
#define NICD_OP_CTL_MODIFY_CC_PROFILE 43 /* id, mask, state, current state, algorithm (value 2), configuration (3) */
#define NICD_OP_CTL_EP_ADD 44      /* batch or 0 for a new one, requests -> batch */
#define NICD_OP_CTL_EP_SEND 45     /* batch, MRC_CTL_EP_OP_*, DSCP, timeout in ns [nicd_ep_outcome, when it is over] */

#define NICD_CTL_DEVICE_VALUES 14  /* struct mrc_ctl_device_attr in its order, without the algorithms */
#define NICD_NAME_VALUES 4         /* bytes of a name, zeros behind it; all zero: NULL */
#define NICD_FIELD_VALUES 3        /* width | initial value << 32, minimum | maximum << 32, mask */
#define NICD_CC_VALUES 13          /* struct mrc_ctl_cc_nscc_cfg in its order; floats as their bits */
#define NICD_EV_ENTRY_VALUES 6     /* EV, new EV, port | new port << 8 | flags << 32, state */
#define NICD_EV_VALUES 3           /* EV, port | state << 32 */
#define NICD_EP_VALUES 7           /* id | port << 16 | format << 32, sgid, dgid (as EVs), EV */

/* Values of a device. */
#define NICD_DEVICE_MAX_QP 0
#define NICD_DEVICE_MAX_QP_WR 1
#define NICD_DEVICE_MAX_SGE 2
#define NICD_DEVICE_MAX_CQE 3
#define NICD_DEVICE_PORTS 4
#define NICD_DEVICE_MAX_WIMM 5
#define NICD_DEVICE_MAX_WIMM_DEST 6
#define NICD_DEVICE_MAX_MPR 7
#define NICD_DEVICE_MPR_RESOLUTION 8
#define NICD_DEVICE_MAX_QP_HINT 9
#define NICD_DEVICE_CAP 10
#define NICD_DEVICE_PROTOCOLS 11
#define NICD_DEVICE_GUID 12
#define NICD_DEVICE_MAX_INLINE 13
#define NICD_DEVICE_MAX_CQ 14
#define NICD_DEVICE_MAX_MR 15
#define NICD_DEVICE_MAX_PD 16
#define NICD_DEVICE_VALUES 17

/* Values of a QP's attributes, in requests after {qpn, mask, mrc mask}, in replies alone. */
#define NICD_QP_STATE 0
#define NICD_QP_CUR_STATE 1
#define NICD_QP_PKEY_INDEX 2
#define NICD_QP_PORT 3
#define NICD_QP_ACCESS 4
#define NICD_QP_PATH_MTU 5         /* bytes */
#define NICD_QP_DEST_QPN 6
#define NICD_QP_RQ_PSN 7
#define NICD_QP_SQ_PSN 8
#define NICD_QP_GID_HIGH 9
#define NICD_QP_GID_LOW 10
#define NICD_QP_MAX_WIMM 11
#define NICD_QP_MAX_WIMM_DEST 12
#define NICD_QP_MPR 13
#define NICD_QP_MPR_DEST 14
#define NICD_QP_TIMEOUT 15
#define NICD_QP_LINEAR_CNT 16
#define NICD_QP_EXP_CNT 17
#define NICD_QP_EV_PROFILE 18
#define NICD_QP_CC_PROFILE 19
#define NICD_QP_HINT 20
#define NICD_QP_CAP 21
#define NICD_QP_VENDOR_CFG 22
#define NICD_QP_VALUES 23

/* Submission ring: header, then slots. A record takes one slot, and more for its elements or inline bytes. */
#define NICD_SLOT_BYTES 64
#define NICD_TAIL_AT 0             /* u64: slots written */
#define NICD_HEAD_AT 64            /* u64: slots read */
#define NICD_ASLEEP_AT 128         /* u64: 1 while the reader waits for the doorbell (submission ring only) */
#define NICD_SLOTS_AT 4096
#define NICD_SQ_SLOTS 16384        /* a power of two */
#define NICD_SQ_BYTES (NICD_SLOTS_AT + NICD_SQ_SLOTS * NICD_SLOT_BYTES)
#define NICD_KIND_SEND 1
#define NICD_KIND_RECV 2
#define NICD_KIND_ARM 3            /* `number` is the CQ, wr_id the entries that the program had seen */
#define NICD_MAX_SGE 16
#define NICD_MAX_INLINE 512        /* bytes */

struct nicd_record {
	uint32_t kind;
	uint32_t slots;                /* of the record, this one included */
	uint32_t number;               /* QP number, or CQ */
	uint32_t flags;                /* IBV_SEND_*; ARM: 1 for solicited only */
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;                  /* as a number, not in network order */
	uint32_t opcode;               /* IBV_WR_* */
	uint32_t sge_count;
	uint32_t inline_bytes;
	uint32_t padding;
	uint64_t serial;               /* requests posted to this queue before this one */
};

struct nicd_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

/* An entry of a CQ's ring. */
struct nicd_completion {
	uint64_t wr_id;
	uint64_t retired;              /* requests of the queue that are over, this one included */
	uint32_t status;               /* IBV_WC_* */
	uint32_t opcode;               /* IBV_WC_* */
	uint32_t vendor_error;
	uint32_t bytes;
	uint32_t imm;                  /* as a number */
	uint32_t qpn;
	uint32_t peer_qpn;
	uint32_t flags;                /* IBV_WC_* */
	uint32_t is_recv;
	uint32_t reserved[3];
};

/* An entry of the ring of an EV event CQ. */
struct nicd_ev_event {
	uint64_t profile;
	uint64_t ev[2];
	uint32_t port;
	uint32_t state;                /* MRC_CTL_EV_* */
	uint32_t drop_count;
	uint32_t reserved[7];
};

/* Outcome of a batch of endpoint operations: the responses that came, in order of arrival. */
struct nicd_ep_response {
	uint32_t id;
	uint32_t port;
	uint32_t rtt;                  /* ns */
	uint32_t adj_svc_time;
};

struct nicd_ep_outcome {
	uint64_t count;
	struct nicd_ep_response responses[];
};

/* Event at a channel or at the async socket. */
struct nicd_event {
	uint32_t type;                 /* IBV_EVENT_*; 0 at a channel */
	uint32_t number;               /* CQ, QP or port */
};

_Static_assert(sizeof(struct nicd_record) == NICD_SLOT_BYTES, "a record begins with one slot");
_Static_assert(sizeof(struct nicd_completion) == NICD_SLOT_BYTES, "a completion is one slot");
_Static_assert(sizeof(struct nicd_ev_event) == NICD_SLOT_BYTES, "an EV event is one slot");

#endif
