/* The objects behind the opaque types of mrc.h. Each has the object of libibverbs that it is made of. */
#ifndef MRC_OBJECTS_H
#define MRC_OBJECTS_H

#include <errno.h>

#define LIBMRC_BUILD
#include "mrc.h"

struct mrc_context {
	struct ibv_context *ibv;
	uint32_t version; /* of mrc.h, as the program says; decides the length of an EV event */
	uint32_t users;   /* queues and hints */
};

struct mrc_comp_channel {
	struct ibv_comp_channel *ibv;
};

struct mrc_cq {
	struct ibv_cq *ibv;
	struct mrc_context *context;
};

struct mrc_qp_hint {
	struct mrc_context *context;
	struct mrc_qp_hint_attr attr;
	uint32_t users;
};

/* Programs that know libibverbs' QP, as a shim does, read it by the first word. */
struct mrc_qp {
	struct ibv_qp *ibv;
	struct mrc_context *context;
	struct mrc_qp_init_attr init;
	struct mrc_qp_hint *hint;
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

/* Return an errno as functions do that mirror one of libibverbs which returns it. */
static inline int as_errno(int result)
{
	if (result)
		errno = result;
	return result;
}

/* Return an errno as all other functions do. */
static inline int as_minus_one(int result)
{
	return as_errno(result) ? -1 : 0;
}

/* mrc.c */
struct mrc_cq *face_of_cq(struct mrc_context *context, struct ibv_cq *ibv);

#endif
