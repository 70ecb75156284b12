/* Connection of a program to its host's NIC process: the device, its contexts, and requests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libmrc.h"

#define DEVICE_PATH "/sys/class/infiniband/mrc0"

/* A device is the first part of a larger zeroed one: libraries of other vendors look behind it for their own marks. */
struct device {
	struct ibv_device ibv;
	uint8_t of_other_vendors[4096];
};

static struct device the_device;
static struct context *contexts;
static pthread_mutex_t contexts_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t start_mutex = PTHREAD_MUTEX_INITIALIZER;
static int pages_of_program = -1; /* memfd of registered pages, for all contexts: their regions may share pages */
static int copied[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Print a line that names a cause, where errno alone would not. */
void explain(const char *format, ...)
{
	char line[NICD_MAX_TEXT + 256];
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	if (length < 0)
		return;
	if ((size_t)length > sizeof line - 2)
		length = sizeof line - 2;
	line[length] = '\n';
	if (write(STDERR_FILENO, line, length + 1) < 0)
		return; /* a program without standard error has its errno */
}

/* Before fork(): no other thread opens or closes a device, and a pipe tells when the child has its copies. */
static void before_fork(void)
{
	pthread_mutex_lock(&contexts_mutex);
	if (pages_of_program < 0 || pipe2(copied, O_CLOEXEC))
		copied[0] = copied[1] = -1;
}

/* The parent waits: what it writes to its pages would reach those that the child has not copied yet. */
static void in_parent(void)
{
	char byte;

	pthread_mutex_unlock(&contexts_mutex);
	if (copied[0] < 0)
		return;
	close(copied[1]);
	while (read(copied[0], &byte, 1) < 0 && errno == EINTR)
		;
	close(copied[0]);
}

/* A child of fork() has no part in its parent's device: it could only disturb what the parent sends. Another thread of
 * the parent may have held any mutex.
 */
static void in_child(void)
{
	pthread_mutex_init(&contexts_mutex, NULL);
	for (struct context *context = contexts; context; context = context->next) {
		context->is_dead = true;
		pthread_mutex_init(&context->call_mutex, NULL);
		pthread_mutex_init(&context->ring_mutex, NULL);
		pthread_mutex_init(&context->objects_mutex, NULL);
		for (struct completion_queue *cq = context->cqs; cq; cq = cq->next)
			pthread_mutex_init(&cq->poll_mutex, NULL);
		close(context->socket);
		close(context->doorbell);
		close(context->verbs.context.async_fd);
		context->socket = context->doorbell = context->verbs.context.async_fd = -1;
	}
	if (pages_of_program >= 0) {
		unshare_in_child(pages_of_program);
		close(pages_of_program);
		pages_of_program = -1;
	}
	if (copied[0] >= 0) {
		close(copied[0]);
		close(copied[1]);
	}
}

static void set_up(void)
{
	struct ibv_device *device = &the_device.ibv;

	device->node_type = IBV_NODE_CA;
	device->transport_type = IBV_TRANSPORT_IB;
	strcpy(device->name, "mrc0");
	strcpy(device->dev_name, "uverbs0");
	strcpy(device->dev_path, "/sys/class/infiniband_verbs/uverbs0");
	strcpy(device->ibdev_path, DEVICE_PATH);
	pthread_atfork(before_fork, in_parent, in_child);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof address.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (file < 0 || !connect(file, (struct sockaddr *)&address, sizeof address))
		return file;
	int reason = errno;
	close(file);
	errno = reason;
	return -1;
}

/* Start the NIC process by the command that `mrc exec` left for that, and wait until it answers. */
static void start_nic(void)
{
	const char *command = getenv(START_VARIABLE);
	char *words[] = {"sh", "-c", (char *)command, NULL};
	pid_t pid;
	int status;

	if (!command || !*command || posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ))
		return;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
}

/* Return a connection to the NIC process of the host; -1 and errno, with a line that says why. */
static int connect_to_nic(void)
{
	const char *path = getenv(SOCKET_VARIABLE);

	if (!path || !*path) {
		errno = ENODEV;
		return -1;
	}
	pthread_mutex_lock(&start_mutex);
	int file = connect_to(path);
	if (file < 0 && (errno == ENOENT || errno == ECONNREFUSED)) {
		start_nic();
		file = connect_to(path);
	}
	pthread_mutex_unlock(&start_mutex);
	if (file < 0) {
		int reason = errno;
		explain("libmrc: cannot reach the NIC process of this host (%s=%s): %s", SOCKET_VARIABLE, path, strerror(reason));
		errno = reason;
	}
	return file;
}

