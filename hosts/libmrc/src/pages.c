/* Registered memory: the pages of a program that its host's NIC process reads and writes.
 *
 * Pages move into a memfd, each at the offset that is its address, and are mapped over themselves. /proc/self/maps
 * says which pages have moved already; there is no table of ours that munmap() or fork() could make wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "libmrc.h"

#define CHUNK_BYTES (1ul << 30)

/* A line of /proc/self/maps. */
struct mapping {
	uint64_t start, end, offset, inode;
	unsigned major, minor;
	char access[5];
};

/* Return the memfd of a context, sealed: its size can never change, so its pages never fault for the NIC process. */
int make_pages(void)
{
	int pages = memfd_create("mrc-registered", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (pages < 0)
		return -1;
	if (ftruncate(pages, NICD_PAGES_BYTES) || fcntl(pages, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(pages);
		return -1;
	}
	return pages;
}

/* Return the text of /proc/self/maps in memory of its own (not of malloc, whose pages may be moving), or NULL. */
static char *read_maps(size_t *mapped_bytes)
{
	for (size_t size = 1 << 18; size <= 1 << 28; size *= 4) {
		int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
		if (file < 0)
			return NULL;
		char *text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		size_t length = 0;
		ssize_t part = -1;
		while (text != MAP_FAILED && length < size - 1 && (part = read(file, text + length, size - 1 - length)) > 0)
			length += part;
		close(file);
		if (part == 0) {
			*mapped_bytes = size;
			return text;
		}
		if (text != MAP_FAILED)
			munmap(text, size);
	}
	errno = ENOMEM;
	return NULL;
}

/* Read the line that begins at *line, and go on to the next; false at the end. */
static bool next_mapping(const char **line, struct mapping *mapping)
{
	const char *end = *line ? strchr(*line, '\n') : NULL;

	if (!end || sscanf(*line, "%lx-%lx %4s %lx %x:%x %lu", &mapping->start, &mapping->end, mapping->access,
			   &mapping->offset, &mapping->major, &mapping->minor, &mapping->inode) != 7)
		return false;
	*line = end + 1;
	return true;
}

static int protection(const struct mapping *mapping)
{
	return (mapping->access[0] == 'r' ? PROT_READ : 0) | (mapping->access[1] == 'w' ? PROT_WRITE : 0) |
	       (mapping->access[2] == 'x' ? PROT_EXEC : 0);
}

/* Return whether pages are in the memfd. After mremap() they are so at the offset of an earlier address. */
static bool is_of(const struct mapping *mapping, const struct stat *file)
{
	return mapping->inode == file->st_ino && mapping->major == major(file->st_dev) &&
	       mapping->minor == minor(file->st_dev);
}

/* Move the pages start .. end into the memfd. Return an errno. */
static int move_pages(int pages, uint64_t start, uint64_t end, int protections)
{
	for (uint64_t at = start; at < end;) {
		size_t length = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
		/* Whole pages, with what is between the objects of malloc(): no matter for a sanitizer's own pwrite(). */
		ssize_t written = syscall(SYS_pwrite64, pages, at, length, at);
		if (written < 0 && errno != EINTR)
			return errno;
		at += written > 0 ? written : 0;
	}
	void *moved = mmap((void *)start, end - start, protections, MAP_SHARED | MAP_FIXED, pages, start);
	return moved == MAP_FAILED ? errno : 0;
}

struct move {
	int pages, protections, result;
	uint64_t start, end;
};

static void *move_beside(void *argument)
{
	struct move *move = argument;

	move->result = move_pages(move->pages, move->start, move->end, move->protections);
	return NULL;
}

/* Move pages from a thread of its own where they hold our stack: it rests meanwhile, in the kernel. */
static int move_stack(struct move *of_stack)
{
	struct move *move = malloc(sizeof *move);
	pthread_t thread;

	if (!move)
		return ENOMEM;
	*move = *of_stack;
	int result = pthread_create(&thread, NULL, move_beside, move);
	if (!result) {
		pthread_join(thread, NULL);
		result = move->result;
	}
	free(move);
	return result;
}

/* Move the part start .. end of a mapping into the memfd. Return an errno. */
static int share_mapping(int pages, const struct mapping *mapping, bool is_ours, uint64_t start, uint64_t end)
{
	struct move move = {.pages = pages, .protections = protection(mapping), .start = start, .end = end};
	uint64_t stack = (uint64_t)__builtin_frame_address(0);

	if (mapping->access[3] == 's' && !is_ours) {
		explain("libmrc: cannot register 0x%lx: it is shared memory of the program's own (mmap with MAP_SHARED). "
			"Cure: register private memory", start);
		return EOPNOTSUPP;
	}
	if (mapping->access[0] != 'r')
		return EFAULT;
	if (stack >= mapping->start && stack < mapping->end)
		return move_stack(&move);
	return move_pages(pages, start, end, move.protections);
}

/* Let the NIC process see a range of addresses. Return an errno: EFAULT where part of it is not mapped. */
int share_pages(struct context *context, uint64_t address, uint64_t length)
{
	uint64_t page = sysconf(_SC_PAGESIZE), start = address & ~(page - 1), end;
	size_t bytes;

	if (__builtin_add_overflow(address, length, &end) || end > NICD_PAGES_BYTES - page)
		return EFAULT;
	end = (end + page - 1) & ~(page - 1);
	struct stat file;
	char *text = fstat(context->pages, &file) ? NULL : read_maps(&bytes);
	if (!text)
		return errno;
	int result = 0;
	struct mapping mapping;
	for (const char *line = text; !result && start < end && next_mapping(&line, &mapping);) {
		if (mapping.end <= start)
			continue;
		if (mapping.start > start)
			break;
		uint64_t until = mapping.end < end ? mapping.end : end;
		bool is_ours = is_of(&mapping, &file);
		if (!is_ours || mapping.offset != mapping.start)
			result = share_mapping(context->pages, &mapping, is_ours, start, until);
		start = until;
	}
	munmap(text, bytes);
	if (!result && start < end)
		result = EFAULT;
	return result;
}

/* Give a child of fork() its own copies: what it writes must not reach the pages of its parent, nor the other way. */
__attribute__((no_sanitize("address"))) void unshare_in_child(int pages)
{
	const uint64_t page = sysconf(_SC_PAGESIZE);
	struct stat file;
	size_t bytes;
	char *text = fstat(pages, &file) ? NULL : read_maps(&bytes);

	if (!text)
		return;
	struct mapping mapping;
	for (const char *line = text; next_mapping(&line, &mapping);) {
		if (!is_of(&mapping, &file) || mapping.access[3] != 's')
			continue;
		size_t length = mapping.end - mapping.start;
		int protections = protection(&mapping);
		if (mmap((void *)mapping.start, length, protections | PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, pages,
			 mapping.offset) == MAP_FAILED)
			continue;
		for (uint64_t at = mapping.start; at < mapping.end; at += page) /* a page becomes a copy when it is written */
			*(volatile uint8_t *)at = *(volatile uint8_t *)at;
		mprotect((void *)mapping.start, length, protections);
	}
	munmap(text, bytes);
}
