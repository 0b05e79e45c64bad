/* SPDX-License-Identifier: GPL-2.0 */
/* A machine's only program: a window with a known number of instructions. */

	.code32
	.text
	.align 4
	/* For QEMU to load it: a Multiboot header. */
	.long 0x1badb002, 0, -0x1badb002

	.globl _start
_start:
	mov $0x200000, %esp
	mov $0x80000, %edi
	cld
	.byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'b'
	jmp window

window:
	mov $3, %ebx			/* 1 */
1:	call round			/* 3 */
	dec %ebx			/* 3 */
	jnz 1b				/* 3 */
	jmp 2f				/* 1 */

	.globl round
round:
	mov $100, %ecx			/* 3 */
	rep stosb			/* 3, each of 100 repetitions */
	cmp $2, %ebx			/* 3 */
	je found			/* 3 */
	ret				/* 2 */

	.globl found
found:
	mov $10, %ecx			/* 1 */
3:	loop 3b				/* 10 */
	ret				/* 1 */

2:	.byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'e'
	/* Ends QEMU: isa-debug-exit. */
	mov $0, %al
	out %al, $0xf4
	hlt