/* Return the list of devices, which ends with NULL; empty where there is no NIC process. */
struct ibv_device **device_list(int *count)
{
	pthread_once(&once, set_up);
	struct ibv_device **list = calloc(2, sizeof *list);
	int file = list ? connect_to_nic() : -1;

	if (file >= 0) {
		list[0] = &the_device.ibv;
		close(file);
	}
	if (count)
		*count = file >= 0;
	return list;
}

static ssize_t send_call(int socket, const uint32_t head[4], const struct call *call)
{
	union {
		char bytes[CMSG_SPACE(sizeof call->fds)];
		struct cmsghdr align;
	} control = {0};
	struct iovec parts[] = {{(void *)head, 16}, {(void *)call->values, call->count * 8ul}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	if (call->fd_count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(call->fd_count * sizeof(int));
		struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(call->fd_count * sizeof(int));
		memcpy(CMSG_DATA(rights), call->fds, call->fd_count * sizeof(int));
	}
	ssize_t sent;
	do
		sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent;
}

static void take_fds(struct msghdr *message, struct call *call)
{
	call->fd_count = 0;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		call->fd_count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(call->fds, CMSG_DATA(part), call->fd_count * sizeof(int));
	}
}

/* Receive a reply; return its errno, EIO where the NIC process has ended, EMFILE where this process cannot have the
 * descriptors of an object that is made.
 */
