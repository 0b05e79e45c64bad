/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies by words between the kernel and the guest's memory, for headers, arguments and answers:
 * these are short, consist of whole words, and are copied for each request.
 *
 * copy_from_user() is made for longer copies.  Where it does not know the length when it is
 * compiled, hardened usercopy looks up what kind of memory the kernel's side is, which costs more
 * than the copy; and it copies by a call.  Here the words are copied in place.  The caller knows
 * that there is room for them.
 */
#ifndef _LINUX_VHOST_SERVE_WORDS_H
#define _LINUX_VHOST_SERVE_WORDS_H

#include <linux/align.h>
#include <linux/fault-inject-usercopy.h>
#include <linux/instrumented.h>
#include <linux/types.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

/* copy_from_user() and copy_to_user() are faster for more. */
#define VSERVE_WORDS_MAX	256U

/**
 * vserve_is_words - are these bytes to be copied as words?
 * @ptr: their address in the owner's memory
 * @len: how many there are
 */
static inline bool vserve_is_words(const void __user *ptr, size_t len)
{
	return len <= VSERVE_WORDS_MAX && IS_ALIGNED((unsigned long)ptr | len, sizeof(long));
}

/* The next @len bytes of a chain, not 0, if they are in one buffer.  @iter: ITER_IOVEC */
static inline void __user *vserve_buffer_of(const struct iov_iter *iter, size_t len)
{
	const struct iovec *iov = iter->__iov;

	if (iov_iter_count(iter) < len || iov->iov_len - iter->iov_offset < len)
		return NULL;
	return iov->iov_base + iter->iov_offset;
}

/**
 * vserve_words_of - the next bytes of a chain, if they can be copied as words
 * @iter: ITER_IOVEC
 * @len: not 0
 *
 * Return: where they are, or NULL if they are not in one buffer.
 */
static inline void __user *vserve_words_of(const struct iov_iter *iter, size_t len)
{
	void __user *at = vserve_buffer_of(iter, len);

	return vserve_is_words(at, len) ? at : NULL;
}

/**
 * vserve_bytes_of - the next bytes of a chain, if they are words and a part of one
 * @iter: ITER_IOVEC
 * @len: not 0
 *
 * Return: where they are, or NULL if they are not in one buffer.
 */
static inline void __user *vserve_bytes_of(const struct iov_iter *iter, size_t len)
{
	void __user *at = vserve_buffer_of(iter, len);

	return vserve_is_words(at, round_down(len, sizeof(long))) ? at : NULL;
}

/**
 * vserve_words_done - advance an iterator past words that vserve_words_of() found
 * @iter: ITER_IOVEC
 * @len: how many there are
 *
 * Like iov_iter_advance(), but the words must lie in the current buffer.
 */
static inline void vserve_words_done(struct iov_iter *iter, size_t len)
{
	iter->count -= len;
	iter->iov_offset += len;
	if (iter->iov_offset < iter->__iov->iov_len)
		return;
	iter->iov_offset = 0;
	iter->__iov++;
	iter->nr_segs--;
}

/**
 * vserve_get_words - copy words from the owner's memory
 * @to: room for @len bytes, aligned
 * @from: vserve_is_words() is true for it and @len
 * @len: not 0
 *
 * Upwards, as masked_user_access_begin() asks for.
 *
 * Return: false if one of them cannot be read; those before it are in @to then.
 */
static __always_inline bool vserve_get_words(void *to, const void __user *from, size_t len)
{
	const unsigned long __user *at = from;
	unsigned long *word = to;

	if (should_fail_usercopy())
		return false;
	if (can_do_masked_user_access())
		at = masked_user_access_begin(at);
	else if (!user_read_access_begin(at, len))
		return false;
	for (; len >= 4 * sizeof(*word); len -= 4 * sizeof(*word), word += 4, at += 4) {
		unsafe_get_user(word[0], at, fault);
		unsafe_get_user(word[1], at + 1, fault);
		unsafe_get_user(word[2], at + 2, fault);
		unsafe_get_user(word[3], at + 3, fault);
	}
	for (; len; len -= sizeof(*word), word++, at++)
		unsafe_get_user(*word, at, fault);
	user_read_access_end();
	return true;
fault:
	user_read_access_end();
	return false;
}

/**
 * vserve_get_bytes - copy words and a part of one from the owner's memory
 * @to: room for @len bytes, aligned
 * @from: from vserve_bytes_of() with @len
 * @len: not 0
 *
 * For names.
 *
 * Return: false if one of them cannot be read; those before it are in @to then.
 */
static inline bool vserve_get_bytes(void *to, const void __user *from, size_t len)
{
	const void __user *at = from;

	if (should_fail_usercopy())
		return false;
	if (can_do_masked_user_access())
		at = masked_user_access_begin(at);
	else if (!user_read_access_begin(at, len))
		return false;
	for (; len >= sizeof(long); len -= sizeof(long), to += sizeof(long), at += sizeof(long))
		unsafe_get_user(*(long *)to, (const long __user *)at, fault);
	for (; len; len--, to++, at++)
		unsafe_get_user(*(u8 *)to, (const u8 __user *)at, fault);
	user_read_access_end();
	return true;
fault:
	user_read_access_end();
	return false;
}

/**
 * vserve_put_bytes - copy bytes of a page to the owner's memory
 * @to: in one buffer
 * @from: in one page of the page cache, which hardened usercopy need not look up
 * @len: how many there are
 *
 * Return: false if one of them cannot be written; some may be written then.
 */
static inline bool vserve_put_bytes(void __user *to, const void *from, size_t len)
{
	if (should_fail_usercopy() || !access_ok(to, len))
		return false;
	instrument_copy_to_user(to, from, len);
	return !raw_copy_to_user(to, from, len);
}

/**
 * vserve_put_words - copy words to the owner's memory
 * @to: vserve_is_words() is true for it and @len
 * @from: aligned
 * @len: not 0
 *
 * Return: false if one of them cannot be written; those before it are written then.
 */
static __always_inline bool vserve_put_words(void __user *to, const void *from, size_t len)
{
	const unsigned long *word = from;
	unsigned long __user *at = to;

	if (should_fail_usercopy())
		return false;
	if (can_do_masked_user_access())
		at = masked_user_access_begin(at);
	else if (!user_write_access_begin(at, len))
		return false;
	for (; len >= 4 * sizeof(*word); len -= 4 * sizeof(*word), word += 4, at += 4) {
		unsafe_put_user(word[0], at, fault);
		unsafe_put_user(word[1], at + 1, fault);
		unsafe_put_user(word[2], at + 2, fault);
		unsafe_put_user(word[3], at + 3, fault);
	}
	for (; len; len -= sizeof(*word), word++, at++)
		unsafe_put_user(*word, at, fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

#endif