static int receive_call(int socket, struct call *call)
{
	union {
		char bytes[CMSG_SPACE(sizeof call->fds)];
		struct cmsghdr align;
	} control;
	uint32_t head[4];
	char rest[NICD_MAX_VALUES * 8 + NICD_MAX_TEXT + 1];
	struct iovec parts[] = {{head, sizeof head}, {rest, sizeof rest - 1}};
	struct msghdr message = {
		.msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	ssize_t length;
	bool was_reset = false;

	/* A connection that was turned away before it asked is reset, and has a reply behind that. */
	while ((length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 &&
	       (errno == EINTR || (errno == ECONNRESET && !was_reset)))
		was_reset |= errno == ECONNRESET;
	if (length < (ssize_t)sizeof head || head[0] != NICD_MAGIC || head[2] > NICD_MAX_VALUES ||
	    head[3] > NICD_MAX_TEXT || (size_t)length != sizeof head + head[2] * 8ul + head[3])
		return EIO;
	take_fds(&message, call);
	call->count = head[2];
	memcpy(call->values, rest, head[2] * 8ul);
	if (message.msg_flags & MSG_CTRUNC) { /* what was made has its number in the values still */
		while (call->fd_count)
			close(call->fds[--call->fd_count]);
		explain("libmrc: this process has no descriptor left for what it asked for. Cure: a higher `ulimit -n`");
		return EMFILE;
	}
	if (head[1] && head[3])
		explain("libmrc: %.*s", (int)head[3], rest + head[2] * 8ul);
	return head[1];
}

/* Ask the NIC process, wait for its reply, and return its errno, 0 for success. Without a reply `call` has no values. */
int nic_call(struct context *context, uint32_t operation, struct call *call)
{
	const uint32_t head[4] = {NICD_MAGIC, operation, call->count, 0};
	int result = EIO;

	pthread_mutex_lock(&context->call_mutex);
	if (!context->is_dead) {
		ssize_t sent = send_call(context->socket, head, call);
		call->count = 0;
		if (sent >= 0 || errno == EPIPE)
			result = receive_call(context->socket, call); /* which may have come before we asked */
		if (result == EIO)
			nic_check_alive(context);
	}
	pthread_mutex_unlock(&context->call_mutex);
	return result;
}

/* Ask for what is answered by an errno alone. */
int nic_request(struct context *context, uint32_t operation, uint32_t count, const uint64_t *values)
{
	struct call call = {.count = count};

	memcpy(call.values, values, count * 8ul);
	return nic_call(context, operation, &call);
}

/* Note that the NIC process has ended, or has ended this program. */
void nic_has_ended(struct context *context)
{
	if (context->is_dead)
		return;
	context->is_dead = true;
	explain("libmrc: the NIC process of this host has ended (`mrc down`, or a failure: see its log)");
}

/* Note the end of the NIC process, which closes its end of the socket. */
void nic_check_alive(struct context *context)
{
	struct pollfd file = {.fd = context->socket, .events = POLLRDHUP};

	if (context->is_dead || poll(&file, 1, 0) < 1)
		return;
	if (file.revents & (POLLRDHUP | POLLHUP | POLLERR))
		nic_has_ended(context);
}

static struct ibv_context_ops operations(void)
{
	return (struct ibv_context_ops){
		.poll_cq = poll_cq, .req_notify_cq = arm_cq, .post_send = post_send, .post_recv = post_recv};
}

/* Shims look whether this function is there, and put their own in its place. */
static struct ibv_qp *refuse_qp_ex(struct ibv_context *context, void *init)
{
	(void)context;
	(void)init;
	errno = EOPNOTSUPP;
	return NULL;
}

/* Say hello: give the memfd of pages, and take ring, doorbell and the socket of async events. Return an errno. */
static int greet(struct context *context)
{
	struct call call = {.count = 1, .fd_count = 1, .values = {NICD_VERSION}, .fds = {pages_of_program}};
	int result = nic_call(context, NICD_OP_HELLO, &call);

	if (result)
		return result;
	if (call.fd_count != 3 || call.count < 3 || call.values[0] != NICD_SQ_BYTES)
		return EPROTO;
	context->doorbell = call.fds[1];
	context->verbs.context.async_fd = call.fds[2];
	context->planes = call.values[2];
	context->ring = mmap(NULL, NICD_SQ_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, call.fds[0], 0);
	result = context->ring == MAP_FAILED ? errno : 0;
	close(call.fds[0]);
	return result;
}

/* Return the memfd of registered pages, made at first use; -1 and errno. */
static int shared_pages(void)
{
	pthread_mutex_lock(&contexts_mutex);
	if (pages_of_program < 0)
		pages_of_program = make_pages();
	pthread_mutex_unlock(&contexts_mutex);
	return pages_of_program;
}

/* Open a context of the device; NULL and errno when it cannot be. */
struct context *open_context(struct ibv_device *device)
{
	pthread_once(&once, set_up);
	struct context *context = calloc(1, sizeof *context);
	if (!context)
		return NULL;
	context->socket = context->doorbell = context->verbs.context.async_fd = -1;
	context->verbs.context.device = device;
	context->verbs.create_qp_ex = refuse_qp_ex;
	context->verbs.sz = sizeof context->verbs;
	context->verbs.context.abi_compat = EXTENDED_CONTEXT;
	context->verbs.context.cmd_fd = -1;
	context->verbs.context.num_comp_vectors = 1;
	context->verbs.context.ops = operations();
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	pthread_mutex_init(&context->call_mutex, NULL);
	pthread_mutex_init(&context->ring_mutex, NULL);
	pthread_mutex_init(&context->objects_mutex, NULL);
	context->qps = calloc(1 << 16, sizeof *context->qps);
	int result = ENOMEM;
	if (context->qps && (context->socket = connect_to_nic()) >= 0 && (context->pages = shared_pages()) >= 0)
		result = greet(context);
	else if (context->qps)
		result = errno;
	if (result) {
		close_context(context);
		errno = result;
		return NULL;
	}
	pthread_mutex_lock(&contexts_mutex);
	context->next = contexts;
	contexts = context;
	pthread_mutex_unlock(&contexts_mutex);
	return context;
}

/* Close a context; the NIC process ends what is left of it. */
int close_context(struct context *context)
{
	pthread_mutex_lock(&contexts_mutex);
	for (struct context **place = &contexts; *place; place = &(*place)->next)
		if (*place == context) {
			*place = context->next;
			break;
		}
	pthread_mutex_unlock(&contexts_mutex);
	const int files[] = {context->socket, context->doorbell, context->verbs.context.async_fd};
	for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
		if (files[i] >= 0)
			close(files[i]);
	if (context->ring && context->ring != MAP_FAILED)
		munmap(context->ring, NICD_SQ_BYTES);
	free(context->qps);
	free(context);
	return 0;
}

/* Answer realpath() for the device's entry in /sys, which only the kernel could make; programs tell NICs apart by it. */
EXPORT char *realpath(const char *path, char *resolved)
{
	static char *(*of_libc)(const char *, char *);
	static const char answer[] = "/sys/devices/virtual/mrc/mrc0";

	if (path && getenv(SOCKET_VARIABLE) && !strncmp(path, DEVICE_PATH "/", sizeof DEVICE_PATH))
		return resolved ? strcpy(resolved, answer) : strdup(answer);
	if (!of_libc)
		of_libc = (char *(*)(const char *, char *))dlvsym(RTLD_NEXT, "realpath", "GLIBC_2.3");
	if (!of_libc)
		of_libc = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
	return of_libc(path, resolved);
}
